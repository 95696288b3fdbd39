"""`VizDoomWrapper`: a game of ViZDoom as an envkit environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.doom.doom_buttons import button_spec, menu_of, menu_spec
from envkit.adapters.doom.doom_games import GameFiles, game_of, set_up
from envkit.adapters.doom.doom_states import PARTS, DoomObservations, enabled_parts
from envkit.adapters.gym_environments import as_discount
from envkit.adapters.spaces.values import Converter, array_leaf, bounded_leaf
from envkit.envs.base import checked_size
from envkit.errors import ClosedError
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["VizDoomWrapper"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_SEEDS = 2**32


class VizDoomWrapper(PyEnvironment):
    """Makes an envkit environment of a game of ViZDoom.

    | ViZDoom                             | time step                               |
    |-------------------------------------|-----------------------------------------|
    | `new_episode`                       | `FIRST`, reward 0, discount 1           |
    | `make_action`                       | `MID`, discount as given to the wrapper |
    | finished, timeout reached           | `LAST`, discount as given to the wrapper |
    | finished, player dead or level done | `LAST`, discount 0                      |

    After the end a game has no state. The observation of a `LAST` has the pictures that
    were seen last, and the game variables as they are after the end.

    Example:
        >>> env = VizDoomWrapper("basic", frame_skip=4)  # doctest: +SKIP
        >>> env.seed(7)  # doctest: +SKIP
        >>> env.reset().observation["screen"].shape  # doctest: +SKIP
        (240, 320, 3)
        >>> env.close()  # doctest: +SKIP
    """

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
        """Starts the game; closing the wrapper closes it.

        Args:
            game: The name of a scenario of ViZDoom's, such as `"basic"`, the path of a
                configuration, something to call that makes a `DoomGame`, or one. A game
                that runs already is taken as it is.
            frame_skip: How many tics an action lasts; the game has 35 in a second.
            actions: `"buttons"` for a vector with a number for each button; a number
                for a menu of the combinations of so many buttons at most; or a list of
                choices such as `[[], ["ATTACK"], ["MOVE_LEFT", "ATTACK"]]`.
            observe: What to observe, of "screen", "depth", "labels", "automap", "audio"
                and "game_variables": several for a dictionary, one name for that alone;
                `None` for a dictionary of what the configuration enables.
            screen_resolution: Width and height, such as `(160, 120)`; `None` for what
                the configuration says.
            settings: What else the configuration should say: `{"doom_skill": 3}`.
            realtime: Whether the game goes on by itself, 35 tics in a second. What
                happens then depends on how long the agent thinks, whatever the seed.
            window: Whether the game shows its window.
            seed: What is random depends on it, as if given to `seed()`.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            reward_dtype: What rewards become; ViZDoom's are float64.
        """
        require("vizdoom", needed_by="VizDoomWrapper", extra="vizdoom")
        super().__init__(handle_auto_reset=True)
        self._closed = True
        self._frame_skip = checked_size("frame_skip", frame_skip)
        self._discount = as_discount(discount)
        self._reward_spec = ArraySpec((), reward_dtype, "reward")
        parts = _checked_parts(observe)
        self._game, self._name, ours = game_of(game)
        self._files = GameFiles() if ours else None
        if self._game.is_running():
            _check_unchanged(screen_resolution, settings, realtime, window)
        else:
            if self._files is not None:
                self._files.use_for(self._game)
            set_up(
                self._game,
                settings=settings or {},
                resolution=screen_resolution,
                observe=(parts,) if isinstance(parts, str) else parts or (),
                window=window,
                realtime=realtime,
            )
        self._choose_actions(actions)
        if not self._game.is_running():
            self._game.init()
        self._closed = False
        self._repeatable = not self._game.get_mode().name.startswith("ASYNC")
        enabled = enabled_parts(self._game)
        self._observations = DoomObservations(
            self._game, enabled if parts is None else _checked_enabled(parts, enabled)
        )
        self._info: dict[str, Any] = {}
        # What leads to where the game is: the seed of its episode, and its actions.
        self._episode_seed = 0
        self._played: list[tuple[float, ...]] = []
        # Not by seed(): a subclass may extend that by what it does not have yet.
        self._note_seed(seed)

    def _choose_actions(self, actions: Any) -> None:
        if isinstance(actions, str) and actions == "buttons":
            self._menu = None
            spec = button_spec(self._game)
        else:
            self._menu = menu_of(self._game, actions)
            spec = menu_spec(self._menu)
        self._action_spec = spec
        # Beyond the bounds of a float many policies go on purpose.
        leaf = bounded_leaf if spec.dtype.kind == "i" else array_leaf
        self._to_action = Converter(
            spec,
            leaf(spec),
            subject="VizDoomWrapper.step() was given an action that",
            root="action",
        )

    @property
    def game(self) -> Any:
        """The game of ViZDoom."""
        return self._game

    @property
    def buttons(self) -> tuple[str, ...]:
        """The names of the buttons, in the order of a vector of them."""
        return tuple(button.name for button in self._game.get_available_buttons())

    @property
    def menu(self) -> tuple[dict[str, float], ...] | None:
        """What each action of a menu presses; `None` where there is no menu."""
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

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observations.spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of an action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward: one number."""
        return self._reward_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed the game with this number, and later ones go on.

        Every episode has a seed of its own, which `get_info()` tells: that of the first
        is the number itself, and those of later ones are drawn after it.
        """
        self._note_seed(seed)

    def _note_seed(self, seed: Seed) -> None:
        self._noted_seed = seed
        seeds: Any = [seed] if np.ndim(seed) == 0 else seed  # type: ignore[arg-type]  # None has no dimensions
        (self._next_seed,) = seed_per_row(seeds, 1)
        self._random = np.random.default_rng(self._next_seed)

    def get_info(self) -> dict[str, Any]:
        """Returns what else there is to know about the current time step.

        That are `seed`, `episode_time` in tics, `total_reward`, `player_dead` and both
        flags, `terminated` and `truncated`; with `notifications` enabled these, too.
        Before the first reset it is empty.
        """
        return dict(self._info)

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns what was on the screen last; "rgb_array" is the only mode."""
        self._check_open("render")
        if mode != "rgb_array":
            raise NotImplementedError(
                f"{self._name} renders 'rgb_array' only, not {mode!r}. With "
                "window=True the game shows its window."
            )
        return self._observations.picture()

    def close(self) -> None:
        """Ends the game; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._game.close()
            if self._files is not None:
                self._files.remove()

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        self._begin(self._drawn_seed())
        observation = self._observations.look()
        self._info = self._told(terminated=False, truncated=False)
        reward = np.zeros((), self._reward_spec.dtype)
        return TimeStep(_FIRST, reward, np.array(1.0, np.float32), observation)

    def _drawn_seed(self) -> int:
        seed, self._next_seed = self._next_seed, None
        # ViZDoom takes no larger ones.
        return int(self._random.integers(_SEEDS)) if seed is None else seed % _SEEDS

    def _begin(self, seed: int) -> None:
        self._episode_seed, self._played = seed, []
        self._game.set_seed(seed)
        self._game.new_episode()

    def _step(self, action: NestedArray) -> TimeStep:
        self._check_open("step")
        reward = self._press(self._numbers(action))
        terminated = truncated = False
        if self._game.is_episode_finished():
            truncated = _timed_out(self._game)
            terminated = not truncated or self._game.is_player_dead()
        observation = self._observations.look()
        self._info = self._told(terminated=terminated, truncated=truncated)
        return TimeStep(
            _LAST if terminated or truncated else _MID,
            np.array(reward, self._reward_spec.dtype),
            np.array(0.0 if terminated else self._discount, np.float32),
            observation,
        )

    def _numbers(self, action: NestedArray) -> tuple[float, ...]:
        """Returns a number for each button."""
        array = self._to_action(action)
        return tuple((array if self._menu is None else self._menu[array]).tolist())

    def _press(self, numbers: tuple[float, ...]) -> float:
        if self._repeatable:
            self._played.append(numbers)
        return float(self._game.make_action(list(numbers), self._frame_skip))

    def _told(self, *, terminated: bool, truncated: bool) -> dict[str, Any]:
        game = self._game
        told = {
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
            told if notifications is None else {**told, "notifications": notifications}
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    @property
    def realtime(self) -> bool:
        """Whether the game goes on by itself, so that it needs no clock of envkit's."""
        return not self._repeatable

    def _get_state(self) -> dict[str, Any]:
        self._check_open("get_state")
        if not self._repeatable:
            raise NotImplementedError(
                f"{self._name} cannot save its state: it runs in real time, and a "
                "state is the actions that lead there once more. Make it with "
                "realtime=False."
            )
        return {
            "of": self._description(),
            "next_seed": self._next_seed,
            "random": self._random,
            "info": self._info,
            "seed": self._episode_seed,
            "played": self._played,
            "seen": self._observations.seen,
        }

    def _set_state(self, state: Any) -> None:
        self._check_open("set_state")
        of = state.get("of") if isinstance(state, dict) else None
        if of != self._description():
            raise ValueError(
                f"VizDoomWrapper.set_state() was given the state of another game.\n\n"
                f"  expected   {self._description()}\n"
                f"  got        {of or describe(state)}\n\n"
                "A state fits games that were made with the same arguments."
            )
        self._begin(state["seed"])
        for numbers in state["played"]:
            self._press(numbers)
        self._next_seed, self._random = state["next_seed"], state["random"]
        self._info, self._observations.seen = state["info"], state["seen"]

    def _description(self) -> str:
        """Says what a state has to have in common with this game."""
        game = self._game
        return (
            f"{self._name}, map {game.get_doom_map()}, skill {game.get_doom_skill()}, "
            f"frame_skip {self._frame_skip}, buttons {', '.join(self.buttons)}"
        )


def _timed_out(game: Any) -> bool:
    if hasattr(game, "is_episode_timeout_reached"):
        return bool(game.is_episode_timeout_reached())
    # Before ViZDoom 1.3 there was no such question.
    limit = game.get_episode_timeout()
    played = game.get_episode_time() - game.get_episode_start_time()
    return bool(limit) and played >= limit


def _check_unchanged(*asked: Any) -> None:
    """Raises if a game that runs would have to change."""
    if any(asked):
        raise ValueError(
            "VizDoomWrapper was given a game that runs already, where "
            "screen_resolution, settings, realtime and window cannot be chosen any "
            "more. Pass it before its init()."
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
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        what = f"has no part {unknown[0]!r}" if unknown else "is empty"
        raise ValueError(f"observe {what}. The parts are {', '.join(PARTS)}.")
    return observe if isinstance(observe, str) else parts
