"""Wrappers for Atari games: preprocessing, no-ops, fire, frame stacks, time limits."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from envkit import nest
from envkit._shared.arguments import limited_size
from envkit._shared.pixels import LARGEST_SIZE, grayscale, resize
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import (
    WrapperInternals,
    as_environment,
    checked_flag,
    checked_size,
    describe,
    may_lose,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wrappers.history import FrameStack
from envkit.wrappers.limits import info_at_limit, stands_at_last
from envkit.wrappers.observations import place
from envkit.wrappers.randomness import Branch, branched, wrapper_streams
from envkit.wrappers.rewards import add_in_rows, sum_spec
from envkit.wrappers.rows import where_rows

__all__ = [
    "AtariPreprocessing",
    "AtariTimeLimit",
    "FireOnReset",
    "FrameStack4",
    "LivesLookup",
    "NoopReset",
    "as_first",
    "as_termination",
    "move",
]


def move(env: Any, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
    """Steps or resets an environment in some rows; the other rows stay.

    Example:
        >>> from envkit.envs import Catch
        >>> env, yes, no = Catch(), np.array(True), np.array(False)
        >>> [int(move(env, 0, *masks).step_type) for masks in [(no, yes), (yes, no)]]
        [0, 1]
    """
    time_step: TimeStep
    if stepping.all():
        time_step = env.step(action)
    elif stepping.any():
        time_step = env.step_rows(action, stepping, beginning)
    elif beginning.all():
        time_step = env.reset()
    elif beginning.any():
        time_step = env.reset(beginning)
    else:
        time_step = env.current_time_step()
    return time_step


def as_first(rows: Array, time_step: TimeStep) -> TimeStep:
    """Makes the time step a `FIRST` with reward 0 and discount 1 in some rows.

    Example:
        >>> from envkit import transition
        >>> time_step = transition(np.zeros(2), np.array([3.0, 4.0]), 0.5, (2,))
        >>> time_step = as_first(np.array([True, False]), time_step)
        >>> time_step.step_type, time_step.reward.tolist(), time_step.discount.tolist()
        (array([0, 1], dtype=int32), [0.0, 4.0], [1.0, 0.5])
    """
    reward = nest.map_structure(lambda old: _put(rows, 0, old), time_step.reward)
    return _at(rows, time_step, StepType.FIRST, 1)._replace(reward=reward)


def as_termination(rows: Array, time_step: TimeStep) -> TimeStep:
    """Makes the time step a `LAST` with discount 0 in some rows."""
    return _at(rows, time_step, StepType.LAST, 0)


def _at(rows: Array, time_step: TimeStep, step_type: Array, discount: int) -> TimeStep:
    return time_step._replace(
        step_type=_put(rows, step_type, time_step.step_type),
        discount=nest.map_structure(
            lambda old: _put(rows, discount, old), time_step.discount
        ),
    )


def _put(rows: Array, value: Any, leaf: Any) -> Array:
    """Writes a value into some rows; the dtype stays."""
    return where_rows(rows, value, leaf).astype(np.asarray(leaf).dtype)


# With more no-ops than this, an episode would take years to begin.
_MOST_NOOPS = 2**31 - 1
_PRESS = "It must be the action with which one row presses fire."
_NO_OTHER = "With next_action=None, only fire is pressed."


class _Opening(PyEnvironmentBaseWrapper):
    """Takes fixed actions at the beginning of each episode, before the agent acts.

    Their rewards are dropped, and the episode begins with the observation after them. A
    row whose episode ends meanwhile is reset, and takes the remaining actions.
    """

    def __init__(self, env: Any, handle_auto_reset: bool) -> None:
        super().__init__(env, handle_auto_reset)
        self._envkit.check_resets_rows(self)
        self._envkit.check_holds_rows(self)
        self._action = nest.Structure(self._env.action_spec())

    @abc.abstractmethod
    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        """Returns the actions in order, each with a mask of the rows that take it."""

    def _as_action(self, name: str, value: Any, advice: str) -> NestedArray:
        """Returns an action for all rows from one row's action, or refuses it."""
        try:
            leaves = [np.asarray(leaf) for leaf in self._action.flatten(value)]
            leaves = [
                leaf.astype(spec.dtype) if _loses_nothing(leaf, spec.dtype) else leaf
                for leaf, spec in zip(leaves, self._action.leaves, strict=True)
            ]
            converted = self._action.unflatten(leaves)
        except SpecError:
            converted = value
        check_fits(
            converted,
            self._action.template,
            subject=f"{type(self).__name__} was given a {name} that",
            root=name,
            context=advice,
        )
        return self._action.map(
            lambda leaf: np.array(np.broadcast_to(leaf, (*self._dims, *leaf.shape))),
            converted,
        )

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        begun = np.asarray(time_step.step_type) == _FIRST
        if rows is not None:
            begun = begun & rows
        if not begun.any():
            return time_step
        for action, taking in self._actions_for(begun):
            if not taking.any():
                continue
            time_step = self._move(action, taking)
            ended = taking & (np.asarray(time_step.step_type) == _LAST)
            if ended.any():
                time_step = self._env.reset(ended) if self._dims else self._env.reset()
        return as_first(begun, time_step)

    def _move(self, action: NestedArray, rows: Array) -> Any:
        # Copies each time: an environment may write into its action.
        action = self._action.map(np.array, action)
        if rows.all():
            return self._env.step(action)
        return self._env.step_rows(action, rows)


def _loses_nothing(array: Array, dtype: np.dtype[Any]) -> bool:
    if array.dtype.kind == "b":
        return dtype.kind == "b"
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(np.all((array >= info.min) & (array <= info.max)))
    return np.can_cast(array.dtype, dtype, "same_kind")


class NoopReset(_Opening):
    """Begins each episode with a random number of no-ops, from 1 to `noop_max`.

    So a game that always begins in the same way begins in different states. Rewards of
    the no-ops are dropped. Each row draws its number of no-ops from its own random
    stream; `seed` sets the streams.

    A batch must be able to hold and to reset single rows. Put the wrapper inside
    `AtariPreprocessing`: then a no-op is one frame, and none are played after the loss
    of a life.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NoopReset(CartPole(batch_size=3), noop_max=5)
        >>> env.seed(1)
        >>> env.reset().step_type, env.get_info()["episode_steps"]
        (array([0, 0, 0], dtype=int32), array([1, 5, 2]))
    """

    _kept = ("_streams",)
    _shown = ("noop_max",)

    def __init__(
        self,
        env: Any,
        noop_max: int = 30,
        noop_action: NestedArray = 0,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            noop_max: The most no-ops; with 0 there are none.
            noop_action: The no-op action of a single row.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._noop_max = limited_size("noop_max", noop_max, most=_MOST_NOOPS, least=0)
        self._noop = self._as_action(
            "noop_action", noop_action, "It must be the no-op action of one row."
        )
        self._streams = wrapper_streams(self, None, Branch.NOOPS)

    @property
    def noop_max(self) -> int:
        """The maximum number of no-ops at the beginning of an episode."""
        return self._noop_max

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and the numbers of no-ops."""
        self._streams = wrapper_streams(self, seed, Branch.NOOPS)
        return super().seed(seed)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._streams.seed_rows(branched(self, seeds, Branch.NOOPS))
        super()._seed_rows(seeds)

    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        counts = np.zeros(rows.size, np.int64)
        drawing = rows.reshape(-1).nonzero()[0]
        if self._noop_max:
            counts[drawing] = self._streams.integers(drawing, 1, self._noop_max + 1)
        counts = counts.reshape(self._dims)
        return [(self._noop, counts > taken) for taken in range(counts.max(initial=0))]


class FireOnReset(_Opening):
    """Begins each episode by pressing fire, and then another button.

    Some games wait for fire. If pressing it ends the episode, the game is reset once
    more before the other button is pressed. Rewards of both are dropped.

    A single environment is left alone if its `get_action_meanings()` gives
    `fire_action` a name other than "FIRE".

    A batch must be able to hold and to reset single rows. Put the wrapper inside
    `AtariPreprocessing`, where an action is one frame.

    Example:
        >>> from envkit.envs import Catch
        >>> env = FireOnReset(Catch(batch_size=2), fire_action=1)
        >>> env.reset().step_type, env.get_info()["episode_steps"]
        (array([0, 0], dtype=int32), array([2, 2]))
    """

    _shown = ("fire_action", "next_action")

    def __init__(
        self,
        env: Any,
        fire_action: NestedArray = 1,
        next_action: NestedArray | None = 2,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            fire_action: The action of a single row that presses fire.
            next_action: The next action; `None` for none.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        # Copies, here and below: later changes to the caller's array must not show.
        self._given = copy.deepcopy((fire_action, next_action))
        self._presses: list[NestedArray] = []
        if not _has_no_fire(self._env, fire_action):
            fire = self._as_action("fire_action", fire_action, _PRESS)
            self._presses.append(fire)
        if self._presses and next_action is not None:
            following = self._as_action("next_action", next_action, _NO_OTHER)
            self._presses.append(following)

    @property
    def fire_action(self) -> NestedArray:
        """The action that presses fire."""
        return copy.deepcopy(self._given[0])

    @property
    def next_action(self) -> NestedArray | None:
        """The action after fire; `None` for none."""
        return copy.deepcopy(self._given[1])

    def _actions_for(self, rows: Array) -> list[tuple[NestedArray, Array]]:
        return [(press, rows) for press in self._presses]


def _has_no_fire(env: Any, fire_action: Any) -> bool:
    """True if the environment names its actions and this one is not FIRE."""
    meanings = getattr(env, "get_action_meanings", None)
    if not callable(meanings) or np.ndim(fire_action) != 0:
        return False
    names = list(meanings())
    return not (0 <= fire_action < len(names) and names[fire_action] == "FIRE")


class LivesLookup:
    """Looks up how many lives are left in each row.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(batch_size=2, seed=1)
        >>> lookup = LivesLookup(env, lambda time_step, info: 9 - info["episode_steps"])
        >>> time_step = env.reset()
        >>> lookup(time_step), lookup(env.step([0, 0]))
        (array([9., 9.]), array([8., 8.]))
    """

    def __init__(
        self, env: Any, lives: Callable[[TimeStep, Any], Any] | None = None
    ) -> None:
        """Prepares to look up lives in an environment.

        Args:
            env: The environment.
            lives: Takes a time step and an info and returns the lives; `None` for
                `get_info()["lives"]`.
        """
        if lives is not None and not callable(lives):
            raise TypeError(
                "lives must be a function of a time step and its info, not "
                f"{describe(lives)}."
            )
        self._env = env
        self._lives = lives
        self._may_lose = may_lose(env)
        batched = getattr(env, "batched", False) is True
        self._dims = (env.batch_size,) if batched else ()

    def __call__(self, time_step: TimeStep) -> Array:
        """Returns the lives at the environment's current time step.

        A row whose environment was lost has infinitely many.
        """
        lost = self._env.repaired if self._may_lose else np.zeros(self._dims, bool)
        if lost.all():
            return np.full(self._dims, np.inf)
        info = self._info()
        if lost.any() and isinstance(info, list):
            # A lost environment has no info, so another row's stands in its place.
            other = info[int(lost.argmin())]
            info = [
                other if gone else one for one, gone in zip(info, lost, strict=True)
            ]
        if self._lives is None:
            found = self._lives_in(info)
        else:
            found = self._lives(time_step, info)
        lives = _numbers(found)
        if lives.shape != self._dims or np.isnan(lives).any():
            wanted = "a number"
            if self._dims:
                wanted = f"{self._dims[0]} numbers, one for each row"
            raise ValueError(
                f"The lives of {type(self._env).__name__} must be {wanted}, got "
                f"{describe(found)}."
            )
        return np.where(lost, np.inf, lives)

    def _info(self) -> Any:
        try:
            return self._env.get_info()
        except NotImplementedError:
            return None  # The function may need only the time step.

    def _lives_in(self, info: Any) -> Any:
        try:
            # A batch whose infos cannot be stacked returns a list of them.
            if isinstance(info, list | tuple):
                return [one["lives"] for one in info]
            return info["lives"]
        except (KeyError, TypeError, IndexError):
            raise ValueError(
                f"get_info() of {type(self._env).__name__} has no 'lives', so "
                "nothing shows when one is lost. Pass lives=..., a function of a time "
                "step and its info that returns how many are left."
            ) from None


def _numbers(found: Any) -> Array:
    try:
        return np.array(found, np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class _LivesInternals(WrapperInternals):
    """Makes a reset with options begin a game, not the next life."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        super().hand_options(env, options, rows)
        if options is not None:
            env._begin_games(rows)


class AtariPreprocessing(PyEnvironmentBaseWrapper):
    """Preprocesses Atari games as agents have done since DQN.

    - Each action is repeated for `frame_skip` frames, and the rewards are added up. The
      repetition stops when the episode ends. The discount comes from the last frame.
    - The observation is the pixel-wise maximum of the last two of these frames, because
      many games draw some things in every other frame only. At the beginning of an
      episode, and if it ended after one frame, the observation is a single frame.
    - Pictures are gray, and resized to `(screen_size, screen_size, 1)`; the arguments
      of Gymnasium's wrapper choose otherwise. Gymnasium's pictures have no channel
      dimension: that is `grayscale_newaxis=False` here.
    - With `terminal_on_life_loss`, losing a life ends an episode: `LAST`, discount 0.
      The next episode continues the game, with the same picture as its `FIRST`. The
      game is reset only when it is over.

    So a `reset()` right after the loss of a life begins the next life, and batches and
    pools rely on that. At any other time, and after `seed()`, it begins a game.

    `NoopReset` and `FireOnReset` go inside this wrapper, where an action is one frame.
    `FrameStack4` goes around it, and so does `AtariTimeLimit`, which counts the steps
    of a game, not of a life.

    Each row of a batch stops on its own, so the batch must be able to hold rows while
    others step (see its `holds_rows`). Lives are looked up after each frame. In a pool
    of processes that takes long: wrap the single games there instead.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = AtariPreprocessing(GridWorld(batch_size=2), screen_size=16)
        >>> env.reset().observation.shape
        (2, 16, 16, 1)

        A game that loses a life every eight frames:

        >>> env = AtariPreprocessing(
        ...     GridWorld(seed=1),
        ...     terminal_on_life_loss=True,
        ...     lives=lambda time_step, info: 3 - info["episode_steps"] // 8,
        ... )
        >>> for _ in range(5):
        ...     time_step = env.step(0)
        ...     print(time_step.step_type, time_step.discount, env.game_over)
        0 1.0 False
        1 1.0 False
        2 0.0 False
        0 1.0 False
        1 1.0 False
    """

    _kept = ("_lives", "_has_lost", "_is_over", "_screen")
    _envkit = _LivesInternals()
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
            terminal_on_life_loss: Whether losing a life ends an episode.
            screen_size: The height and width of the observation, or `(width, height)`,
                in this order, as in Gymnasium.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            noop_max: The maximum number of no-ops at the beginning of a game, of one
                frame each; adds a `NoopReset` inside this wrapper. Gymnasium's default
                is 30.
            grayscale_obs: Whether pictures are converted to gray.
            grayscale_newaxis: Whether gray pictures have a channel dimension of size 1.
                Gymnasium's default is `False`.
            scale_obs: Whether pictures are float32 from 0 to 1 instead of bytes.
            lives: Takes the environment's time step and info, and returns how many
                lives are left; in a batch, one number per row. The default is
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
        # Of Gymnasium's arguments, show only those that were chosen.
        usual = {"grayscale_obs": True, "grayscale_newaxis": True, "scale_obs": False}
        chosen = (name for name in usual if getattr(self, name) != usual[name])
        self._shown = (*type(self)._shown, *chosen)  # type: ignore[misc]  # of this one
        self._counts_lives = checked_flag(
            "terminal_on_life_loss", terminal_on_life_loss
        )
        self._look_up_lives = LivesLookup(self._env, lives)
        self._begins_games = handle_auto_reset or self._counts_lives
        if self._frame_skip > 1 or self._counts_lives:
            self._envkit.check_holds_rows(self)
        if self._begins_games:
            self._envkit.check_resets_rows(self)
        self._observation_spec = self._screen_spec(self._env.observation_spec())
        self._rewards = nest.Structure(self._env.reward_spec())
        self._no_rows = np.zeros(self._dims, bool)
        self._lives = np.zeros(self._dims)
        # Rows whose current time step is a LAST: of a life only, and of the game.
        self._has_lost = self._no_rows
        self._is_over = self._no_rows
        # The rows' pictures at the loss of a life.
        spec = self._observation_spec
        shape = spec.shape if self._counts_lives else (0,)
        self._screen = np.zeros((*self._dims, *shape), spec.dtype)

    @property
    def frame_skip(self) -> int:
        """How many frames an action lasts."""
        return self._frame_skip

    @property
    def terminal_on_life_loss(self) -> bool:
        """Whether losing a life ends an episode."""
        return self._counts_lives

    @property
    def screen_size(self) -> int | tuple[int, int]:
        """The height and width of the observation, or `(width, height)`."""
        return self._screen_size  # type: ignore[no-any-return]  # the caller's own value

    @property
    def grayscale_obs(self) -> bool:
        """Whether pictures are converted to gray."""
        return self._is_gray

    @property
    def grayscale_newaxis(self) -> bool:
        """Whether gray pictures have a channel dimension."""
        return self._has_newaxis

    @property
    def scale_obs(self) -> bool:
        """Whether pictures are float32 from 0 to 1."""
        return self._is_scaled

    @property
    def game_over(self) -> Any:
        """Whether the game itself has ended; in a batch, an array of booleans."""
        return self._is_over.copy() if self._dims else bool(self._is_over)

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the preprocessed picture."""
        return self._observation_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the sum of several frames' rewards."""
        return self._rewards.map(
            lambda spec: sum_spec(spec, self._frame_skip), self._rewards.template
        )

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment; the next reset begins a game in every row."""
        result = super().seed(seed)
        self._begin_games()
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._begin_games(np.array([seed is not None for seed in seeds]))

    def _begin_games(self, rows: Array | None = None) -> None:
        """Makes the next reset begin a game, where it would have begun a life."""
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
        return self._play(None, self._no_rows, ~self._no_rows)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._play(None, self._no_rows, mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._play(action, ~self._no_rows, self._no_rows)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._play(action, stepping, beginning)

    def _play(self, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
        """Steps the games of some rows, and begins a game or the next life in others.

        For a single environment, all masks are arrays without dimensions.
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
        """Shows some rows' pictures at the loss of a life again, as a `FIRST`."""
        screen = where_rows(rows, self._screen, time_step.observation)
        return as_first(rows, time_step)._replace(observation=screen)

    def _skip(
        self, action: NestedArray, moving: Array, beginning: Array, touched: Array
    ) -> tuple[TimeStep, Array, Array]:
        """Repeats an action for `frame_skip` frames, or until a row's episode ends.

        Returns:
            The last time step, with the sum of rewards; the screens of the rows that
            moved; and the rows that have lost a life.
        """
        lost, brighter, before = self._no_rows, self._no_rows, None
        time_step = move(self._env, action, moving, beginning)
        rewards = self._rewards.map(np.array, time_step.reward)
        moved, left = moving | beginning, self._frame_skip - 1
        while True:
            newly_lost = self._update_lives(time_step, moved)
            lost = lost | newly_lost
            moving = moving & (np.asarray(time_step.step_type) == _MID) & ~newly_lost
            if not left or not moving.any():
                break
            if left == 1:
                before, brighter = self._pictures(time_step, touched), moving
            time_step = move(self._env, action, moving, self._no_rows)
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

    def _update_lives(self, time_step: TimeStep, moved: Array) -> Array:
        """Updates the lives, and returns the rows that lost one in this step."""
        if not self._counts_lives:
            return self._no_rows
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
        """Returns the preprocessed pictures of some rows."""
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
    """Returns a size as the caller gave it, and its height and width."""
    if not isinstance(size, tuple | list):
        edge = limited_size("screen_size", size, most=LARGEST_SIZE)
        return edge, (edge, edge)
    if len(size) != 2:
        raise ValueError(
            "screen_size must be a number, or a width and a height, such as (160, "
            f"210), got {size!r:.80}."
        )
    width, height = (
        limited_size(f"screen_size[{index}]", edge, most=LARGEST_SIZE)
        for index, edge in enumerate(size)
    )
    return (width, height), (height, width)


class FrameStack4(FrameStack):
    """Shows the last four pictures as one, stacked along the channel axis.

    Pictures of shape `(height, width, 1)` become one of shape `(height, width, 4)`. At
    the beginning of an episode it repeats the first picture four times. This is
    TF-Agents' name for `FrameStack(env, 4, axis=-1, concatenate=True)`.

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
            env: The environment to wrap; its observations are pictures with the
                channels last.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        env = as_environment(env)
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
                f"{type(env).__name__}{place(path)} is not one.\n\n"
                "  expected   pictures of shape (height, width, channels)\n"
                f"  got        {spec!r}\n\n"
                "FrameStack stacks observations of any shape."
            )


class AtariTimeLimit(PyEnvironmentBaseWrapper):
    """Truncates a game after `duration` steps, over however many lives.

    The wrapper goes around `AtariPreprocessing`, whose episodes may be single lives,
    and counts steps from the beginning of a game. Step number `duration` becomes a
    `LAST` and keeps its discount; the next step resets the game.

    Each row of a batch counts its own steps. The batch must be able to reset single
    rows (see its `resets_rows`).

    Example:
        >>> from envkit.envs import GridWorld
        >>> from envkit.wrappers.atari import AtariPreprocessing
        >>> env = AtariTimeLimit(AtariPreprocessing(GridWorld(seed=1)), duration=2)
        >>> [int(env.step(0).step_type) for _ in range(5)], env.game_over
        ([0, 1, 2, 0, 1], False)
    """

    _kept = ("_steps", "_has_ended", "_has_lost", "_limited", "_cut")
    _envkit = _LivesInternals()
    _shown = ("duration",)

    def __init__(
        self, env: Any, duration: int, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap; it has an attribute `game_over`.
            duration: The number of steps after which a game is truncated.
            handle_auto_reset: Has no effect here.
        """
        # The base class would begin a game after the loss of a life.
        super().__init__(env, handle_auto_reset=False)
        self._duration = checked_size("duration", duration)
        if not hasattr(self._env, "game_over"):
            raise ValueError(
                "AtariTimeLimit needs an environment with an attribute game_over, "
                "which tells the end of a game from that of a life, and "
                f"{type(self._env).__name__} has none. Put it around "
                "AtariPreprocessing, or use TimeLimit."
            )
        self._envkit.check_resets_rows(self)
        self._no_rows = np.zeros(self._dims, bool)
        self._steps = np.zeros(self._dims, np.int64)
        # Rows whose game has ended with the current time step, inside or here; and
        # rows that have lost a life.
        self._has_ended = self._no_rows
        self._has_lost = self._no_rows
        # Rows whose time step is a LAST at the limit, and those cut only here.
        self._limited = self._cut = self._no_rows

    @property
    def duration(self) -> int:
        """The number of steps after which a game is truncated."""
        return self._duration

    @property
    def game_over(self) -> Any:
        """Whether the game has ended; in a batch, an array of booleans."""
        return self._has_ended.copy() if self._dims else bool(self._has_ended)

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode ended at the limit."""
        return info_at_limit(self)

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment; the next reset begins a game in every row."""
        result = super().seed(seed)
        self._begin_games()
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._begin_games(np.array([seed is not None for seed in seeds]))

    def _begin_games(self, rows: Array | None = None) -> None:
        """Makes the next reset begin a game, where it would have begun a life."""
        lost = self._has_lost if rows is None else self._has_lost & rows
        self._has_ended = self._has_ended | lost
        self._has_lost = self._has_lost & ~lost

    def _reset(self) -> TimeStep:
        return self._move(None, self._no_rows, ~self._no_rows)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._move(None, self._no_rows, mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._move(action, ~self._no_rows, self._no_rows)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._move(action, stepping, beginning)

    def _move(self, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
        touched = stepping | beginning
        may_begin = beginning | stands_at_last(self)
        goes_on = self._has_lost & ~self._has_ended
        games = (beginning & ~goes_on) | (stepping & self._has_ended)
        # A reset right after the loss of a life begins the next life: a second reset
        # begins a game.
        twice = games & self._has_lost
        if twice.any():
            move(self._env, action, self._no_rows, twice)
        time_step = move(self._env, action, stepping & ~games, beginning | games)
        step_type = np.asarray(time_step.step_type)
        # Elsewhere a FIRST counts like any other step.
        begun = may_begin & (step_type == _FIRST)
        steps = np.where(games, 0, self._steps + ~begun)
        is_last = step_type == _LAST
        cut = (steps >= self._duration) & ~begun
        over = np.asarray(self._env.game_over)
        self._steps = np.where(touched, steps, self._steps)
        self._has_ended = np.where(touched, (is_last & over) | cut, self._has_ended)
        self._has_lost = np.where(touched, is_last & ~over, self._has_lost)
        self._limited = np.where(touched, cut, self._limited)
        self._cut = np.where(touched, cut & ~is_last, self._cut)
        if not cut.any():
            return time_step
        return time_step._replace(step_type=np.where(cut, _LAST, step_type))
