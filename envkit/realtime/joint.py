"""Joins several batches into one: `Joint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from envkit import nest
from envkit.batched_py_environment import RowCalls
from envkit.errors import ClosedError, SpecError
from envkit.extend import (
    Internals,
    SpecifiedEnvironment,
    as_array,
    describe,
    hand_options,
)
from envkit.seeding import seed_per_row
from envkit.specs.environment_spec import (
    EnvironmentSpec,
    common_info_spec,
    info_spec_of,
)
from envkit.time_step import AutoReset, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["Joint"]


class _JointInternals(Internals):
    """Hands each batch the options of its rows."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        def hand(batch: Any, block: slice) -> None:
            own = None if options is None else options[block]
            hand_options(batch, own, None if rows is None else rows[block])

        env._for_each("reset", hand)


class Joint(SpecifiedEnvironment):
    """Joins batches of any size into one, and steps them at the same time.

    The rows of the first batch come first. All batches must have the same specs; step
    batches with different specs side by side.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = Joint([CartPole(batch_size=2), CartPole(batch_size=3)])
        >>> env.batch_size, env.reset().observation.shape
        (5, (5, 4))
        >>> env.step([0, 1, 0, 1, 0]).reward
        array([1., 1., 1., 1., 1.], dtype=float32)
        >>> env.close()
    """

    _envkit = _JointInternals()

    def __init__(self, envs: Sequence[Any], multithreading: bool = True) -> None:
        """Takes batches; closing this environment closes them.

        Args:
            envs: The batches, such as pools, or environments in real time.
            multithreading: Whether to step them in threads, so that none waits for
                another.
        """
        super().__init__()
        self._envs = _checked(envs)
        (
            self._observation_spec,
            self._action_spec,
            self._reward_spec,
            self._discount_spec,
        ) = EnvironmentSpec.of(self._envs[0])
        EnvironmentSpec.check_all_equal(
            [EnvironmentSpec.of(env) for env in self._envs],
            [type(env).__name__ for env in self._envs],
        )
        stops = np.cumsum([0, *(env.batch_size for env in self._envs)]).tolist()
        self._rows = self._batch_size = int(stops[-1])
        # The rows of each batch.
        self._parts = [slice(*ends) for ends in pairwise(stops)]
        self._action = nest.Structure(self._action_spec)
        self._time_step = nest.Structure(self._envs[0].time_step_spec())
        self._calls = RowCalls(self._envs, multithreading=multithreading)
        self._closed = False

    @property
    def envs(self) -> list[Any]:
        """The batches."""
        return list(self._envs)

    @property
    def resets_rows(self) -> bool:
        """True if every batch can reset single rows."""
        return all(env.resets_rows for env in self._envs)

    @property
    def holds_rows(self) -> bool:
        """True if every batch can hold rows while others step."""
        return all(env.holds_rows for env in self._envs)

    @property
    def repeats_last(self) -> bool:
        """True if any batch may repeat a `LAST`."""
        return any(getattr(env, "repeats_last", False) is True for env in self._envs)

    @property
    def adapts(self) -> bool:
        """True if any batch adapts."""
        return any(getattr(env, "adapts", False) is True for env in self._envs)

    @property
    def one_per_process(self) -> bool:
        """True if any batch's environment allows only one instance per process."""
        return any(getattr(env, "one_per_process", False) is True for env in self._envs)

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs that all batches declare for one row's info."""
        return common_info_spec([info_spec_of(env) for env in self._envs])

    def get_info(self) -> Any:
        """Returns the infos of all rows; a list with each batch's if they differ."""
        infos = self._for_each("get_info", lambda env, _: env.get_info())
        if all(isinstance(info, list) for info in infos):
            return [one for info in infos for one in info]
        try:
            return nest.map_structure(lambda *parts: np.concatenate(parts), *infos)
        except (SpecError, ValueError):
            return infos

    def seed(self, seed: Seed) -> list[Any]:
        """Seeds every row with its own stream, or with its own seed."""
        seeds = seed_per_row(seed, self._rows)
        return self._for_each("seed", lambda env, rows: env.seed(seeds[rows]))

    @property
    def seeds_rows(self) -> bool:
        """True if all batches accept seeds for some of their rows."""
        return all(env.seeds_rows for env in self._envs)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        def seed(env: Any, rows: slice) -> None:
            if any(own is not None for own in seeds[rows]):
                env._envkit.seed_rows(env, seeds[rows])

        self._for_each("seed", seed)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the pictures of all rows."""
        pictures = self._for_each("render", lambda env, _: env.render(mode))
        return np.concatenate(pictures) if mode == "rgb_array" else pictures

    def close(self) -> None:
        """Closes every batch, even if closing one fails."""
        if self._closed:
            return
        self._closed = True
        try:
            self._calls.run("close", lambda env, _: env.close(), range(len(self._envs)))
        finally:
            self._calls.close()

    def _reset(self) -> TimeStep:
        return self._joined("reset", lambda env, _: env.reset())

    def _reset_rows(self, mask: Array) -> TimeStep:
        def reset(env: Any, rows: slice) -> TimeStep:
            if not mask[rows].any():
                return env.current_time_step()  # type: ignore[no-any-return]
            return env.reset(mask[rows])  # type: ignore[no-any-return]

        return self._joined("reset", reset)

    def _step(self, action: NestedArray) -> TimeStep:
        whole = self._whole(action)
        return self._joined("step", lambda env, rows: env.step(self._part(whole, rows)))

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        whole = self._whole(action)

        def step(env: Any, rows: slice) -> TimeStep:
            if not (stepping[rows] | beginning[rows]).any():
                return env.current_time_step()  # type: ignore[no-any-return]
            part = self._part(whole, rows)
            return env.step_rows(part, stepping[rows], beginning[rows])  # type: ignore[no-any-return]

        return self._joined("step", step)

    def _whole(self, action: NestedArray) -> NestedArray:
        """Returns the action of all rows in arrays; raises if it does not fit."""
        whole = self._action.map(as_array, action)
        for leaf in self._action.flatten(whole):
            if leaf.shape[:1] != (self._rows,):
                raise SpecError(
                    f"The action of Joint.step() must have {self._rows} rows, got "
                    f"shape {leaf.shape}. None of them has moved."
                )
        return whole

    def _part(self, action: NestedArray, rows: slice) -> NestedArray:
        return self._action.map(lambda leaf: leaf[rows], action)

    def _joined(self, call: str, move: Callable[[Any, slice], TimeStep]) -> TimeStep:
        time_steps = self._for_each(call, move)
        leaves = [self._time_step.flatten(time_step) for time_step in time_steps]
        columns = [np.concatenate(column) for column in zip(*leaves, strict=True)]
        return self._time_step.unflatten(columns)  # type: ignore[no-any-return]

    def _for_each(self, call: str, function: Callable[[Any, slice], Any]) -> list[Any]:
        if self._closed:
            raise ClosedError.used("Joint", call)
        return self._calls.run(
            call,
            lambda env, index: function(env, self._parts[index]),
            range(len(self._envs)),
        )

    def _get_state(self) -> list[Any]:
        return self._for_each("get_state", lambda env, _: env.get_state())

    def _set_state(self, state: Any) -> None:
        if not isinstance(state, list) or len(state) != len(self._envs):
            raise ValueError(
                f"The state of Joint.set_state() must be that of {len(self._envs)} "
                f"batches, got {describe(state)}."
            )
        states = iter(state)
        for env in self._envs:
            env.set_state(next(states))


def _checked(envs: Sequence[Any]) -> list[Any]:
    """Returns the batches; raises for other environments."""
    batches = list(envs)
    if not batches:
        raise ValueError("The envs of Joint must be at least one batch, got none.")
    for index, env in enumerate(batches):
        place = f"envs[{index}]"
        if not getattr(env, "batched", False):
            raise ValueError(
                f"{place} must be a batch, got {describe(env)}. BatchedPyEnvironment "
                "makes one of single environments."
            )
        if AutoReset.kept_by(env) is not AutoReset.NEXT_STEP:
            raise ValueError(
                f"{place} must be a batch with AutoReset.NEXT_STEP, got "
                f"{describe(env)} with AutoReset.{AutoReset.kept_by(env).name}."
            )
    return batches
