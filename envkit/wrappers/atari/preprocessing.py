"""What agents see of Atari games: `AtariPreprocessing`, `FrameStack4`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from envkit import nest
from envkit.envs.base import checked_size
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wrappers.arguments import checked_flag, limited_size
from envkit.wrappers.atari.lives import LivesLookup
from envkit.wrappers.atari.openings import NoopReset
from envkit.wrappers.atari.some_rows import as_first, as_termination, move
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.history.frames import FrameStack
from envkit.wrappers.observations.leaf_changes import place
from envkit.wrappers.pictures.arithmetic import LARGEST_SIZE, grayscale, resize
from envkit.wrappers.reward_sums import add_in_rows, sum_spec
from envkit.wrappers.rows import where_rows

__all__ = ["AtariPreprocessing", "FrameStack4"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class AtariPreprocessing(PyEnvironmentBaseWrapper):
    """Shows a game as agents of Atari games have seen it since DQN.

    - Each action is repeated for `frame_skip` frames, and the rewards are added up. An
      episode that ends earlier stops there. The discount is that of the last frame.
    - What is seen is, at each point, the brighter of the last two of these frames, as
      many games draw things in every other frame only. At the beginning of an episode,
      and where it ended before both were there, it is a single frame.
    - Pictures are gray, and resized to `(screen_size, screen_size, 1)`. Gymnasium's
      arguments choose other ones; its own pictures have no dimension of channels, which
      is `grayscale_newaxis=False` here.
    - With `terminal_on_life_loss` the loss of a life ends an episode: `LAST`, discount
      0. The next one begins where the game stands, with the same picture as a `FIRST`.
      Only when the game is over, it is reset.

    So a `reset()` right after the loss of a life begins the next life, which is what
    batches and pools rely on; at any other time, and after `seed()`, it begins a game.

    Each row of a batch stops for itself, so the batch has to be able to leave rows
    where they are while others step, as its `holds_rows` says. Lives are looked up
    after each frame: where that takes long, as in a pool of processes, it is better to
    wrap the single games.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = AtariPreprocessing(GridWorld(batch_size=2), screen_size=16)
        >>> env.reset().observation.shape
        (2, 16, 16, 1)
    """

    _kept = ("_lives", "_has_lost", "_is_over", "_screen")
    _shown: ClassVar[tuple[str, ...]] = (
        "frame_skip",
        "terminal_on_life_loss",
        "screen_size",
    )

    def __init__(
        self,
        env: Any,
        frame_skip: int = 4,
        terminal_on_life_loss: bool = False,
        screen_size: int | tuple[int, int] = 84,
        handle_auto_reset: bool = False,
        *,
        noop_max: int = 0,
        grayscale_obs: bool = True,
        grayscale_newaxis: bool = True,
        scale_obs: bool = False,
        lives: Callable[[TimeStep, Any], Any] | None = None,
    ) -> None:
        """Wraps a game.

        Args:
            env: An environment whose observation is a uint8 picture of the shape
                `(height, width, 3)` or `(height, width)`.
            frame_skip: How many frames an action lasts.
            terminal_on_life_loss: Whether the loss of a life ends an episode.
            screen_size: The height and width of what is seen, or the width and the
                height, in this order, as in Gymnasium.
            handle_auto_reset: As with every wrapper.
            noop_max: The most no-ops, of one frame each, with which a game begins: a
                `NoopReset` inside of this wrapper. Gymnasium's default is 30.
            grayscale_obs: Whether pictures are made gray.
            grayscale_newaxis: Whether gray pictures have a dimension of channels, of
                size 1. Gymnasium's default is `False`.
            scale_obs: Whether pictures are float32 from 0 to 1 in place of bytes.
            lives: Takes a time step of the environment and its info, and returns how
                many lives are left, in a batch for each row. Without it that is
                `get_info()["lives"]`.
        """
        # The base class would begin a game after the loss of a life.
        if noop_max != 0:
            env = NoopReset(env, noop_max)
        super().__init__(env, handle_auto_reset=False)
        self._frame_skip = checked_size("frame_skip", frame_skip)
        self._screen_size, self._shape = _checked_screen(screen_size)
        self._is_gray = checked_flag("grayscale_obs", grayscale_obs)
        self._has_newaxis = checked_flag("grayscale_newaxis", grayscale_newaxis)
        self._is_scaled = checked_flag("scale_obs", scale_obs)
        # Of Gymnasium's, only what was chosen.
        usual = {"grayscale_obs": True, "grayscale_newaxis": True, "scale_obs": False}
        chosen = (name for name in usual if getattr(self, name) != usual[name])
        self._shown = (*type(self)._shown, *chosen)  # type: ignore[misc]  # of this one
        self._counts_lives = checked_flag(
            "terminal_on_life_loss", terminal_on_life_loss
        )
        self._look_up_lives = LivesLookup(env, lives)
        self._begins_games = handle_auto_reset or self._counts_lives
        if self._frame_skip > 1 or self._counts_lives:
            self._check_holds_rows()
        if self._begins_games:
            self._check_resets_rows()
        self._observation_spec = self._screen_spec(env.observation_spec())
        self._rewards = nest.Structure(env.reward_spec())
        self._nobody = np.zeros(self._dims, bool)
        self._lives = np.zeros(self._dims)
        # Where the current time step is a LAST of a life alone, and of the game.
        self._has_lost = self._nobody
        self._is_over = self._nobody
        # What was seen when a life was lost.
        spec = self._observation_spec
        shape = spec.shape if self._counts_lives else (0,)
        self._screen = np.zeros((*self._dims, *shape), spec.dtype)

    @property
    def frame_skip(self) -> int:
        """How many frames an action lasts."""
        return self._frame_skip

    @property
    def terminal_on_life_loss(self) -> bool:
        """Whether the loss of a life ends an episode."""
        return self._counts_lives

    @property
    def screen_size(self) -> int | tuple[int, int]:
        """The height and width of what is seen, or the width and the height."""
        return self._screen_size  # type: ignore[no-any-return]  # as it was given

    @property
    def grayscale_obs(self) -> bool:
        """Whether pictures are made gray."""
        return self._is_gray

    @property
    def grayscale_newaxis(self) -> bool:
        """Whether gray pictures have a dimension of channels."""
        return self._has_newaxis

    @property
    def scale_obs(self) -> bool:
        """Whether pictures are float32 from 0 to 1."""
        return self._is_scaled

    @property
    def game_over(self) -> Any:
        """Whether the game itself has ended; in a batch an array of booleans."""
        return self._is_over.copy() if self._dims else bool(self._is_over)

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the picture that is seen."""
        return self._observation_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of what several frames earn together."""
        return self._rewards.map(
            lambda spec: sum_spec(spec, self._frame_skip), self._rewards.template
        )

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment; the next reset begins a game everywhere."""
        result = super().seed(seed)
        self._begin_anew()
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._begin_anew(np.array([seed is not None for seed in seeds]))

    def _take_options(self, options: Any, rows: Array | None) -> None:
        super()._take_options(options, rows)
        if options is not None:  # They are for a game, and not for its next life.
            self._begin_anew(rows)

    def _begin_anew(self, rows: Array | None = None) -> None:
        """Lets the next reset begin a game where it would have begun a life."""
        lost = self._has_lost if rows is None else self._has_lost & rows
        self._is_over = self._is_over | lost
        self._has_lost = self._has_lost & ~lost

    def _screen_spec(self, given: Any) -> ArraySpec:
        if not (
            isinstance(given, ArraySpec)
            and given.dtype == np.uint8
            and (len(given.shape) == 2 or given.shape[2:] == (3,))
        ):
            raise ValueError(
                "AtariPreprocessing needs a game that shows a picture, and "
                f"{type(self._env).__name__} shows something else.\n\n"
                "  expected   uint8 picture of shape (height, width, 3) or (height, "
                "width)\n"
                f"  got        {given!r:.200}"
            )
        self._has_colours = len(given.shape) == 3
        if not self._is_gray and not self._has_colours:
            raise ValueError(
                "AtariPreprocessing was given grayscale_obs=False, and the pictures of "
                f"{type(self._env).__name__} have no colours: {given!r:.200}."
            )
        channels = (1,) * self._has_newaxis if self._is_gray else (3,)
        shape = (*self._shape, *channels)
        if not isinstance(given, BoundedArraySpec):
            if self._is_scaled:
                return BoundedArraySpec(shape, np.float32, 0.0, 1.0, given.name)
            return given.replace(shape=shape)
        low, high = given.minimum.min(), given.maximum.max()
        if self._is_scaled:
            low, high = _scaled(low), _scaled(high)
        dtype = np.float32 if self._is_scaled else np.uint8
        return BoundedArraySpec(shape, dtype, low, high, given.name)

    def _reset(self) -> TimeStep:
        return self._play(None, self._nobody, ~self._nobody)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._play(None, self._nobody, mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._play(action, ~self._nobody, self._nobody)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._play(action, stepping, beginning)

    def _play(self, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
        """Moves the games of some rows and begins them, or their next life, in others.

        Of a single environment all masks are arrays without dimensions.
        """
        touched = stepping | beginning
        next_life = self._has_lost & touched
        if self._begins_games:
            beginning = beginning | (self._is_over & stepping)
        beginning = beginning & ~next_life
        time_step, screen, lost = self._skip(
            action, stepping & ~next_life & ~beginning, beginning, touched
        )
        step_type = np.asarray(time_step.step_type)
        self._has_lost = np.where(touched, lost & (step_type == _MID), self._has_lost)
        self._is_over = np.where(touched, step_type == _LAST, self._is_over)
        time_step = time_step._replace(observation=screen)
        if lost.any():
            self._screen = where_rows(lost, screen, self._screen)
            time_step = as_termination(lost, time_step)
        if next_life.any():
            time_step = self._with_next_life(time_step, next_life)
        return time_step

    def _with_next_life(self, time_step: TimeStep, rows: Array) -> TimeStep:
        """Shows some rows as they were when a life was lost, as a `FIRST`."""
        screen = where_rows(rows, self._screen, time_step.observation)
        return as_first(rows, time_step)._replace(observation=screen)

    def _skip(
        self, action: NestedArray, moving: Array, beginning: Array, touched: Array
    ) -> tuple[TimeStep, Array, Array]:
        """Repeats an action until it has lasted long enough, or a row has ended.

        Returns:
            The last time step, with the sum of rewards; the screens of touched rows;
            and which rows have lost a life.
        """
        lost, brighter, before = self._nobody, self._nobody, None
        time_step = move(self._env, action, moving, beginning)
        rewards = self._rewards.map(np.array, time_step.reward)
        moved, left = moving | beginning, self._frame_skip - 1
        while True:
            newly_lost = self._note_lives(time_step, moved)
            lost = lost | newly_lost
            moving = moving & (np.asarray(time_step.step_type) == _MID) & ~newly_lost
            if not left or not moving.any():
                break
            if left == 1:
                before, brighter = self._pictures(time_step, touched), moving
            time_step = move(self._env, action, moving, self._nobody)
            rewards = self._rewards.map(
                functools.partial(add_in_rows, moving), rewards, time_step.reward
            )
            moved, left = moving, left - 1
        screen = self._pictures(time_step, touched)
        if before is not None:
            twice = brighter if touched.all() else brighter[touched]
            screen = where_rows(twice, np.maximum(screen, before), screen)
        shown = self._shown_of(screen, touched)
        return time_step._replace(reward=rewards), shown, lost

    def _note_lives(self, time_step: TimeStep, moved: Array) -> Array:
        """Counts lives, and returns where one has been lost in this step."""
        if not self._counts_lives:
            return self._nobody
        lives = self._look_up_lives(time_step)
        under_way = np.asarray(time_step.step_type) != _FIRST
        lost = moved & under_way & (lives < self._lives)
        self._lives = np.where(moved, lives, self._lives)
        return np.asarray(lost)

    def _pictures(self, time_step: TimeStep, rows: Array) -> Array:
        """Returns the pictures of some rows, in a new array."""
        picture = np.asarray(time_step.observation)
        if not rows.all():
            picture = picture[rows]
        is_to_change = self._is_gray and self._has_colours
        return grayscale(picture) if is_to_change else picture.copy()

    def _shown_of(self, screen: Array, rows: Array) -> Array:
        """Returns what is seen, given the pictures of some rows."""
        shown = resize(screen, self._shape, channels=not self._is_gray)
        if self._is_scaled:
            shown = _scaled(shown)
        if self._is_gray and self._has_newaxis:
            shown = shown[..., np.newaxis]
        if rows.all():
            return shown
        spec = self._observation_spec
        everywhere = np.zeros((*self._dims, *spec.shape), spec.dtype)
        everywhere[rows] = shown
        return everywhere


def _scaled(picture: Any) -> Array:
    return np.asarray(picture, np.float32) / np.float32(255.0)


def _checked_screen(size: Any) -> tuple[Any, tuple[int, int]]:
    """Returns a size as it is shown, and the height and the width."""
    if not isinstance(size, tuple | list):
        edge = limited_size("screen_size", size, most=LARGEST_SIZE)
        return edge, (edge, edge)
    if len(size) != 2:
        raise ValueError(
            f"screen_size is {size!r:.80}; it must be a number, or a width and a "
            "height, such as (160, 210)."
        )
    width, height = (
        limited_size(f"screen_size[{index}]", edge, most=LARGEST_SIZE)
        for index, edge in enumerate(size)
    )
    return (width, height), (height, width)


class FrameStack4(FrameStack):
    """Shows the last four pictures as one, along the axis of channels.

    So pictures of shape `(height, width, 1)` become one of `(height, width, 4)`. At the
    beginning of an episode it is four times the first. It is TF-Agents' name for
    `FrameStack(env, 4, axis=-1, concatenate=True)`.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = FrameStack4(AtariPreprocessing(GridWorld(batch_size=2)))
        >>> env.reset().observation.shape
        (2, 84, 84, 4)
    """

    STACK_SIZE: ClassVar[int] = 4

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap, whose observations are pictures with the
                channels last.
            handle_auto_reset: As with every wrapper.
        """
        if hasattr(env, "time_step_spec") and not isinstance(env, type):
            _check_pictures(env)
        super().__init__(
            env,
            self.STACK_SIZE,
            axis=-1,
            concatenate=True,
            handle_auto_reset=handle_auto_reset,
        )


def _check_pictures(env: Any) -> None:
    for path, spec in nest.flatten_with_paths(env.observation_spec()):
        if len(spec.shape) != 3:
            raise ValueError(
                "FrameStack4 stacks pictures, and the observation of "
                f"{type(env).__name__}{place(path)} is none.\n\n"
                "  expected   pictures of shape (height, width, channels)\n"
                f"  got        {spec!r}\n\n"
                "FrameStack stacks observations of any shape."
            )
