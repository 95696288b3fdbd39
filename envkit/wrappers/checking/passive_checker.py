"""`PassiveChecker`: looks at everything that goes into an environment and comes out."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.checking.action_check import ActionCheck
from envkit.wrappers.checking.episode_book import EpisodeBook
from envkit.wrappers.checking.faults import (
    EnvironmentWarning,
    fault,
    same_values,
    unlike,
    warn_of,
)
from envkit.wrappers.checking.time_step_check import TimeStepCheck
from envkit.wrappers.pictures.rendered import check_picture

__all__ = ["EnvironmentWarning", "PassiveChecker"]

_LAST = int(StepType.LAST)


class PassiveChecker(PyEnvironmentBaseWrapper):
    """Looks at every action and every answer, and changes neither.

    A broken promise raises a `SpecError` that says what a well-behaved environment
    does. Of actions: structure, shape, dtype and bounds, before the environment moves,
    which must not write into them. Of time steps: structure, shapes, dtypes and bounds;
    the order `FIRST (MID)* LAST` in every row, and that rows which are to stay do so;
    the reward 0 and the discount 1 of a `FIRST`; discounts between 0 and 1; rewards
    that are no NaN; and arrays that the environment writes into after it has returned
    them. Of what else is asked for: that pictures are pictures, that infos and states
    pickle, and that specs stay the same.

    What is allowed and most likely not meant is an `EnvironmentWarning`, once for each
    kind and place: floats of an action beyond their bounds, observations and rewards
    that are not finite, a `MID` with discount 0.

    It sees what happens to happen. `envkit.testing.check_environment` provokes things,
    and finds more. Time steps are copied, so leave the wrapper out where speed matters.

    Example:
        >>> from envkit.envs import Catch
        >>> env = PassiveChecker(Catch(seed=1))
        >>> bool(env.reset().is_first())
        True
        >>> try:
        ...     env.step(3)
        ... except ValueError as error:
        ...     print(str(error).splitlines()[-2])
        The value 3 is above the maximum 2.
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._name = type(env).__name__
        self._spec = EnvironmentSpec.of(env)
        self._actions = ActionCheck(self._spec.action, self._dims, self._name)
        self._time_steps = TimeStepCheck(env, self._dims, self._name)
        self._book = EpisodeBook(self._dims)
        self._all = np.ones(self._dims, bool)
        self._none = np.zeros(self._dims, bool)
        # What the environment returned last, which nobody else has, beside a copy.
        self._returned: list[Array] = []
        self._copies: list[Array] = []
        self._said: set[str] = set()

    def get_info(self) -> Any:
        """Returns the environment's info, if it pickles."""
        info = super().get_info()
        self._check_pickles(info, "get_info()")
        return info

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders, if it is a picture."""
        picture = super().render(mode)
        if mode == "rgb_array":
            check_picture(picture, self._dims, f'{self._name}.render("rgb_array")')
        return picture

    def _reset(self) -> TimeStep:
        self._check_specs()
        return self._look(
            "reset()", self._env.reset(), self._all, self._none, self._none
        )

    def _reset_rows(self, mask: Array) -> TimeStep:
        time_step = self._env.reset(mask)
        return self._look("reset(mask)", time_step, mask, self._none, ~mask)

    def _step(self, action: NestedArray) -> TimeStep:
        ended = self._book.step_types == _LAST
        copies = self._before(action, ended)
        time_step = self._env.step(action)
        self._after(action, copies)
        return self._look(
            "step()", time_step, self._none, self._all, self._none, action, copies
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        ended = self._book.step_types == _LAST
        copies = self._before(action, ended | ~stepping)
        time_step = self._env.step_rows(action, stepping, beginning)
        self._after(action, copies)
        held = ~(stepping | beginning)
        return self._look(
            "step(action, mask)", time_step, beginning, stepping, held, action, copies
        )

    def _before(self, action: NestedArray, ignored: Array) -> list[Any] | None:
        """Looks at an action if a row uses it, and returns copies of its arrays."""
        if ignored.all():
            return None
        columns = self._actions.look(action, ignored)
        for path, text in self._actions.doubts(columns).items():
            self._doubt(path, text)
        return self._actions.taken(action)

    def _after(self, action: NestedArray, copies: list[Any] | None) -> None:
        if copies is not None:
            self._actions.check_untouched(action, copies)

    def _look(
        self,
        call: str,
        time_step: Any,
        begins: Array,
        steps: Array,
        held: Array,
        action: NestedArray = None,
        copies: list[Any] | None = None,
    ) -> TimeStep:
        """Looks at what a call returned, and returns a copy of it.

        Args:
            call: What was called.
            time_step: What it returned.
            begins: Which rows were to begin an episode.
            steps: Which rows took a step.
            held: Which rows were to stay where they are.
            action: The action that it was given.
            copies: Copies of the action's arrays, if the action was used.
        """
        check, book = self._time_steps, self._book
        self._check_kept(call)
        arrays = check.arrays(call, time_step, book.since())
        disorder = check.disorder(call, arrays[0], book, begins, steps)
        moved = begins | steps
        book.advance(arrays[0], moved)
        before, self._copies = self._copies, [np.array(array) for array in arrays]
        self._returned = arrays
        if disorder is not None:
            raise disorder
        if before and held.any():
            check.check_held(call, arrays, before, held)
        check.check_values(call, arrays, book, moved)
        if copies is not None:
            pairs = zip(check.structure.paths, arrays, strict=True)
            self._actions.check_separate(action, list(pairs))
        for key, text in check.doubts(call, arrays, book, moved):
            self._doubt(key, text)
        # Not the arrays themselves: whatever happens to these, the environment did it.
        seen: TimeStep = check.structure.unflatten([np.array(leaf) for leaf in arrays])
        return seen

    def _check_kept(self, call: str) -> None:
        """Raises if what was returned last is no longer what it was."""
        kept, self._returned = self._returned, []
        for index, returned in enumerate(kept):
            copied = self._copies[index]
            if not same_values(copied, returned):
                path = self._time_steps.structure.paths[index]
                was, now = unlike(copied, returned)
                place = self._book.place()
                raise fault(
                    f"{self._name} changed a time step after it had returned it: that "
                    f"of {place}, before {call} returned the next.",
                    [("returned", f"{path} = {was}"), ("now", f"{path} = {now}")],
                    "Whoever keeps a time step, a replay buffer for one, finds a later "
                    "one in its place. Return a copy of an array that is written to "
                    "again: self._state.copy().",
                )

    def _check_specs(self) -> None:
        spec = EnvironmentSpec.of(self._env)
        difference = self._spec.difference(spec)
        if difference is not None:
            part, text = difference
            raise fault(
                f"{self._name}.{part}_spec() returned something else than before.",
                [
                    ("first", f"{getattr(self._spec, part)!r:.200}"),
                    ("then", f"{getattr(spec, part)!r:.200}"),
                ],
                f"{text} Whoever asked once goes on with what was answered: build the "
                "specs in __init__ and return them.",
            )

    def _check_pickles(self, value: Any, call: str) -> None:
        try:
            pickle.loads(pickle.dumps(value))
        except Exception as error:
            raise fault(
                f"What {self._name}.{call} returned does not pickle: "
                f"{type(error).__name__}.",
                [("expected", "bytes"), ("got", f"{error!s:.200}")],
                "It travels between processes: keep plain data in it, arrays and "
                "numbers, no open files and no lambdas.",
            ) from error

    def _doubt(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            warn_of(text)

    def _save(self) -> Any:
        return self._book.save()

    def _restore(self, saved: Any) -> None:
        self._book.restore(saved)
        # These are of another time.
        self._returned, self._copies = [], []

    def _get_state(self) -> Any:
        state = super()._get_state()
        self._check_pickles(state.environment, "get_state()")
        return state
