"""`chosen_rows`: some rows of a batch, as something to ask for attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envkit.adapters.gymnasium_vector.row_attributes import envs_of, set_in_workers
from envkit.wording import listed

__all__ = ["chosen_rows"]


def chosen_rows(env: Any, rows: Sequence[int]) -> Any:
    """Returns what `row_attributes` takes for a batch of these rows alone.

    Raises:
        ValueError: These rows are not environments of their own.

    Example:
        >>> from envkit import BatchedPyEnvironment
        >>> from envkit.adapters.gymnasium_vector.row_attributes import get_rows
        >>> from envkit.testing import CountingEnv
        >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv(), CountingEnv()])
        >>> get_rows(chosen_rows(env, [2, 0]), "batched")
        (False, False)
    """
    if list(rows) == list(range(env.batch_size)):
        return env
    # Not if it is only forwarded: a wrapper may be what the attribute is set on.
    if all(callable(getattr(type(env), name, None)) for name in ("call", "access")):
        envs = envs_of(env)
        if envs is None or len(envs) == env.batch_size:
            return _InWorkers(env, rows)
    else:
        envs = envs_of(env)
        if envs is not None and len(envs) == env.batch_size:
            return _InThisProcess([envs[row] for row in rows])
    raise ValueError(
        f"{type(env).__name__} has several rows in one object, which cannot be asked "
        f"about rows {listed(rows)} alone. Leave the indices out."
    )


class _InThisProcess:
    """Environments that can be asked at once."""

    def __init__(self, envs: list[Any]) -> None:
        self.envs = envs
        self.batch_size = len(envs)


class _InWorkers:
    """Environments that a pool asks for their answers."""

    def __init__(self, env: Any, rows: Sequence[int]) -> None:
        self._env = env
        self._rows = list(rows)
        self.batch_size = len(self._rows)

    def call(
        self,
        name: str,
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        ids = self._ids(env_ids)
        return self._env.call(name, *args, env_ids=ids, **kwargs)  # type: ignore[no-any-return]  # a list

    def access(self, name: str, *, env_ids: Sequence[int] | None = None) -> list[Any]:
        return self._env.access(name, env_ids=self._ids(env_ids))  # type: ignore[no-any-return]  # a list

    def set_attr(
        self, name: str, value: Any, env_ids: Sequence[int] | None = None
    ) -> None:
        set_in_workers(self._env, name, value, self._ids(env_ids))

    def _ids(self, env_ids: Sequence[int] | None) -> list[int]:
        if env_ids is None:
            return self._rows
        return [self._rows[index] for index in env_ids]
