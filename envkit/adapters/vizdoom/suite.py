"""ViZDoom: its scenarios as envkit environments.

`load` makes a game by the name of its scenario, and `VizDoomWrapper` adapts one.
Pictures have the shape (height, width, channels) and are RGB, whatever the game's
`screen_format`. A button is 0 (up) or 1 (down), except buttons whose name ends in
`_DELTA`: they take an angle or a distance.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit._shared.arguments import as_discount
from envkit._shared.states import check_state_of
from envkit.adapters.adapter import Adapter, Result
from envkit.adapters.adapter.adapted import AdaptedEnvironment
from envkit.adapters.adapter.inference import infer
from envkit.adapters.foreign import require
from envkit.extend import checked_size, describe, suggestion
from envkit.provenance import record_seed
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["VizDoomWrapper", "load", "scenarios"]


def scenarios() -> list[str]:
    """Lists the names of ViZDoom's own scenarios, sorted."""
    require("vizdoom", needed_by="suite_vizdoom.scenarios()", extra="vizdoom")
    return _shipped_scenarios()


def load(
    environment_name: str,
    *,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of ViZDoom.

    `envkit.make("vizdoom:basic", frame_skip=4)` calls this.

    Args:
        environment_name: The name of a scenario, such as `"basic"`, the path of a
            configuration, or an id of ViZDoom's Gymnasium environments, such as
            `"VizdoomBasic-v1"`: the same scenario with the same actions.
        env_wrappers: Wrappers for the environment, innermost first.
        **kwargs: Arguments of `VizDoomWrapper`.

    Raises:
        ValueError: The scenario or id is unknown.

    Example:
        >>> env = load("basic", screen_resolution=(160, 120))  # doctest: +SKIP
        >>> env.reset().observation["screen"].shape  # doctest: +SKIP
        (120, 160, 3)
    """
    needed_by = f"The environment {environment_name!r}"
    require("vizdoom", needed_by=needed_by, extra="vizdoom")
    scenario = environment_name
    found: dict[str, Any] = {}
    # No scenario has such a name, and ids have their version after a dash.
    if environment_name.startswith("Vizdoom"):
        scenario, found = _registered(environment_name)
    settings = {**found.pop("settings", {}), **(kwargs.pop("settings", None) or {})}
    options = {**found, **kwargs, "settings": settings}
    env: PyEnvironment = VizDoomWrapper(scenario, **options)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def _registered(name: str) -> tuple[str, dict[str, Any]]:
    """Returns an id's scenario and arguments for the wrapper."""
    require("gymnasium", needed_by=f"The id {name!r}", extra="gymnasium")
    import gymnasium
    import vizdoom.gymnasium_wrapper  # noqa: F401  # registers the ids

    try:
        kwargs = dict(gymnasium.spec(name).kwargs)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"ViZDoom registers no environment {name!r} with Gymnasium: {error}"
        ) from error
    scenario = kwargs.pop("scenario_config_file")
    together = kwargs.pop("max_buttons_pressed", 0)
    # The other arguments, map and skill, are settings of the game.
    return scenario, {"actions": together or "buttons", "settings": kwargs}


_SEEDS = 2**32


class _PlayedGame(AdaptedEnvironment):
    """Presents a ViZDoom game that is started and seeded from the beginning."""

    def __init__(self, author: Any, arguments: tuple[Any, dict[str, Any]]) -> None:
        super().__init__(author, arguments)
        self.start()
        record_seed(self, author.given_seed)

    def seed(self, seed: Seed) -> None:
        """Seeds the game at the next reset; later resets do not reseed."""
        record_seed(self, seed)
        self._author.seed(seed)


class VizDoomWrapper(Adapter, environment=_PlayedGame):
    """Makes an envkit environment from a game of ViZDoom.

    | ViZDoom                             | time step                               |
    |-------------------------------------|-----------------------------------------|
    | `new_episode`                       | `FIRST`, reward 0, discount 1           |
    | `make_action`                       | `MID`, discount as given to the wrapper |
    | finished, timeout reached           | `LAST`, discount as given to the wrapper |
    | finished, player dead or level done | `LAST`, discount 0                      |

    | `screen_buffer`, `automap_buffer`   | RGB, `(height, width, 3)`; gray,        |
    |                                     | `(height, width, 1)`                    |
    | `depth_buffer`, `labels_buffer`     | `(height, width, 1)`                    |
    | `audio_buffer`                      | `(samples, 2)`                          |
    | game variables                      | a dictionary, a number for each name    |

    The mode of a configuration becomes `PLAYER`, or `ASYNC_PLAYER` in real time, unless
    it is a spectator mode.

    After the end, a game has no state. The observation of a `LAST` has the last
    pictures that were seen, and the game variables after the end.

    Every episode has its own seed: the first has the one given to `seed`, and later
    ones are derived from it. The info has `seed`, `episode_time` in tics,
    `total_reward`, `player_dead`, `terminated` and `truncated`; with `notifications`
    enabled, these too.

    Example:
        >>> env = VizDoomWrapper("basic", frame_skip=4)  # doctest: +SKIP
        >>> env.seed(7)  # doctest: +SKIP
        >>> env.reset().observation["screen"].shape  # doctest: +SKIP
        (240, 320, 3)
        >>> env.close()  # doctest: +SKIP
    """

    fresh_arrays = True

    def __init__(
        self,
        game: str | os.PathLike[str] | Callable[[], Any] | Any,
        *,
        frame_skip: int = 1,
        actions: str | int | Sequence[Any] = "buttons",
        observe: str | Sequence[str] | None = None,
        screen_resolution: str | tuple[int, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        realtime: bool = False,
        window: bool = False,
        seed: Seed = None,
        discount: float = 1.0,
        reward_dtype: Any = np.float32,
    ) -> None:
        """Starts the game; closing the wrapper closes the game.

        Args:
            game: The name of a ViZDoom scenario, such as `"basic"`, the path of a
                configuration, a function that makes a `DoomGame`, or a `DoomGame`. A
                game that is running already is used as it is.
            frame_skip: The number of tics per action; the game has 35 per second.
            actions: `"buttons"` for a vector with a number for each button; a number
                for a menu of the combinations of at most that many buttons, with
                `_DELTA` buttons at 0; or a list of choices such as
                `[[], ["ATTACK"], ["MOVE_LEFT", "ATTACK"]]`.
            observe: What to observe: "screen", "depth", "labels", "automap", "audio" or
                "game_variables"; several for a dictionary, one name for that value
                alone; `None` for a dictionary of what the configuration enables.
            screen_resolution: Width and height, such as `(160, 120)`; `None` for the
                configuration's.
            settings: More settings of the configuration: `{"doom_skill": 3}`.
            realtime: Whether the game runs between steps, at 35 tics per second.
                Results then depend on how long the agent thinks, whatever the seed.
            window: Whether the game shows its window.
            seed: The seed, as if passed to `seed()`.
            discount: The discount of steps that do not terminate the episode.
            reward_dtype: The dtype of rewards; ViZDoom's are float64.
        """
        require("vizdoom", needed_by="VizDoomWrapper", extra="vizdoom")
        self._frame_skip = checked_size("frame_skip", frame_skip)
        self.discount = as_discount(discount)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        self._given, self._actions = game, actions
        # Not seed(): a subclass may override it and use attributes it does not have
        # yet.
        self._draw_seeds_from(seed)
        self._observe = _checked_parts(observe)
        self._set_up = screen_resolution, settings, realtime, window
        # What it takes to get back here: the episode's seed, and its actions.
        self._episode_seed = 0
        self._played: list[tuple[float, ...]] = []

    def start(self) -> Any:
        """Starts the game, which is `env_instance` until the wrapper is closed."""
        resolution, settings, realtime, window = self._set_up
        parts = self._observe
        game, self._name, ours = _game_of(self._given)
        self._game, self._files = game, _GameFiles() if ours else None
        if game.is_running():
            _check_unchanged(*self._set_up)
        else:
            if self._files is not None:
                self._files.use_for(game)
            _set_up(
                game,
                settings=settings or {},
                resolution=resolution,
                observe=(parts,) if isinstance(parts, str) else parts or (),
                window=window,
                realtime=realtime,
            )
        self._menu = _menu_of(game, self._actions)
        spec = _button_spec(game) if self._menu is None else _menu_spec(self._menu)
        self._action_spec = spec
        # Many policies exceed float bounds on purpose.
        self.checked = spec.dtype.kind == "i"
        if not game.is_running():
            game.init()
        self._repeatable = not game.get_mode().name.startswith("ASYNC")
        enabled = _enabled_parts(game)
        self._shown = _DoomObservations(
            game, enabled if parts is None else _checked_enabled(parts, enabled)
        )
        return game

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._shown.spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of the buttons, or of the menu."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of the reward."""
        return self._reward_spec

    @property
    def game(self) -> Any:
        """The ViZDoom game."""
        return self._game

    @property
    def buttons(self) -> tuple[str, ...]:
        """The names of the buttons, in the order of the vector."""
        return tuple(button.name for button in self._game.get_available_buttons())

    @property
    def menu(self) -> tuple[dict[str, float], ...] | None:
        """The buttons that each action of a menu presses; `None` without a menu."""
        if self._menu is None:
            return None
        return tuple(
            {
                name: value
                for name, value in zip(self.buttons, row, strict=True)
                if value
            }
            for row in self._menu.tolist()
        )

    def seed(self, seed: Seed) -> None:
        """Seeds the game at the next reset; later resets do not reseed."""
        self._draw_seeds_from(seed)

    def _draw_seeds_from(self, seed: Seed) -> None:
        self.given_seed = seed
        seeds: Any = [seed] if np.ndim(seed) == 0 else seed  # type: ignore[arg-type]  # None has no dimensions
        (self._next_seed,) = seed_per_row(seeds, 1)
        self._random = np.random.default_rng(self._next_seed)

    def render(self, mode: str) -> Array:  # type: ignore[override]  # an author's
        """Returns the last picture of the screen."""
        if mode != "rgb_array":
            raise NotImplementedError(
                f"{self._name} renders 'rgb_array' only, not {mode!r}. With "
                "window=True the game shows its window."
            )
        return self._shown.picture()

    def close(self) -> None:
        """Quits the game and removes its settings."""
        self._game.close()
        if self._files is not None:
            self._files.remove()

    def reset(self) -> tuple[NestedArray, dict[str, Any]]:  # type: ignore[override]  # an author's
        """Begins an episode."""
        self._begin_episode(self._drawn_seed())
        observation = self._shown.look()
        return observation, self._info_of_step(terminated=False, truncated=False)

    def _drawn_seed(self) -> int:
        seed, self._next_seed = self._next_seed, None
        # ViZDoom takes no larger seeds.
        return int(self._random.integers(_SEEDS)) if seed is None else seed % _SEEDS

    def _begin_episode(self, seed: int) -> None:
        self._episode_seed, self._played = seed, []
        self._game.set_seed(seed)
        self._game.new_episode()

    def step(self, action: Any) -> Result:  # type: ignore[override]  # an author's
        """Presses buttons for some tics."""
        row = action if self._menu is None else self._menu[action]
        points = self._press(tuple(row.tolist()))
        terminated = truncated = False
        if self._game.is_episode_finished():
            truncated = _timed_out(self._game)
            terminated = not truncated or bool(self._game.is_player_dead())
        observation = self._shown.look()
        info = self._info_of_step(terminated=terminated, truncated=truncated)
        return Result(observation, points, terminated, truncated, info)

    def _press(self, numbers: tuple[float, ...]) -> float:
        if self._repeatable:
            self._played.append(numbers)
        return float(self._game.make_action(list(numbers), self._frame_skip))

    def _info_of_step(self, *, terminated: bool, truncated: bool) -> dict[str, Any]:
        game = self._game
        info = {
            "seed": self._episode_seed,
            "episode_time": game.get_episode_time(),
            "total_reward": game.get_total_reward(),
            "player_dead": bool(game.is_player_dead()),
            "terminated": terminated,
            "truncated": truncated,
        }
        state = game.get_state()
        notifications = getattr(state, "notifications_buffer", None)
        return (
            info if notifications is None else {**info, "notifications": notifications}
        )

    @property
    def realtime(self) -> bool:  # type: ignore[override]  # of the game
        """True if the game runs between steps."""
        return not self._repeatable

    def get_state(self) -> dict[str, Any]:
        """Returns the episode's seed and its actions, which lead back here."""
        if not self._repeatable:
            raise NotImplementedError(
                f"{self._name} cannot save its state: it runs in real time, and a "
                "state is restored by repeating its actions. Make it with "
                "realtime=False."
            )
        return {
            "of": self._description(),
            "next_seed": self._next_seed,
            "random": self._random,
            "seed": self._episode_seed,
            "played": self._played,
            "seen": self._shown.seen,
        }

    def set_state(self, state: Any) -> None:
        """Begins the episode of a state again and repeats its actions."""
        check_state_of(self, state, self._description(), kind="game")
        self._begin_episode(state["seed"])
        for numbers in state["played"]:
            self._press(numbers)
        self._next_seed, self._random = state["next_seed"], state["random"]
        self._shown.seen = state["seen"]

    def _description(self) -> str:
        """Describes this game, for comparison with the game of a state."""
        game = self._game
        return (
            f"{self._name}, map {game.get_doom_map()}, skill {game.get_doom_skill()}, "
            f"frame_skip {self._frame_skip}, buttons {', '.join(self.buttons)}"
        )


def _timed_out(game: Any) -> bool:
    if hasattr(game, "is_episode_timeout_reached"):
        return bool(game.is_episode_timeout_reached())
    # Before ViZDoom 1.3 this could not be asked.
    limit = game.get_episode_timeout()
    played = game.get_episode_time() - game.get_episode_start_time()
    return bool(limit) and played >= limit


def _check_unchanged(*asked: Any) -> None:
    """Raises if a running game would have to change."""
    if any(asked):
        raise ValueError(
            "VizDoomWrapper was given a running game, whose screen_resolution, "
            "settings, realtime and window can no longer be chosen. Pass it before "
            "its init()."
        )


def _checked_enabled(
    parts: str | tuple[str, ...], enabled: tuple[str, ...]
) -> str | tuple[str, ...]:
    asked = (parts,) if isinstance(parts, str) else parts
    missing = [part for part in asked if part not in enabled]
    if missing:
        raise ValueError(
            f"observe has {missing[0]!r}, which this game does not have: it has "
            f"{', '.join(enabled)}. Game variables are named in its configuration, and "
            "a game that runs already cannot be given other parts."
        )
    return parts


def _checked_parts(observe: Any) -> str | tuple[str, ...] | None:
    if observe is None:
        return None
    parts = (observe,) if isinstance(observe, str) else tuple(observe)
    unknown = [part for part in parts if part not in _PARTS]
    if unknown or not parts:
        what = f"has no part {unknown[0]!r}" if unknown else "is empty"
        raise ValueError(f"observe {what}. The parts are {', '.join(_PARTS)}.")
    return observe if isinstance(observe, str) else parts


def _shipped_scenarios() -> list[str]:
    """Lists the names of ViZDoom's own scenarios, sorted."""
    import vizdoom

    return sorted(path.stem for path in Path(vizdoom.scenarios_path).glob("*.cfg"))


class _GameFiles:
    """A folder for the settings files that games write.

    In a shared folder, another game's settings would also affect this one.
    """

    def __init__(self) -> None:
        """Makes the folder."""
        self._folder = tempfile.mkdtemp(prefix="envkit-vizdoom-")
        self._remove = weakref.finalize(
            self, shutil.rmtree, self._folder, ignore_errors=True
        )

    def use_for(self, game: Any) -> None:
        """Makes a game write its settings here, unless it has its own file for them."""
        if not game.get_doom_config_path():
            game.set_doom_config_path(os.path.join(self._folder, "settings.ini"))

    def remove(self) -> None:
        """Removes the folder; removing it again does nothing."""
        self._remove()


def _game_of(game: Any) -> tuple[Any, str, bool]:
    """Returns a game, its name, and whether the wrapper sets it up.

    Args:
        game: A `DoomGame`, a function that makes one, the name of a scenario, or the
            path of a configuration.
    """
    if isinstance(game, str | os.PathLike):
        path = _configuration(os.fspath(game))
        import vizdoom

        configured = vizdoom.DoomGame()
        configured.load_config(str(path))
        return configured, path.stem, True
    ours = callable(game)
    made: Any = game() if callable(game) else game
    needed = ("init", "new_episode", "make_action", "get_state", "set_seed")
    if isinstance(made, type) or not all(hasattr(made, name) for name in needed):
        returned = "what returned " if ours else ""
        raise TypeError(
            f"VizDoomWrapper was given {returned}{describe(made)}. It takes a "
            "vizdoom.DoomGame, a function that makes one, the name of a scenario such "
            "as 'basic', or the path of a configuration."
        )
    return made, type(made).__name__, ours


def _configuration(name: str) -> Path:
    import vizdoom

    folder = Path(vizdoom.scenarios_path)
    for path in (Path(name), folder / name, folder / f"{name}.cfg"):
        if path.is_file():
            return path.absolute()
    known = _shipped_scenarios()
    raise ValueError(
        f"There is no scenario {name!r}, and no file of that "
        f"name.{suggestion(name, known)} ViZDoom includes {', '.join(known)}."
    )


def _set_up(
    game: Any,
    *,
    settings: Mapping[str, Any],
    resolution: str | tuple[int, int] | None,
    observe: tuple[str, ...],
    window: bool,
    realtime: bool,
) -> None:
    """Configures a game that is not running yet."""
    import vizdoom

    game.set_window_visible(window)
    if settings and not game.set_config(dict(settings)):
        raise ValueError(
            f"ViZDoom does not know all of these settings: {dict(settings)}."
        )
    if resolution is not None:
        game.set_screen_resolution(_resolution(resolution))
    for name in observe:
        switch = getattr(game, f"set_{name}_buffer_enabled", None)
        if switch is not None:
            switch(True)
    wanted = vizdoom.Mode.ASYNC_PLAYER if realtime else vizdoom.Mode.PLAYER
    with_spectator = ("SPECTATOR", "ASYNC_SPECTATOR")
    if game.get_mode().name not in with_spectator:
        game.set_mode(wanted)


def _resolution(resolution: str | tuple[int, int]) -> Any:
    import vizdoom

    if not isinstance(resolution, str):
        resolution = "x".join(map(str, resolution))
    name = f"RES_{resolution.upper().removeprefix('RES_')}"
    with contextlib.suppress(AttributeError):
        return getattr(vizdoom.ScreenResolution, name)
    names = [other for other in dir(vizdoom.ScreenResolution) if "RES_" in other]
    known = sorted(names, key=lambda other: [*map(int, other[4:].split("X"))])
    raise ValueError(
        f"ViZDoom has no resolution {resolution!r}. It has "
        f"{', '.join(other[4:].lower() for other in known)}."
    )


def _button_spec(game: Any) -> BoundedArraySpec:
    """Returns the spec of a vector with a number for each available button."""
    buttons = game.get_available_buttons()
    if not any(map(_is_delta, buttons)):
        return BoundedArraySpec((len(buttons),), np.int8, 0, 1, "action")
    # 0 means no limit.
    largest = [
        (game.get_button_max_value(button) or np.finfo(np.float32).max)
        if _is_delta(button)
        else 1.0
        for button in buttons
    ]
    smallest = [
        -limit if _is_delta(button) else 0.0
        for button, limit in zip(buttons, largest, strict=True)
    ]
    return BoundedArraySpec(
        (len(buttons),),
        np.float32,
        np.array(smallest, np.float32),
        np.array(largest, np.float32),
        "action",
    )


def _menu_spec(menu: Array) -> BoundedArraySpec:
    """Returns the spec of a choice from a menu."""
    return BoundedArraySpec((), np.int64, 0, len(menu) - 1, "action")


def _menu_of(game: Any, actions: str | int | Sequence[Any]) -> Array | None:
    """Returns a menu: a row for each choice, with a number for each button.

    Args:
        game: The game, with its available buttons.
        actions: `"buttons"` for no menu; a number, for all combinations of at most that
            many buttons, in the order of ViZDoom's Gymnasium environments and with
            `_DELTA` buttons at 0; or the choices themselves, each of them the names of
            the pressed buttons, or a number for every button.
    """
    if isinstance(actions, str) and actions == "buttons":
        return None
    buttons = game.get_available_buttons()
    if isinstance(actions, int):
        if isinstance(actions, bool) or actions < 1:
            raise ValueError(
                f"actions is {actions!r}; a number is the most buttons that are down "
                "together, so it must be at least 1."
            )
        return _combinations(buttons, actions)
    if isinstance(actions, str) or not isinstance(actions, Sequence) or not actions:
        raise TypeError(
            "actions must be 'buttons', a number of buttons, or a list of choices such "
            "as [[], ['ATTACK'], ['MOVE_LEFT', 'ATTACK']], got "
            f"{describe(actions)}."
        )
    names = [button.name for button in buttons]
    return np.array([_choice(choice, names) for choice in actions], np.float64)


def _combinations(buttons: Sequence[Any], most: int) -> Array:
    options = [(0,) if _is_delta(button) else (0, 1) for button in buttons]
    # Otherwise twenty buttons would give a million combinations, most of them dropped.
    binary = sum(len(option) == 2 for option in options)
    rows = [
        tuple(int(place in down) for place in range(binary))
        for count in range(min(most, binary) + 1)
        for down in itertools.combinations(range(binary), count)
    ]
    menu = np.zeros((len(rows), len(buttons)))
    menu[:, [len(option) == 2 for option in options]] = sorted(rows)
    return menu


def _choice(choice: Any, names: list[str]) -> list[float]:
    if isinstance(choice, str):
        choice = [choice]
    if all(isinstance(part, str) for part in choice):
        unknown = [part for part in choice if part.upper() not in names]
        if unknown:
            raise ValueError(
                f"actions has the button {unknown[0]!r}, and the game has "
                f"{', '.join(names)}. Its configuration says which buttons there are: "
                "available_buttons."
            )
        down = {part.upper() for part in choice}
        return [float(name in down) for name in names]
    if len(choice) != len(names):
        raise ValueError(
            f"actions has a choice of {len(choice)} numbers, and the game has "
            f"{len(names)} buttons: {', '.join(names)}."
        )
    return [float(part) for part in choice]


def _is_delta(button: Any) -> bool:
    return str(button.name).endswith("_DELTA")


_PARTS = ("screen", "depth", "labels", "automap", "audio", "game_variables")
# Whether channels come first, and the places of red, green and blue, or grey.
_FORMATS: dict[str, tuple[bool, tuple[int, ...]]] = {
    "CRCGCB": (True, (0, 1, 2)),
    "CBCGCR": (True, (2, 1, 0)),
    "RGB24": (False, (0, 1, 2)),
    "BGR24": (False, (2, 1, 0)),
    "RGBA32": (False, (0, 1, 2)),
    "ARGB32": (False, (1, 2, 3)),
    "BGRA32": (False, (2, 1, 0)),
    "ABGR32": (False, (3, 2, 1)),
    "GRAY8": (False, (0,)),
    "DOOM_256_COLORS8": (False, (0,)),
}


def _enabled_parts(game: Any) -> tuple[str, ...]:
    """Returns the parts of a game's states."""
    asked = {
        part: getattr(game, f"is_{part}_buffer_enabled", None)
        for part in ("depth", "labels", "automap", "audio")
    }
    has = {part: ask is not None and ask() for part, ask in asked.items()}
    has["screen"] = True
    has["game_variables"] = bool(game.get_available_game_variables())
    return tuple(part for part in _PARTS if has[part])


class _DoomObservations:
    """Converts a game's states to observations, and remembers the last one."""

    def __init__(self, game: Any, parts: str | tuple[str, ...]) -> None:
        """Prepares for a running game.

        Args:
            game: The game.
            parts: What to observe: several parts for a dictionary, one name for that
                part alone.
        """
        self._game = game
        self._single = parts if isinstance(parts, str) else None
        self._parts = (parts,) if isinstance(parts, str) else parts
        self._channels_first, self._channels = _FORMATS[game.get_screen_format().name]
        self._variables = game.get_available_game_variables()
        self._seen: dict[str, Any] = {}
        first = self._read(game.get_state())
        seen = {part: first[part] for part in self._parts}
        specs: Any = infer([seen], name="The game").spec
        for part in set(specs) - {"audio", "game_variables"}:
            shape = specs[part].shape
            specs[part] = BoundedArraySpec(shape, np.uint8, 0, 255, part)
        self.spec: NestedSpec = specs[self._single] if self._single else specs

    def look(self) -> NestedArray:
        """Returns the current observation; after the end, the last one.

        The player's numbers are known after the end too.
        """
        state = self._game.get_state()
        if state is not None:
            self._seen = self._read(state)
        elif "game_variables" in self._seen:
            self._seen["game_variables"] = self._numbers()
        parts = {part: _copied(self._seen[part]) for part in self._parts}
        return parts[self._single] if self._single else parts

    def picture(self) -> Array:
        """Returns the last picture of the screen, in colours."""
        screen = self._seen["screen"]
        return np.array(np.broadcast_to(screen, (*screen.shape[:2], 3)))

    @property
    def seen(self) -> dict[str, Any]:
        """The parts of the last observation; they may be set."""
        return self._seen

    @seen.setter
    def seen(self, seen: dict[str, Any]) -> None:
        self._seen = seen

    def _read(self, state: Any) -> dict[str, Any]:
        readers: dict[str, Callable[[], Any]] = {
            "screen": lambda: self._colours(state.screen_buffer),
            "automap": lambda: self._colours(state.automap_buffer),
            "depth": lambda: state.depth_buffer[..., np.newaxis],
            "labels": lambda: state.labels_buffer[..., np.newaxis],
            "audio": lambda: np.asarray(state.audio_buffer),
            "game_variables": lambda: dict(
                zip(self._names(), map(np.array, state.game_variables), strict=True)
            ),
        }
        # The screen is also needed for pictures.
        return {part: readers[part]() for part in {"screen", *self._parts}}

    def _colours(self, buffer: Array) -> Array:
        if buffer.ndim == 2:
            return buffer[..., np.newaxis]
        if self._channels_first:
            buffer = np.moveaxis(buffer, 0, -1)
        return np.ascontiguousarray(buffer[..., list(self._channels)])

    def _names(self) -> list[str]:
        return [variable.name for variable in self._variables]

    def _numbers(self) -> dict[str, Array]:
        return {
            variable.name: np.array(self._game.get_game_variable(variable))
            for variable in self._variables
        }


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: array.copy() for key, array in value.items()}
    return value.copy()
