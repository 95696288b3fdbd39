"""`make`, with its types.

It is written in `registry`, which stands below the engine and cannot name a pool's
class, not even for type checkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["make"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, overload

    from envkit.async_environment import AsyncEnvironment
    from envkit.parallel.parallel_py_environment import ParallelPyEnvironment
    from envkit.py_environment import PyEnvironment
    from envkit.registry import Constructor
    from envkit.types import Seed

    EnvT = TypeVar("EnvT", bound=PyEnvironment | AsyncEnvironment)

    # A class or a function says what it makes. A name does not, but everything with a
    # name has this interface.
    @overload
    def make(
        target: Callable[..., EnvT],
        /,
        *,
        num_envs: None = None,
        seed: Seed = ...,
        **kwargs: Any,
    ) -> EnvT: ...
    @overload
    def make(
        target: object, /, *, num_envs: None = None, seed: Seed = ..., **kwargs: Any
    ) -> PyEnvironment: ...

    # Some libraries, such as EnvPool, make the rows of a batch themselves.
    @overload
    def make(
        target: str | Constructor, /, *, num_envs: int, seed: Seed = ..., **kwargs: Any
    ) -> ParallelPyEnvironment | Any: ...
    @overload
    def make(
        target: Callable[..., Any],
        /,
        *,
        num_envs: int,
        seed: Seed = ...,
        **kwargs: Any,
    ) -> ParallelPyEnvironment: ...
    def make(target: Any, /, *, num_envs: int | None = None, **kwargs: Any) -> Any:
        """Makes an environment, or a pool of `num_envs` in worker processes."""

else:
    from envkit.registry import make
