"""Wrappers that show earlier observations: `FrameStack`, `DelayObservation`."""

from __future__ import annotations

import operator
from typing import Any

from envkit.envs.base import checked_size
from envkit.specs.array_spec import ArraySpec
from envkit.types import NestedArray
from envkit.wrappers.arguments import checked_flag
from envkit.wrappers.history.remembering import Remembering
from envkit.wrappers.history.row_history import concatenated_spec, stacked_spec
from envkit.wrappers.observations.leaf_changes import place

__all__ = ["DelayObservation", "FrameStack"]


class FrameStack(Remembering):
    """Shows the last `stack_size` observations as one array, the newest last.

    They are put together as NumPy does it: stacked along a new axis, as with
    `numpy.stack`, or, with `concatenate`, one after the other along an axis they have,
    as with `numpy.concatenate`. Common ways for pictures:

    - without more arguments, `(h, w)` becomes `(stack_size, h, w)`, as in Gymnasium;
    - `axis=-1` makes `(h, w, stack_size)` of it;
    - `axis=-1, concatenate=True` makes `(h, w, stack_size)` of `(h, w, 1)`, as in
      TF-Agents, and `(h, w, 3 * stack_size)` of `(h, w, 3)`.

    At the beginning of an episode the first observation stands for those that were not
    there yet, or, with `padding_type="zero"`, zeros do; bounds are then widened to hold
    zeros. Of a nest every array is treated in this way. Each row of a batch has
    observations of its own.

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
            padding_type: What stands for observations before the first: "reset" for
                the first, "zero" for zeros.
            axis: Along which axis of one row, from the front or, below 0, from the end.
            concatenate: Whether that is an axis the observations have, rather than a
                new one.
            handle_auto_reset: As with every wrapper.
        """
        size = checked_size("stack_size", stack_size)
        if padding_type not in ("reset", "zero"):
            raise ValueError(
                f"padding_type is {padding_type!r}; it must be 'reset', with which the "
                "first observation of an episode stands for those before it, or "
                "'zero', with which zeros do."
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
        # A new axis right before another is that axis made longer, in memory.
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
    """Shows the observation of `delay` steps ago.

    In the first `delay` time steps of an episode there is none, and zeros are shown;
    bounds are widened to hold them. Step type, reward and discount come without delay,
    so that the last `delay` observations of an episode are never seen. Each row of a
    batch is delayed for itself.

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
            delay: How many steps late observations are; 0 for none.
            handle_auto_reset: As with every wrapper.
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
    """Returns an axis as counted from the front, or says why there is none such."""
    try:
        along = operator.index(axis)
    except TypeError:
        raise ValueError(
            f"axis is {axis!r}; it must be an integer, such as 0 for the first axis or "
            "-1 for the last."
        ) from None
    count = len(spec.shape) + (not concatenate)
    if -count <= along < count:
        return along % count
    how = "concatenate" if concatenate else "stack"
    allowed = f"axis must be from {-count} to {count - 1}"
    if not count:
        allowed = "there is none; without concatenate=True they are stacked"
    raise ValueError(
        f"FrameStack cannot {how} observations{place(path)} along axis {along}: of "
        f"{spec} {allowed}."
    )
