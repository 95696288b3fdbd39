"""`AgentSide`: what goes between one agent of PySC2 and envkit, both ways."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

from envkit.adapters.pysc2_parts.calls import Calls, as_pysc2, unwrapped
from envkit.adapters.pysc2_parts.functions import functions_of
from envkit.adapters.pysc2_parts.observations import Lengths, Observer, Variable
from envkit.adapters.spaces.values import Converter, bounded_leaf, map_specs
from envkit.errors import SpecError
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.validation import describe
from envkit.types import NestedArray, NestedSpec

__all__ = ["Actions", "AgentSide", "Illegal"]

Actions: TypeAlias = Literal["structured", "passthrough"]
Illegal: TypeAlias = Literal["raise", "noop", "pass"]

_NO_OP = 0
_ROOM_FOR_UNITS = 1024
_REFUSED = "PySC2Wrapper.step() was given an action that"


class AgentSide:
    """Converts the observations and the actions of one agent.

    Attributes:
        observation_spec: The specs of an observation.
        action_spec: The specs of an action.
        observe: Makes an observation of one of PySC2's.
        functions: What the agent can do; `None` if it sends messages.
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
        """Reads the specs of PySC2.

        Args:
            shapes: The agent's part of `observation_spec`.
            action_spec: The agent's part of `action_spec`.
            name: What the environment is called in errors.
            place: Where in nests of all agents this one is, such as `[1]`.
            actions: What form its actions have.
            illegal: What happens when it calls a function that is not available.
            observations: Which observations are wanted; `None` for all.
            variable: What becomes of arrays whose length varies.
            max_lengths: How much there is room for in these.
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
        """Returns what PySC2 takes for an action.

        Args:
            action: The agent's action.
            now: PySC2's observation, which says what is available.
            make_call: PySC2's `FunctionCall`.
        """
        # Hot: called once per agent and step.
        if self._read is None:
            return as_pysc2(self._passed(unwrapped(action)), make_call)
        assert self.functions is not None  # Otherwise actions are not structured.
        number, arguments = self.functions.call(self._read(action))
        legal = now.get("available_actions") if self._illegal != "pass" else None
        if legal is not None and number not in legal:
            if self._illegal == "raise":
                raise ValueError(self.functions.refusal(number, legal))
            return make_call(_NO_OP, [])
        return make_call(number, arguments)

    def rest(self, make_call: Callable[..., Any]) -> Any:
        """Returns what PySC2 takes for doing nothing."""
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
