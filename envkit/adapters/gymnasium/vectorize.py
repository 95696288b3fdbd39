"""`vectorize`: makes one vector environment from functions that make environments.

It replaces `gymnasium.vector.AsyncVectorEnv`, with envkit's workers: several
environments per process, one round trip per step, and no pickling on the way.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit import registry
from envkit.adapters.foreign import require, told_of_losses
from envkit.adapters.gymnasium.conversion import from_member, to_member
from envkit.adapters.gymnasium.infos import RowInfos
from envkit.adapters.gymnasium.kinds import as_order
from envkit.adapters.gymnasium.rows import (
    BatchRows,
    check_call,
    check_infos,
    own_or_first,
)
from envkit.adapters.gymnasium.spaces import kind_of_space
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper
from envkit.extend import FLAGS, describe, hand_options, refuses_removed_options
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.specs.arrays import ArraySpec
from envkit.specs.special import ObjectSpec
from envkit.types import Array, NestedSpec

__all__ = ["VectorizedEnvs", "VectorizedRow", "plain_spec", "vectorize"]

# The key of the environment's whole info, if it has its own flags.
_OWN = "envkit_own_info"


@functools.partial(
    refuses_removed_options, make_env="lambda: GymnasiumWrapper(make_env())"
)
def vectorize(
    env_fns: Sequence[Callable[[], Any] | str],
    shared_memory: bool = True,
    copy: bool = True,
    context: str | None = None,
    daemon: bool = True,
    worker: Any = None,
    observation_mode: Any = "same",
    autoreset_mode: Any = "NextStep",
    max_concurrency: int | None = None,
    *,
    infos: str = "all",
    backend: Any = "process",
    num_workers: int | None = None,
    on_worker_failure: Any = "raise",
    start_timeout: float | None = None,
    reset_timeout: float | None = None,
    step_timeout: float | None = None,
    worker_setup: Any = None,
    worker_env: Mapping[str, str] | None = None,
    eager_resets: bool = False,
) -> VectorizedEnvs:
    """Makes a vector environment from functions that make single environments.

    The first arguments are those of Gymnasium's `AsyncVectorEnv`, in the same order,
    and the results are the same as Gymnasium's.

    If an environment raises, the others continue; it begins again at the next `reset`,
    or as `on_worker_failure` says.

    Args:
        env_fns: Functions that workers call, one per environment; each returns a
            Gymnasium or envkit environment. Strings are passed to `envkit.make`.
        shared_memory: Accepted; arrays are in shared memory anyway, and other values
            are sent separately.
        copy: Whether observations belong to the caller. Otherwise they are read-only
            views, valid until the step after next.
        context: How processes start: "spawn", "forkserver" or "fork"; `None` for
            "spawn".
        daemon: Accepted; workers end with this process, and may have children.
        worker: Not supported: envkit's workers run their own program.
        observation_mode: "same" if all observation spaces must be equal, "different" if
            their bounds may differ, or a tuple of the batched and the single space.
        autoreset_mode: When the next episode of a row begins.
        max_concurrency: The maximum number of environments that run at the same time;
            the same as `num_workers`.
        infos: When infos are read: in every step ("all"), only at the ends of episodes
            ("final"), or never ("none"). "all" costs nothing if environments have no
            infos.
        backend: "process", "thread" or "inline".
        num_workers: The number of workers that share the environments; `None` for one
            per CPU available to this process.
        on_worker_failure: "raise", or a `RestartPolicy`.
        start_timeout: Seconds for building all environments.
        reset_timeout: Seconds for a reset.
        step_timeout: Seconds for a step.
        worker_setup: A callable, or "module:function", that runs first in each worker.
        worker_env: Environment variables of the workers.
        eager_resets: Whether an environment is reset right after its episode ends,
            while the caller is busy.

    Example:
        >>> import gymnasium
        >>> env_fns = [lambda: gymnasium.make("CartPole-v1")] * 4
        >>> with_two = dict(num_workers=2, backend="inline")
        >>> envs = vectorize(env_fns, autoreset_mode="SameStep", **with_two)
        >>> envs
        VectorizedEnvs(num_envs=4)
        >>> observations, infos = envs.reset(seed=7)
        >>> observations.shape, infos
        ((4, 4), {})
        >>> envs.close()
    """
    require("gymnasium", needed_by="vectorize", extra="gymnasium")
    if worker is not None:
        raise ValueError(
            "worker is not supported by vectorize(): envkit's workers run their own "
            "program. worker_setup runs a function first in each."
        )
    check_infos(infos)
    order = as_order(autoreset_mode)
    _check_observation_mode(observation_mode)
    # By name, as in `make`: adapters do not import the engine.
    make_pool = registry.load("vectorize", "envkit.parallel:ParallelPyEnvironment")
    pool = make_pool(
        [functools.partial(VectorizedRow, env_fn) for env_fn in _as_makers(env_fns)],
        start_serially=False,
        backend=backend,
        num_workers=_worker_count(num_workers, max_concurrency),
        autoreset=order,
        start_method="spawn" if context is None else context,
        on_worker_failure=on_worker_failure,
        start_timeout=start_timeout,
        reset_timeout=reset_timeout,
        step_timeout=step_timeout,
        worker_setup=worker_setup,
        worker_env=worker_env,
        zero_copy=not copy,
        # Gymnasium's vector environments check neither.
        validate="never",
        eager_resets=eager_resets,
    )
    try:
        return VectorizedEnvs(pool, order, observation_mode, infos)
    except BaseException:
        pool.close()
        raise


class VectorizedEnvs(PyToGymnasiumVector):
    """The vector environment that `vectorize` returns."""

    def __init__(
        self, pool: Any, order: Any, observation_mode: Any, infos: str
    ) -> None:
        """Takes a pool of `VectorizedRow`; `vectorize` makes it."""
        self._set_up(pool, order, _VectorizedRows(pool, infos))
        self._name = "vectorize"
        (first,) = pool.call("spaces", env_ids=[0])
        # Send only those that differ: bounds of pictures are large.
        pairs = [own or first for own in pool.call("spaces", first)]
        spaces, action_spaces = zip(*pairs, strict=True)
        self.single_observation_space = spaces[0]
        self.single_action_space = _all_equal("action", action_spaces)
        if observation_mode == "same":
            _all_equal("observation", spaces)
        batched = _batched_observations(observation_mode, spaces)
        if isinstance(observation_mode, tuple):
            self.single_observation_space = observation_mode[1]
        self.render_mode = own_or_first(pool, "render_mode")
        self._describe(dict(own_or_first(pool, "metadata") or {}))
        if batched is not None:
            self.observation_space = batched

    def render(self) -> tuple[Any, ...]:
        """Returns each environment's rendering."""
        return self.call("render")


class VectorizedRow(GymnasiumWrapper):
    """Wraps an environment so that it behaves as in Gymnasium's vector environments.

    Rewards keep their precision, and bounds are not checked. An info may have its own
    flags, which do not affect endings. An envkit environment is converted to a
    Gymnasium environment.

    Example:
        >>> import gymnasium
        >>> row = VectorizedRow(lambda: gymnasium.make("CartPole-v1"))
        >>> row.observation_spec()
        ArraySpec(shape=(4,), dtype=float32)
        >>> row.call_inside("render_mode") is None
        True
        >>> row.close()
    """

    # The two flags of the episode's end; `None` while it continues.
    _ended: tuple[bool, bool] | None = None
    _in_state = (*GymnasiumWrapper._in_state, "_ended")

    def __init__(self, make: Callable[[], Any]) -> None:
        """Makes the environment."""
        env = make()
        # An envkit environment may forward its other attributes to a Gymnasium one.
        if hasattr(type(env), "time_step_spec"):
            env = PyToGymnasium(env)
        super().__init__(env, reward_dtype=np.float64)
        self._observation_spec = plain_spec(env.observation_space)
        self._to_observation = from_member(
            env.observation_space,
            self._observation_spec,
            subject=f"{self._name} returned an observation that",
            root="observation",
        )
        self._to_action = to_member(env.action_space, self._action_spec)
        self._prepare(copies_arrays=True)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        self._ended = None
        return super()._begin(seed, options)

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        self._check_info(info)
        self._info, self._ended = info, (terminated, truncated)
        self._record_loss()

    def _shown_info(self) -> dict[str, Any]:
        info = super()._shown_info()
        if any(name in info for name in FLAGS):
            info = {_OWN: info}
        if self._ended is not None:
            info.update(zip(FLAGS, self._ended, strict=True))
        return info

    def spaces(self, others: Any = None) -> Any:
        """Returns both spaces, or `None` if they equal another row's."""
        own = self.gym.observation_space, self.gym.action_space
        return None if own == others else own

    def call_inside(
        self, name: str, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Calls a method of the environment, or returns an attribute."""
        found = self._attribute(name)
        return found(*args, **(kwargs or {})) if callable(found) else found

    def _attribute(self, name: str) -> Any:
        env = self.gym
        try:
            return env.get_wrapper_attr(name)
        except AttributeError:
            # Attributes that every envkit environment has do not count as its own.
            if isinstance(env, PyToGymnasium) and hasattr(PyEnvironment, name):
                return getattr(env.wrapped_env(), name)
            raise


class _VectorizedRows(BatchRows):
    """Calls the environments inside the rows."""

    def __init__(self, pool: Any, infos: str) -> None:
        super().__init__(pool, infos)
        # Makes workers report how episodes end, even if nobody reads infos.
        pool.rows_with_info()

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Passes on even an empty dictionary of options, as Gymnasium does."""
        if options[0] is not None:
            with told_of_losses("options", "vectorize"):
                hand_options(self._env, options, None if mask.all() else mask)
        return super().prepared(mask, seeds, [])

    def _read(self, envs: list[int], has_left: bool) -> list[Any]:
        """Reads the infos as the environments returned them."""
        return list(map(_without_ends, super()._read(envs, has_left)))

    def _take_flags(self, infos: RowInfos | None) -> None:
        """Leaves the environments' flags in place: the pool reports endings."""

    def call(self, name: str, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment."""
        check_call(name)
        return tuple(self._env.call("call_inside", name, args, kwargs))

    def get(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment, as Gymnasium does."""
        return self.call(name, (), {})


def _without_ends(info: dict[str, Any]) -> dict[str, Any]:
    """Returns an info without the additions of `VectorizedRow`."""
    own = {name: value for name, value in info.items() if name not in FLAGS}
    return own.get(_OWN, own)  # type: ignore[no-any-return]  # an info


def _as_makers(env_fns: Any) -> list[Callable[[], Any]]:
    is_one = isinstance(env_fns, str) or callable(env_fns)
    if is_one or not isinstance(env_fns, Iterable):
        raise TypeError(
            f"env_fns is {describe(env_fns)}; vectorize takes a list with one function "
            "for each environment: [make_env] * 8."
        )
    makers = list(env_fns)
    if not makers:
        raise ValueError("env_fns must have at least one function, got none.")
    return [_as_maker(entry, index) for index, entry in enumerate(makers)]


def _as_maker(entry: Any, index: int) -> Callable[[], Any]:
    if isinstance(entry, str):
        return constructor(entry)
    if not callable(entry):
        raise TypeError(
            f"env_fns[{index}] is {describe(entry)}, which is non-callable. Each "
            "environment is made in its own worker, so pass what makes it: "
            "lambda: gymnasium.make(...)."
        )
    return entry  # type: ignore[no-any-return]  # callable() says so


def _worker_count(num_workers: Any, max_concurrency: Any) -> Any:
    """Returns the pool's number of workers; the pool checks `num_workers` itself."""
    if max_concurrency is None:
        return num_workers
    if isinstance(max_concurrency, bool) or not isinstance(
        max_concurrency, int | np.integer
    ):
        raise TypeError(
            "max_concurrency must be an integer or None, got "
            f"{describe(max_concurrency)}."
        )
    if max_concurrency < 1:
        raise ValueError(f"max_concurrency must be at least 1, got {max_concurrency}.")
    if num_workers is None:
        num_workers = os.cpu_count() or 1
    return min(num_workers, int(max_concurrency))


def _check_observation_mode(mode: Any) -> None:
    if mode in ("same", "different"):
        return
    from gymnasium import Space

    if not (
        isinstance(mode, tuple)
        and len(mode) == 2
        and all(isinstance(space, Space) for space in mode)
    ):
        raise ValueError(
            "observation_mode must be 'same', 'different', or a tuple of the batched "
            f"space and the single one, got {describe(mode)}."
        )


def _batched_observations(mode: Any, spaces: Sequence[Any]) -> Any:
    """Returns the batched space, or `None` for the default."""
    if isinstance(mode, tuple):
        if plain_spec(mode[1]) != plain_spec(spaces[0]):
            raise RuntimeError(
                f"observation_mode has the single space {mode[1]}, and the "
                f"environments have {spaces[0]}, whose members are other arrays."
            )
        return mode[0]
    if mode == "same":
        return None
    from gymnasium.vector.utils import batch_differing_spaces

    return batch_differing_spaces(spaces)


def _all_equal(what: str, spaces: Sequence[Any]) -> Any:
    first = spaces[0]
    for row, space in enumerate(spaces):
        if space != first:
            remedy = (
                " Where only bounds differ, pass observation_mode='different'."
                if what == "observation"
                else ""
            )
            raise RuntimeError(
                f"env_fns[0] and env_fns[{row}] have different {what} spaces, so they "
                f"cannot form one batch.{remedy}\n\n  {first}\n  {space}"
            )
    return first


_ARRAYS = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")


def plain_spec(space: Any) -> NestedSpec:
    """Returns specs of a space's members with shapes and dtypes, without bounds.

    Example:
        >>> from gymnasium import spaces
        >>> plain_spec(spaces.Tuple((spaces.Discrete(3), spaces.Text(4))))
        (ArraySpec(shape=(), dtype=int64), ObjectSpec(shape=(), dtype=object))
    """
    kind = kind_of_space(space)
    if kind == "Dict":
        return {key: plain_spec(child) for key, child in space.spaces.items()}
    if kind == "Tuple":
        return tuple(plain_spec(child) for child in space.spaces)
    if kind in _ARRAYS:
        return ArraySpec(space.shape, space.dtype)
    return ObjectSpec()
