"""`PLEWrapper`: a game of the PyGame Learning Environment as an envkit environment."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import as_discount
from envkit.adapters.ple_parts import one_display
from envkit.adapters.ple_parts.building import as_ple
from envkit.adapters.ple_parts.game_states import (
    MaxLengths,
    StateReader,
    explained,
    state_reader,
)
from envkit.adapters.ple_parts.keys import key_name, keys_of
from envkit.adapters.ple_parts.saved_games import SavedGame, restore_game, save_game
from envkit.adapters.spaces.values import Converter, array_leaf, bounded_leaf
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["PLEWrapper"]

_OBSERVATIONS = ("state", "screen", "both")


def _constant(number: float) -> Array:
    """Makes a discount of many time steps, to which nobody may write."""
    array = np.array(number, np.float32)
    array.setflags(write=False)
    return array


_ZERO, _ONE = _constant(0.0), _constant(1.0)


class PLEWrapper(PyEnvironment):
    """Makes an envkit environment of a game of PLE.

    | PLE                        | envkit                                             |
    |----------------------------|----------------------------------------------------|
    | `reset_game`               | `FIRST`, reward 0, discount 1                      |
    | `act(key)`                 | `MID`, and `LAST` with discount 0 if `game_over`   |
    | `getActionSet()`           | actions from 0, in the same order, no-op last      |
    | `getGameState()`           | a dictionary of arrays, keys in alphabetical order |
    | `getScreenRGB()`           | uint8, `(height, width, 3)`                        |

    pygame has one display for all of a process, so there is one `PLEWrapper` in a
    process at a time. Games side by side need a worker process each.

    Public attributes that the wrapper does not have are those of PLE.

    Attributes:
        action_names: What the key of each action is called, `"noop"` for none.
    """

    def __init__(
        self,
        game: Any,
        *,
        observation: str = "state",
        grayscale: bool = False,
        max_lengths: Mapping[str, int | tuple[int, ...] | None] | None = None,
        state_dtype: Any = np.float64,
        opening_frames: int = 0,
        discount: float = 1.0,
        ple_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Wraps a game; closing the wrapper closes pygame's display.

        Args:
            game: A PLE, a game of PLE, or something to call that makes one of the two,
                such as the game's class.
            observation: "state" for the numbers that the game tells, "screen" for its
                picture, "both" for a dictionary of the two.
            grayscale: Whether pictures are gray: of shape `(height, width)`.
            max_lengths: How many elements the lists in the state have at most, by
                their keys: `{"snake_body": 200}`. A tuple is the whole shape, and
                `None` is for a list that always has the same length. Where nothing is
                said there is room for 100, or four times what is there at first.
            state_dtype: What numbers of the state are made of.
            opening_frames: How many frames pass, without a key, before the first time
                step of an episode. Games draw when they are stepped, so without any
                the first picture is empty.
            discount: What later rewards are worth.
            ple_kwargs: What to make a PLE of a game with: `{"frame_skip": 4}`.
        """
        _check_observation(observation)
        super().__init__(handle_auto_reset=True)
        self._closed = False
        one_display.take(self)
        try:
            self._ple = as_ple(game, ple_kwargs or {})
            self._ple.init()
            self._name = type(self._ple.game).__name__
            self._keys = keys_of(self._ple, self._name)
            self.action_names = tuple(map(key_name, self._keys))
            self._blank = one_display.blank_of()
            if self._blank is None:  # It draws elsewhere, so others may do the same.
                one_display.give_back(self)
            self._grayscale = bool(grayscale)
            self._observes = observation
            self._read = self._compile(max_lengths or {}, state_dtype)
        except BaseException:
            one_display.give_back(self)
            raise
        self._opening_frames = _checked_frames(opening_frames)
        self._discount = _constant(as_discount(discount))
        self._next_seed: int | None = None
        self._as_made: SavedGame | None = None
        self._used = False

    def _compile(self, max_lengths: MaxLengths, dtype: Any) -> Converter:
        """Returns what reads observations; sets the specs."""
        last = len(self._keys) - 1
        self._action_spec = BoundedArraySpec((), np.int64, 0, last, "action")
        self._to_action = Converter(
            self._action_spec,
            bounded_leaf(self._action_spec),
            subject="PLEWrapper.step() was given an action that",
            root="action",
        )
        parts: dict[str, StateReader] = {}
        if self._observes != "state":
            shape = self._picture().shape
            spec = BoundedArraySpec(shape, np.uint8, 0, 255, "screen")
            parts["screen"] = StateReader(spec, array_leaf(spec))
        if self._observes != "screen":
            parts["state"] = state_reader(
                self._first_state(),
                name=self._name,
                dtype=dtype,
                max_lengths=max_lengths,
            )
        elif max_lengths:
            raise ValueError(
                "PLEWrapper was given max_lengths, which are for lists in the state, "
                'and observation="screen", in which there are none.'
            )
        if self._observes == "both":
            self._observation_spec: NestedSpec = {
                key: part.spec for key, part in parts.items()
            }
            leaves: Any = {key: part.leaves for key, part in parts.items()}
        else:
            (part,) = parts.values()
            self._observation_spec, leaves = part.spec, part.leaves
        return Converter(
            self._observation_spec,
            leaves,
            subject=f"{self._name} has shown what",
            root="observation",
        )

    def _first_state(self) -> Any:
        try:
            return self._ple.getGameState()
        except ValueError as error:
            raise ValueError(
                f"{self._name} has no state to observe, as some games of PLE have "
                'none: its picture is all there is. Pass observation="screen".'
            ) from error

    @property
    def ple(self) -> Any:
        """The PLE."""
        return self._ple

    @property
    def realtime(self) -> bool:
        """Whether the game runs at its own speed: made with `force_fps=False`."""
        return not self._ple.force_fps

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._ple, name)

    @property
    def one_per_process(self) -> bool:
        """Whether the game is drawn on pygame's display, of which a process has one."""
        return self._blank is not None

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> BoundedArraySpec:
        """Returns the spec of an action: the number of a key."""
        return self._action_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed the game; later ones let it go on.

        The game also becomes what it was when it was made: some games of PLE keep
        things from one episode to the next. Without a seed it is PLE's `rng` that
        counts, 24 unless `ple_kwargs` say otherwise.
        """
        self._noted_seed = seed
        (self._next_seed,) = checked_seeds(seed, 1)
        if self._next_seed is None:
            self._next_seed = int(np.random.SeedSequence().generate_state(1)[0])

    def get_info(self) -> dict[str, float | int]:
        """Returns what PLE tells besides: lives, score and the number of the frame."""
        self._check_open("get_info")
        info: dict[str, float | int] = {
            "frame_number": int(self._ple.getFrameNumber()),
            "score": float(self._ple.score()),
        }
        if hasattr(self._ple.game, "lives"):
            # 0 or -1 in games that have no lives, and a float in others.
            info["lives"] = float(self._ple.lives())
        return info

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns the picture of the game, `(height, width, 3)`.

        Games draw when they are stepped: right after a reset the picture is empty,
        unless there are `opening_frames`.
        """
        self._check_open("render")
        if mode != "rgb_array":
            raise NotImplementedError(
                f"PLEWrapper cannot render {mode!r}, only 'rgb_array'. PLE shows a "
                "window if it is made with display_screen=True."
            )
        return _upright(self._ple.getScreenRGB())

    def close(self) -> None:
        """Closes pygame's display; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            if self._blank is not None:
                one_display.close(self)

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._next_seed is not None:
            self._seed_game(self._next_seed)
            self._next_seed = None
        elif not self._used:
            self._remember()
        self._used = True
        # What the last episode has left would be seen, and its keys be pressed.
        one_display.put_blank(self._blank)
        if self._blank is not None:
            one_display.forget_keys()
        if self.realtime:
            _restart_clock(self._ple.game)
        self._ple.reset_game()
        for _ in range(self._opening_frames):
            self._ple.act(None)
        return TimeStep(
            StepType.FIRST,
            np.zeros((), np.float32),
            _ONE,
            self._observe(),
        )

    def _remember(self) -> None:
        """Keeps what the game is like before its first episode."""
        try:
            self._as_made = save_game(self._ple, None)
        except NotImplementedError:  # Then seeds are all that a seed brings back.
            self._as_made = None

    def _seed_game(self, seed: int) -> None:
        if self._used and self._as_made is not None:
            restore_game(self._ple, self._as_made)
        elif not self._used:
            self._remember()
        # setRNG does nothing once there is a generator.
        rng = np.random.RandomState(_as_word(seed))
        self._ple.rng = self._ple.game.rng = rng

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        reward = self._ple.act(self._keys[int(self._to_action(action))])
        over = self._ple.game_over()
        return TimeStep(
            StepType.LAST if over else StepType.MID,
            np.array(reward, np.float32),
            _ZERO if over else self._discount,
            self._observe(),
        )

    def _observe(self) -> NestedArray:
        # Hot: called once per step.
        try:
            return self._seen()
        except SpecError as error:
            if self._observes == "screen":
                raise
            raise explained(error) from error.__cause__

    def _seen(self) -> NestedArray:
        if self._observes == "state":
            return self._read(self._ple.getGameState())
        if self._observes == "screen":
            return self._read(self._picture())
        state = self._ple.getGameState()
        return self._read({"screen": self._picture(), "state": state})

    def _picture(self) -> Array:
        if self._grayscale:
            return _upright(self._ple.getScreenGrayscale())
        return _upright(self._ple.getScreenRGB())

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> SavedGame:
        beside = self._next_seed, self._used, self._as_made
        return save_game(self._ple, beside)

    def _set_state(self, state: SavedGame) -> None:
        self._next_seed, self._used, self._as_made = restore_game(self._ple, state)


def _check_observation(observation: Any) -> None:
    if observation not in _OBSERVATIONS:
        raise ValueError(
            f'observation is {observation!r}; it is "state", "screen" or "both".'
        )


def _checked_frames(frames: Any) -> int:
    if not isinstance(frames, numbers.Integral) or frames < 0:
        raise ValueError(
            f"opening_frames is {describe(frames)}; it is a number of frames, 0 for "
            "none."
        )
    return int(frames)


def _upright(picture: Any) -> Array:
    """Returns a picture with its rows first, as pictures are everywhere else."""
    return np.array(np.swapaxes(picture, 0, 1), np.uint8, order="C")


def _restart_clock(game: Any) -> None:
    """Lets the first frame of an episode begin now, however long nobody played."""
    if getattr(game, "clock", None) is not None:
        game.clock.tick()


def _as_word(seed: int) -> int:
    if seed < 2**32:
        return seed
    return int(np.random.SeedSequence(seed).generate_state(1)[0])
