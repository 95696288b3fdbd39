"""`PyToGymnasiumVector`: an envkit batch as a Gymnasium vector environment."""

from __future__ import annotations

import functools
import inspect
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import numpy as np

from envkit._shared.waits import wait_for_end
from envkit.adapters.foreign import LateBase, forwarded_to_library, rendered, require
from envkit.adapters.gymnasium.conversion import from_members, to_member, to_members
from envkit.adapters.gymnasium.infos import (
    ColumnInfos,
    DictInfos,
    Infos,
    InfosOfSome,
    RowInfos,
)
from envkit.adapters.gymnasium.kinds import as_order
from envkit.adapters.gymnasium.rows import BatchRows, check_infos
from envkit.adapters.gymnasium.spaces import space_from_spec
from envkit.adapters.gymnasium.to_gymnasium import (
    check_scalars,
    metadata_of,
    render_mode_of,
)
from envkit.adapters.losses import loss_info
from envkit.adapters.values import map_specs
from envkit.errors import EnvkitError
from envkit.extend import as_environment, counted, describe, listed, rely_on_size
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["PyToGymnasiumVector", "ResetMode"]

_LAST = int(StepType.LAST)
_NEXT, _SAME, _DISABLED = AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED


class PyToGymnasiumVector(LateBase):
    """Makes a Gymnasium vector environment from an envkit batch.

    It is a `gymnasium.vector.VectorEnv` with the methods of Gymnasium's own: `call`,
    `get_attr`, `set_attr`, `step_async`, `step_wait` and so on. The table in
    `PyToGymnasium` applies to each row.

    | `autoreset_mode` | a row whose episode has ended                              |
    |------------------|------------------------------------------------------------|
    | "NextStep"       | begins with the next step, whose action is ignored         |
    | "SameStep"       | begins at once: the observation is the new episode's first,|
    |                  | and `final_obs` and `final_info` are in the infos          |
    | "Disabled"       | waits until `reset(options={"reset_mask": mask})`          |

    A pool supports all three; for other batches, see `resets_rows` and `holds_rows`.

    If the environment of a row was lost, its episode is truncated, and the infos (in
    SameStep, `final_info`) have `repaired` and `loss` for that row.

    Only one call can be in progress: `reset_async`, `step_async` and `call_async` begin
    it. A wait that times out loses nothing: the call continues, you can wait again, and
    `reset` abandons the call.

    Example:
        >>> from envkit.envs import Catch
        >>> envs = PyToGymnasiumVector(Catch(batch_size=2))
        >>> observations, infos = envs.reset(seed=7)
        >>> observations.shape, envs.action_space
        ((2, 10, 5), MultiDiscrete([3 3]))
        >>> _, rewards, terminations, _, infos = envs.step([0, 1])
        >>> rewards, terminations, infos["episode_steps"], infos["_episode_steps"]
        (array([0., 0.]), array([False, False]), array([1, 1]), array([ True,  True]))
    """

    @classmethod
    def _load_base(cls) -> type:
        require("gymnasium", needed_by="PyToGymnasiumVector", extra="gymnasium")
        from gymnasium.vector import VectorEnv

        return VectorEnv

    def __init__(
        self,
        env: Any,
        autoreset_mode: Any = "NextStep",
        *,
        infos: str = "all",
        render_mode: str | None = None,
    ) -> None:
        """Wraps a batch; closing the adapter closes the batch.

        Args:
            env: A batch. A pool's `autoreset` is set to the order needed; any other
                batch's to NEXT_STEP, and the adapter begins the episodes itself.
            autoreset_mode: When the next episode of a row begins: a Gymnasium
                `AutoresetMode` or its value.
            infos: When infos are read: in every step, as in Gymnasium ("all"), only
                in the first and last steps of episodes ("final"), or never ("none"). A
                pool has to ask its workers for infos, which takes about as long as a
                step of cheap environments.
            render_mode: The mode of `render`. `None` for the render mode of the batch,
                or of its first environment, if it has one.
        """
        env = as_environment(env, "PyToGymnasiumVector was given")
        _check_batch(env)
        check_scalars(env, "PyToGymnasiumVector")
        check_infos(infos)
        self._set_up(env, autoreset_mode, BatchRows(env, infos))
        self.single_observation_space = space_from_spec(env.observation_spec())
        self.single_action_space = space_from_spec(env.action_spec())
        self.render_mode = render_mode_of(env, render_mode)
        self._describe(metadata_of(env, self.render_mode))

    def _set_up(self, env: Any, autoreset_mode: Any, rows: BatchRows) -> None:
        self._env = env
        self._name = type(env).__name__
        self._order = as_order(autoreset_mode)
        self._rows = rows
        self._outcomes = _Outcomes(env, self._order, rows, type(self).__name__)
        self.closed = False
        self.num_envs = int(env.batch_size)
        rely_on_size(self, env)
        self._has_begun = False
        # The call that was begun and not yet waited for.
        self._pending: _PendingCall | _BegunStep | None = None
        # For each row, the seed, or the generator and the seed made from it.
        self._own_random: dict[int, Any] = {}

    def _describe(self, metadata: dict[str, Any]) -> None:
        """Sets the public attributes, given the spaces of one row."""
        from gymnasium.vector.utils import batch_space

        self.observation_space = batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.autoreset_mode = _gymnasium_mode(self._order)
        self.metadata = {**metadata, "autoreset_mode": self.autoreset_mode}
        self._compile(self._env.observation_spec(), self._env.action_spec())

    def _compile(self, observation_spec: Any, action_spec: Any) -> None:
        """Makes the conversion functions."""
        space = self.single_observation_space
        self._outcomes.to_observations = to_members(space, observation_spec)
        self._outcomes.to_observation = to_member(space, observation_spec)
        self._to_actions = from_members(
            self.single_action_space,
            action_spec,
            self.num_envs,
            subject=f"{type(self).__name__}.step() was given an action that",
            root="action",
        )
        # Enables the fast path for an action that is one array.
        is_one = isinstance(action_spec, ArraySpec) and action_spec.dtype != object
        self._action_dtype = action_spec.dtype if is_one else None
        self._action_shape = (self.num_envs, *action_spec.shape) if is_one else None

    def __getattr__(self, name: str) -> Any:
        return forwarded_to_library(self, self.wrapped_env, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled.")

    def wrapped_env(self) -> Any:
        """Returns the envkit batch."""
        return self._env

    # Steps and resets.

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        """Begins episodes.

        Args:
            seed: A seed for each row, where `None` does not reseed, or one integer, to
                which each row adds its index.
            options: `reset_mask` may be a mask of the rows to begin; the others are
                held. Other options go to environments that have `set_reset_options`,
                for this reset only.
        """
        self._let_go("reset")
        return self._reset(*self._as_resets(seed, options))

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        """Applies an action to each row."""
        # Hot: called once per batch step.
        if self._pending is not None or not self._has_begun or self.closed:
            self._refuse_step("step")
        return self._outcomes.step(self._as_actions(actions))

    def _reset(self, *resets: Any) -> tuple[Any, Infos]:
        result = self._outcomes.reset(*resets)
        self._has_begun = True
        return result

    def _as_actions(self, actions: Any) -> Any:
        # Hot: called once per batch step. The first case is the usual one.
        if (
            type(actions) is np.ndarray
            and actions.dtype == self._action_dtype
            and actions.shape == self._action_shape
        ):
            return actions
        return self._to_actions(actions)

    def _as_resets(
        self, seed: Any, options: Mapping[str, Any] | None
    ) -> tuple[Array, list[int | None], dict[str, Any] | None]:
        """Returns the rows to begin, a seed for each, and the other options."""
        rest = None if options is None else dict(options)
        mask = None if rest is None else rest.pop("reset_mask", None)
        mask = _as_reset_mask(mask, self.num_envs)
        if not (mask.all() or self._has_begun):
            self._raise(
                "ResetNeeded",
                "reset_mask was given before the first reset(): the other rows have "
                "no episode yet. Call reset() without it first.",
            )
        if not (mask.all() or self._env.resets_rows):
            raise ValueError(
                f"reset_mask leaves out some rows, and {self._name} cannot begin "
                "episodes in some rows alone (resets_rows)."
            )
        seeds = _as_reset_seeds(seed, self.num_envs)
        seeds = [s if m else None for s, m in zip(seeds, mask, strict=True)]
        self._own_random.update((r, s) for r, s in enumerate(seeds) if s is not None)
        return mask, seeds, rest

    # Calls that begin now and are waited for later.

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins a reset; `reset_wait` returns the result."""
        late = self._let_go("reset_async", wait=False)
        arguments = self._as_resets(seed, options)

        def run() -> Any:
            if late is not None:
                late.wait()
            return self._reset(*arguments)

        self._pending = _PendingCall("reset", run)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Waits for `reset_async`.

        Args:
            timeout: The maximum seconds to wait.

        Raises:
            TimeoutError: It has not finished; `reset_wait` may be called again.
        """
        result: tuple[Any, Infos] = self._wait("reset", timeout)
        return result

    def step_async(self, actions: Any) -> None:
        """Begins a step; `step_wait` returns the result."""
        if self._pending is not None or not self._has_begun or self.closed:
            self._refuse_step("step_async")
        own = self._as_actions(actions)
        if own is actions:
            own = actions.copy()
        self._pending = self._outcomes.begin(own) or _PendingCall(
            "step", lambda: self._outcomes.step(own)
        )

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[Any, Array, Array, Array, Infos]:
        """Waits for `step_async`.

        Args:
            timeout: The maximum seconds to wait.

        Raises:
            TimeoutError: It has not finished. `step_wait` may be called again, and
                `reset` abandons the step.
        """
        result: tuple[Any, Array, Array, Array, Infos] = self._wait("step", timeout)
        return result

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins a call; `call_wait` returns the result."""
        self._check_idle("call_async")
        self._pending = _PendingCall(
            "call", lambda: self._rows.call(name, args, kwargs)
        )

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits for `call_async`.

        Args:
            timeout: The maximum seconds to wait.

        Raises:
            TimeoutError: It has not finished; `call_wait` may be called again.
        """
        result: tuple[Any, ...] = self._wait("call", timeout)
        return result

    def _wait(self, kind: str, timeout: float | None) -> Any:
        self._check_open(f"{kind}_wait")
        pending = self._pending
        if pending is None or pending.kind != kind:
            from gymnasium.error import NoAsyncCallError

            raise NoAsyncCallError(
                f"{kind}_wait() was called without a {kind}_async() before it.", kind
            )
        # Set before waiting, because Ctrl-C also ends a wait.
        pending.is_late = True
        if not pending.wait(timeout):
            raise _timeout_error()(
                f"{kind}_wait() has waited for {timeout:g} s without a result. The "
                f"call that {kind}_async() began continues: call {kind}_wait() again, "
                "or reset(), which abandons it."
            )
        self._pending = None
        return pending.result()

    def _let_go(
        self, call: str, *, wait: bool = True
    ) -> _PendingCall | _BegunStep | None:
        """Abandons a call whose wait timed out."""
        self._check_open(call)
        pending = self._pending
        if pending is not None:
            if not pending.is_late:
                self._check_idle(call)
            if wait:
                pending.wait()
            self._pending = None
        return pending

    def _check_idle(self, call: str) -> None:
        self._check_open(call)
        pending = self._pending
        if pending is not None:
            from gymnasium.error import AlreadyPendingCallError

            kind = pending.kind
            raise AlreadyPendingCallError(
                f"{call}() was called while {kind}_async() is pending. Call "
                f"{kind}_wait() "
                f"first{', or reset(), which abandons it' if pending.is_late else ''}.",
                kind,
            )

    def _check_open(self, call: str) -> None:
        if self.closed:
            self._raise(
                "ClosedEnvironmentError",
                f"{call}() was called after close().",
            )

    def _refuse_step(self, call: str) -> NoReturn:
        self._check_idle(call)
        self._raise(
            "ResetNeeded",
            f"{call}() was called before the first reset(). Call reset() first.",
        )

    def _raise(self, name: str, message: str) -> NoReturn:
        """Raises one of Gymnasium's errors."""
        from gymnasium import error

        raise getattr(error, name)(f"{type(self).__name__}({self._name}): {message}")

    # Environments.

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment, or returns an attribute.

        If the batch is one object, it is called once, and the result counts for each
        row.
        """
        self._check_idle("call")
        return self._rows.call(name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        self._check_idle("get_attr")
        return self._rows.get(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment.

        Args:
            name: The attribute's name.
            values: A list or tuple with a value per row, or one value for all.
        """
        self._check_idle("set_attr")
        self._rows.set(name, values)

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The environments' generators, or copies of them.

        Rows whose environment has none get one made from their seed.
        """
        return self._of_environments_or_rows("np_random", 0)

    @property
    def np_random_seed(self) -> tuple[int, ...]:
        """The seeds of the environments, one for each row."""
        return self._of_environments_or_rows("np_random_seed", 1)

    def _of_environments_or_rows(self, name: str, place: int) -> tuple[Any, ...]:
        try:
            return self.get_attr(name)
        except AttributeError:
            from gymnasium.utils import seeding
        for row in range(self.num_envs):
            if not isinstance(self._own_random.get(row), tuple):
                self._own_random[row] = seeding.np_random(self._own_random.get(row))
        return tuple(self._own_random[row][place] for row in range(self.num_envs))

    def render(self) -> tuple[Any, ...]:
        """Returns each row's rendering."""
        self._check_idle("render")
        name = f"{type(self).__name__}({self._name})"
        pictures = rendered(self._env, self.render_mode, name)
        # An object that draws in a window returns `None`.
        return (None,) * self.num_envs if pictures is None else tuple(pictures)

    def close(self, **kwargs: Any) -> None:
        """Closes the batch, once.

        Args:
            **kwargs: The arguments of `close_extras`.
        """
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Closes the batch, and warns as Gymnasium does if a call is in progress.

        Args:
            timeout: The seconds to wait for a call in progress, and for the
                environments' processes to exit; after that, they are killed.
            terminate: Whether to skip the wait.
        """
        patience = 0.0 if terminate else timeout
        pending = self._pending
        if pending is not None:
            if not pending.is_late:
                from gymnasium import logger

                logger.warn(
                    f"Calling `close` while waiting for a pending call to "
                    f"`{pending.kind}` to complete."
                )
            pending.wait(patience)
            self._pending = None
        has_grace = "grace" in inspect.signature(self._env.close).parameters
        if has_grace and patience is not None:
            self._env.close(grace=patience)
        else:
            self._env.close()


def _gymnasium_mode(order: AutoReset) -> Any:
    from gymnasium import vector

    value = order.value.title().replace("_", "")
    kind = getattr(vector, "AutoresetMode", None)  # since 1.1
    return value if kind is None else kind(value)


def _check_batch(env: Any) -> None:
    if not env.batched:
        raise ValueError(
            f"PyToGymnasiumVector was given {type(env).__name__}, which is a single "
            "environment: PyToGymnasium takes those, and BatchedPyEnvironment([env]) "
            "is a batch."
        )


def _as_reset_mask(mask: Any, rows: int) -> Array:
    """Checks the mask of the rows to begin; `None` means all.

    Raises:
        TypeError: It is not an array of booleans.
        ValueError: It has the wrong shape, or no element is true.
    """
    if mask is None:
        return np.ones(rows, bool)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(
            "reset_mask must be a boolean array with one element for each row, got "
            f"{describe(mask)}."
        )
    if mask.shape != (rows,) or not mask.any():
        got = (
            "a mask without a true element" if mask.shape == (rows,) else describe(mask)
        )
        raise ValueError(
            f"reset_mask must be a boolean array of shape ({rows},), true for the rows "
            f"to begin, got {got}."
        )
    return mask


def _as_reset_seeds(seed: Any, rows: int) -> list[int | None]:
    """Returns a seed for each row, by the rules of Gymnasium's vector environments.

    Example:
        >>> _as_reset_seeds(7, 3), _as_reset_seeds([4, None], 2)
        ([7, 8, 9], [4, None])
    """
    if seed is None:
        return [None] * rows
    if isinstance(seed, int | np.integer):
        return [int(seed) + row for row in range(rows)]
    if len(seed) != rows:
        raise ValueError(
            f"{counted(len(seed), 'seed')} for {counted(rows, 'environment')}. Pass "
            "one seed for each environment, or one integer, to which each adds its "
            "number."
        )
    return [None if one is None else int(one) for one in seed]


class _PendingCall:
    """Runs a function in its own thread, and keeps its result.

    Attributes:
        kind: The kind of call: "step", "reset" or "call".
        is_late: Whether a wait has timed out.
    """

    def __init__(self, kind: str, function: Callable[[], Any]) -> None:
        self.kind = kind
        self.is_late = False
        self._future: Future[Any] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(function,), name=f"envkit-{kind}", daemon=True
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, and returns True if the call has finished."""
        if timeout is None:
            wait_for_end(self._thread)
        else:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Returns the function's result, or raises its error."""
        return self._future.result()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            self._future.set_result(function())
        except BaseException as error:
            self._future.set_exception(error)


class _BegunStep:
    """Represents a step that workers make, without a thread that waits for it.

    Attributes:
        kind: The kind of call: "step".
        is_late: Whether a wait has timed out.
    """

    kind = "step"

    def __init__(self, promise: Any, finish: Callable[[TimeStep], Any]) -> None:
        self.is_late = False
        self._promise, self._finish = promise, finish

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, and returns True if the step has finished."""
        is_over: bool = self._promise.wait(timeout)
        return is_over

    def result(self) -> Any:
        """Returns the result, or raises the environments' error."""
        return self._finish(self._promise())


@functools.cache
def _timeout_error() -> type[Exception]:
    """Returns the class of the error for a wait that times out.

    It is Gymnasium's `multiprocessing.TimeoutError` and also Python's own.
    """
    import multiprocessing

    return type("StepTimeout", (multiprocessing.TimeoutError, TimeoutError), {})


class _Outcomes:
    """Steps and resets a batch, and returns results in Gymnasium's form.

    They consist of the returned time step, the rows' current time step, and the infos.
    There is no loop over rows unless an info requires it.

    Attributes:
        to_observation: Converts one row's observation to a member of its space.
        to_observations: Converts all rows' observations to a member of the batched
            space.
    """

    to_observation: Callable[[Any], Any]
    to_observations: Callable[[Any], Any]

    def __init__(
        self, env: Any, order: AutoReset, rows: BatchRows, adapter: str
    ) -> None:
        """Takes a batch.

        Args:
            env: The batch.
            order: When the next episode of a row begins.
            rows: The infos, attributes and endings of the rows.
            adapter: The name of the adapter in errors.
        """
        self._env = env
        self._order = order
        self._mode = ResetMode(env, order, adapter)
        self._rows = rows
        self._adapter = adapter
        count = int(env.batch_size)
        self._everyone = np.ones(count, bool)
        # True if a reset of some rows returns arrays that were returned before.
        is_pool = isinstance(getattr(type(env), "num_workers", None), property)
        self._repeats = order is AutoReset.DISABLED and not is_pool
        # The rows at the end of an episode.
        self._ended = self._none = np.zeros(count, bool)

    def reset(
        self, mask: Array, seeds: list[int | None], options: Any
    ) -> tuple[Any, Infos]:
        """Begins episodes in the masked rows.

        Args:
            mask: The rows.
            seeds: A seed or `None` for each row.
            options: The options, for environments that take some.
        """
        everyone = bool(mask.all())
        with self._rows.prepared(mask, seeds, [options] * len(mask)):
            now = self._env.reset() if everyone else self._env.reset(mask)
        if self._order is AutoReset.SAME_STEP and not everyone:
            # The result may still have the `LAST` of rows that have begun since.
            now = self._env.current_time_step()
        self._ended = self._ended & ~mask
        found = self._rows.begun_infos(mask, at_once=False)
        infos = _added({}, [found], mask)
        return self.to_observations(self._seen(now)), infos

    def begin(self, actions: Any) -> _BegunStep | None:
        """Begins a step; returns `None` if there are no workers to continue it."""
        if not self._mode.steps_ahead or (
            self._order is not AutoReset.NEXT_STEP and self._ended.any()
        ):
            return None
        try:
            promise = self._env.begin_step(actions)
        except EnvkitError:  # `step_wait` steps again, and raises it
            return None
        return _BegunStep(promise, self._results_of)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        """Applies an action to each row."""
        # Hot: called once per batch step.
        before = self._ended
        if self._order is not AutoReset.NEXT_STEP:
            _check_begun(before, self._adapter)
        return self._results_of(self._mode.step(actions, before))

    def _results_of(self, shown: TimeStep) -> tuple[Any, Array, Array, Array, Infos]:
        """Returns the results of a step, given its time step."""
        # Hot: called once per batch step.
        now = shown
        self._ended = ended = np.asarray(shown.step_type) == _LAST
        is_over = bool(np.count_nonzero(ended))
        found = self._rows.infos(ended)
        terminated, truncated = self._rows.ends(shown, ended, found)
        beside = self._beside(shown, terminated, ended if is_over else None)
        if self._order is AutoReset.SAME_STEP and is_over:
            # Read before the reset, which may write to the infos' arrays.
            infos = self._final(shown, ended, [found, *beside])
            infos = _added(infos, [found, *beside], ~ended)
            now = self._mode.begin(ended)
            self._ended = self._none
            begun = self._rows.begun_infos(ended, at_once=True)
            infos = _added(infos, [begun], ended)
        else:
            infos = _added({}, [found, *beside], self._everyone)
        observation = self.to_observations(self._seen(now))
        rewards = np.asarray(shown.reward).astype(np.float64)
        return observation, rewards, terminated, truncated, infos

    def _final(
        self, shown: TimeStep, ended: Array, found: list[RowInfos | None]
    ) -> Infos:
        """Returns Gymnasium's infos about episodes that end as the next one begins."""
        observations = np.full(len(ended), None, object)
        rows = np.flatnonzero(ended)
        seen = map_specs(operator.itemgetter(rows), shown.observation)
        is_one = isinstance(seen, np.ndarray) and seen.ndim > 1
        for place, row in enumerate(rows.tolist()):
            # A special case of the other branch, in half the time.
            own = (
                seen[place]
                if is_one
                else map_specs(operator.itemgetter((place, ...)), seen)
            )
            observations[row] = self.to_observation(own)
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": _added({}, found, ended),
            "_final_info": ended.copy(),
        }

    def _seen(self, now: TimeStep) -> Any:
        """Returns the observation in arrays that belong to the caller."""
        seen = now.observation
        return map_specs(np.copy, seen) if self._repeats else seen

    def _beside(
        self, shown: TimeStep, terminated: Array, ended: Array | None
    ) -> list[RowInfos]:
        """Returns the infos derived from discounts and losses.

        Args:
            shown: The time step.
            terminated: The rows whose episode was terminated.
            ended: The rows whose episode has ended; `None` for none.
        """
        # Hot: called once per batch step.
        found: list[RowInfos] = []
        discounts = np.asarray(shown.discount)
        # A discount is normally 0 where an episode was terminated, and 1 elsewhere.
        odd = discounts != ~terminated
        if np.count_nonzero(odd):
            columns = ColumnInfos({"discount": discounts.copy()}, len(odd))
            found.append(InfosOfSome(columns, odd))
        if ended is not None and (losses := self._rows.losses(ended)):
            by_row = {row: loss_info(loss) for row, loss in losses.items()}
            found.append(DictInfos(by_row, len(ended)))
        return found


def _added(infos: Infos, found: list[RowInfos | None], rows: Array) -> Infos:
    """Adds the infos of the masked rows."""
    for some in found:
        if some is not None:
            infos = some.add_to(infos, rows)
    return infos


class ResetMode:
    """Steps a batch in one of Gymnasium's autoreset modes.

    | mode      | the batch's    | how                                | needs       |
    |-----------|----------------|------------------------------------|-------------|
    | any       | the same       | its `step`                         |             |
    | any       | can be chosen  | its `step`, after a choice; a batch|             |
    |           |                | without workers takes NEXT_STEP    |             |
    | NEXT_STEP | DISABLED       | ended rows begin while others step | `holds_rows`|
    | SAME_STEP | NEXT, DISABLED | a step, then a reset of ended rows | `resets_rows`|
    | DISABLED  | NEXT_STEP      | a step while no row is at its end  | `resets_rows`|

    A batch of one row supports all of these. SAME_STEP cannot be turned into another
    mode, because its step has already left the end of the episode.
    """

    def __init__(self, env: Any, wanted: AutoReset, adapter: str) -> None:
        """Sets the batch's order, if the batch can choose.

        Args:
            env: The batch.
            wanted: The mode.
            adapter: The name of the adapter in errors.

        Raises:
            ValueError: The batch does not support the mode; the message says why.
        """
        if wanted is _NEXT and getattr(env, "repeats_last", False) is True:
            raise ValueError(
                f"{adapter} was given {type(env).__name__}, which repeats the LAST of "
                "an episode to give all episodes the same length. In Gymnasium an "
                "episode ends once. Leave the padding off, or use autoreset_mode "
                "'SameStep' or 'Disabled'."
            )
        own = _chosen_order(env, wanted)
        is_one = env.batch_size == 1
        self._env = env
        self._stands_at_next = own is _SAME
        self._begins_with_step = wanted is _NEXT and own is _DISABLED
        # Look at the batch itself, because a wrapper forwards the pool's attributes.
        ahead = isinstance(getattr(type(env), "steps_ahead", None), property)
        self.steps_ahead = ahead and env.steps_ahead and not self._begins_with_step
        if self._begins_with_step:
            can = is_one or env.holds_rows
        else:
            can = wanted is not _NEXT and own is not _SAME
            can = own is wanted or (can and (is_one or env.resets_rows))
        if not can:
            _refuse(env, wanted, own, adapter)

    def step(self, action: NestedArray, ended: Array) -> TimeStep:
        """Steps, and returns the time step.

        Args:
            action: A batch of actions.
            ended: The rows at the end of an episode.
        """
        # Hot: called once per batch step.
        time_step: TimeStep
        if not self._begins_with_step or not ended.any():
            time_step = self._env.step(action)
        elif ended.all():
            time_step = self._env.reset()
        else:
            time_step = self._env.step_rows(action, ~ended, ended)
        return time_step

    def begin(self, ended: Array) -> TimeStep:
        """Begins the rows that ended, and returns the time step of all rows.

        Only for SAME_STEP, right after a step that returned `LAST` in some rows.
        """
        time_step: TimeStep
        if self._stands_at_next:
            time_step = self._env.current_time_step()
        else:
            time_step = self._env.reset() if ended.all() else self._env.reset(ended)
        return time_step


def _chosen_order(env: Any, wanted: AutoReset) -> AutoReset:
    """Sets the best order for a mode, if the batch can choose."""
    own = AutoReset.kept_by(env)
    found = getattr(type(env), "autoreset", None)
    if not isinstance(found, property) or found.fset is None:
        return own
    if found.fset is inspect.getattr_static(PyEnvironment, "autoreset").fset:
        # Episodes are begun here instead, to read the infos of both episodes.
        wanted = _NEXT
    if own is not wanted:
        try:
            env.autoreset = wanted
        except ValueError:  # it wraps a batch that cannot choose
            return own
    return wanted


def _refuse(env: Any, wanted: AutoReset, own: AutoReset, adapter: str) -> NoReturn:
    name = type(env).__name__
    if own is _SAME:
        why = "its own order is SAME_STEP, which leaves the end of an episode at once"
    elif wanted is _NEXT:
        why = (
            "its own order is DISABLED, and it cannot leave rows where they are while "
            "others step (holds_rows)"
        )
    else:
        why = "it cannot begin episodes in some rows alone (resets_rows)"
    raise ValueError(
        f"{adapter} cannot give {name} the autoreset_mode {_title(wanted)!r}: {why}. "
        f"Its own is {_title(own)!r}. A ParallelPyEnvironment, and a "
        "BatchedPyEnvironment of single environments, support all modes."
    )


def _title(order: AutoReset) -> str:
    """Returns Gymnasium's word for a reset order."""
    return order.value.title().replace("_", "")


def _check_begun(ended: Array, adapter: str) -> None:
    """Raises for a step of rows at the end of an episode."""
    if not np.count_nonzero(ended):  # Hot: called once per batch step.
        return
    from gymnasium.error import ResetNeeded

    rows = np.flatnonzero(ended)
    noun = "row" if rows.size == 1 else "rows"
    raise ResetNeeded(
        f"{adapter}.step() was called after the episode of {noun} {listed(rows)} "
        "ended. Call reset(options={'reset_mask': mask}) for them first; none of the "
        "environments has moved."
    )
