"""Tools of an environment as OpenEnv has them: in steps, and by JSON-RPC as in MCP.

```
client                                         server
  step {"type": "list_tools"}                  observation {"tools": [...]}
  step {"type": "call_tool", "tool_name",      observation {"tool_name", "result",
        "arguments"}                                        "error"}
  mcp tools/list                               result {"tools": [...]}
  mcp tools/call {"name", "arguments"}         result {"content", "isError", ...}
```

Each call of a tool is a step of the environment, whose action is the call as JSON. A
call of no tool, or with wrong arguments, reaches no environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envkit.errors import SpecError
from envkit.extend import describe, listed
from envkit.sessions.tools import Tool, call_text

__all__ = [
    "CALL_SCHEMA",
    "INTERNAL_ERROR",
    "NO_METHOD",
    "RpcError",
    "ToolCall",
    "ToolForms",
    "rpc_method",
]

# JSON-RPC's codes.
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32600, -32601, -32602
INTERNAL_ERROR = -32603

# OpenEnv's names for its own requests, which no tool may have.
_RESERVED = ("reset", "step", "state", "close")
_LIST, _CALL = "list_tools", "call_tool"
_KEYS = {"type", "tool_name", "arguments", "metadata"}

# Trainers know the title, and ask for the tools.
CALL_SCHEMA: dict[str, Any] = {
    "title": "CallToolAction",
    "type": "object",
    "properties": {
        "type": {"const": _CALL, "default": _CALL, "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object", "default": {}},
    },
    "required": ["tool_name"],
    "additionalProperties": False,
}


class RpcError(Exception):
    """A request by JSON-RPC is answered with an error.

    Attributes:
        code: Its code.
        data: Its data.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class ToolCall(NamedTuple):
    """A tool call that is a step.

    Attributes:
        name: The tool.
        is_rpc: Whether the answer is a message of JSON-RPC.
        id: The number of the request by JSON-RPC.
    """

    name: str
    is_rpc: bool = False
    id: str | int | None = None


class ToolForms:
    """The tools of an environment in JSON.

    Example:
        >>> look = Tool("look", "Looks around.", {"type": "object", "properties": {}})
        >>> forms = ToolForms([look])
        >>> forms.asks_for_list({"type": "list_tools"})
        True
        >>> forms.listed("input_schema")[0]["name"]
        'look'
        >>> forms.read({"type": "call_tool", "tool_name": "look"})
        ('look', {})
        >>> forms.action("look", {})
        '{"name": "look", "arguments": {}}'
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Takes the tools.

        Raises:
            ValueError: A tool has one of OpenEnv's own names.
        """
        self._tools = tuple(tools)
        taken = [tool.name for tool in tools if tool.name in _RESERVED]
        if taken:
            raise ValueError(
                f"OpenEnv keeps the names {listed(_RESERVED)} for itself, and a tool "
                f"of the environment is called {taken[0]!r}: rename it."
            )

    def listed(self, schema_key: str) -> list[dict[str, Any]]:
        """Returns all tools, with the schema of their arguments under a key."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                schema_key: tool.parameters,
            }
            for tool in self._tools
        ]

    # In steps.

    @staticmethod
    def asks_for_list(data: Mapping[str, Any]) -> bool:
        """Returns whether a step's data asks for the tools."""
        return data.get("type") == _LIST

    @staticmethod
    def is_call(data: Mapping[str, Any]) -> bool:
        """Returns whether a step's data is the call of a tool."""
        return data.get("type") == _CALL or "tool_name" in data

    @staticmethod
    def read(data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns the name and the arguments in a step's data.

        Raises:
            SpecError: It is no call.
        """
        name, arguments = data.get("tool_name"), data.get("arguments", {})
        unknown = sorted(data.keys() - _KEYS)
        if not isinstance(name, str) or not isinstance(arguments, dict) or unknown:
            raise SpecError(
                "The action must have the keys 'type', 'tool_name', which is text, and "
                f"'arguments', an object, got {describe(dict(data))}."
            )
        return name, arguments

    def action(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the environment's action.

        Raises:
            LookupError: There is no such tool.
            TypeError: It takes other arguments.
        """
        return call_text(self._tools, name, arguments)

    @staticmethod
    def refused(name: str, error: Exception) -> dict[str, Any]:
        """Returns the observation after the call of no tool."""
        is_unknown = isinstance(error, LookupError)
        kind = "tool_not_found" if is_unknown else "invalid_args"
        told = {"error_type": kind, "message": str(error.args[0])}
        return {"tool_name": name, "result": None, "error": told}

    @staticmethod
    def observed(name: str, text: str, observation: Any) -> dict[str, Any]:
        """Returns the observation of a step that was a call."""
        result = {
            "content": _content(text),
            "structured_content": observation,
            "data": text,
            "is_error": False,
        }
        return {"tool_name": name, "result": result, "error": None}

    # By JSON-RPC.

    def read_rpc(self, params: Any) -> tuple[str, str]:
        """Returns the name of the tool in a `tools/call`, and the action.

        Raises:
            RpcError: It is no call.
        """
        params = params if isinstance(params, dict) else {}
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            what = "params must have 'name', which is text, and 'arguments', an object."
            raise RpcError(INVALID_PARAMS, what)
        try:
            return name, self.action(name, arguments)
        except (LookupError, TypeError) as error:
            raise RpcError(INVALID_PARAMS, str(error.args[0])) from error

    @staticmethod
    def rpc_result(text: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the result of a `tools/call`.

        MCP has no rewards and no ends, so they are in its metadata.
        """
        return {
            "content": _content(text),
            "structuredContent": told["observation"],
            "isError": False,
            "data": text,
            "_meta": {key: told[key] for key in ("reward", "done", "metadata")},
        }

    @staticmethod
    def rpc_error(error: RpcError) -> dict[str, Any]:
        """Returns an error by JSON-RPC."""
        told = {"code": error.code, "message": str(error)}
        return told if error.data is None else {**told, "data": error.data}


def rpc_method(data: Mapping[str, Any]) -> str:
    """Returns the method that a request by JSON-RPC names.

    Raises:
        RpcError: It is no request.
    """
    method = data.get("method")
    if data.get("jsonrpc") != "2.0" or not isinstance(method, str):
        what = "A request has the keys 'jsonrpc', which is '2.0', and 'method'."
        raise RpcError(INVALID_REQUEST, what)
    return method


def _content(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
