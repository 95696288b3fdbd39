"""`PyToGymnasiumVector`: a batch of envkit's as a vector environment of Gymnasium."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gymnasium_vector.async_calls import AsyncCalls
from envkit.adapters.gymnasium_vector.autoreset_modes import as_order
from envkit.adapters.gymnasium_vector.outcomes import Outcomes
from envkit.adapters.gymnasium_vector.reset_requests import (
    as_reset_mask,
    as_reset_seeds,
)
from envkit.adapters.gymnasium_vector.row_infos import Infos
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
from envkit.arrays import FLOATS
from envkit.autoreset import AutoReset
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["PyToGymnasiumVector"]


class PyToGymnasiumVector(AsyncCalls, LateBase):
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
            env: A batch. Of a pool, `autoreset` is set to what is wanted; of others to
                NEXT_STEP, around which the adapter begins episodes itself.
            autoreset_mode: When the next episode of a row begins: an `AutoresetMode`
                of Gymnasium's, or its value.
            infos: Which infos are looked at: those of every step, as Gymnasium does
                ("all"), those of the begins and ends of episodes ("final") or "none".
                The workers of a pool tell where there are some, and are asked for
                those, which takes about as long as a step of cheap environments;
                batches in this process have them at hand.
            render_mode: What `render` calls the batch's `render` with. `None` for the
                mode that the batch, or the first of its environments, was made with, if
                it has one.
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
        self._rows = rows
        self._outcomes = Outcomes(env, self._order, rows, type(self).__name__)
        self.closed = False
        self.num_envs = int(env.batch_size)
        self._has_begun = False
        self._pending = None
        # By row: the seed, or the generator and the seed that were made of it.
        self._own_random: dict[int, Any] = {}

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
        self._outcomes.to_observations = to_members(space, observation_spec)
        self._outcomes.to_observation = to_member(space, observation_spec)
        self._to_actions = from_members(
            self.single_action_space,
            action_spec,
            self.num_envs,
            subject=f"{type(self).__name__}.step() was given an action that",
            root="action",
            kept=True,
        )
        # What an action is that is one array.
        is_one = isinstance(action_spec, ArraySpec) and action_spec.dtype != object
        self._action_dtypes: tuple[Any, ...] = (action_spec.dtype,) if is_one else ()
        if is_one and action_spec.keeps_floats:
            self._action_dtypes = FLOATS
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

    def _step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        return self._outcomes.step(actions)

    def _reset(self, *resets: Any) -> tuple[Any, Infos]:
        result = self._outcomes.reset(*resets)
        self._has_begun = True
        return result

    def _as_actions(self, actions: Any) -> Any:
        # Hot: called once per batch step. The first case is what nearly all have.
        if (
            type(actions) is np.ndarray
            and actions.dtype in self._action_dtypes
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
        mask = everyone if mask is None else as_reset_mask(mask, self.num_envs)
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
        seeds = as_reset_seeds(seed, self.num_envs)
        seeds = [s if m else None for s, m in zip(seeds, mask, strict=True)]
        self._own_random.update((r, s) for r, s in enumerate(seeds) if s is not None)
        return mask, seeds, rest

    # Environments.

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment; an attribute that is none is returned.

        Where a batch is one object, it is called once, and the result is every row's.
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
            name: The attribute.
            values: A list or a tuple with one for each row, or one for all.
        """
        self._check_idle("set_attr")
        self._rows.set(name, values)

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The generators of the environments, or copies of them.

        Where environments have none, there is one for each row, of the row's seed.
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
        """Returns what each row renders."""
        self._check_idle("render")
        if self.render_mode is None:
            raise NotImplementedError(
                f"{type(self).__name__}({self._name}) was made without a render_mode, "
                'so it does not render. Make it with render_mode="rgb_array".'
            )
        rendered = self._env.render(self.render_mode)
        # What one object shows in a window.
        return (None,) * self.num_envs if rendered is None else tuple(rendered)

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
        """Closes the batch, and warns as Gymnasium does if something has been begun.

        Args:
            timeout: How many seconds to wait for what has been begun, and, where
                environments have processes, for these to end; then they are killed.
            terminate: Whether to wait for nothing.
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
