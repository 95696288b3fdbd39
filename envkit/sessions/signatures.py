"""Tools as Python methods, from which libraries read schemas of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from envkit.sessions.tools import Tool

__all__ = ["method_of"]


def method_of(tool: Tool, call: Callable[[Any, Mapping[str, Any]], str]) -> Any:
    """Returns a method with a tool's name, annotations and docstring.

    Args:
        tool: The tool.
        call: Receives `self` and the arguments, and returns the method's result.

    Example:
        >>> schema = {"properties": {"far": {"type": "boolean", "default": False}}}
        >>> look = Tool("look", "Looks around.", schema)
        >>> method_of(look, lambda self, arguments: "A door.").__annotations__
        {'far': <class 'bool'>, 'return': <class 'str'>}
    """

    def method(self: Any, **arguments: Any) -> str:
        tool.check(arguments)
        return call(self, arguments)

    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    parameters = [
        _parameter(name, schema, name in tool.parameters.get("required", ()))
        for name, schema in properties.items()
    ]
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = _docstring(tool.description, properties)
    hints = {each.name: each.annotation for each in parameters}
    method.__annotations__ = {**hints, "return": str}
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [receiver, *parameters], return_annotation=str
    )
    return method


def _parameter(name: str, schema: Any, is_required: bool) -> inspect.Parameter:
    hint = _hint_of(schema)
    if is_required:
        default = inspect.Parameter.empty
    else:
        default = schema.get("default")
        hint = hint if default is not None else _union([hint, None])
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default
    )


def _docstring(description: str, properties: Mapping[str, Any]) -> str:
    lines = [description]
    if properties:
        lines += ["", "Args:"]
    for name, schema in properties.items():
        # On one line, because a line with a colon might be taken for an argument.
        words = str(schema.get("description", "")).split()
        lines.append(f"    {name}: {' '.join(words) or name.replace('_', ' ')}")
    return "\n".join(lines)


_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def _hint_of(schema: Any) -> Any:
    """Returns the annotation that a JSON schema describes.

    Example:
        >>> _hint_of({"type": "array", "items": {"enum": ["north", "south"]}})
        list[typing.Literal['north', 'south']]
    """
    kind = schema.get("type")
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "anyOf" in schema:
        return _union(_hint_of(each) for each in schema["anyOf"])
    if isinstance(kind, list):
        return _union(_hint_of({**schema, "type": each}) for each in kind)
    if kind == "array" and "items" in schema:
        return list[_hint_of(schema["items"])]  # type: ignore[misc]
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return dict[str, _hint_of(schema["additionalProperties"])]  # type: ignore[misc]
    return _TYPES.get(kind, Any)


def _union(hints: Iterable[Any]) -> Any:
    return Union[tuple(hints)]  # noqa: UP007  # there is no other form for many
