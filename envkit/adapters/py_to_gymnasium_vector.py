"""`PyToGymnasiumVector`: a batch of envkit's as a vector environment of Gymnasium.

What a step returns is put together from three questions: what happened
(`autoreset_modes`), where do the rows stand now, and what do infos say (`row_infos`).
Nothing is done row by row unless an info has to be put together that way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gymnasium_vector.autoreset_modes import (
    as_order,
    check_begun,
    reset_mode,
)
from envkit.adapters.gymnasium_vector.pending_calls import PendingCall, timeout_error
from envkit.adapters.gymnasium_vector.row_infos import Infos, MaskedColumn, RowInfos
from envkit.adapters.gymnasium_vector.vector_rows import BatchRows, Rows, check_infos
from envkit.adapters.late_base import LateBase
from envkit.adapters.py_to_gymnasium import (
    check_scalars,
    metadata_of,
    render_mode_of,
)
from envkit.adapters.spaces.from_members import from_members
from envkit.adapters.spaces.members import to_member, to_members
from envkit.adapters.spaces.spaces_from_specs import space_from_spec
from envkit.adapters.spaces.values import map_specs
from envkit.autoreset import AutoReset
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array
from envkit.wording import counted

__all__ = ["PyToGymnasiumVector"]

_LAST = int(StepType.LAST)


class PyToGymnasiumVector(LateBase):
    """Makes a vector environment of Gymnasium of a batch of envkit's.

    It is a `gymnasium.vector.VectorEnv` with the methods of Gymnasium's own: `call`,
    `get_attr`, `set_attr`, `step_async`, `step_wait` and their like. `PyToGymnasium`
    has the table of what becomes what; row by row, all of it holds here.

    | `autoreset_mode` | a row whose episode has ended                              |
    |------------------|------------------------------------------------------------|
    | "NextStep"       | begins with the next step, whose action is not used        |
    | "SameStep"       | begins at once: the observation is that of the new episode,|
    |                  | and `final_obs` and `final_info` are in the infos          |
    | "Disabled"       | stays, and `reset(options={"reset_mask": mask})` begins it |

    A pool can all three; other batches what `resets_rows` and `holds_rows` allow.

    A wait that has timed out loses nothing: what was begun goes on, `step_wait` may be
    called again, and `reset` lets go of it.

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
        """Wraps a batch; closing the adapter closes it.

        Args:
            env: A batch. Of a pool, `autoreset` is set to what is wanted.
            autoreset_mode: When the next episode of a row begins: an `AutoresetMode`
                of Gymnasium's, or its value.
            infos: Which infos are looked at: those of every step, as Gymnasium does
                ("all"), those of the ends of episodes ("final") or "none". A pool has
                to ask its workers for them, which takes about as long as a step of
                cheap environments; batches in this process have them at hand.
            render_mode: What `render` calls the batch's `render` with. `None` for the
                mode that the batch itself was made with, if it has one.
        """
        _check_batch(env)
        check_scalars(env, "PyToGymnasiumVector")
        check_infos(infos)
        self._set_up(env, autoreset_mode, BatchRows(env, infos))
        self.single_observation_space = space_from_spec(env.observation_spec())
        self.single_action_space = space_from_spec(env.action_spec())
        self.render_mode = render_mode_of(env, render_mode)
        self._describe(metadata_of(env, self.render_mode))

    def _set_up(self, env: Any, autoreset_mode: Any, rows: Rows) -> None:
        self._env = env
        self._name = type(env).__name__
        self._order = as_order(autoreset_mode)
        self._mode = reset_mode(env, self._order, type(self).__name__)
        self._rows = rows
        self.closed = False
        self.num_envs = int(env.batch_size)
        self._everyone = np.ones(self.num_envs, bool)
        # Whether rows that were not touched are those that were returned before.
        is_pool = isinstance(getattr(type(env), "num_workers", None), property)
        self._repeats = self._order is AutoReset.DISABLED and not is_pool
        # Whether rows may show what was made up for an environment that is gone.
        self._repairs = isinstance(getattr(type(env), "repaired", None), property)
        # The rows that stand at the end of an episode.
        self._ended = np.zeros(self.num_envs, bool)
        self._has_begun = False
        self._pending: PendingCall | None = None

    def _describe(self, metadata: dict[str, Any]) -> None:
        """Says what there is, given the spaces of one row."""
        from gymnasium.vector.utils import batch_space

        self.observation_space = batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.autoreset_mode = _gymnasium_mode(self._order)
        self.metadata = {**metadata, "autoreset_mode": self.autoreset_mode}
        self._compile(self._env.observation_spec(), self._env.action_spec())

    def _compile(self, observation_spec: Any, action_spec: Any) -> None:
        """Makes the functions that convert."""
        space = self.single_observation_space
        self._to_observations = to_members(space, observation_spec)
        self._to_observation = to_member(space, observation_spec)
        self._to_actions = from_members(
            self.single_action_space,
            action_spec,
            self.num_envs,
            subject="PyToGymnasiumVector.step() was given an action that",
            root="action",
        )
        # What an action is that is one array.
        is_one = isinstance(action_spec, ArraySpec) and action_spec.dtype != object
        self._action_dtype = action_spec.dtype if is_one else None
        self._action_shape = (self.num_envs, *action_spec.shape) if is_one else None

    def __getattr__(self, name: str) -> Any:
        # Whoever asks one of Gymnasium's for `seed` means the method of the old Gym.
        if hasattr(PyEnvironment, name):
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute {name!r}; "
                "wrapped_env() has."
            )
        return forwarded(self, self.wrapped_env, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled.")

    def wrapped_env(self) -> Any:
        """Returns envkit's batch."""
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
            seed: A seed for each row, in which `None` lets a row's generators go on, or
                one integer, to which each row adds its number.
            options: In `reset_mask`, a mask of the rows to begin; the others stay where
                they are. What else there is goes to environments that have
                `set_reset_options`, for this reset alone.
        """
        self._let_go("reset")
        return self._reset(*self._as_resets(seed, options))

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        """Applies an action to each row."""
        # Hot: called once per batch step.
        if self._pending is not None or not self._has_begun or self.closed:
            self._refuse_step("step")
        return self._step(self._as_actions(actions))

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins to do what `reset` does; `reset_wait` returns the result."""
        late = self._let_go("reset_async", wait=False)
        arguments = self._as_resets(seed, options)

        def run() -> Any:
            if late is not None:
                late.wait()
            return self._reset(*arguments)

        self._pending = PendingCall("reset", run)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Waits for `reset_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet; `reset_wait` may be called again.
        """
        result: tuple[Any, Infos] = self._wait("reset", timeout)
        return result

    def step_async(self, actions: Any) -> None:
        """Begins to do what `step` does; `step_wait` returns the result."""
        if self._pending is not None or not self._has_begun or self.closed:
            self._refuse_step("step_async")
        own = self._as_actions(actions)
        if own is actions:
            own = actions.copy()
        self._pending = PendingCall("step", lambda: self._step(own))

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[Any, Array, Array, Array, Infos]:
        """Waits for `step_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet. `step_wait` may be called again, and
                `reset` lets go of the step.
        """
        result: tuple[Any, Array, Array, Array, Infos] = self._wait("step", timeout)
        return result

    def _step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        # Hot: called once per batch step.
        before = self._ended
        if self._order is not AutoReset.NEXT_STEP:
            check_begun(before, type(self).__name__)
        shown = now = self._mode.step(actions, before)
        self._ended = ended = np.asarray(shown.step_type) == _LAST
        is_over = bool(np.count_nonzero(ended))
        found = self._rows.infos(shown, ended)
        terminated, truncated = self._rows.ends(shown, ended, found)
        beside = self._beside(shown, terminated, is_over)
        if self._order is AutoReset.SAME_STEP and is_over:
            now = self._mode.begin(ended)
            self._ended = np.zeros_like(ended)
            infos = self._final(shown, ended, [found, *beside])
            infos = _added(infos, [found, *beside], ~ended)
            begun = self._rows.begun_infos(now, ended, at_once=True)
            infos = _added(infos, [_without_flags(begun)], ended)
        else:
            infos = _added({}, [found, *beside], self._everyone)
        observation = self._to_observations(self._seen(now))
        rewards = np.asarray(shown.reward).astype(np.float64)
        return observation, rewards, terminated, truncated, infos

    def _final(
        self, shown: TimeStep, ended: Array, found: list[RowInfos | None]
    ) -> Infos:
        """Returns what Gymnasium has of episodes that are left at once."""
        observations = np.full(self.num_envs, None, object)
        seen = self._rows.observation(shown)
        for row in np.flatnonzero(ended).tolist():
            observations[row] = self._to_observation(map_specs(_copy_of(row), seen))
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": _added({}, found, ended),
            "_final_info": ended.copy(),
        }

    def _seen(self, now: TimeStep) -> Any:
        """Returns the observation, in arrays that are the caller's alone."""
        seen = self._rows.observation(now)
        # What the batch has returned once, its next reset of some rows repeats.
        return map_specs(np.copy, seen) if self._repeats else seen

    def _beside(
        self, shown: TimeStep, terminated: Array, is_over: bool
    ) -> list[RowInfos]:
        """Returns what the batch itself says beside its time steps."""
        # Hot: called once per batch step.
        found: list[RowInfos] = []
        discounts = np.asarray(shown.discount)
        # Where an episode is terminated it is 0, and 1 elsewhere.
        odd = discounts != ~terminated
        if np.count_nonzero(odd):
            found.append(MaskedColumn("discount", discounts.copy(), odd))
        # What is made up for an environment that is gone is the end of an episode.
        if is_over and self._repairs and (repaired := self._env.repaired).any():
            found.append(MaskedColumn("repaired", repaired, repaired))
        return found

    def _reset(
        self, mask: Array, seeds: list[int | None], options: Any
    ) -> tuple[Any, Infos]:
        self._rows.prepare(mask, seeds, options)
        everyone = bool(mask.all())
        now = self._env.reset() if everyone else self._env.reset(mask)
        if self._order is AutoReset.SAME_STEP and not everyone:
            # Of rows that have left the end of an episode it may still show that.
            now = self._env.current_time_step()
        self._ended = self._ended & ~mask
        self._has_begun = True
        found = self._rows.begun_infos(now, mask, at_once=False)
        infos = _added({}, [_without_flags(found)], mask)
        return self._to_observations(self._seen(now)), infos

    def _as_actions(self, actions: Any) -> Any:
        # Hot: called once per batch step. The first case is what nearly all have.
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
        everyone = np.ones(self.num_envs, bool)
        mask = everyone if mask is None else self._as_mask(mask)
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
        seeds = self._as_seeds(seed)
        if isinstance(seed, int | np.integer):
            from gymnasium.utils import seeding

            # What Gymnasium's `reset` does, which before 1.0 did everything else too.
            self._np_random, self._np_random_seed = seeding.np_random(int(seed))
        return mask, [s if m else None for s, m in zip(seeds, mask, strict=True)], rest

    def _as_mask(self, mask: Any) -> Array:
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(
                f"reset_mask is {describe(mask)}; it is a boolean array with one "
                "element for each row."
            )
        if mask.shape != (self.num_envs,) or not mask.any():
            what = "true nowhere" if mask.shape == (self.num_envs,) else describe(mask)
            raise ValueError(
                f"reset_mask is {what}; it is a boolean array of shape "
                f"({self.num_envs},) and true for the rows to begin."
            )
        return mask

    def _as_seeds(self, seed: Any) -> list[int | None]:
        rows = self.num_envs
        if seed is None:
            return [None] * rows
        if isinstance(seed, int | np.integer):
            return [int(seed) + row for row in range(rows)]
        if len(seed) != rows:
            raise ValueError(
                f"{counted(len(seed), 'seed')} for {counted(rows, 'environment')}. "
                "Pass one seed for each environment, or one integer, to which each "
                "adds its number."
            )
        return [None if one is None else int(one) for one in seed]

    # Environments.

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment; an attribute that is none is returned.

        Where a batch is one object, it is called once, and the result is every row's.
        """
        self._check_idle("call")
        return self._rows.call(name, args, kwargs)

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins to do what `call` does; `call_wait` returns the result."""
        self._check_idle("call_async")
        self._pending = PendingCall("call", lambda: self._rows.call(name, args, kwargs))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits for `call_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet; `call_wait` may be called again.
        """
        result: tuple[Any, ...] = self._wait("call", timeout)
        return result

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        self._check_idle("get_attr")
        return self._rows.get(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment.

        Args:
            name: The attribute.
            values: A list or a tuple with one for each row, or one for all.
        """
        self._check_idle("set_attr")
        self._rows.set(name, values)

    def render(self) -> tuple[Any, ...]:
        """Returns what each row renders."""
        self._check_idle("render")
        if self.render_mode is None:
            raise NotImplementedError(
                f"{type(self).__name__}({self._name}) was made without a render_mode, "
                'so it does not render. Make it with render_mode="rgb_array".'
            )
        return tuple(self._env.render(self.render_mode))

    # One thing after the other.

    def close(self, **kwargs: Any) -> None:
        """Closes the batch, once.

        Args:
            **kwargs: What `close_extras` takes.
        """
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Closes the batch.

        Args:
            timeout: How many seconds to wait for what has been begun, and, where
                environments have processes, for these to end; then they are killed.
            terminate: Whether to wait for nothing.
        """
        patience = 0.0 if terminate else timeout
        if self._pending is not None:
            self._pending.wait(patience)
            self._pending = None
        has_grace = "grace" in inspect.signature(self._env.close).parameters
        if has_grace and patience is not None:
            self._env.close(grace=patience)
        else:
            self._env.close()

    def _wait(self, kind: str, timeout: float | None) -> Any:
        self._check_open(f"{kind}_wait")
        pending = self._pending
        if pending is None or pending.kind != kind:
            from gymnasium.error import NoAsyncCallError

            raise NoAsyncCallError(
                f"{kind}_wait() was called without a {kind}_async() before it.", kind
            )
        # Until it is over. Ctrl-C comes here, too.
        pending.is_late = True
        if not pending.wait(timeout):
            raise timeout_error()(
                f"{kind}_wait() has waited for {timeout:g} s in vain. What "
                f"{kind}_async() began goes on: call {kind}_wait() again, or reset(), "
                "which lets go of it."
            )
        self._pending = None
        return pending.result()

    def _let_go(self, call: str, *, wait: bool = True) -> PendingCall | None:
        """Lets go of what somebody has waited for in vain."""
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
                f"{call}() was called while {kind}_async() is under way. Call "
                f"{kind}_wait() first"
                f"{', or reset(), which lets go of it' if pending.is_late else ''}.",
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
            f"{call}() was called before the first reset(). Call it first.",
        )

    def _raise(self, name: str, message: str) -> NoReturn:
        """Raises one of Gymnasium's errors."""
        from gymnasium import error

        raise getattr(error, name)(f"{type(self).__name__}({self._name}): {message}")


def _copy_of(row: int) -> Callable[[Array], Array]:
    """Returns a function that copies one row of an array."""

    def copy_row(leaf: Array) -> Array:
        own: Array = leaf[row, ...].copy()
        return own

    return copy_row


def _added(infos: Infos, found: list[RowInfos | None], rows: Array) -> Infos:
    """Adds infos of the masked rows."""
    for some in found:
        if some is not None:
            infos = some.add_to(infos, rows)
    return infos


def _without_flags(found: RowInfos | None) -> RowInfos | None:
    if found is not None:
        found.take_flags()
    return found


def _gymnasium_mode(order: AutoReset) -> Any:
    from gymnasium import vector

    value = order.value.title().replace("_", "")
    kind = getattr(vector, "AutoresetMode", None)  # since 1.1
    return value if kind is None else kind(value)


def _check_batch(env: Any) -> None:
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"PyToGymnasiumVector was given {what}, which is not an environment of "
            "envkit's."
        )
    if not env.batched:
        raise ValueError(
            f"PyToGymnasiumVector was given {type(env).__name__}, which is a single "
            "environment: PyToGymnasium takes those, and BatchedPyEnvironment([env]) "
            "is a batch."
        )
