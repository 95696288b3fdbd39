"""Wrappers that show earlier observations and actions."""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import (
    WrapperInternals,
    as_array,
    checked_flag,
    checked_size,
    flatten_as,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.observations import place
from envkit.wrappers.rows import where_rows

__all__ = [
    "DelayObservation",
    "FrameStack",
    "HistoryWrapper",
    "Remembering",
    "RowHistory",
    "concatenated_spec",
    "history_of",
    "stacked_spec",
    "with_zero",
]


# Up to this length, one strided copy per element is faster than copying runs.
_FEW = 4


class RowHistory:
    """Keeps the last values of some arrays, the same number of them for each row.

    Each array's history is a ring buffer, and the newest values of all rows are in the
    same slot. So a step of all rows writes one slot. When some rows are held, either
    they or the moving rows are rotated by one slot, whichever are fewer.

    Values are copied on the way in and on the way out.

    Example:
        >>> history = RowHistory([ArraySpec((), np.int64)], 3, (2,))
        >>> history.push([np.array([1, 7])])
        >>> history.push([np.array([2, 8])], np.array([True, False]))
        >>> history.stacked([0])
        [array([[0, 1, 2],
               [0, 0, 7]])]
        >>> history.repeat(np.array([0]))
        >>> history.stacked([0])
        [array([[2, 2, 2],
               [0, 0, 7]])]
    """

    def __init__(
        self, specs: Iterable[ArraySpec], length: int, dims: tuple[int, ...]
    ) -> None:
        """Makes a history of zeros.

        Args:
            specs: The specs of the arrays in one row.
            length: How many values are kept.
            dims: The size of the batch in a tuple, or `()` for a single environment,
                whose arrays are kept like one row's.
        """
        self._dims = dims
        self._length = length
        self._newest = 0
        rows = dims or (1,)
        self._rings = [
            np.zeros((*rows, length, *spec.shape), spec.dtype) for spec in specs
        ]

    def push(self, values: Sequence[Array], rows: Array | None = None) -> None:
        """Adds a value of each array to all rows, or to the rows of a mask."""
        # Hot: called once per step.
        self._make_place(rows)
        newest = self._newest
        for ring, value in zip(self._rings, values, strict=True):
            if rows is None:
                ring[:, newest] = value
            else:
                ring[rows, newest] = value[rows]

    def clear(self, rows: Array | slice) -> None:
        """Fills the history of these rows with zeros."""
        for ring in self._rings:
            ring[rows] = np.zeros((), ring.dtype)  # a plain 0 would be the text "0"

    def repeat(self, rows: Array | slice) -> None:
        """Fills the history of these rows with their newest value."""
        for ring in self._rings:
            ring[rows] = ring[rows, self._newest][:, np.newaxis]

    def stacked(self, axes: Iterable[int]) -> list[Array]:
        """Returns all values of each array along a new axis, the oldest first.

        Args:
            axes: The position of each array's new axis, counted from the front of a
                row.
        """
        return [
            self._stack(ring, axis)
            for ring, axis in zip(self._rings, axes, strict=True)
        ]

    def _stack(self, ring: Array, axis: int) -> Array:
        # Hot: called once per step for each array. If the new axis allows, two large
        # pieces are copied, which is faster than many small ones.
        length, after = self._length, self._newest + 1
        shape = ring.shape[2:]
        whole = (*self._dims, *shape[:axis], length, *shape[axis:])
        stack = np.empty((len(ring), *whole[len(self._dims) :]), ring.dtype)
        if axis == 0:
            stack[:, : length - after] = ring[:, after:]
            stack[:, length - after :] = ring[:, :after]
            return stack.reshape(whole)
        # The sizes before and after the new axis.
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis:])
        places = stack.reshape(len(ring), outer, length, inner)
        values = ring.reshape(len(ring), length, outer, inner)
        # Short runs are copied one element at a time, for all runs at once.
        parts: Iterable[Any] = range(inner) if inner <= _FEW else [slice(None)]
        for part in parts:
            for step in range(length):
                places[:, :, step, part] = values[:, (after + step) % length, :, part]
        return stack.reshape(whole)

    def oldest(self) -> list[Array]:
        """Returns the oldest value of each array."""
        place = (self._newest + 1) % self._length
        return [
            ring[:, place].copy().reshape((*self._dims, *ring.shape[2:]))
            for ring in self._rings
        ]

    def save(self) -> dict[str, Any]:
        """Returns the state; later steps change it."""
        return {"newest": self._newest, "rings": self._rings}

    def fits(self, saved: Any) -> bool:
        """True if a state belongs to a history of this form."""
        newest = saved["newest"]
        return (
            _kinds_of(saved["rings"]) == _kinds_of(self._rings)
            and type(newest) is int
            and 0 <= newest < self._length
        )

    def restore(self, saved: Any) -> None:
        """Restores a state, which belongs to this history from then on."""
        self._newest = saved["newest"]
        # Pickled arrays come back in native byte order.
        self._rings = [
            ring.astype(own.dtype, copy=False)
            for ring, own in zip(saved["rings"], self._rings, strict=True)
        ]

    def _make_place(self, rows: Array | None) -> None:
        """Rotates the rows so that the newest slot holds their oldest value."""
        next_place = (self._newest + 1) % self._length
        if rows is None:
            self._newest = next_place
            return
        most_move = 2 * np.count_nonzero(rows) > rows.size
        if most_move:
            self._newest = next_place
        turned = (~rows if most_move else rows).nonzero()[0]
        by = 1 if most_move else -1
        for ring in self._rings:
            ring[turned] = np.roll(ring[turned], by, axis=1)


def history_of(
    wrapper: Any,
    what: str,
    specs: Iterable[ArraySpec],
    length: int,
    dims: tuple[int, ...],
) -> RowHistory:
    """Creates a wrapper's history; raises if it would be too long.

    Args:
        wrapper: The wrapper.
        what: What the history holds, in the plural.
        specs: The specs of the arrays in one row.
        length: How many values are kept.
        dims: The size of the batch in a tuple, or `()` for a single environment.
    """
    try:
        return RowHistory(specs, length, dims)
    except (MemoryError, OverflowError, ValueError) as error:
        raise ValueError(
            f"{type(wrapper).__name__} cannot keep {length} {what} of each row: there "
            "is not enough memory for such a large array."
        ) from error


def _kinds_of(arrays: Iterable[Array]) -> list[Any]:
    """Returns the shapes and dtypes of arrays, ignoring byte order."""
    return [(array.shape, array.dtype.newbyteorder("=")) for array in arrays]


def with_zero(spec: ArraySpec) -> ArraySpec:
    """Returns a spec whose bounds include zero.

    Example:
        >>> with_zero(BoundedArraySpec((), np.int64, 1, 3))
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec
    # In the same dtype: NumPy before 2 turns large integers into floats.
    zero = np.zeros((), spec.dtype)
    return spec.replace(
        minimum=np.minimum(spec.minimum, zero), maximum=np.maximum(spec.maximum, zero)
    )


def stacked_spec(spec: ArraySpec, count: int, axis: int) -> ArraySpec:
    """Returns the spec of `count` arrays along a new axis.

    Example:
        >>> stacked_spec(BoundedArraySpec((2,), np.int64, 0, [4, 5]), 3, 1)
        BoundedArraySpec(shape=(2, 3), dtype=int64, minimum=0, maximum=[[4], [5]])
    """
    shape = (*spec.shape[:axis], count, *spec.shape[axis:])
    return _reshaped(spec, shape, lambda bound: np.expand_dims(bound, axis))


def concatenated_spec(spec: ArraySpec, count: int, axis: int) -> ArraySpec:
    """Returns the spec of `count` arrays concatenated along an axis.

    Example:
        >>> concatenated_spec(BoundedArraySpec((2,), np.int64, 0, [4, 5]), 2, 0)
        BoundedArraySpec(shape=(4,), dtype=int64, minimum=0, maximum=[4, 5, 4, 5])
    """
    shape = list(spec.shape)
    shape[axis] *= count

    def repeated(bound: Array) -> Array:
        if bound.shape[axis] == 1:
            return bound  # it is the same along the whole axis
        return np.concatenate([bound] * count, axis)

    return _reshaped(spec, shape, repeated)


def _reshaped(spec: ArraySpec, shape: Sequence[int], bound_of: Any) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)

    def moved(bound: Array) -> Array:
        if not bound.ndim:
            return bound
        missing = len(spec.shape) - bound.ndim
        moved: Array = bound_of(bound.reshape((1,) * missing + bound.shape))
        return moved

    return spec.replace(
        shape=shape, minimum=moved(spec.minimum), maximum=moved(spec.maximum)
    )


_FIRST = StepType.FIRST


class _PastInternals(WrapperInternals):
    """Saves past observations."""

    def save(self, env: Any) -> Any:
        return {"observations": env._past.save()}

    def fits(self, env: Any, saved: Any) -> bool:
        fits: bool = env._past.fits(saved["observations"])
        return fits

    def restore(self, env: Any, saved: Any) -> None:
        env._past.restore(saved["observations"])


class Remembering(PyEnvironmentBaseWrapper):
    """Keeps the latest observations of each row's episode.

    Subclasses set `_observation_spec`, and build the shown observation in `_shown_now`.
    """

    _envkit = _PastInternals()

    _observation_spec: NestedSpec

    def __init__(
        self, env: Any, length: int, repeats_first: bool, handle_auto_reset: bool
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            length: How many observations are kept.
            repeats_first: Whether the first observation of an episode stands in for the
                missing earlier ones; if not, zeros do.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._repeats_first = repeats_first
        self._structure = nest.Structure(self._env.observation_spec())
        self._leaf_specs: tuple[ArraySpec, ...] = self._structure.leaves
        self._expected = [
            ((*self._dims, *spec.shape), spec.dtype) for spec in self._leaf_specs
        ]
        self._past = history_of(
            self, "observations", self._leaf_specs, length, self._dims
        )
        self._padded_specs = [
            spec if repeats_first or length == 1 else with_zero(spec)
            for spec in self._leaf_specs
        ]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation as shown."""
        return fresh_nest(self._observation_spec)

    @abc.abstractmethod
    def _shown_now(self) -> NestedArray:
        """Returns the observation in new arrays."""

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        if rows is not None and rows.all():
            rows = None
        self._remember(time_step, rows, self._begun(time_step.step_type, rows))
        return time_step._replace(observation=self._shown_now())

    def _begun(self, step_type: Any, rows: Array | None) -> Array | slice | None:
        """Returns the rows in which an episode has begun; `None` if there are none."""
        first = np.asarray(step_type) == _FIRST
        if not self._dims:
            return slice(None) if first else None
        begun = (first if rows is None else first & rows).nonzero()[0]
        return begun if begun.size else None

    def _remember(
        self, time_step: TimeStep, rows: Array | None, begun: Array | slice | None
    ) -> None:
        leaves = self._checked_leaves(time_step.observation)
        if begun is not None and not self._repeats_first:
            self._past.clear(begun)
        self._past.push(leaves, rows)
        if begun is not None and self._repeats_first:
            self._past.repeat(begun)

    def _checked_leaves(self, observation: NestedArray) -> list[Any]:
        """Flattens an observation; no leaf may broadcast or change dtype."""
        subject = f"{type(self._env).__name__} returned an observation that"
        leaves = flatten_as(self._structure, observation, subject=subject)
        for index, (shape, dtype) in enumerate(self._expected):
            leaf = leaves[index]
            if (
                type(leaf) is not np.ndarray
                or leaf.shape != shape
                or leaf.dtype != dtype
            ):
                check_fits(
                    leaf,
                    self._leaf_specs[index],
                    subject=subject,
                    path=self._structure.paths[index],
                    outer_dims=self._dims,
                )
        return leaves


class FrameStack(Remembering):
    """Shows the last `stack_size` observations as one array, the newest last.

    Observations are combined as in NumPy: stacked along a new axis, as by
    `numpy.stack`, or, with `concatenate`, joined along an existing one, as by
    `numpy.concatenate`. Common choices for pictures:

    - by default, `(h, w)` becomes `(stack_size, h, w)`, as in Gymnasium;
    - `axis=-1` turns `(h, w)` into `(h, w, stack_size)`;
    - `axis=-1, concatenate=True` turns `(h, w, 1)` into `(h, w, stack_size)`, as in
      TF-Agents, and `(h, w, 3)` into `(h, w, 3 * stack_size)`.

    At the beginning of an episode, the first observation stands in for the missing
    ones. With `padding_type="zero"` zeros do, and bounds are widened to include 0. In a
    nest, every array is stacked. Each row of a batch has its own history.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = FrameStack(CountingEnv(steps_per_episode=2), 3)
        >>> [env.step(0).observation.tolist() for _ in range(4)]
        [[0, 0, 0], [0, 0, 1], [0, 1, 2], [10, 10, 10]]
    """

    _shown = ("stack_size",)

    def __init__(
        self,
        env: Any,
        stack_size: int,
        *,
        padding_type: str = "reset",
        axis: int = 0,
        concatenate: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            stack_size: How many observations are shown.
            padding_type: What fills in for observations before the first: "reset" for
                the first observation, "zero" for zeros.
            axis: The axis of one row's array, from the front or, if negative, from the
                end.
            concatenate: Whether `axis` is an existing axis rather than a new one.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        size = checked_size("stack_size", stack_size)
        if padding_type not in ("reset", "zero"):
            raise ValueError(
                "padding_type must be 'reset', to pad with the first observation of "
                f"an episode, or 'zero', to pad with zeros, got {padding_type!r}."
            )
        concatenate = checked_flag("concatenate", concatenate)
        super().__init__(env, size, padding_type == "reset", handle_auto_reset)
        self._stack_size = size
        axes = [
            _checked_axis(spec, path, axis, concatenate)
            for spec, path in zip(self._leaf_specs, self._structure.paths, strict=True)
        ]
        together = concatenated_spec if concatenate else stacked_spec
        specs = [
            together(spec, size, along)
            for spec, along in zip(self._padded_specs, axes, strict=True)
        ]
        self._observation_spec = self._structure.unflatten(specs)
        # In memory, a new axis right before another just makes that one longer.
        self._axes = axes
        self._shapes = [(*self._dims, *spec.shape) for spec in specs]

    @property
    def stack_size(self) -> int:
        """How many observations are shown."""
        return self._stack_size

    def _shown_now(self) -> NestedArray:
        stacks = zip(self._past.stacked(self._axes), self._shapes, strict=True)
        return self._structure.unflatten([stack.reshape(to) for stack, to in stacks])


class DelayObservation(Remembering):
    """Shows the observation from `delay` steps ago.

    In the first `delay` time steps of an episode there is none yet, and zeros are
    shown; bounds are widened to include 0. Step type, reward and discount are not
    delayed, so the last `delay` observations of an episode are never seen. Each row of
    a batch has its own history.

    Example:
        >>> from envkit.testing import EpisodeCountingEnv
        >>> env = DelayObservation(EpisodeCountingEnv(steps_per_episode=4), delay=2)
        >>> [int(env.step(0).observation[1]) for _ in range(5)]
        [0, 0, 0, 1, 2]
    """

    _shown = ("delay",)

    def __init__(self, env: Any, delay: int, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            delay: How many steps late observations are; 0 for no delay.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        self._delay = checked_size("delay", delay, least=0)
        super().__init__(env, self._delay + 1, False, handle_auto_reset)
        self._observation_spec = self._structure.unflatten(self._padded_specs)

    @property
    def delay(self) -> int:
        """How many steps late observations are."""
        return self._delay

    def _shown_now(self) -> NestedArray:
        return self._structure.unflatten(self._past.oldest())


def _checked_axis(spec: ArraySpec, path: str, axis: Any, concatenate: bool) -> int:
    """Returns an axis counted from the front; raises if there is no such axis."""
    try:
        along = operator.index(axis)
    except TypeError:
        raise ValueError(
            "axis must be an integer, such as 0 for the first axis or -1 for the "
            f"last, got {axis!r}."
        ) from None
    count = len(spec.shape) + (not concatenate)
    if -count <= along < count:
        return along % count
    how = "concatenate" if concatenate else "stack"
    allowed = f"axis must be from {-count} to {count - 1}"
    if not count:
        allowed = "there is no axis; without concatenate=True they are stacked"
    raise ValueError(
        f"FrameStack cannot {how} observations{place(path)} along axis {along}: for "
        f"{spec}, {allowed}."
    )


_LAST = StepType.LAST


class _PastActionsInternals(_PastInternals):
    """Saves past actions too."""

    def save(self, env: Any) -> Any:
        actions = env._past_actions.save()
        return {**super().save(env), "actions": actions, "over": env._over}

    def fits(self, env: Any, saved: Any) -> bool:
        return super().fits(env, saved) and env._past_actions.fits(saved["actions"])

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._past_actions.restore(saved["actions"])
        env._over = saved["over"]


class HistoryWrapper(Remembering):
    """Shows the last `history_length` observations, and the actions between them.

    Every array gets a new first axis for the history, the newest entry last. At the
    beginning of an episode, zeros stand in for the missing observations, or, with
    `tile_first_step_obs`, the first observation does.

    With `include_actions` the observation is a dictionary: `observation` holds the
    observations, `action` the actions that led to them. No action led to the first
    observation, nor to the padding before it, so their actions are zeros. Actions are
    shown as the caller gave them. If a policy exceeds their bounds, put
    `ActionClipWrapper` around this wrapper.

    Bounds are the same as for one observation or action; where zeros pad, they are
    widened to include 0. Each row of a batch has its own history.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = HistoryWrapper(CountingEnv(), history_length=3, include_actions=True)
        >>> time_step = [env.reset(), env.step(1), env.step(0)][-1]
        >>> time_step.observation["observation"]
        array([0, 1, 2], dtype=int32)
        >>> time_step.observation["action"]
        array([0, 1, 0], dtype=int32)
    """

    _shown = ("history_length", "include_actions", "tile_first_step_obs")

    # It shows the caller's actions, even out of bounds.
    _envkit = _PastActionsInternals(first_look=False)

    def __init__(
        self,
        env: Any,
        history_length: int = 3,
        include_actions: bool = False,
        tile_first_step_obs: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            history_length: How many observations are shown.
            include_actions: Whether to show actions too.
            tile_first_step_obs: Whether the first observation of an episode, rather
                than zeros, stands in for the missing earlier ones.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        length = checked_size("history_length", history_length)
        include_actions = checked_flag("include_actions", include_actions)
        tiles = checked_flag("tile_first_step_obs", tile_first_step_obs)
        super().__init__(env, length, tiles, handle_auto_reset)
        self._history_length = length
        self._include_actions = include_actions
        self._observation_spec = self._structure.unflatten(
            [stacked_spec(spec, length, 0) for spec in self._padded_specs]
        )
        self._actions = nest.Structure(
            self._env.action_spec() if include_actions else ()
        )
        specs = self._actions.leaves
        self._past_actions = history_of(self, "actions", specs, length, self._dims)
        self._no_action = [
            np.zeros((*self._dims, *spec.shape), spec.dtype) for spec in specs
        ]
        # The action of the current step. Beginning an episode clears it.
        self._action: list[Array] = self._no_action
        # Rows whose current time step is a LAST: their next action leads to nothing.
        self._over = np.zeros(self._dims, bool)
        if self._include_actions:
            self._observation_spec = {
                "observation": self._observation_spec,
                "action": self._actions.unflatten(
                    [stacked_spec(with_zero(spec), length, 0) for spec in specs]
                ),
            }

    @property
    def history_length(self) -> int:
        """How many observations are shown."""
        return self._history_length

    @property
    def include_actions(self) -> bool:
        """Whether actions are shown too."""
        return self._include_actions

    @property
    def tile_first_step_obs(self) -> bool:
        """Whether the first observation stands in for the missing earlier ones."""
        return self._repeats_first

    def _act(self, action: NestedArray) -> NestedArray:
        if self._include_actions:
            self._action = self._taken(action)
        return action

    def _taken(self, action: NestedArray) -> list[Array]:
        """Copies an action's arrays; uses zeros for a wrong action that nobody uses."""
        if not self._no_action:  # some environments ignore actions and declare ()
            return self._no_action
        try:
            return self._copied(action)
        except SpecError:
            if not self._dims and self._over:
                return self._no_action  # the environment ignores it
            raise

    def _copied(self, action: NestedArray) -> list[Array]:
        subject = f"{type(self).__name__}.step() was given an action that"
        leaves = flatten_as(self._actions, action, subject=subject, root="action")
        for index, leaf in enumerate(leaves):
            spec = self._actions.leaves[index]
            array = as_array(leaf)
            leaves[index] = _converted(array, spec, self._dims)
            if leaves[index] is None:
                self._refuse(leaf if array.dtype.hasobject else array, index, subject)
        return leaves

    def _refuse(self, value: Any, index: int, subject: str) -> None:
        spec = self._actions.leaves[index]
        if isinstance(value, np.ndarray):
            # Any integers that fit would do, so the message does not blame the dtype.
            fitting = _converted(value, ArraySpec(value.shape, spec.dtype), ())
            value = value if fitting is None else fitting
        check_fits(
            value,
            spec,
            subject=subject,
            root="action",
            path=self._actions.paths[index],
            outer_dims=self._dims,
            context="The environment has not moved.",
        )

    def _remember(
        self, time_step: TimeStep, rows: Array | None, begun: Array | slice | None
    ) -> None:
        super()._remember(time_step, rows, begun)
        if not self._include_actions:
            return
        self._past_actions.push(self._effective_action(), rows)
        over = np.asarray(time_step.step_type) == _LAST
        self._over = over if rows is None else np.where(rows, over, self._over)
        if begun is not None:
            self._past_actions.clear(begun)

    def _effective_action(self) -> list[Array]:
        """Returns the action, with zeros in rows whose environment ignores it."""
        if not self._over.any():
            return self._action
        pairs = zip(self._no_action, self._action, strict=True)
        return [where_rows(self._over, zeros, leaf) for zeros, leaf in pairs]

    def _shown_now(self) -> NestedArray:
        stacks = self._past.stacked([0] * len(self._leaf_specs))
        observations = self._structure.unflatten(stacks)
        if not self._include_actions:
            return observations
        stacks = self._past_actions.stacked([0] * len(self._no_action))
        actions = self._actions.unflatten(stacks)
        return {"observation": observations, "action": actions}


def _converted(array: Array, spec: ArraySpec, dims: tuple[int, ...]) -> Array | None:
    """Copies an action in its spec's dtype; `None` if that would lose something."""
    if array.shape != (*dims, *spec.shape):
        return None
    integers = array.dtype.kind in "biu" and spec.dtype.kind in "iu"
    if not integers and not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        return None
    converted = array.astype(spec.dtype)
    # Floats may lose digits.
    if array.dtype == spec.dtype or spec.dtype.kind in "fc":
        return converted
    return converted if np.array_equal(converted, array) else None
