"""PLE: games of the PyGame Learning Environment as envkit environments.

`load` makes a game by name, and `PLEWrapper` adapts one. The state that a game reports
becomes arrays of fixed shapes:

| in the state           | in the observation                                          |
|------------------------|-------------------------------------------------------------|
| a number of any type   | an array without dimensions; all have one dtype             |
| a tuple of numbers     | an array                                                    |
| an array               | an array of the same dtype                                  |
| a list, of any length  | `{"length": n, "values": array}`, padded with zeros         |
| a dictionary           | a dictionary, with its keys in alphabetical order           |

All numbers have one dtype because, in most games, a number may be an integer in one
frame and a float in the next. A saved state has everything that the PLE and the game
hold, including the pixels of their surfaces; the display remains the process's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import numbers
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from envkit._shared.arguments import as_discount
from envkit._shared.quiet_sdl import prepare_sdl
from envkit.adapters.adapter import Adapter
from envkit.adapters.adapter.adapted import AdaptedEnvironment
from envkit.adapters.adapter.inference import Inferred, infer
from envkit.adapters.foreign import forwarded, limited_and_wrapped
from envkit.adapters.ple import SCHEME, display
from envkit.adapters.state import restore_snapshot, take_snapshot
from envkit.adapters.values import Converter, array_leaf
from envkit.errors import SpecError
from envkit.extend import describe, suggestion
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.limits import TimeLimit

__all__ = ["GAMES", "PLEWrapper", "as_ple", "load", "names", "require_ple"]


# PLE's games that run on Python 3; others can be named by their class too.
GAMES = (
    "Catcher",
    "FlappyBird",
    "MonsterKong",
    "Pixelcopter",
    "Pong",
    "PuckWorld",
    "Snake",
    "WaterWorld",
)


def load(
    environment_name: str,
    observation: str | None = None,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    game_kwargs: Mapping[str, Any] | None = None,
    ple_kwargs: Mapping[str, Any] | None = None,
    *,
    private_randomness: bool = True,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of PLE by its name.

    `envkit.make("ple:Catcher")` calls this.

    Args:
        environment_name: The game's class: "Catcher", "FlappyBird", and so on.
        observation: "state", "screen" or "both"; `None` for the state, or the screen of
            a game without a state.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 for no limit: PLE has none of its own.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        game_kwargs: Arguments of the game: `{"width": 128, "height": 128}`.
        ple_kwargs: Arguments of its PLE: `{"frame_skip": 4}`.
        private_randomness: Whether the game gets its own global random generators, with
            `PrivateRandomness`.
        **kwargs: More arguments of `PLEWrapper`.
    """
    require_ple(f"The game {environment_name!r}")
    prepare_sdl((ple_kwargs or {}).get("display_screen", False))
    make_game = _class_of(environment_name)
    if observation is None:
        observation = "screen" if environment_name == "MonsterKong" else "state"
    env: PyEnvironment = PLEWrapper(
        # Games use pygame's display as soon as they are made, so the wrapper makes
        # them.
        functools.partial(make_game, **(game_kwargs or {})),
        observation=observation,
        ple_kwargs=ple_kwargs,
        **kwargs,
    )
    return limited_and_wrapped(
        env,
        max_episode_steps,
        TimeLimit,
        env_wrappers,
        private_randomness=private_randomness,
    )


def names() -> list[str]:
    """Lists the games, if PLE is installed: the `GAMES`."""
    require_ple("suite_ple")
    return list(GAMES)


def _class_of(name: str) -> Callable[..., Any]:
    module_name = f"ple.games.{name.lower()}"
    try:
        module: Any = _import_quietly(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        module = None
    if not hasattr(module, name):
        raise ValueError(
            f"PLE has no game named {name!r}.{suggestion(name, GAMES)} Its "
            f"games are {', '.join(GAMES)}; for your own game, pass its class to "
            "PLEWrapper."
        )
    return getattr(module, name)  # type: ignore[no-any-return]  # a class


_OBSERVATIONS = ("state", "screen", "both")


class _PlayedGame(AdaptedEnvironment):
    """Presents a game of PLE that has been started."""

    _global_generators = ("random", "numpy")

    def __init__(self, author: Any, arguments: tuple[Any, dict[str, Any]]) -> None:
        super().__init__(author, arguments)
        self.start()

    def get_info(self) -> dict[str, float | int]:
        """Returns PLE's facts: lives, score and the frame number."""
        self._check_open("get_info")
        ple = self._author.ple
        info: dict[str, float | int] = {
            "frame_number": int(ple.getFrameNumber()),
            "score": float(ple.score()),
        }
        if hasattr(ple.game, "lives"):
            # 0 or -1 in games without lives, and a float in others.
            info["lives"] = float(ple.lives())
        return info


class PLEWrapper(Adapter, environment=_PlayedGame):
    """Makes an envkit environment from a game of PLE.

    | PLE                        | envkit                                             |
    |----------------------------|----------------------------------------------------|
    | `reset_game`               | `FIRST`, reward 0, discount 1                      |
    | `act(key)`                 | `MID`, and `LAST` with discount 0 if `game_over`   |
    | `getActionSet()`           | actions from 0, in the same order, no-op last      |
    | `getGameState()`           | a dictionary of arrays, keys in alphabetical order |
    | `getScreenRGB()`           | uint8, `(height, width, 3)`                        |

    A process has one pygame display, so it can have one `PLEWrapper` at a time. To play
    several games at once, give each its own worker process.

    | in the state                        | in the observation                        |
    |-------------------------------------|-------------------------------------------|
    | a number of any type                | a scalar array of `state_dtype`           |
    | a tuple of numbers                  | an array                                  |
    | an array                            | an array of the same dtype                |
    | a list                              | `{"length": n, "values": padded array}`   |
    | a dictionary                        | a dictionary                              |
    | a `state_preprocessor`'s result     | an array of its dtype                     |

    PLE releases a key only when the next one is pressed, never for a no-op. Without a
    display, or with `display_screen=False`, SDL uses its dummy drivers, unless you have
    set `SDL_VIDEODRIVER` and `SDL_AUDIODRIVER`; it never catches SIGTERM.

    Public attributes that the wrapper lacks are taken from PLE. Seeding also restores
    the game as it was when it was made, because some games of PLE keep data from one
    episode to the next. Without a seed, PLE's `rng` decides: 24, unless `ple_kwargs`
    say otherwise.

    Attributes:
        action_names: The names of the actions' keys; `"noop"` for no key.
    """

    fresh_arrays = True

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
            game: A PLE, a game of PLE, or a function that makes either, such as the
                game's class.
            observation: "state" for the game's numbers, "screen" for its picture,
                "both" for a dictionary of the two.
            grayscale: Whether pictures are grey, with shape `(height, width)`.
            max_lengths: The maximum lengths of lists in the state, by key:
                `{"snake_body": 200}`. A tuple is the whole shape, and `None` means that
                a list always has the same length. By default there is room for 100
                elements, or four times the initial number.
            state_dtype: The dtype of numbers in the state.
            opening_frames: The number of frames, without a key, before the first time
                step of an episode. Games draw when they are stepped, so with 0 the
                first picture is empty.
            discount: The discount of steps that do not terminate the episode.
            ple_kwargs: Arguments for the PLE of a game: `{"frame_skip": 4}`.
        """
        _check_observation(observation)
        self._given = game, ple_kwargs or {}
        self._observes = observation
        self._grayscale = bool(grayscale)
        self._said = max_lengths or {}, state_dtype
        self._opening_frames = _checked_frames(opening_frames)
        self.discount = as_discount(discount)
        self._as_made: Any = None
        self._used = False

    def start(self) -> Any:
        """Makes the PLE, which is `env_instance` until the wrapper is closed."""
        display.acquire(self)
        try:
            self._ple = as_ple(*self._given)
            self._ple.init()
            self._name = type(self._ple.game).__name__
            self._keys = _keys_of(self._ple, self._name)
            self.actions = tuple(map(_key_name, self._keys))
            self._blank = display.blank_of()
            if self._blank is None:  # draws elsewhere, so others may too
                display.release(self)
            self._read = self._compile(*self._said)
        except BaseException:
            display.release(self)
            raise
        return self._ple

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._ple, name)

    def _compile(self, max_lengths: _MaxLengths, dtype: Any) -> Converter:
        """Returns the converter of observations; sets the specs."""
        parts: dict[str, Inferred] = {}
        if self._observes != "state":
            shape = self._picture().shape
            spec = BoundedArraySpec(shape, np.uint8, 0, 255, "screen")
            parts["screen"] = Inferred(spec, array_leaf(spec))
        if self._observes != "screen":
            parts["state"] = _infer_state(
                self._first_state(),
                name=self._name,
                dtype=dtype,
                max_lengths=max_lengths,
                path="['state']" if self._observes == "both" else "",
            )
        elif max_lengths:
            raise ValueError(
                "PLEWrapper was given max_lengths, which are for lists in the state, "
                'and observation="screen", in which there are none.'
            )
        if self._observes == "both":
            seen: NestedSpec = {key: part.spec for key, part in parts.items()}
            leaves: Any = {key: part.leaves for key, part in parts.items()}
        else:
            ((seen, leaves),) = parts.values()
        self.observation_spec = seen  # type: ignore[method-assign]  # a value does
        subject = f"{self._name} has shown what"
        return Converter(seen, leaves, subject=subject, root="observation")

    def _first_state(self) -> Any:
        try:
            return self._ple.getGameState()
        except ValueError as error:
            raise ValueError(
                f"{self._name} has no state to observe, like some games of PLE: "
                'it only has a picture. Pass observation="screen".'
            ) from error

    @property
    def ple(self) -> Any:
        """The PLE."""
        return self._ple

    @property
    def realtime(self) -> bool:  # type: ignore[override]  # of the game
        """True if the game runs in real time: made with `force_fps=False`."""
        return not self._ple.force_fps

    @property
    def one_per_process(self) -> bool:
        """True if the game draws on pygame's display: a process has only one."""
        return self._blank is not None

    def render(self, mode: str) -> Array:  # type: ignore[override]  # an author's
        """Returns the picture."""
        if mode != "rgb_array":
            raise NotImplementedError(
                f"PLEWrapper cannot render {mode!r}, only 'rgb_array'. PLE shows a "
                "window if it is made with display_screen=True."
            )
        return _upright(self._ple.getScreenRGB())

    def close(self) -> None:
        """Closes pygame's display, if the game is drawn there."""
        if self._blank is not None:
            display.close(self)

    def reset(self, seed: int | None = None) -> NestedArray:  # type: ignore[override]  # an author's
        """Begins an episode."""
        if self._used and seed is not None and self._as_made is not None:
            _restore_game(self._ple, self._as_made)
        elif not self._used:
            self._remember()
        if seed is not None:
            # setRNG does nothing once there is a generator.
            rng = np.random.RandomState(_as_word(seed))
            self._ple.rng = self._ple.game.rng = rng
        self._used = True
        # Otherwise the episode would begin with the last one's picture and keys.
        display.put_blank(self._blank)
        if self._blank is not None:
            display.forget_keys()
        if self.realtime:
            _restart_clock(self._ple.game)
        self._ple.reset_game()
        for _ in range(self._opening_frames):
            self._ple.act(None)
        return self._observation()

    def _remember(self) -> None:
        """Keeps the game's state before its first episode."""
        try:
            self._as_made = _save_game(self._ple, None)
        except NotImplementedError:  # a seed then restores only the generator
            self._as_made = None

    def step(self, action: int) -> tuple[NestedArray, float, bool]:  # type: ignore[override]  # an author's
        """Presses a key for a frame."""
        # Hot: called once per step.
        reward = self._ple.act(self._keys[action])
        over = bool(self._ple.game_over())
        return self._observation(), reward, over

    def _observation(self) -> NestedArray:
        # Hot: called once per step.
        try:
            return self._seen()
        except SpecError as error:
            if self._observes == "screen":
                raise
            raise _explained(error) from error.__cause__

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

    def get_state(self) -> Any:
        """Saves the game."""
        return _save_game(self._ple, (self._used, self._as_made))

    def set_state(self, state: Any) -> None:
        """Restores a saved game."""
        self._used, self._as_made = _restore_game(self._ple, state)


def _check_observation(observation: Any) -> None:
    if observation not in _OBSERVATIONS:
        raise ValueError(
            f'observation must be "state", "screen" or "both", got {observation!r}.'
        )


def _checked_frames(frames: Any) -> int:
    if not isinstance(frames, numbers.Integral) or frames < 0:
        raise ValueError(
            "opening_frames must be a number of frames, 0 for none, got "
            f"{describe(frames)}."
        )
    return int(frames)


def _upright(picture: Any) -> Array:
    """Returns a picture with rows first, as everywhere else."""
    return np.array(np.swapaxes(picture, 0, 1), np.uint8, order="C")


def _restart_clock(game: Any) -> None:
    """Makes the clock ignore the pause before the first frame of an episode."""
    if getattr(game, "clock", None) is not None:
        game.clock.tick()


def _as_word(seed: int) -> int:
    if seed < 2**32:
        return seed
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


_OF_PLE = ("act", "game_over", "getActionSet", "init", "reset_game")
_OF_GAME = ("_setup", "game_over", "getScore", "reset", "step")


def require_ple(needed_by: str) -> None:
    """Raises unless PLE and pygame are installed; imports neither."""
    error = SCHEME.missing(needed_by)
    if error is not None:
        raise error


def _import_quietly(name: str) -> Any:
    """Imports a PLE module without its printed lines about Doom games.

    Doom games need a library that no longer exists; every process would print them.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            return importlib.import_module(name)
    finally:
        # Lines printed by other threads and modules meanwhile are kept.
        for line in printed.getvalue().splitlines(keepends=True):
            if not line.lower().startswith("couldn't import doom"):
                print(line, end="")


def as_ple(game: Any, ple_kwargs: Mapping[str, Any]) -> Any:
    """Returns a PLE: the given one, a function's result, or a new one for a game.

    Args:
        game: A PLE, a game, or a function that makes either.
        ple_kwargs: Arguments for the PLE of a game.

    Raises:
        TypeError: It is something else, or a PLE with keyword arguments.
    """
    made = game
    if isinstance(game, type) or (callable(game) and not _has(game, _OF_PLE)):
        # A class of games shows no window unless its PLE is told to; a function may
        # choose.
        unknown = None if not _has(game, _OF_GAME) else False
        prepare_sdl(ple_kwargs.get("display_screen", unknown))
        made = game()
    if _has(made, _OF_PLE):
        if ple_kwargs:
            raise TypeError(
                "PLEWrapper was given a PLE, and ple_kwargs, which are for making "
                f"one: {', '.join(ple_kwargs)}. Pass them to PLE, or give PLEWrapper "
                "the game."
            )
        return made
    if isinstance(made, type) or not _has(made, _OF_GAME):
        how = "made" if made is not game else "was given"
        raise TypeError(
            f"PLEWrapper {how} {describe(made)}, which is neither a PLE nor a game of "
            "PLE. PLEWrapper(Catcher), PLEWrapper(PLE(Catcher())) and "
            "PLEWrapper(lambda: PLE(Catcher())) all work."
        )
    return _ple_of(made, ple_kwargs)


def _has(value: Any, names: tuple[str, ...]) -> bool:
    return all(hasattr(value, name) for name in names)


def _ple_of(game: Any, ple_kwargs: Mapping[str, Any]) -> Any:
    require_ple("PLEWrapper")
    prepare_sdl(ple_kwargs.get("display_screen", False))
    # Some games support one speed only, and PLE refuses any other.
    fixed = getattr(game, "allowed_fps", None)
    usual = {} if fixed is None else {"fps": fixed}
    return _import_quietly("ple").PLE(game, **{**usual, **ple_kwargs})


def _keys_of(ple: Any, name: str) -> list[int | None]:
    """Returns the keys in PLE's order; `None` for no key."""
    try:
        keys = list(ple.getActionSet())
    except NameError as error:
        raise TypeError(
            f"{name} has its actions in {describe(ple.game.actions)}; PLE plays games "
            'that have them in a dictionary, such as {"left": K_a}.'
        ) from error
    if not keys:
        raise ValueError(
            f"{name} has no actions: neither keys, nor the no-op that PLE adds unless "
            "it is made with add_noop_action=False."
        )
    return keys


def _key_name(key: int | None) -> str:
    """Returns the name of a key."""
    if key is None:
        return "noop"
    pygame = sys.modules.get("pygame")
    # pygame only knows names while there is a display.
    if pygame is None or not pygame.display.get_init():
        return f"key {key}"
    return pygame.key.name(key) or f"key {key}"


_MaxLengths: TypeAlias = Mapping[str, "int | tuple[int, ...] | None"]

# The minimum room for a list that max_lengths does not name; more if a multiple of its
# initial length is larger.
_ROOM = 100
_TIMES = 4


def _infer_state(
    state: Any, *, name: str, dtype: Any, max_lengths: _MaxLengths, path: str = ""
) -> Inferred:
    """Infers the specs of all states of a game from the first one.

    Args:
        state: The result of `getGameState`.
        name: The game's name in errors.
        dtype: The dtype of numbers.
        max_lengths: The maximum lengths of lists, by key in the state or by a path such
            as `"creep_pos/GOOD"`. A tuple is the whole shape, and `None` means that a
            list always has the same length.
        path: The path of the state in an observation.
    """
    first = _FirstState(name, np.dtype(dtype), max_lengths, path)
    prepared = first.prepared(state, ())
    first.check_all_used()
    return infer([prepared], name=name, max_lengths=first.rooms, path=path)


def _explained(error: SpecError) -> SpecError:
    """Adds a remedy to an error that has none."""
    if not error.reason:
        return error
    longer = SpecError(
        f"{error}\n\nThe specs are those of the first state of the game. If later ones "
        "differ, give the whole shape of a list in max_lengths, or give PLE a "
        "state_preprocessor, which makes an array of the state."
    )
    longer.path, longer.reason = error.path, error.reason
    return longer


class _FirstState:
    """Prepares a game's first state, so that later states have the same specs.

    Attributes:
        rooms: For the path of each list that varies in length, its room and the spec of
            an element.
    """

    def __init__(
        self, name: str, dtype: np.dtype[Any], max_lengths: _MaxLengths, path: str
    ) -> None:
        self.rooms: dict[str, tuple[int, ArraySpec]] = {}
        self._name = name
        self._dtype = dtype
        self._max_lengths = dict(max_lengths)
        self._path = path
        self._unused = set(max_lengths)
        self._lists: list[str] = []
        for place, length in self._max_lengths.items():
            _check_length(place, length)

    def prepared(
        self, value: Any, keys: tuple[Any, ...], alike: tuple[int, ...] = ()
    ) -> Any:
        """Returns a state with sorted keys and one dtype for all numbers.

        Args:
            value: The state, or a part of it.
            keys: The keys on the path to it.
            alike: The shape of an element, for a list without any.
        """
        if isinstance(value, Mapping):
            shape = self._shape_of_elements(value, keys)
            return {
                key: self.prepared(value[key], (*keys, key), shape)
                for key in sorted(value, key=str)
            }
        array = _as_numbers(value, self._name, _text(keys))
        if isinstance(value, np.ndarray):
            return array
        if isinstance(value, list):
            self._lists.append(_text(keys))
            said = self._said(keys)
            if said is not None:
                if not isinstance(said, tuple):
                    room = said or max(_ROOM, _TIMES * len(value))
                    said = (room, *(array.shape[1:] if value else alike))
                element = ArraySpec(said[1:], self._dtype, _text(keys))
                place = "".join(f"[{key!r}]" for key in keys)
                self.rooms[self._path + place] = said[0], element
                return value
        return array.astype(self._dtype)

    def _shape_of_elements(
        self, value: Mapping[Any, Any], keys: tuple[Any, ...]
    ) -> tuple[int, ...]:
        """Returns the common shape of the elements of neighbouring lists.

        Such lists hold the same kind of elements, as WaterWorld's creeps: an empty list
        takes the shape of elements from another list.
        """
        shapes = {
            _as_numbers(child, self._name, _text((*keys, key))).shape[1:]
            for key, child in value.items()
            if isinstance(child, list) and child
        }
        return shapes.pop() if len(shapes) == 1 and keys else ()

    def _said(self, keys: tuple[Any, ...]) -> int | tuple[int, ...] | None:
        """Returns the entry of `max_lengths` for a list; 0 if there is none."""
        for place in _places(keys):
            if place in self._max_lengths:
                self._unused.discard(place)
                return self._max_lengths[place]
        return 0

    def check_all_used(self) -> None:
        """Raises if `max_lengths` names a list that does not exist."""
        for place in sorted(self._unused):
            lists = ", ".join(map(repr, self._lists)) or "none"
            raise ValueError(
                f"max_lengths has {place!r}, and there is no list of that name in the "
                f"state of {self._name}. Its lists are: {lists}."
            )


def _as_numbers(value: Any, name: str, place: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.empty((), object)
    if array.dtype.kind not in "biuf":
        where = f" at {place!r}" if place else ""
        raise SpecError(
            f"{name} has a state with {describe(value)}{where}, which is not made of "
            "numbers. Give PLE a state_preprocessor, which makes an array of the "
            'state, or observe the "screen".'
        )
    return array


def _text(keys: tuple[Any, ...]) -> str:
    return "/".join(map(str, keys))


def _places(keys: tuple[Any, ...]) -> Iterator[str]:
    """Yields the names for a list: its path first, and its key last."""
    for end in range(len(keys), 0, -1):
        yield _text(keys[:end])
    yield _text(keys[-1:])


def _check_length(path: str, length: Any) -> None:
    sizes = length if isinstance(length, tuple) else (length,)
    if length is not None and not all(
        isinstance(size, numbers.Integral) and int(size) > 0 for size in sizes or (0,)
    ):
        raise ValueError(
            f"max_lengths[{path!r}] must be a number of elements, a shape, or None for "
            f"a list that always has the same length, got {length!r}."
        )


def _save_game(ple: Any, beside: Any) -> Any:
    """Saves a game, its displayed picture, and something beside it."""
    name, kept = type(ple.game).__name__, _kept(ple)
    beside = display.blank_of(), beside
    return take_snapshot(ple, name, beside, layers=[ple, ple.game], kept=kept)


def _restore_game(ple: Any, saved: Any) -> Any:
    """Restores a game, and returns what was saved beside it."""
    name, kept = type(ple.game).__name__, _kept(ple)
    layers = [ple, ple.game]
    shown, beside = restore_snapshot(ple, name, saved, layers=layers, kept=kept)
    display.put_blank(shown)
    return beside


def _kept(ple: Any) -> list[Any]:
    """Returns the preprocessor: most are functions that pickle cannot find by name."""
    function = getattr(ple, "state_preprocessor", None)
    return [] if function is None else [function]
