"""Tools that an environment offers to a model: `Tool`, `tool`, `ToolEnvironment`."""

from __future__ import annotations

import abc
import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from envkit.errors import WorkerError
from envkit.extend import describe, listed, suggestion
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.specs.special import ObjectSpec, Strings
from envkit.time_step import TimeStep, restart, termination, transition
from envkit.types import NestedArray

__all__ = [
    "Tool",
    "ToolEnvironment",
    "call_text",
    "declared_tools",
    "parsed_call",
    "tool",
    "tool_of",
]

Method = TypeVar("Method", bound=Callable[..., Any])

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its name, what it does, and the JSON schema of its arguments.

    Attributes:
        name: Its name.
        description: What it does, for the model.
        parameters: The JSON schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises a `TypeError` unless the arguments fit the schema.

        Their names must be those of the schema, and their values of its types and among
        its choices.
        """
        known = self.parameters.get("properties", {})
        unknown = [name for name in arguments if name not in known]
        missing = [n for n in self.parameters.get("required", ()) if n not in arguments]
        if unknown:
            raise TypeError(
                f"The tool {self.name!r} has no argument {unknown[0]!r}."
                f"{suggestion(unknown[0], known)} It takes {listed(known) or 'none'}."
            )
        if missing:
            raise TypeError(f"The tool {self.name!r} needs {listed(missing)} as well.")
        for name, value in arguments.items():
            if not _fits(value, known[name]):
                raise TypeError(
                    f"The argument {name!r} of the tool {self.name!r} must fit "
                    f"{json.dumps(_form_of(known[name]))}, got {describe(value)}."
                )


_JSON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": (list, tuple),
    "object": Mapping,
}


def _fits(value: Any, schema: Any) -> bool:
    """Returns True if a value fits a schema, as far as types and choices go."""
    if not isinstance(schema, Mapping):
        return True
    if "anyOf" in schema:
        return any(_fits(value, one) for one in schema["anyOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        return False
    if isinstance(value, list | tuple):
        most = schema.get("maxItems", len(value))
        if not schema.get("minItems", 0) <= len(value) <= most:
            return False
        return all(_fits(item, schema.get("items")) for item in value)
    if isinstance(value, Mapping):
        inner = schema.get("properties", {})
        others = schema.get("additionalProperties")
        return all(_fits(each, inner.get(key, others)) for key, each in value.items())
    return True


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # which is an int in Python alone
        return kind == "boolean"
    return isinstance(value, _JSON_TYPES.get(kind, object))


def _form_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("description", "default", "title")
    return {key: value for key, value in schema.items() if key not in texts}


def tool(method: Method) -> Method:
    """Makes a method of a `ToolEnvironment` a tool.

    The schema comes from the method's annotations, the description from its docstring.
    """
    method.is_tool = True  # type: ignore[attr-defined]  # it is a function
    return method


def tool_of(name: str, method: Callable[..., Any]) -> Tool:
    """Returns the tool that a method is.

    Example:
        >>> def go(self, direction: str, steps: int = 1) -> str:
        ...     '''Goes in a direction.'''
        >>> tool_of("go", go).parameters["properties"]
        {'direction': {'type': 'string'}, 'steps': {'type': 'integer', 'default': 1}}
    """
    if inspect.iscoroutinefunction(method):
        raise TypeError(
            f"The tool {name!r} must not be a coroutine function: an environment has "
            "a worker of its own, in which a tool may block."
        )
    hints = typing.get_type_hints(method)
    properties: dict[str, Any] = {}
    required = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        schema = _schema_of(hints.get(parameter.name, Any))
        if parameter.kind not in _NAMED:
            raise TypeError(
                f"The arguments of the tool {name!r} must have names, got "
                f"{str(parameter)!r}."
            )
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            schema = {**schema, "default": _in_json(parameter.default)}
        properties[parameter.name] = schema
    text = inspect.getdoc(method) or name
    return Tool(
        name,
        text.split("\n\nArgs:")[0].strip(),
        {
            "type": "object",
            "properties": _described(properties, text),
            "required": required,
            "additionalProperties": False,
        },
    )


def _described(properties: dict[str, Any], text: str) -> dict[str, Any]:
    """Adds what a docstring says of each argument in its section "Args"."""
    _, _, section = text.partition("\nArgs:\n")
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        words = line.strip()
        first, colon, rest = words.partition(":")
        first = first.split(" (")[0]
        if colon and first in properties:
            name = first
            properties[name]["description"] = rest.strip()
        elif name and words:
            properties[name]["description"] += f" {words}"
    return properties


_TYPES: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}


def _schema_of(hint: Any) -> dict[str, Any]:
    if hint in _TYPES:
        return dict(_TYPES[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema_of(one) for one in arguments]}
    if origin is tuple and ... not in arguments:
        items = _schema_of(typing.Union[arguments])  # noqa: UP007  # of many
        size = len(arguments)
        return {"type": "array", "items": items, "minItems": size, "maxItems": size}
    if origin in (list, tuple, set):
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    raise TypeError(
        f"A tool's argument is annotated as {hint!r}, which no JSON schema describes: "
        "use str, int, float, bool, list, dict, Literal, enumerations, or unions of "
        "these."
    )


def _in_json(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _as_hinted(value: Any, hint: Any) -> Any:
    """Returns a value from JSON as the type that a method asks for.

    Example:
        >>> _as_hinted([1, 2], tuple[int, ...])
        (1, 2)
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if origin in (typing.Union, types.UnionType):
        fitting = (one for one in arguments if _fits(value, _schema_of(one)))
        return _as_hinted(value, next(fitting))
    if origin is dict:
        return {key: _as_hinted(each, arguments[1]) for key, each in value.items()}
    if origin in (list, set) or (origin is tuple and ... in arguments):
        return origin(_as_hinted(each, arguments[0]) for each in value)
    if origin is tuple:
        return tuple(map(_as_hinted, value, arguments))
    return value


class ToolEnvironment(PyEnvironment):
    """The base class of environments whose actions are calls of tools.

    A subclass defines `begin`, and tools as methods with annotations and docstrings. A
    tool returns text, the next observation. It sets `self.reward`, which is 0 before
    every step, and calls `self.finish()` to end the episode.

    A call that names no tool, or has wrong arguments, is the model's mistake: the
    observation explains it, and the step counts.

    Example:
        >>> class Safe(ToolEnvironment):
        ...     def begin(self, rng):
        ...         self.code = int(rng.integers(10))
        ...         return "A safe with one digit."
        ...     @tool
        ...     def turn(self, digit: int) -> str:
        ...         '''Turns the dial to a digit.'''
        ...         if digit != self.code:
        ...             return "Nothing happens."
        ...         self.reward = 1.0
        ...         self.finish()
        ...         return "It opens."
        >>> env = Safe()
        >>> env.seed(4)
        >>> str(env.reset().observation)
        'A safe with one digit.'
        >>> str(env.step('{"name": "turn", "arguments": {"digit": 12}}').observation)
        'Nothing happens.'
    """

    _tools_of_class: ClassVar[tuple[Tool, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found = {
            name: method
            for base in reversed(cls.__mro__)
            for name, method in vars(base).items()
            if getattr(method, "is_tool", False)
        }
        cls._tools_of_class = tuple(tool_of(name, each) for name, each in found.items())

    def __init__(self) -> None:
        """Prepares the random generator of the first episode."""
        super().__init__()
        self.reward = 0.0
        self.has_finished = False
        self._rng = np.random.default_rng()

    @abc.abstractmethod
    def begin(self, rng: np.random.Generator) -> str:
        """Begins an episode with these random numbers, and returns its first text."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools."""
        return self._tools_of_class

    def finish(self) -> None:
        """Ends the episode with this step."""
        self.has_finished = True

    def action_spec(self) -> ArraySpec:
        """Returns the spec of a call, which is JSON."""
        return ObjectSpec(name="tool_call", kind=Strings(str))

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the text for the model."""
        return ObjectSpec(name="text", kind=Strings(str))

    def seed(self, seed: Any) -> None:
        """Makes the next episodes depend on `seed` alone."""
        self._rng = np.random.default_rng(seed)

    def _reset(self) -> TimeStep:
        self.reward, self.has_finished = 0.0, False
        return restart(ObjectSpec.wrap(self.begin(self._rng)))

    def _step(self, action: NestedArray) -> TimeStep:
        self.reward = 0.0
        text = ObjectSpec.wrap(self._answer(str(np.asarray(action, object)[()])))
        if self.has_finished:
            return termination(text, self.reward)
        return transition(text, self.reward)

    def _answer(self, call: str) -> str:
        try:
            name, arguments = parsed_call(call)
            found = _tool_named(self.tools, name)
            found.check(arguments)
        except (LookupError, TypeError, ValueError) as error:
            return f"Error: {error.args[0]}"
        method = getattr(self, name)
        hints = typing.get_type_hints(method)
        given = {
            each: _as_hinted(value, hints.get(each, Any))
            for each, value in arguments.items()
        }
        return str(method(**given))


def parsed_call(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the tool's name and the arguments in a call.

    Raises:
        ValueError: It is not the JSON of a call.
    """
    try:
        call = json.loads(text)
        name, arguments = call["name"], call.get("arguments", {})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        name = arguments = None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError(
            'A call must be JSON such as {"name": "look", "arguments": {}}, got '
            f"{describe(text)}."
        )
    return name, arguments


def call_text(tools: tuple[Tool, ...], name: str, arguments: Mapping[str, Any]) -> str:
    """Returns a call as JSON; raises if there is no such tool or argument."""
    _tool_named(tools, name).check(arguments)
    return json.dumps({"name": name, "arguments": arguments})


def _tool_named(tools: tuple[Tool, ...], name: str) -> Tool:
    for one in tools:
        if one.name == name:
            return one
    known = [one.name for one in tools]
    if not known:
        raise LookupError(f"There is no tool {name!r}: the environment declares none.")
    raise LookupError(
        f"There is no tool {name!r}.{suggestion(name, known)} Tools are "
        f"{listed(known)}."
    )


def declared_tools(pool: AsyncParallelPyEnvironment) -> tuple[Tool, ...]:
    """Returns the tools of a pool's environments, of which all have the same."""
    try:
        (tools,) = pool.access("tools", env_ids=[0])
    except WorkerError:  # it has no such attribute
        return ()
    return tuple(tools)
