"""`PySC2Wrapper`: a StarCraft II environment of PySC2 for envkit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np

from envkit.adapters.foreign import First, ForeignEnvironment, result_of_time_step
from envkit.adapters.pysc2.actions import (
    Calls,
    Function,
    as_pysc2,
    functions_of,
    unwrapped,
)
from envkit.adapters.pysc2.observations import MASK, Lengths, Observer, Variable
from envkit.adapters.pysc2.python3 import prepare
from envkit.adapters.values import Converter, bounded_leaf, map_specs
from envkit.errors import SpecError
from envkit.extend import Result, describe
from envkit.specs.arrays import ArraySpec
from envkit.specs.special import ObjectSpec
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["Actions", "Illegal", "PySC2Wrapper"]

Actions: TypeAlias = Literal["structured", "passthrough"]
Illegal: TypeAlias = Literal["raise", "noop", "pass"]

# The game takes no larger seeds.
_SEEDS = 2**32
_NO_OP = 0
_ROOM_FOR_UNITS = 1024
_REFUSED = "PySC2Wrapper.step() was given an action that"
_METHODS = ("reset", "step", "observation_spec", "action_spec")
_CHOICES = {
    "actions": ("structured", "passthrough"),
    "agents": ("first", "all"),
    "illegal": ("raise", "noop", "pass"),
    "variable": ("pad", "object"),
}


class PySC2Wrapper(ForeignEnvironment):
    """Wraps a PySC2 environment.

    | PySC2                            | time step                                    |
    |----------------------------------|----------------------------------------------|
    | `FIRST`, discount 0              | `FIRST`, reward 0, discount 1                |
    | `LAST`, won or lost              | `LAST`, discount 0                           |
    | `LAST`, out of time              | `LAST`, the discount unchanged; 0 with       |
    |                                  | PySC2's `discount_zero_after_timeout=True`   |
    | one time step for each agent     | the first agent's, or one whose observation, |
    |                                  | action and reward have a part for each agent |

    | PySC2's observation                  | here                                     |
    |--------------------------------------|------------------------------------------|
    | `(27, 64, 84)`                       | an array of that shape                   |
    | `feature_units`, `(0, 46)`           | `(512, 46)`, padded with 0, and its      |
    |                                      | length in `feature_units_length`         |
    | the same, with `variable="object"`   | an object: an array of any length        |
    | `map_name`, a string                 | text of a fixed width                    |
    | `available_actions`                  | the same, and `action_mask`: true for    |
    |                                      | functions that can be called             |
    | messages (`_response_observation`)   | an object: the game's message; processes |
    |                                      | that receive one must call `prepare`     |

    Numbers are int32, as in PySC2, and int64 in `feature_units` and `raw_units`.

    Raw functions can be called at any time, so there is no mask. `unit_tags` and
    `target_unit_tag` are indices into `raw_units`; `unit_tags_length` is the number of
    `unit_tags` that count. With `actions="passthrough"`, an action is a `FunctionCall`,
    a pair `(function, arguments)`, a message, or a list of these.

    Public attributes that the wrapper lacks, such as `save_replay`, `map_name` and
    `action_delays`, are taken from the environment.
    """

    def __init__(
        self,
        env: Any,
        *,
        agents: Literal["first", "all"] = "first",
        others: Callable[[Any], Any] | None = None,
        actions: Actions = "structured",
        illegal: Illegal = "raise",
        observations: Collection[str] | None = None,
        variable: Variable = "pad",
        max_lengths: Mapping[str, int] | None = None,
        step_mul: int | None = None,
        render_layer: str = "player_relative",
    ) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: A PySC2 environment, or a function that makes one. PySC2 is prepared
                before the function is called; see `envkit.adapters.pysc2.prepare`. If
                the function takes `random_seed`, the wrapper can be seeded.
            agents: "first" makes it a single agent's environment. With "all",
                observation and action are tuples with a part for each agent, and the
                reward is an array with a number for each.
            others: With "first", the policy of the other agents: called with each one's
                PySC2 time step, it returns a PySC2 action. By default they do nothing.
            actions: "structured" for a dictionary of bounded integers, "passthrough"
                for PySC2's own function calls as objects.
            illegal: The treatment of a structured action whose function is not
                available: "raise", replace it by a "noop", or "pass" it to PySC2.
            observations: The names of observations to include; `None` for all.
            variable: The treatment of arrays whose length varies: "pad" to a maximum
                and put the length beside it, or "object".
            max_lengths: The maximum lengths: `{"feature_units": 512}`.
            step_mul: The number of game steps per step; `None` for the environment's
                setting.
            render_layer: The layer of the screen that `render` draws if there are no
                colours.
        """
        _check_choices(
            actions=actions, agents=agents, illegal=illegal, variable=variable
        )
        super().__init__(handle_auto_reset=True)
        prepare()
        from pysc2.lib.actions import FunctionCall

        self._make_call = FunctionCall
        self._make_env = _constructor_of(env)
        self._foreign = env if self._make_env is None else _made_by(self._make_env())
        self._name = type(self._foreign).__name__
        self._for_all = agents == "all"
        self._others = others
        self._sides = self._sides_of(
            actions=actions,
            illegal=illegal,
            observations=observations,
            variable=variable,
            max_lengths=max_lengths,
        )
        self._declared = self._declared_of(
            self._sides if self._for_all else self._sides[:1]
        )
        self._masks: list[Array] = []
        self._observation_spec = self._for_agents(
            [side.observation_spec for side in self._sides]
        )
        self._action_spec = self._for_agents([side.action_spec for side in self._sides])
        if self._for_all:
            self._reward_spec = ArraySpec((len(self._sides),), np.float32, "reward")
        self._step_mul = step_mul
        self._render_layer = render_layer
        # PySC2's current time steps, one for each agent.
        self._theirs: tuple[Any, ...] = ()
        self._prepare()

    def _sides_of(
        self,
        *,
        observations: Collection[str] | None,
        max_lengths: Mapping[str, int] | None,
        **options: Any,
    ) -> list[_AgentSide]:
        shapes, action_specs = (
            self._foreign.observation_spec(),
            self._foreign.action_spec(),
        )
        _check_names("observations", observations, shapes)
        _check_names("max_lengths", max_lengths, shapes)
        return [
            _AgentSide(
                agent_shapes,
                action_spec,
                name=self._name,
                place=f"[{index}]" if self._for_all else "",
                observations=observations,
                max_lengths=max_lengths,
                **options,
            )
            for index, (agent_shapes, action_spec) in enumerate(
                zip(shapes, action_specs, strict=True)
            )
        ]

    @property
    def pysc2(self) -> Any:
        """The PySC2 environment."""
        return self._foreign

    def wrapped_env(self) -> Any:
        """Returns the PySC2 environment, as wrappers do."""
        return self._foreign

    @property
    def realtime(self) -> bool:
        """True if the game runs between steps, at 22.4 of its own steps per second."""
        env = self._foreign
        # PySC2's own wrappers hold their environment under this name.
        while not hasattr(env, "_realtime") and hasattr(env, "_env"):
            env = env._env
        return bool(getattr(env, "_realtime", False))

    @property
    def functions(self) -> tuple[Function, ...]:
        """The first agent's functions; a function's index is its number."""
        functions = self._sides[0].functions
        return () if functions is None else functions.functions

    def _for_agents(self, parts: list[Any]) -> Any:
        return tuple(parts) if self._for_all else parts[0]

    def seed(self, seed: Seed) -> None:
        """Makes the next reset create a new environment with another `random_seed`.

        That starts a new game, which takes longer than a reset. It does not affect what
        PySC2 draws with Python's own generator: races, and maps among several.
        """
        if self._make_env is None or not _takes_seed(self._make_env):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: PySC2 takes a seed when an "
                "environment is made. Give PySC2Wrapper a function that takes "
                "random_seed, such as functools.partial(SC2Env, map_name=...)."
            )
        super().seed(seed)
        assert self._next_seed is not None  # drawn if none was given
        self._next_seed %= _SEEDS

    def get_info(self) -> dict[str, Any]:
        """Returns PySC2's facts about the current time step.

        They are `game_loop`, `score` and `map_name`, if observed, and the
        `action_mask`, if the observation has one; in real time also `action_delays`:
        how many actions came how many game steps late. With all agents, scores and
        delays are lists, and masks are the rows of an array. Before the first reset the
        info is empty.
        """
        if not self._theirs:
            return {}
        info = _seen_in(self._theirs[0].observation)
        if MASK in self._declared:
            info[MASK] = np.array(self._masks if self._for_all else self._masks[0])
        if self._for_all and "score" in info:
            info["score"] = [_seen_in(t.observation)["score"] for t in self._theirs]
        if self.realtime:
            info["action_delays"] = self._for_agents(self._foreign.action_delays())
        return info

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of infos that are always present: mask and game numbers.

        All agents' masks are declared if the agents have equally many functions.
        """
        return dict(self._declared)

    def _declared_of(self, sides: Sequence[_AgentSide]) -> dict[str, Any]:
        shapes = self._foreign.observation_spec()[0]
        specs = {}
        if "game_loop" in shapes:
            specs["game_loop"] = ArraySpec((), np.int64, "game_loop")
        if "score_cumulative" in shapes and not self._for_all:
            specs["score"] = ArraySpec((), np.int64, "score")
        masks = [
            side.observation_spec.get(MASK)
            for side in sides
            if isinstance(side.observation_spec, dict)
        ]
        if len(masks) == len(sides) and masks[0] and masks == masks[:1] * len(masks):
            agents = (len(sides),) if self._for_all else ()
            specs[MASK] = masks[0].replace(shape=(*agents, *masks[0].shape))
        return specs

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture of the first agent's screen.

        It shows the screen's colours if they are observed, otherwise a feature layer in
        PySC2's colours for it. PySC2's own `visualize=True` opens a window.
        """
        self._check_open("render")
        if mode != "rgb_array":
            raise ValueError(f"{self._name} renders 'rgb_array' only, not {mode!r}.")
        first = self._theirs[0].observation if self._theirs else {}
        picture = _picture_of(first, self._render_layer)
        if picture is None and self._theirs:
            raise NotImplementedError(
                f"{self._name} cannot render: its first agent observes no screen. Give "
                "it an interface format with rgb_screen or feature_screen."
            )
        if picture is None:
            self.current_time_step()  # says that reset() comes first
        return picture  # type: ignore[return-value]  # the line before raises

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is not None and self._make_env is not None:
            self._foreign.close()
            self._foreign = _made_by(self._make_env(random_seed=seed))
        result = self._read_all(self._foreign.reset(), "reset")
        return result.observation if result.__class__ is First else result, {}

    def _move(self, action: Any) -> Result:
        # Hot: called once per step.
        many = {} if self._step_mul is None else {"step_mul": self._step_mul}
        return self._read_all(self._foreign.step(action, **many), "step")

    def _to_action(self, action: NestedArray) -> list[Any]:
        """Returns each agent's PySC2 action."""
        now = [theirs.observation for theirs in self._theirs]
        if self._for_all:
            self._check_count(action)
            return [
                side.act(part, seen, self._make_call)
                for side, part, seen in zip(self._sides, action, now, strict=True)
            ]
        first, *rest = self._sides
        calls = [first.act(action, now[0], self._make_call)]
        for side, theirs in zip(rest, self._theirs[1:], strict=True):
            if self._others is None:
                calls.append(side.rest(self._make_call))
            else:
                calls.append(self._others(theirs))
        return calls

    def _check_count(self, action: Any) -> None:
        count = len(self._sides)
        if not isinstance(action, list | tuple) or len(action) != count:
            raise SpecError.does_not_fit(
                "PySC2Wrapper.step() was given an action that",
                path="action",
                root="action",
                expected=f"a tuple of {count} actions",
                got=describe(action),
                reason="There is one action for each agent.",
            )

    def _read_all(self, theirs: Any, call: str) -> Result:
        # Hot: called once per step.
        try:
            time_steps = tuple(theirs)
            kinds = {int(each.step_type) for each in time_steps}
            if not kinds <= {0, 1, 2}:
                self._refuse(call, describe(theirs))
            discounts = {float(each.discount) for each in time_steps}
        except (AttributeError, TypeError):
            self._refuse(call, describe(theirs))
        if len(time_steps) != len(self._sides):
            self._refuse(call, f"{len(time_steps)} time steps")
        # PySC2 has one clock and one end for all agents.
        if len(kinds) > 1 or len(discounts) > 1:
            self._refuse(call, "time steps of which only some end")
        self._theirs = time_steps
        (kind,), (discount,) = kinds, discounts
        rewards = [each.reward for each in time_steps]
        reward = rewards if self._for_all else rewards[0]
        return result_of_time_step(kind, time_steps, reward, discount)

    def _to_observation(self, observation: Any) -> NestedArray:
        return self._observed()

    def _to_reward(self, reward: Any) -> NestedArray:
        return np.array(reward, np.float32)

    def _observed(self) -> Any:
        sides = self._sides if self._for_all else self._sides[:1]
        seen = [
            side.observe(theirs.observation)
            for side, theirs in zip(sides, self._theirs, strict=False)
        ]
        if MASK in self._declared:
            self._masks = [each[MASK].copy() for each in seen]
        return self._for_agents(seen)

    def _refuse(self, call: str, what: str) -> NoReturn:
        raise SpecError(
            f"{self._name}.{call}() returned {what}; an environment of PySC2 returns a "
            f"time step for each of its agents, here {len(self._sides)}."
        )

    def _get_state(self) -> Any:
        raise NotImplementedError(
            f"{self._name} cannot save its state: StarCraft II cannot restore a game. "
            "save_replay(folder) saves a replay to watch."
        )

    def _set_state(self, state: Any) -> None:
        self._get_state()


class _AgentSide:
    """Converts the observations and the actions of one agent.

    Attributes:
        observation_spec: The specs of an observation.
        action_spec: The specs of an action.
        observe: Converts a PySC2 observation.
        functions: The agent's functions; `None` if it sends messages.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        action_spec: Any,
        *,
        name: str,
        place: str,
        actions: Actions,
        illegal: Illegal,
        observations: Collection[str] | None,
        variable: Variable,
        max_lengths: Lengths | None,
    ) -> None:
        """Reads PySC2's specs.

        Args:
            shapes: The agent's part of `observation_spec`.
            action_spec: The agent's part of `action_spec`.
            name: The environment's name in errors.
            place: The agent's place in nests of all agents, such as `[1]`.
            actions: The form of its actions.
            illegal: The treatment of a function that is not available.
            observations: The observations to include; `None` for all.
            variable: The treatment of arrays whose length varies.
            max_lengths: The maximum lengths of these arrays.
        """
        units = (max_lengths or {}).get("raw_units", _ROOM_FOR_UNITS)
        self.functions = functions_of(action_spec, units=units)
        self.observe = Observer(
            shapes,
            subject=f"{name} returned an observation that",
            path=f"observation{place}",
            functions=0 if self.functions is None else len(self.functions.functions),
            names=observations,
            lengths=max_lengths,
            variable=variable,
        )
        self.observation_spec = self.observe.spec
        self._illegal = illegal
        self._path = f"action{place}"
        self.action_spec: NestedSpec
        self._read: Converter | None = None
        if actions == "structured" and self.functions is not None:
            self.action_spec = self.functions.spec()
            self._read = Converter(
                self.action_spec,
                map_specs(bounded_leaf, self.action_spec),
                subject=_REFUSED,
                root="action",
                path=place,
            )
        else:
            self.action_spec = ObjectSpec(name="action", kind=Calls(self.functions))

    def act(self, action: NestedArray, now: Any, make_call: Callable[..., Any]) -> Any:
        """Returns PySC2's form of an action.

        Args:
            action: The agent's action.
            now: PySC2's observation, which lists available functions.
            make_call: PySC2's `FunctionCall`.
        """
        # Hot: called once per agent and step.
        if self._read is None:
            return as_pysc2(self._passed(unwrapped(action)), make_call)
        assert self.functions is not None  # otherwise actions are not structured
        number, arguments = self.functions.call(self._read(action))
        legal = now.get("available_actions") if self._illegal != "pass" else None
        if legal is not None and number not in legal:
            if self._illegal == "raise":
                raise ValueError(self.functions.refusal(number, legal))
            return make_call(_NO_OP, [])
        return make_call(number, arguments)

    def rest(self, make_call: Callable[..., Any]) -> Any:
        """Returns PySC2's action that does nothing."""
        return [] if self.functions is None else make_call(_NO_OP, [])

    def _passed(self, value: Any) -> Any:
        spec = self.action_spec
        if isinstance(spec, ObjectSpec) and not spec.contains(value):
            raise SpecError.does_not_fit(
                _REFUSED,
                path=self._path,
                root="action",
                expected="a FunctionCall, a pair (function, arguments), a message, or "
                "a list of these",
                got=describe(value),
                reason="A FunctionCall is made by pysc2.lib.actions, for example "
                "FUNCTIONS.Move_screen('now', [23, 38]).",
            )
        return value


def _check_choices(**choices: str) -> None:
    """Raises unless each argument has one of its allowed values.

    Example:
        >>> _check_choices(agents="both")
        Traceback (most recent call last):
        ValueError: agents must be one of 'first', 'all', got 'both'.
    """
    for name, value in choices.items():
        if value not in _CHOICES[name]:
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, _CHOICES[name]))}, got "
                f"{value!r}."
            )


def _check_names(
    argument: str,
    names: Collection[str] | None,
    agents: Sequence[Mapping[str, Any]],
) -> None:
    """Raises if an argument names unknown observations.

    Args:
        argument: The argument's name.
        names: The names, if any are given.
        agents: Each agent's observations, as PySC2 declares them.
    """
    if isinstance(names, str):
        raise TypeError(
            f"{argument} must be a list of names, got the string {names!r}: pass "
            f"[{names!r}]."
        )
    known = {name for shapes in agents for name in shapes}
    if "available_actions" in known:
        known.add(MASK)
    unknown = sorted(set(names or ()) - known)
    if unknown:
        raise ValueError(
            f"{argument} has {unknown[0]!r}, which PySC2 does not observe here. There "
            f"are {', '.join(sorted(known))}."
        )


def _constructor_of(env: Any) -> Callable[..., Any] | None:
    """Returns a function that makes environments; `None` for an environment."""
    if not isinstance(env, type) and _is_environment(env):
        return None
    if callable(env):
        return env  # type: ignore[no-any-return]  # callable() says so
    raise TypeError(
        f"PySC2Wrapper was given {describe(env)}, which is neither an environment of "
        "PySC2 nor a function that makes one."
    )


def _made_by(env: Any) -> Any:
    """Returns a function's result if it is an environment."""
    if not _is_environment(env):
        raise TypeError(
            f"PySC2Wrapper was given a function that returned {describe(env)}, which "
            "is not an environment of PySC2."
        )
    return env


def _is_environment(env: Any) -> bool:
    return all(callable(getattr(env, name, None)) for name in _METHODS)


def _takes_seed(make_env: Callable[..., Any]) -> bool:
    """Returns True if a function takes `random_seed`."""
    try:
        parameters = inspect.signature(make_env).parameters
    except (TypeError, ValueError):  # no signature
        return False
    return "random_seed" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def _seen_in(observation: Any) -> dict[str, Any]:
    """Returns the info's part about a PySC2 observation."""
    if not isinstance(observation, Mapping):  # a message of the game
        observation = observation.observation
        score = observation.score.score
        return {"game_loop": int(observation.game_loop), "score": int(score)}
    info: dict[str, Any] = {}
    if "game_loop" in observation:
        info["game_loop"] = int(observation["game_loop"][0])
    if "score_cumulative" in observation:
        info["score"] = int(observation["score_cumulative"][0])
    if "map_name" in observation:
        info["map_name"] = observation["map_name"]
    return info


def _picture_of(observation: Any, layer: str) -> Array | None:
    """Draws the screen of an agent.

    Args:
        observation: PySC2's observation.
        layer: The layer of the screen to draw if there are no colours.

    Returns:
        A picture of dtype uint8; `None` if the agent has no screen.
    """
    if not isinstance(observation, dict):
        return None
    if "rgb_screen" in observation:
        return np.asarray(observation["rgb_screen"]).astype(np.uint8)
    if "feature_screen" not in observation:
        return None
    from pysc2.lib import features

    feature = getattr(features.SCREEN_FEATURES, layer)
    plane = np.asarray(observation["feature_screen"])[feature.index]
    # Values that the game has added since have no colours.
    known = np.clip(plane, 0, feature.scale - 1)
    return np.array(feature.color(known), np.uint8)
