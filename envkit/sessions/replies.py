"""Replies of a model as actions, and what the model must know to reply: `Replies`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envkit._shared.json_schema import JsonForm, schema_of
from envkit.sessions.tools import Tool
from envkit.specs.arrays import ArraySpec
from envkit.types import NestedArray, NestedSpec

__all__ = ["Replies"]

_VALUE = "value"


class Replies:
    """Turns what a model says into actions of an environment.

    Where actions are text, the reply is the action. Otherwise it must be JSON, which
    may stand in a fence of three backquotes.

    Example:
        >>> import numpy as np
        >>> from envkit.specs import BoundedArraySpec
        >>> replies = Replies(BoundedArraySpec((), np.int64, 0, 2))
        >>> replies.action("2")
        array(2)
        >>> print(replies.instructions)
        Reply with JSON that fits {"type":"integer","minimum":0,"maximum":2}.
    """

    def __init__(self, spec: NestedSpec, tools: Sequence[Tool] = ()) -> None:
        """Takes the action spec, and the tools that the environment declares.

        Raises:
            SpecError: Actions have no form in JSON.
        """
        self._form = JsonForm(spec, subject="The reply", root="reply")
        self._is_text = isinstance(spec, ArraySpec) and spec.dtype.kind in "OU"
        schema = schema_of(spec)
        self._is_wrapped = schema["properties"].keys() == {_VALUE}
        # The JSON schema of an action.
        self.schema = schema["properties"][_VALUE] if self._is_wrapped else schema
        if tools:
            self.instructions = _of_tools(tools)
        elif self._is_text:
            self.instructions = ""
        else:
            self.instructions = f"Reply with JSON that fits {_dumped(self.schema)}."

    def action(self, reply: str) -> NestedArray:
        """Returns the action that a reply is.

        Raises:
            ValueError: It is none; the message is for the model.
        """
        data: Any = reply if self._is_text else _parsed(reply)
        if self._is_text or (self._is_wrapped and not _has_value(data)):
            data = {_VALUE: data}
        return self._form.read(data)


def _of_tools(tools: Sequence[Tool]) -> str:
    lines = [
        _dumped(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
        )
        for tool in tools
    ]
    example = '{"name": "...", "arguments": {...}}'
    begin = f"Reply with a call of one of these tools, as JSON: {example}"
    return "\n".join([begin, *lines])


def _parsed(reply: str) -> Any:
    text = reply.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.strip("`").removeprefix("json")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The reply must be JSON: {error!s:.120}.") from error


def _has_value(data: Any) -> bool:
    return isinstance(data, Mapping) and data.keys() == {_VALUE}


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
