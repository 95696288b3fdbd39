"""NLE: NetHack as envkit environments, with the screen as text.

NLE is made for Gymnasium, with four exceptions that `NleWrapper` hides:

| NLE                                      | here                                      |
|------------------------------------------|-------------------------------------------|
| `reset(seed=...)` seeds nothing          | seeds NetHack, and all later episodes     |
| at its step limit it quits, so the end   | the step limit is envkit's `TimeLimit`,   |
| is a termination and the screen is gone  | which truncates and shows the last screen |
| actions are members of enumerations      | they have names: `env.action_names`       |
| the screen is an array of character codes| the entry `"text"` is the screen          |

Each game loads its own copy of NetHack, so a process may hold many games, also in
threads.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.foreign import limited_and_wrapped, require
from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper
from envkit.extend import listed, suggestion
from envkit.py_environment import PyEnvironment
from envkit.specs.special import ObjectSpec, Strings, TextSpec
from envkit.types import Array, NestedArray, Seed
from envkit.wrappers.limits import TimeLimit

__all__ = ["NleWrapper", "load", "names", "preload"]

_Observation: TypeAlias = Mapping[str, Array]

_PREFIX = "NetHack"
_TEXT = "text"
_SCREEN, _MESSAGE = "tty_chars", "message"
# A screen has 24 lines of 80 characters, and a message at most 255 more.
_LONGEST = 24 * 81 + 256
# How much of an unknown action is quoted.
_MOST_QUOTED = 80
_DIRECTIONS = {
    "N": "north",
    "E": "east",
    "S": "south",
    "W": "west",
    "NE": "northeast",
    "SE": "southeast",
    "SW": "southwest",
    "NW": "northwest",
}


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    observation_keys: Sequence[str] | None = None,
    text_actions: bool = False,
    fix_moon_phase: bool = True,
    render_mode: str = "ansi",
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a task of NLE.

    `envkit.make("nle:NetHackScore-v0")` calls this.

    Args:
        environment_name: The id; its version may be left out.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` for NLE's limit (5,000, and a million in `NetHackChallenge`), 0 for
            no limit.
        env_wrappers: Wrappers for the environment, innermost first.
        observation_keys: NLE's arrays in an observation, beside `"text"`; `None` for
            NLE's choice, `()` for the text alone.
        text_actions: As for `NleWrapper`.
        fix_moon_phase: Whether the phase of the moon, midnight and Friday the 13th
            follow the seed instead of the clock.
        render_mode: `"ansi"` for text, or `"rgb_array"` for pictures.
        **kwargs: More arguments of NLE: `character`, `actions`, `savedir` and others.
    """
    _require(f"The environment {environment_name!r}")
    import gymnasium

    spec = copy.deepcopy(gymnasium.spec(_full_id(environment_name)))
    usual = _defaults(spec)
    if max_episode_steps is None:
        max_episode_steps = int(usual["max_episode_steps"])
    if observation_keys is None:
        observation_keys = usual["observation_keys"]
    wanted = [*observation_keys, _SCREEN, _MESSAGE]
    # Gymnasium's make() has an argument of this name, too.
    spec.kwargs["max_episode_steps"] = sys.maxsize
    env: PyEnvironment = NleWrapper(
        gymnasium.make(
            spec,
            disable_env_checker=True,
            observation_keys=tuple(dict.fromkeys(wanted)),
            fix_moon_phase=fix_moon_phase,
            render_mode="pixel" if render_mode == "rgb_array" else render_mode,
            **kwargs,
        ),
        discount,
        observation_keys=observation_keys,
        text_actions=text_actions,
    )
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


def names() -> list[str]:
    """Lists the ids of NLE's tasks."""
    _require("envkit.adapters.nle")
    return sorted(_registered())


def preload(environment_name: str) -> None:
    """Imports NLE, the slow part of making an environment."""
    _require(f"The environment {environment_name!r}")
    importlib.import_module("nle.env.tasks")


class NleWrapper(GymnasiumWrapper):
    """Wraps an environment of NLE.

    An observation is a dictionary of NLE's arrays, and `"text"`: the screen, without
    blanks at the ends of lines. A message that the screen does not show in full comes
    before it.
    """

    def __init__(
        self,
        gym_env: Any,
        discount: float = 1.0,
        *,
        observation_keys: Sequence[str] | None = None,
        text_actions: bool = False,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            gym_env: An environment of NLE, with or without Gymnasium wrappers. Its
                observations must have `"tty_chars"` and `"message"`.
            discount: The discount of steps that do not terminate the episode.
            observation_keys: NLE's arrays in an observation; `None` for all that
                `gym_env` has.
            text_actions: Whether an action is text: a name such as `"north"`, or its
                key in NetHack, such as `"k"`. Text that is neither is no step in the
                game, and the next observation says so.
        """
        _check_has_screen(gym_env)
        super().__init__(gym_env, discount)
        self._nle = gym_env.unwrapped
        self._random = np.random.default_rng()
        self._names = tuple(map(_name_of, self._nle.actions))
        parts = self._observation_spec if observation_keys is None else observation_keys
        self._parts = tuple(parts)
        longest = _LONGEST
        if text_actions:
            longest += len(self._unknown(_MOST_QUOTED * " ")) + _MOST_QUOTED
        self._text_dtype = f"<U{longest}"
        self._observation_spec = {
            **{part: self._observation_spec[part] for part in self._parts},
            _TEXT: TextSpec((), self._text_dtype, name=_TEXT),
        }
        self._to_observation = self._observed
        self._has_text_actions = text_actions
        self._shown: _Observation = {}
        self._note = ""
        if text_actions:
            self._numbers_by_text = _numbers_by_text(self._nle.actions)
            self._action_spec = ObjectSpec(name="action", kind=Strings(str))
            self._to_action = _text_in

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, in order."""
        return self._names

    def seed(self, seed: Seed) -> Any:
        """Seeds the game of the next reset; `NetHackChallenge` allows none."""
        if not self._can_be_seeded():
            raise NotImplementedError(
                f"{self._name} cannot be seeded: NLE forbids it, so that nobody can "
                "prepare for a game."
            )
        return super().seed(seed)

    def _can_be_seeded(self) -> bool:
        from nle.env.tasks import NetHackChallenge

        return not isinstance(self._nle, NetHackChallenge)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if self._can_be_seeded():
            if seed is None:
                core, screen = self._random.integers(2**63, size=2).tolist()
            else:
                core = screen = seed % 2**63
                self._random = np.random.default_rng(seed)
            self._nle.seed(core, screen, reseed=False)
        observation, info = super()._begin(seed, options)
        self._shown = observation
        return observation, info

    def _move(self, action: Any) -> Any:
        if self._has_text_actions:
            number = self._numbers_by_text.get(action)
            if number is None:
                number = self._numbers_by_text.get(action.strip().lower())
            if number is None:
                self._note = self._unknown(action)
                return self._shown, 0.0, False, False, {}
            action = number
        observation, reward, terminated, truncated, info = super()._move(action)
        self._shown = observation
        # At a limit of its own NLE quits the game, and says that it has terminated.
        if info["end_status"] == self._nle.StepStatus.ABORTED:
            terminated, truncated = False, True
        return observation, reward, terminated, truncated, info

    def _unknown(self, action: str) -> str:
        shown = action if len(action) <= _MOST_QUOTED else f"{action[:_MOST_QUOTED]}..."
        return (
            f"There is no action {shown!r}.{suggestion(action, self._names)} Actions "
            f"are {listed(self._names, most=len(self._names))}.\n"
        )

    def _observed(self, observation: _Observation) -> dict[str, NestedArray]:
        # NLE writes the next observation into the same arrays.
        made: dict[str, NestedArray] = {
            part: observation[part].copy() for part in self._parts
        }
        text = _screen_text(observation[_SCREEN], observation[_MESSAGE])
        note, self._note = self._note, ""
        made[_TEXT] = np.array(note + text, self._text_dtype)
        return made

    def _choices(self) -> Mapping[int, Any] | None:
        return None if self._has_text_actions else super()._choices()

    def _draw(self, mode: str) -> Any:
        made_with = self._nle.render_mode
        if mode == "rgb_array" and made_with == "pixel":
            return self._foreign.render()
        return super()._draw(mode)

    def _get_state(self) -> Any:
        raise NotImplementedError(
            f"{self._name} has no state to save: it is in the memory of NetHack."
        )


def _require(needed_by: str) -> None:
    require("nle", needed_by=needed_by, extra="nle")
    require("gymnasium", needed_by=needed_by, extra="nle")


def _registered() -> list[str]:
    import gymnasium

    importlib.import_module("nle")  # registers its tasks
    return [name for name in gymnasium.registry if name.startswith(_PREFIX)]


def _full_id(name: str) -> str:
    registered = _registered()
    meant = [full for full in registered if name in (full, full.rpartition("-v")[0])]
    if len(meant) == 1:
        return meant[0]
    raise ValueError(
        f"NLE has no task named {name!r}.{suggestion(name, registered)} There are "
        f"{', '.join(sorted(registered))}."
    )


def _defaults(spec: Any) -> dict[str, Any]:
    """Returns the default arguments of a task, whose classes pass on the rest."""
    from gymnasium.envs.registration import load_env_creator

    found: dict[str, Any] = {}
    task: Any = load_env_creator(spec.entry_point)
    for cls in reversed(task.__mro__):
        if "__init__" in vars(cls):
            parameters = inspect.signature(cls.__init__).parameters.values()
            found |= {one.name: one.default for one in parameters}
    return found


def _check_has_screen(gym_env: Any) -> None:
    missing = [
        key
        for key in (_SCREEN, _MESSAGE)
        if key not in gym_env.observation_space.spaces
    ]
    if missing:
        raise ValueError(
            f"NleWrapper was given an environment whose observations lack "
            f"{listed(map(repr, missing))}: pass them in NLE's observation_keys, from "
            "which it makes the text."
        )


def _name_of(action: Any) -> str:
    """Returns the name of an action in words.

    Example:
        >>> import enum
        >>> class CompassDirectionLonger(enum.IntEnum):
        ...     N = ord("K")
        >>> _name_of(CompassDirectionLonger.N)
        'far north'
    """
    name, kind = getattr(action, "name", str(action)), type(action).__name__
    if kind == "CompassDirection":
        return _DIRECTIONS[name]
    if kind == "CompassDirectionLonger":
        return f"far {_DIRECTIONS[name]}"
    return name.lower()


def _numbers_by_text(actions: Sequence[Any]) -> dict[str, int]:
    """Returns the number of each action by its key and by its name."""
    keys = {chr(action): n for n, action in enumerate(actions) if 32 <= action < 127}
    return {**keys, **{_name_of(action): n for n, action in enumerate(actions)}}


def _text_in(action: NestedArray) -> str:
    return str(np.asarray(action, object)[()])


def _screen_text(screen: Array, message: Array) -> str:
    """Returns the screen as text, after a message that it does not show in full."""
    lines = [bytes(row).decode("latin-1").rstrip() for row in screen]
    text = "\n".join(lines).rstrip()
    said = bytes(message).partition(b"\0")[0].decode("latin-1").strip()
    is_shown = " ".join(said.split()) in " ".join(text.split())
    return text if is_shown else f"{said}\n{text}"
