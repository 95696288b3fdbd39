"""Plays each episode in an environment drawn from several: `Choice`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envkit.extend import Internals, SpecifiedEnvironment, describe, hand_options
from envkit.provenance import record_seed
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.arrays import ArraySpec
from envkit.specs.environment_spec import (
    EnvironmentSpec,
    common_info_spec,
    info_spec_of,
)
from envkit.time_step import TimeStep
from envkit.types import NestedArray, Seed

__all__ = ["Choice"]

# Distinguishes the seed of the draws from those of the environments, which count from
# 0.
_BRANCH = 2**31


class _ChoiceInternals(Internals):
    """Reports the environments that may be drawn."""

    def inside(self, env: Any) -> list[Any]:
        """Returns all of them."""
        return list(env._envs)


class Choice(SpecifiedEnvironment):
    """Plays each episode in an environment drawn from several.

    Each `reset`, and each step after a `LAST`, draws one environment, and passes it the
    seed and options of `reset`. All must have the same specs. `get_info()` adds the
    number of the environment to its info, as `choice`.

    Example:
        >>> import functools
        >>> from envkit.envs import GridWorld
        >>> env = Choice(
        ...     ["GridWorld", functools.partial(GridWorld, max_episode_steps=5)],
        ...     weights=[1, 3],
        ...     seed=7,
        ... )
        >>> numbers = []
        >>> for _ in range(8):
        ...     _ = env.reset()
        ...     numbers.append(int(env.get_info()["choice"]))
        >>> numbers
        [1, 1, 1, 1, 0, 1, 0, 0]
    """

    _envkit = _ChoiceInternals()

    def __init__(
        self,
        envs: Iterable[str | Callable[[], Any]],
        weights: Sequence[float] | None = None,
        *,
        seed: Seed = None,
    ) -> None:
        """Makes all environments.

        Args:
            envs: The environments, as for `envkit.make`: names, "module:attribute", or
                constructors. Closing this environment closes them all.
            weights: The relative probabilities; `None` for equal ones.
            seed: Seeds the draws and the environments, as if given to `seed()`; `None`
                leaves the environments unseeded.
        """
        # A step after a LAST is drawn here, so the environments never begin one
        # themselves.
        super().__init__(handle_auto_reset=True)
        if isinstance(envs, str | PyEnvironment) or not isinstance(envs, Iterable):
            raise TypeError(
                "envs must be a list of names or constructors, such as "
                f'["Catch", my_game.Level], got {describe(envs)}.'
            )
        makers = list(envs)
        if not makers:
            raise ValueError(
                "envs must have at least one environment to choose from, got none."
            )
        self._weights = _checked_weights(weights, len(makers))
        self._envs: list[Any] = []
        try:
            for maker in makers:
                self._envs.append(constructor(maker)())
            self._check()
        except BaseException:
            self.close()
            raise
        (
            self._observation_spec,
            self._action_spec,
            self._reward_spec,
            self._discount_spec,
        ) = EnvironmentSpec.of(self._envs[0])
        self._choice: int | None = None
        self._rng = np.random.default_rng()
        if seed is not None:
            self._seed_all(seed)

    def _check(self) -> None:
        names = [type(env).__name__ for env in self._envs]
        for index, env in enumerate(self._envs):
            if env.batched:
                raise ValueError(
                    f"envs[{index}] makes a {names[index]} that is a batch. A Choice "
                    "must be of single environments: make a batch of choices."
                )
            if getattr(env, "repeats_last", False) is True:
                raise ValueError(
                    f"envs[{index}] makes a {names[index]} that repeats a LAST to pad "
                    "its episodes, and another environment would begin there. Wrap the "
                    "Choice instead."
                )
        specs = [EnvironmentSpec.of(env) for env in self._envs]
        EnvironmentSpec.check_all_equal(specs, names, "take turns in one Choice")

    @property
    def envs(self) -> list[Any]:
        """The environments, in the order of their numbers."""
        return list(self._envs)

    @property
    def choice(self) -> int | None:
        """The number of the current environment; `None` before the first episode."""
        return self._choice

    @property
    def _current(self) -> Any:
        return self._envs[self._choice or 0]

    @property
    def adapts(self) -> bool:
        """Whether any of the environments adapts."""
        return any(getattr(env, "adapts", False) is True for env in self._envs)

    def seed(self, seed: Seed) -> None:
        """Seeds the draws, and each environment with its own stream."""
        self._seed_all(seed)

    def _seed_all(self, seed: Seed) -> None:
        (number,) = checked_seeds(seed, 1)
        for env, own in zip(
            self._envs, seed_per_row(number, len(self._envs)), strict=True
        ):
            env.seed(own)
        record_seed(self, seed)
        key = np.random.SeedSequence(number, spawn_key=(_BRANCH,))
        self._rng = np.random.default_rng(key)

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the number, and of all environments' infos."""
        common = common_info_spec([info_spec_of(env) for env in self._envs])
        return {**common, "choice": ArraySpec((), np.int64, "choice")}

    def get_info(self) -> dict[str, Any]:
        """Returns the current environment's info, and its number."""
        try:
            info = self._current.get_info()
        except NotImplementedError:
            info = {}
        beside = info if isinstance(info, dict) else {"info": info}
        number = -1 if self._choice is None else self._choice
        return {**beside, "choice": np.array(number, np.int64)}

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the current environment renders."""
        return self._current.render(mode)

    def close(self) -> None:
        """Closes every environment, even if closing one fails."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)

    def _reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        choice = int(self._rng.choice(len(self._envs), p=self._weights))
        env = self._envs[choice]
        if options is None:
            self._choice = choice
            return env.reset()  # type: ignore[no-any-return]  # a time step
        # An environment that refuses the options leaves the previous episode as it is.
        hand_options(env, options)
        self._choice = choice
        try:
            return env.reset()  # type: ignore[no-any-return]  # a time step
        finally:
            hand_options(env, None)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._current.step(action)  # type: ignore[no-any-return]  # a time step

    def _get_state(self) -> Any:
        states = [env.get_state() for env in self._envs]
        return self._choice, self._rng.bit_generator.state, states

    def _set_state(self, state: Any) -> None:
        choice, drawn, states = state
        if len(states) != len(self._envs):
            raise ValueError(
                f"Choice.set_state() was given the state of {len(states)} "
                f"environments; there are {len(self._envs)}."
            )
        for env, own in zip(self._envs, states, strict=True):
            env.set_state(own)
        self._choice, self._rng.bit_generator.state = choice, drawn


def _checked_weights(weights: Any, count: int) -> list[float] | None:
    if weights is None:
        return None
    array = np.asarray(weights)
    if (
        array.dtype.kind not in "biuf"
        or array.shape != (count,)
        or not np.isfinite(array).all()
        or (array < 0).any()
        or not array.any()
    ):
        raise ValueError(
            f"weights must have a number of at least 0 for each of {count} "
            f"environments, and one above 0, got {describe(weights)}."
        )
    return (array / array.sum()).tolist()  # type: ignore[no-any-return]  # a list
