"""`PySC2Wrapper`: an environment of PySC2, StarCraft II, as an envkit environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.pysc2 import prepare
from envkit.adapters.pysc2_parts.agents import Actions, AgentSide, Illegal
from envkit.adapters.pysc2_parts.functions import Function
from envkit.adapters.pysc2_parts.infos import seen_in
from envkit.adapters.pysc2_parts.observations import MASK, Variable
from envkit.adapters.pysc2_parts.options import (
    check_choices,
    check_names,
    constructor_of,
    made_by,
    takes_seed,
)
from envkit.adapters.pysc2_parts.pictures import picture_of
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import REWARD_SPEC, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["PySC2Wrapper"]

# The game takes no larger ones.
_SEEDS = 2**32
_STEP_TYPES = {0: StepType.FIRST, 1: StepType.MID, 2: StepType.LAST}


class PySC2Wrapper(PyEnvironment):
    """Makes an envkit environment of one of PySC2's.

    | PySC2                            | time step                                    |
    |----------------------------------|----------------------------------------------|
    | `FIRST`, discount 0              | `FIRST`, reward 0, discount 1                |
    | `LAST`, won or lost              | `LAST`, discount 0                           |
    | `LAST`, out of time              | `LAST`, the discount as it was               |
    | one time step for each agent     | that of the first, or one with a place for   |
    |                                  | each agent in observation, action and reward |

    Public attributes that the wrapper does not have, such as `save_replay`, `map_name`
    and `action_delays`, are those of the environment.
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
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: An environment of PySC2, or a function that makes one. For that PySC2
                is prepared, see `envkit.adapters.pysc2.prepare`. If the function takes
                `random_seed`, the wrapper can be seeded.
            agents: Whose environment it is. With "first" it looks like that of one
                agent. With "all" observation and action are tuples with a part for
                each agent, and the reward is an array with a number for each.
            others: What the other agents do if it is that of the first: called with
                the time step of each, as PySC2 has it, and returns an action of
                PySC2's. Unless given they do nothing.
            actions: "structured" for a dictionary of bounded integers, "passthrough"
                for PySC2's own function calls as objects.
            illegal: What a structured action does whose function is not among the
                available ones: "raise", be a "noop", or "pass" to PySC2.
            observations: The names of those that are wanted; `None` for all.
            variable: What becomes of arrays whose length varies: "pad" to make room
                for the most and put the length beside it, or "object".
            max_lengths: How much there is room for: `{"feature_units": 512}`.
            step_mul: How many steps of the game a step takes; `None` for as many as
                the environment was made with.
            render_layer: Which layer of the screen `render` draws without colours.
        """
        check_choices(
            actions=actions, agents=agents, illegal=illegal, variable=variable
        )
        super().__init__(handle_auto_reset=True)
        prepare()
        from pysc2.lib.actions import FunctionCall

        self._make_call = FunctionCall
        self._make_env = constructor_of(env)
        self._env = env if self._make_env is None else made_by(self._make_env())
        self._name = type(self._env).__name__
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
        self._reward_spec = REWARD_SPEC
        if self._for_all:
            self._reward_spec = ArraySpec((len(self._sides),), np.float32, "reward")
        self._step_mul = step_mul
        self._render_layer = render_layer
        # PySC2's time steps of now, one for each agent.
        self._theirs: tuple[Any, ...] = ()
        self._next_seed: int | None = None
        self._closed = False

    def _sides_of(
        self,
        *,
        observations: Collection[str] | None,
        max_lengths: Mapping[str, int] | None,
        **options: Any,
    ) -> list[AgentSide]:
        shapes, action_specs = self._env.observation_spec(), self._env.action_spec()
        check_names("observations", observations, shapes)
        check_names("max_lengths", max_lengths, shapes)
        return [
            AgentSide(
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
        """The environment of PySC2."""
        return self._env

    def wrapped_env(self) -> Any:
        """Returns the environment of PySC2, as wrappers do."""
        return self._env

    @property
    def realtime(self) -> bool:
        """Whether the game goes on by itself, 22.4 steps a second."""
        env = self._env
        # PySC2's own wrappers have what they wrap under this name.
        while not hasattr(env, "_realtime") and hasattr(env, "_env"):
            env = env._env
        return bool(getattr(env, "_realtime", False))

    @property
    def functions(self) -> tuple[Function, ...]:
        """What the first agent can do: a function's place is its number."""
        functions = self._sides[0].functions
        return () if functions is None else functions.functions

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._env, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._for_agents([side.observation_spec for side in self._sides])

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._for_agents([side.action_spec for side in self._sides])

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward: one number, or one for each agent."""
        return self._reward_spec

    def _for_agents(self, parts: list[Any]) -> Any:
        return tuple(parts) if self._for_all else parts[0]

    def seed(self, seed: Seed) -> None:
        """Has the next reset make a new environment with another `random_seed`.

        That begins a new game, which takes longer than a reset. It does not concern
        what PySC2 draws with Python's own generator: races, and maps among several.
        """
        if self._make_env is None or not takes_seed(self._make_env):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: PySC2 takes a seed when an "
                "environment is made. Give PySC2Wrapper a function that takes "
                "random_seed, such as functools.partial(SC2Env, map_name=...)."
            )
        self._noted_seed = seed
        (number,) = checked_seeds(seed, 1)
        if number is None:
            number = int(np.random.SeedSequence().generate_state(1)[0])
        self._next_seed = number % _SEEDS

    def get_info(self) -> dict[str, Any]:
        """Returns what else PySC2 says about the current time step.

        `game_loop`, `score` and `map_name`, as far as they are observed, and the
        `action_mask`, if the observation has one; in real time `action_delays`, too:
        how many actions came how many steps of the game late. Scores and delays of all
        agents are lists, and masks are the rows of an array. Before the first reset it
        is empty.
        """
        if not self._theirs:
            return {}
        info = seen_in(self._theirs[0].observation)
        if MASK in self._declared:
            info[MASK] = np.array(self._masks if self._for_all else self._masks[0])
        if self._for_all and "score" in info:
            info["score"] = [seen_in(t.observation)["score"] for t in self._theirs]
        if self.realtime:
            info["action_delays"] = self._for_agents(self._env.action_delays())
        return info

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of what each info has: the mask, and numbers of the game.

        Masks of all agents are declared if there are as many functions for each.
        """
        return dict(self._declared)

    def _declared_of(self, sides: Sequence[AgentSide]) -> dict[str, Any]:
        shapes = self._env.observation_spec()[0]
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

        These are its colours, if it observes them, and otherwise a layer of features
        in the colours that PySC2 has for it. A window is PySC2's own affair: its
        `visualize=True` opens one.
        """
        self._check_open("render")
        if mode != "rgb_array":
            raise ValueError(f"{self._name} renders 'rgb_array' only, not {mode!r}.")
        first = self._theirs[0].observation if self._theirs else {}
        picture = picture_of(first, self._render_layer)
        if picture is None and self._theirs:
            raise NotImplementedError(
                f"{self._name} cannot render: its first agent observes no screen. Give "
                "it an interface format with rgb_screen or feature_screen."
            )
        if picture is None:
            self.current_time_step()  # It says that reset() comes first.
        return picture  # type: ignore[return-value]  # the line before raises

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._next_seed is not None and self._make_env is not None:
            self._env.close()
            self._env = made_by(self._make_env(random_seed=self._next_seed))
            self._next_seed = None
        return self._convert(self._env.reset(), "reset")

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        self._check_open("step")
        calls = self._calls(action)
        if self._step_mul is None:
            return self._convert(self._env.step(calls), "step")
        return self._convert(self._env.step(calls, step_mul=self._step_mul), "step")

    def _calls(self, action: NestedArray) -> list[Any]:
        """Returns PySC2's action for each agent."""
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

    def _convert(self, theirs: Any, call: str) -> TimeStep:
        # Hot: called once per step.
        try:
            time_steps = tuple(theirs)
            kinds = {int(each.step_type) for each in time_steps}
            step_types = [_STEP_TYPES[kind] for kind in kinds]
            discounts = {float(each.discount) for each in time_steps}
        except (AttributeError, KeyError, TypeError):
            self._refuse(call, describe(theirs))
        if len(time_steps) != len(self._sides):
            self._refuse(call, f"{len(time_steps)} time steps")
        # PySC2 has one clock and one end for all its agents.
        if len(kinds) > 1 or len(discounts) > 1:
            self._refuse(call, "time steps of which some end and some do not")
        self._theirs = time_steps
        (step_type,), (discount,) = step_types, discounts
        rewards = [each.reward for each in time_steps]
        if step_type is StepType.FIRST:
            rewards, discount = [0.0] * len(rewards), 1.0
        return TimeStep(
            step_type,
            np.array(rewards if self._for_all else rewards[0], np.float32),
            np.array(discount, np.float32),
            self._observed(),
        )

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

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        raise NotImplementedError(
            f"{self._name} cannot save its state: StarCraft II has no way to go back "
            "into a game. save_replay(folder) saves what has happened, to look at."
        )

    def _set_state(self, state: Any) -> None:
        self._get_state()
