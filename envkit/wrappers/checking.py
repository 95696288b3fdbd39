"""Checks everything that an environment is given and returns: `PassiveChecker`."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.pixels import check_picture
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import (
    ACCEPTED_KINDS,
    WrapperInternals,
    as_array,
    describe,
    flatten_as,
    leave_unseen,
    within,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.findings import (
    CHANGED_ACTION,
    OVERWRITTEN,
    Finding,
    after_last,
    bad_discount,
    bad_reward,
    first_with,
    name_of,
    not_first,
    paragraphs,
    show,
    too_early,
)
from envkit.wrappers.rows import beside

__all__ = [
    "ActionCheck",
    "EnvironmentWarning",
    "EpisodeBook",
    "PassiveChecker",
    "TimeStepCheck",
    "same_values",
    "unlike",
    "warn_of",
]


class _CheckInternals(WrapperInternals):
    """Saves the facts about the current episode."""

    def save(self, env: Any) -> Any:
        return env._book.save()

    def restore(self, env: Any, saved: Any) -> None:
        env._book.restore(saved)
        # These are older than the restored state.
        env._returned, env._copies = [], []


class PassiveChecker(PyEnvironmentBaseWrapper):
    """Checks every action and every time step, but changes neither.

    A broken promise raises a `SpecError` with the message of `check_environment`; the
    error's attribute `check` is that check's name. The wrapper checks

    - actions: structure, shape, dtype and bounds, before the environment steps; and
      that the environment does not write into them;
    - time steps: structure, shapes, dtypes and bounds; the order `FIRST (MID)* LAST` in
      every row, and that held rows do not change; reward 0 and discount 1 in a `FIRST`;
      discounts between 0 and 1; that no reward is NaN; and that the environment does
      not write into arrays it has returned;
    - that pictures are pictures, infos and states can be pickled, and specs stay the
      same.

    It warns with an `EnvironmentWarning`, once for each kind and place, about action
    floats beyond their bounds, observations and rewards that are not finite, and a
    `MID` with discount 0.

    The wrapper checks only the calls you make; `envkit.testing.check_environment` makes
    more calls and finds more. Time steps are copied, so leave the wrapper out if speed
    matters.

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

    _envkit = _CheckInternals()

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        leave_unseen(self)  # it looks at every time step
        self._name = type(self._env).__name__
        self._spec = EnvironmentSpec.of(self._env)
        self._actions = ActionCheck(self._spec.action, self._dims, self._name)
        self._time_steps = TimeStepCheck(self._env, self._dims, self._name)
        self._book = EpisodeBook(self._dims)
        self._all = np.ones(self._dims, bool)
        self._none = np.zeros(self._dims, bool)
        # The arrays that the environment returned last, and copies of them.
        self._returned: list[Array] = []
        self._copies: list[Array] = []
        self._said: set[str] = set()

    def get_info(self) -> Any:
        """Returns the environment's info; raises if it cannot be pickled."""
        info = super().get_info()
        self._check_pickles(info, "get_info()")
        return info

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders; raises if it is not a picture."""
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

    def _ended(self) -> Array:
        """Returns the rows in which a step begins an episode and ignores its action."""
        if self.continues_after_last:
            return self._none
        return np.asarray(self._book.step_types == _LAST)

    def _step(self, action: NestedArray) -> TimeStep:
        ended = self._ended()
        copies = self._before(action, ended)
        time_step = self._env.step(action)
        self._after(action, copies)
        return self._look(
            "step()", time_step, self._none, self._all, self._none, action, copies
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        ended = self._ended()
        copies = self._before(action, ended | ~stepping)
        time_step = self._env.step_rows(action, stepping, beginning)
        self._after(action, copies)
        held = ~(stepping | beginning)
        return self._look(
            "step(action, mask)", time_step, beginning, stepping, held, action, copies
        )

    def _before(self, action: NestedArray, ignored: Array) -> list[Any] | None:
        """Checks an action unless all rows ignore it; returns copies of its arrays."""
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
        """Checks the time step that a call returned, and returns a copy of it.

        Args:
            call: The name of the call.
            time_step: The time step it returned.
            begins: Rows that were to begin an episode.
            steps: Rows that took a step.
            held: Rows that were to stay where they are.
            action: The action of the call.
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
        # Returns copies: any later change of the originals is then the environment's.
        seen: TimeStep = check.structure.unflatten([np.array(leaf) for leaf in arrays])
        return seen

    def _check_kept(self, call: str) -> None:
        """Raises if the arrays returned last have changed since."""
        kept, self._returned = self._returned, []
        for index, returned in enumerate(kept):
            copied = self._copies[index]
            if not same_values(copied, returned):
                path = self._time_steps.structure.paths[index]
                was, now = unlike(copied, returned)
                place = self._book.place()
                raise _fault(
                    "kept_results",
                    f"A time step of {self._name} was overwritten after it was "
                    f"returned, in {place}, before {call} returned the next.",
                    OVERWRITTEN,
                    returned=f"{path} = {was}",
                    now=f"{path} = {now}",
                )

    def _check_specs(self) -> None:
        spec = EnvironmentSpec.of(self._env)
        difference = self._spec.difference(spec)
        if difference is not None:
            part, text = difference
            raise _fault(
                "stable_specs",
                f"{self._name}.{part}_spec() returned another spec than before.",
                f"{text} Callers ask once and keep the first answer: build the specs "
                "in __init__ and return them.",
                first=f"{getattr(self._spec, part)!r:.200}",
                then=f"{getattr(spec, part)!r:.200}",
            )

    def _check_pickles(self, value: Any, call: str) -> None:
        # Values raise many kinds of errors; all mean the same here.
        try:
            pickle.loads(pickle.dumps(value))
        except Exception as error:
            raise _fault(
                "info" if call == "get_info()" else "state_pickle",
                f"{self._name}.{call} returned a value that does not pickle: "
                f"{type(error).__name__}.",
                "It is sent between processes, so it must be plain data such as arrays "
                "and numbers, without open files or lambdas.",
                expected="a value that pickles",
                got=f"{error!s:.200}",
            ) from error

    def _doubt(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            warn_of(text)

    def _get_state(self) -> Any:
        state = super()._get_state()
        self._check_pickles(state.environment, "get_state()")
        return state


class EnvironmentWarning(UserWarning):
    """Warns about something that an environment may do, but probably should not.

    A filter turns it into an error.

    Example:
        >>> import warnings
        >>> from envkit import BoundedArraySpec, RandomPyEnvironment
        >>> spec = BoundedArraySpec((), np.float32, -2.0, 2.0)
        >>> env = PassiveChecker(RandomPyEnvironment(spec, spec))
        >>> _ = env.reset()
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", EnvironmentWarning)
        ...     try:
        ...         env.step(5.0)
        ...     except EnvironmentWarning as warning:
        ...         print(str(warning).splitlines()[0])
        RandomPyEnvironment.step() was given an action that does not fit its spec.
    """


def _error(finding: Finding) -> SpecError:
    error = SpecError(finding.text)
    error.check = finding.check
    return error


def _fault(check: str, problem: str, advice: str, **facts: str) -> SpecError:
    """Builds the error for a broken promise that `check_environment` also finds."""
    return _error(Finding(check, paragraphs(problem, advice, **facts)))


def warn_of(text: str) -> None:
    """Warns the caller of the environment, however deep the call is."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, EnvironmentWarning, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == "envkit" or module.startswith("envkit.")


def same_values(first: Array, second: Array) -> bool:
    """True if two arrays of one dtype hold the same values; NaN equals NaN.

    Nothing is known of objects, so they count as the same.
    """
    if first.dtype.hasobject:
        return True
    if np.array_equal(first, second):
        return True
    return first.dtype.kind in "fc" and np.array_equal(first, second, equal_nan=True)


def unlike(first: Array, second: Array) -> tuple[str, str]:
    """Describes the first difference between two arrays of one shape and dtype.

    Example:
        >>> unlike(np.array([0, 1, 2]), np.array([0, 1, 5]))
        ('2 at index (2,)', '5 at index (2,)')
    """
    if first.ndim == 0:
        return str(first), str(second)
    differs = (first != second) & ((first == first) | (second == second))
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"{first[index]!s} at index {index}", f"{second[index]!s} at index {index}"


class EpisodeBook:
    """Counts the steps of each row, for messages that say when something happened.

    Attributes:
        step_types: The last step type of each row; `LAST` before the first.

    Example:
        >>> book = EpisodeBook((2,))
        >>> both = np.array([True, True])
        >>> for step_types in ([0, 0], [1, 2], [1, 0]):
        ...     book.advance(np.array(step_types), both)
        >>> book.place(0), book.place(1)
        ('row 0, step 2 of its episode 1', 'row 1, step 0 of its episode 2')
    """

    def __init__(self, dims: tuple[int, ...]) -> None:
        """Begins before the first episode of every row, or of the only environment."""
        self.step_types: Array = np.full(dims, _LAST, np.int32)
        self._episodes: Array = np.zeros(dims, np.int64)
        self._steps: Array = np.zeros(dims, np.int64)
        self._calls = 0

    def advance(self, step_types: Array, moved: Array) -> None:
        """Records that some rows have moved."""
        first = moved & (step_types == _FIRST)
        self._episodes = self._episodes + first
        self._steps = np.where(first, 0, self._steps + moved)
        self.step_types = np.where(moved, step_types, self.step_types)
        self._calls += 1

    def place(self, row: Any = None) -> str:
        """Names the position of a row, whose `FIRST` is step 0, or of a batch."""
        if self._steps.ndim == 0:
            return f"step {self._steps} of episode {self._episodes}"
        if row is None:
            return f"call {self._calls}"
        return (
            f"row {row}, step {self._steps[row]} of its episode {self._episodes[row]}"
        )

    def since(self) -> str:
        """Says, in a sentence, which call came before this one."""
        if not self._calls:
            return "This was the first reset()."
        return f"This came after {self.place()}."

    def save(self) -> tuple[Any, ...]:
        """Returns everything, for `restore`."""
        return self.step_types, self._episodes, self._steps, self._calls

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restores what `save` returned."""
        self.step_types, self._episodes, self._steps, self._calls = saved


class ActionCheck:
    """Checks each action before and after its step.

    Any value that fits without loss passes: integers of any dtype, lists, Python
    numbers. So do floats beyond their bounds, which are only doubtful: many policies
    exceed bounds on purpose, and many environments clip actions.

    Example:
        >>> spec = BoundedArraySpec((), np.float32, -1.0, 1.0)
        >>> check = ActionCheck(spec, (), "Car")
        >>> check.doubts(check.look(0.5, np.array(False)))
        {}
    """

    def __init__(self, spec: NestedSpec, dims: tuple[int, ...], name: str) -> None:
        """Prepares to check the actions of an environment or batch called `name`."""
        self._structure = nest.Structure(spec)
        self._dims = dims
        self._call = f"{name}.step()"
        self._subject = f"{self._call} was given an action that"
        self._unmoved = (
            "None of the rows has moved." if dims else "The environment has not moved."
        )
        # Allows any floats but NaN and infinities.
        self._needed = [_without_bounds(leaf) for leaf in self._structure.leaves]

    def look(self, action: NestedArray, ignored: Array) -> list[Any]:
        """Raises unless an action fits; returns its leaves in the spec's dtypes.

        Args:
            action: An action, or one for each row.
            ignored: The rows that do not use it.
        """
        leaves = flatten_as(
            self._structure, action, subject=self._subject, root="action"
        )
        columns = []
        for index, leaf in enumerate(leaves):
            spec = self._structure.leaves[index]
            column = _without(ignored, _as_spec(leaf, spec), spec)
            # First checks the spec itself, whose messages the reader knows.
            needed = self._needed[index]
            if not _fits(column, needed, self._dims):
                self._check(column, index, spec)
                self._check(column, index, needed)
            columns.append(column)
        return columns

    def doubts(self, columns: list[Any]) -> dict[str, str]:
        """Returns what is doubtful about an action, by path."""
        found = {}
        for index, column in enumerate(columns):
            spec = self._structure.leaves[index]
            if not _fits(column, spec, self._dims):
                try:
                    self._check(column, index, spec, context="")
                except SpecError as error:
                    found[error.path] = (
                        f"{error}\n\nMany environments clip such actions, but not all. "
                        "To be sure, call np.clip yourself."
                    )
        return found

    def taken(self, action: NestedArray) -> list[Any]:
        """Returns copies of an action's arrays, for `check_untouched`."""
        return [
            leaf.copy() if isinstance(leaf, np.ndarray) else None
            for leaf in self._structure.flatten(action)
        ]

    def check_untouched(self, action: NestedArray, copies: list[Any]) -> None:
        """Raises if the environment has written into the action."""
        leaves = self._structure.flatten(action)
        for index, (leaf, copy) in enumerate(zip(leaves, copies, strict=True)):
            if copy is not None and not same_values(copy, leaf):
                path = nest.join("action", self._structure.paths[index])
                given, after = unlike(copy, leaf)
                raise _fault(
                    "unchanged_actions",
                    f"{self._call} changed the action it was given.",
                    CHANGED_ACTION,
                    given=f"{path} = {given}",
                    after=f"{path} = {after}",
                )

    def check_separate(
        self, action: NestedArray, returned: list[tuple[str, Array]]
    ) -> None:
        """Raises if a returned array shares memory with the action."""
        leaves = self._structure.flatten(action)
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, np.ndarray):
                continue
            for path, array in returned:
                if np.shares_memory(leaf, array):
                    place = nest.join("action", self._structure.paths[index])
                    raise _fault(
                        "released_actions",
                        f"{self._call} returned the action it was given: {path} and "
                        f"{place} share memory.",
                        "The next action may be written into the same array. Return a "
                        "copy: np.array(action).",
                        expected="arrays that belong to the caller alone",
                        got=f"{path} in the memory of {place}",
                    )

    def _check(
        self, column: Any, index: int, spec: ArraySpec, context: str | None = None
    ) -> None:
        check_fits(
            column,
            spec,
            subject=self._subject,
            root="action",
            path=self._structure.paths[index],
            outer_dims=self._dims,
            context=self._unmoved if context is None else context,
        )


def _without_bounds(spec: ArraySpec) -> ArraySpec:
    if spec.dtype.kind != "f":
        return spec
    return BoundedArraySpec(spec.shape, spec.dtype, name=spec.name)


def _fits(value: Any, spec: ArraySpec, dims: tuple[int, ...]) -> bool:
    """True if an array has the shape, dtype and bounds of a spec."""
    return (
        isinstance(value, np.ndarray)
        and value.shape == dims + spec.shape
        and value.dtype == spec.dtype
        and (
            not isinstance(spec, BoundedArraySpec)
            or within(value, spec.minimum, spec.maximum)
        )
    )


def _as_spec(leaf: Any, spec: ArraySpec) -> Any:
    """Returns an array of the spec's dtype if that loses nothing; else the leaf."""
    dtype = spec.dtype
    array = as_array(leaf)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in ACCEPTED_KINDS.get(dtype.kind, dtype.kind):
        # A message about the original says more than one about its array.
        return leaf
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        holds = within(array, np.asarray(info.min), np.asarray(info.max))
    elif dtype.kind in "fc":
        # Floats may lose digits, but no finite number may become infinite.
        with np.errstate(over="ignore"):
            infinite = np.isinf(array.astype(dtype)) & ~np.isinf(array)
        holds = not infinite.any()
    else:
        holds = array.dtype.itemsize <= dtype.itemsize
    return array.astype(dtype) if holds else array


def _without(ignored: Array, column: Any, spec: ArraySpec) -> Any:
    """Replaces values of rows that do not use the action by values that fit."""
    if not ignored.any() or not isinstance(column, np.ndarray):
        return column
    if column.shape != ignored.shape + spec.shape:
        return column
    filler = spec.minimum if isinstance(spec, BoundedArraySpec) else spec.dtype.type()
    return np.where(beside(ignored, column), filler, column).astype(column.dtype)


_FIRST, _MID, _LAST = (
    int(step_type) for step_type in (StepType.FIRST, StepType.MID, StepType.LAST)
)


class TimeStepCheck:
    """Checks the time steps of one environment, single or batched.

    Attributes:
        structure: The structure of its time steps.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch()
        >>> check = TimeStepCheck(env, (), "Catch")
        >>> len(check.arrays("reset()", env.reset(), "This was the first reset()."))
        4
    """

    def __init__(self, env: Any, dims: tuple[int, ...], name: str) -> None:
        """Reads an environment's specs."""
        self.structure = nest.Structure(env.time_step_spec())
        self._dims = dims
        self._name = name
        self._repeats_last = getattr(env, "repeats_last", False) is True
        self._continues = getattr(env, "continues_after_last", False) is True
        self._of_part = {
            part: [
                index
                for index, path in enumerate(self.structure.paths)
                if path == part or path.startswith((f"{part}[", f"{part}."))
            ]
            for part in TimeStep._fields
        }

    def arrays(self, call: str, time_step: Any, since: str) -> list[Array]:
        """Returns the arrays of a time step, or raises unless it fits its spec."""
        source = f"{self._name}.{call}"
        if not hasattr(time_step, "step_type"):
            raise SpecError(
                f"{source} returned {describe(time_step)}, not a TimeStep. Build it "
                "with envkit.restart, transition, termination or truncation.\n\n"
                f"{since}"
            )
        try:
            leaves = self.structure.flatten(time_step)
        except SpecError:
            leaves = []
        if len(leaves) != len(self.structure.leaves) or not all(
            map(self._fits, leaves, self.structure.leaves)
        ):
            check_fits(
                time_step,
                self.structure.template,
                subject=f"{source} returned a time step that",
                outer_dims=self._dims,
                context=since,
            )
        arrays = [np.asarray(leaf) for leaf in leaves]
        self._check_known(source, arrays[0], since)
        return arrays

    def _fits(self, leaf: Any, spec: ArraySpec) -> bool:
        if not self._dims:
            return spec.check_array(leaf)
        return (
            isinstance(leaf, np.ndarray)
            and leaf.shape == self._dims + spec.shape
            and leaf.dtype == spec.dtype
            and (
                not isinstance(spec, BoundedArraySpec)
                or within(leaf, spec.minimum, spec.maximum)
            )
        )

    def _check_known(self, source: str, step_types: Array, since: str) -> None:
        unknown = (step_types < _FIRST) | (step_types > _LAST)
        for row in _rows_of(unknown):
            got = str(step_types.reshape(-1)[row])
            raise _fault(
                "time_step",
                f"{source} returned the step type {got}{self._in(row)}.",
                "Build time steps with envkit.restart, transition, termination or "
                f"truncation, which set the step type. {since}",
                expected="FIRST (0), MID (1) or LAST (2)",
                got=got,
            )

    def disorder(
        self, call: str, now: Array, book: EpisodeBook, begins: Array, steps: Array
    ) -> SpecError | None:
        """Returns the fault in the order of step types, if there is one.

        Args:
            call: The name of the call.
            now: The step types it returned.
            book: The rows' positions before the call.
            begins: Rows that were to begin an episode.
            steps: Rows that took a step.
        """
        before = book.step_types
        source = f"{self._name}.{call}"
        for row in _rows_of(begins & (now != _FIRST)):
            got = name_of(now.reshape(-1)[row])
            return _error(not_first(source, got, self._in(row), f" {book.since()}"))
        ended = steps & (before == _LAST) & (not self._continues)
        repeated = (now == _LAST) & self._repeats_last
        for row in _rows_of(ended & (now != _FIRST) & ~repeated):
            got = name_of(now.reshape(-1)[row])
            return _error(after_last(source, got, book.place(row)))
        for row in _rows_of(steps & ~ended & (now == _FIRST)):
            was, others = name_of(before.reshape(-1)[row]), _rows_of(ended)
            other = others[0] if others else None
            return _error(too_early(source, was, book.place(row), row, other))
        return None

    def check_held(
        self, call: str, arrays: list[Array], before: list[Array], held: Array
    ) -> None:
        """Raises if held rows have changed."""
        rows = held.nonzero()[0]
        for path, now, then in zip(self.structure.paths, arrays, before, strict=True):
            if not same_values(then[rows], now[rows]):
                row = next(row for row in rows if not same_values(then[row], now[row]))
                was, got = unlike(then[row], now[row])
                raise _fault(
                    "masked_reset" if call == "reset(mask)" else "held_rows",
                    f"{self._name}.{call} changed row {row}, which had to stay as it "
                    "was.",
                    "_reset_rows(mask) must begin an episode in the masked rows only, "
                    "and _step_rows(action, stepping, beginning) must leave the others "
                    "as they are.",
                    before=f"{path} = {was}",
                    after=f"{path} = {got}",
                )

    def check_values(
        self, call: str, arrays: list[Array], book: EpisodeBook, moved: Array
    ) -> None:
        """Raises if a `FIRST`, a discount or a reward has a forbidden value."""
        source = f"{self._name}.{call}"
        first = moved & (arrays[0] == _FIRST)
        for part, value in (("reward", 0), ("discount", 1)):
            for path, array, _ in self._leaves(part, arrays):
                for row in _rows_of(first & self._per_row(array != value)):
                    got, place = self._at(array, row), book.place(row)
                    raise _error(first_with(source, part, value, path, got, place))
        for path, array, spec in self._leaves("discount", arrays):
            if isinstance(spec, BoundedArraySpec):
                continue  # its bounds are checked already, and may allow more
            outside = ~((array >= 0) & (array <= 1))
            for row in _rows_of(moved & self._per_row(outside)):
                got = self._at(array, row)
                raise _error(bad_discount(source, path, got, book.place(row)))
        for path, array, _ in self._leaves("reward", arrays):
            for row in _rows_of(moved & self._per_row(_is_nan(array))):
                got = self._at(array, row)
                raise _error(bad_reward(source, path, got, book.place(row)))

    def doubts(
        self, call: str, arrays: list[Array], book: EpisodeBook, moved: Array
    ) -> Iterator[tuple[str, str]]:
        """Yields each doubt about a time step: a key and the text."""
        source = f"{self._name}.{call}"
        mid = moved & (arrays[0] == _MID)
        for path, array, _ in self._leaves("discount", arrays):
            for row in _rows_of(mid & self._per_row(array == 0))[:1]:
                yield (
                    f"zero {path}",
                    f"{source} returned a MID with {path} 0, in {book.place(row)}: "
                    "later rewards count nothing, yet the episode goes on. To end it, "
                    "return envkit.termination(observation, reward).",
                )
        for path, array, _ in self._leaves("reward", arrays):
            for row in _rows_of(moved & self._per_row(~_is_finite(array)))[:1]:
                got = self._at(array, row)
                finding = bad_reward(source, path, got, book.place(row))
                yield f"not finite {path}", finding.text
        for path, array, _ in self._leaves("observation", arrays):
            for row in _rows_of(moved & self._per_row(~_is_finite(array)))[:1]:
                yield (
                    f"not finite {path}",
                    f"{source} returned {path} = {show(self._at(array, row))}, in "
                    f"{book.place(row)}. Everything a learner computes from it will be "
                    "NaN or infinite too. If infinity is intended, use a large number "
                    "instead; if not, give the spec bounds.",
                )

    def _leaves(
        self, part: str, arrays: list[Array]
    ) -> Iterator[tuple[str, Array, ArraySpec]]:
        for index in self._of_part[part]:
            yield (
                self.structure.paths[index],
                arrays[index],
                self.structure.leaves[index],
            )

    def _per_row(self, where: Array) -> Array:
        """Reduces a mask of elements to a mask of rows with any such element."""
        where = np.asarray(where)
        return np.asarray(where.any(axis=tuple(range(len(self._dims), where.ndim))))

    def _in(self, row: int) -> str:
        return f" in row {row}" if self._dims else ""

    def _at(self, array: Array, row: int) -> Any:
        return array[row] if self._dims else array


def _rows_of(mask: Any) -> list[int]:
    """Returns the rows where a mask is true; a single environment is row 0."""
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows


def _is_nan(array: Array) -> Array:
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, bool)
    return np.asarray(np.isnan(array))


def _is_finite(array: Array) -> Array:
    if array.dtype.kind not in "fc":
        return np.ones(array.shape, bool)
    return np.asarray(np.isfinite(array))
