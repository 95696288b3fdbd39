"""The messages of OpenEnv, for a server: specs and values as JSON, and episodes."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit._shared.json_schema import JsonForm, schema_of
from envkit.errors import SpecError
from envkit.remote.env_threads import Single, flags_of
from envkit.time_step import TimeStep
from envkit.types import NestedSpec

__all__ = [
    "STATE",
    "Episodes",
    "Forms",
    "RefusedError",
    "class_name",
    "data_of",
    "dumped",
    "invalid",
    "parsed",
    "raised",
    "task_answer",
]

# Bytes of a message, beside those of an action: names, and what resets are told.
_LEAST_MESSAGE = 1 << 16
# Bytes that a number takes as text, and those of a text or an object.
_NUMBER, _OBJECT = 32, 1 << 20
_LONGEST_ID = 255
# What OpenEnv calls actions on tools, without `Action` at the end.
_OF_TOOLS = ("CallTool", "ListTools")
_LARGEST_SEED = 2**63
STATE = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer", "minimum": 0},
    },
}


class RefusedError(Exception):
    """A message that is answered by an error; the session goes on."""

    def __init__(self, code: str, message: str, errors: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.errors = code, message, errors

    def data(self) -> dict[str, Any]:
        """Returns what the client is told."""
        data: dict[str, Any] = {"message": self.message, "code": self.code}
        return data if self.errors is None else {**data, "errors": self.errors}

    def hidden(self, hide: Callable[[str], str]) -> RefusedError:
        """Returns the error as it may be told, where `hide` removes what may not be."""
        errors = self.errors and [
            {**one, "msg": hide(str(one.get("msg", "")))} for one in self.errors
        ]
        return RefusedError(self.code, hide(self.message), errors)


def invalid(place: list[str], message: str) -> RefusedError:
    """Returns the error for a part of a message that is not as it must be."""
    errors = [{"type": "value_error", "loc": place, "msg": message}]
    return RefusedError("VALIDATION_ERROR", message, errors)


class Forms:
    """What the specs are in JSON: the schemas, and how values are written and read.

    Attributes:
        schema: The schemas for trainers, which put them into prompts.
        exact_schema: The schemas for envkit's client, which makes the same specs again.
    """

    def __init__(self, spec: Any, name: str) -> None:
        """Takes the specs of an environment, and what it is called."""
        if getattr(spec.reward, "shape", None) != ():
            raise ValueError(
                f"OpenEnv has one number as the reward, and that of the environment is "
                f"{spec.reward!r:.200}. Wrap it so that the reward is a scalar."
            )
        self.action = JsonForm(spec.action, subject="The action", root="action")
        self.observation = JsonForm(
            spec.observation, subject="The observation", root="observation"
        )
        self.largest_message = _LEAST_MESSAGE + _size_of(spec.action)
        self.schema = _schemas(spec, name, exact=False)
        self.exact_schema = _schemas(spec, name, exact=True)


def _schemas(spec: Any, name: str, *, exact: bool) -> dict[str, Any]:
    """Returns the schemas of actions, observations and states."""
    title = class_name(name)
    observation = schema_of(spec.observation, f"{title}Observation", exact=exact)
    reward, discount = (
        schema_of(part, exact=exact)["properties"]["value"]
        for part in (spec.reward, spec.discount)
    )
    observation["properties"] = {
        **observation["properties"],
        "done": {"type": "boolean"},
        "reward": {"anyOf": [reward, {"type": "null"}]},
        "metadata": {"type": "object", "properties": {"discount": discount}},
    }
    return {
        "action": schema_of(spec.action, f"{title}Action", exact=exact),
        "observation": observation,
        "state": STATE,
    }


def class_name(name: str) -> str:
    """Returns an environment's name as a class of OpenEnv's would have it.

    Schemas are called after it, because trainers take an action that is called `Action`
    alone, or as those for tools, for a call of a tool.

    Example:
        >>> class_name("CartPole-v1"), class_name("gymnasium:ALE/Pong-v5")
        ('CartPole', 'Pong')
        >>> class_name("my_games.envs:make_maze"), class_name("2048"), class_name("")
        ('MakeMaze', 'Env2048', 'Env')
    """
    last = re.split(r"[:/.]", re.sub(r"-v\d+$", "", name))[-1]
    words = re.findall(r"[^\W_]+", last)
    joined = "".join(word[0].upper() + word[1:] for word in words)
    if joined in _OF_TOOLS:
        return f"{joined}Env"
    return joined if joined.isidentifier() else f"Env{joined}"


def _size_of(spec: NestedSpec) -> int:
    """Returns how many bytes an action takes at most."""
    from envkit.nest import flatten

    sizes = []
    for leaf in flatten(spec):
        elements = math.prod(leaf.shape)
        is_number = leaf.dtype.kind in "biuf"
        # A character takes up to twelve bytes, as two escaped halves.
        letters = 0 if is_number else leaf.dtype.itemsize * 3
        if leaf.dtype.kind == "O":
            letters = _OBJECT
        sizes.append(elements * (_NUMBER + letters))
    return sum(sizes)


class Episodes:
    """One client's episodes; its methods are called by the environment's thread."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._episode_id: str | None = None
        self._steps = 0
        # Why there can be no step now.
        self._needs_reset = "No episode has begun"
        self.has_raised = False

    def reset(self, env: Single, data: Mapping[str, Any]) -> dict[str, Any]:
        """Begins an episode."""
        seed, episode_id, options = _reset_data(data)
        try:
            time_step = env.reset(seed, options)
        except NotImplementedError as error:
            part = "seed" if options is None else "options"
            raise invalid(["data"], f"reset: {part}: {error}") from error
        except Exception as error:
            raise self._broken(error) from error
        self._episode_id = episode_id or str(uuid.uuid4())
        self._steps, self._needs_reset, self.has_raised = 0, "", False
        return {**self._told(env, time_step), "reward": None}

    def step(self, env: Single, data: Any) -> dict[str, Any]:
        """Applies an action."""
        # Hot: called once per step.
        action = self._read(data)
        if self._needs_reset:
            raise RefusedError(
                "EXECUTION_ERROR", f"{self._needs_reset}: reset comes before step."
            )
        try:
            time_step = env.step(action)
        except Exception as error:
            raise self._broken(error) from error
        self._steps += 1
        return self._told(env, time_step)

    def reset_and_step(self, env: Single, data: Any) -> dict[str, Any]:
        """Begins an episode and applies one action: for a request without a session."""
        self._read(data)
        self.reset(env, {})
        return self.step(env, data)

    def state(self) -> dict[str, Any]:
        """Returns where the session stands."""
        return {"episode_id": self._episode_id, "step_count": self._steps}

    def _broken(self, error: Exception) -> RefusedError:
        self.has_raised, self._needs_reset = True, "The environment has raised"
        return raised(error)

    def _read(self, data: Any) -> Any:
        try:
            return self._forms.action.read(data)
        except SpecError as error:
            place = ["action", error.path.removeprefix("action")]
            raise invalid([part for part in place if part], str(error)) from error

    def _told(self, env: Single, time_step: TimeStep) -> dict[str, Any]:
        # Hot: called once per step.
        try:
            observation = self._forms.observation.write(time_step.observation)
        except SpecError as error:
            raise self._broken(error) from error
        info = env.info()
        terminated, truncated = flags_of(time_step, info)
        is_done = bool(time_step.is_last())
        if is_done:
            self._needs_reset = "The episode has ended"
        metadata = {
            "discount": _plain(time_step.discount),
            "terminated": terminated,
            "truncated": truncated,
        }
        if isinstance(info, Mapping):
            for key, value in info.items():
                if isinstance(key, str) and (plain := _plain(value)) is not _NOTHING:
                    metadata.setdefault(key, plain)
        return {
            "observation": observation,
            "reward": _plain(time_step.reward),
            "done": is_done,
            "metadata": metadata,
        }


def raised(error: Exception) -> RefusedError:
    """Returns the error for an environment that has raised."""
    kind, text = type(error).__name__, str(error)
    return RefusedError("EXECUTION_ERROR", f"{kind}: {text}" if text else kind)


def _reset_data(data: Mapping[str, Any]) -> tuple[int | None, str | None, Any]:
    """Returns the seed, the episode's name, and what the environment is told."""
    rest = dict(data)
    seed, episode_id = rest.pop("seed", None), rest.pop("episode_id", None)
    is_integer = type(seed) is int and 0 <= seed < _LARGEST_SEED
    if seed is not None and not is_integer:
        message = "seed must be an integer of at least 0, with at most 63 bits."
        raise invalid(["data", "seed"], message)
    is_name = isinstance(episode_id, str) and len(episode_id) <= _LONGEST_ID
    if episode_id is not None and not is_name:
        message = f"episode_id must be a text of at most {_LONGEST_ID} characters."
        raise invalid(["data", "episode_id"], message)
    return seed, episode_id, rest or None


def task_answer(env: Single, method: str, arguments: tuple[Any, ...]) -> Any:
    """Returns what an environment with tasks says of them, as JSON has it.

    Raises:
        RefusedError: It has no such method, or there is no such task.
    """
    try:
        found = env.call(method, *arguments)
    except (AttributeError, NotImplementedError) as error:
        raise RefusedError(
            "NOT_IMPLEMENTED", f"{method} is not supported for this environment"
        ) from error
    except IndexError as error:
        raise RefusedError("INVALID_INDEX", "Invalid task index") from error
    except (KeyError, ValueError, TypeError) as error:
        raise RefusedError("VALIDATION_ERROR", str(error)) from error
    plain = _plain(list(found) if isinstance(found, tuple | range) else found)
    if method == "list_splits":
        return [_split(one) for one in plain]
    return None if plain is _NOTHING else plain


def _split(one: Any) -> Any:
    """Returns a split with its type, which tells what it is meant for."""
    if isinstance(one, dict):
        return one
    kind = one if one in ("train", "validation", "test") else "validation"
    return {"name": one, "type": kind}


_NOTHING: Any = object()


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns what JSON can hold of a value: `_NOTHING` if it can hold none of it."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufUO":
            return _NOTHING
        return _plain(value.tolist(), depth)
    if depth > 8:
        return _NOTHING
    if isinstance(value, Mapping):
        pairs = {str(key): _plain(child, depth + 1) for key, child in value.items()}
        return {key: child for key, child in pairs.items() if child is not _NOTHING}
    if isinstance(value, list | tuple):
        items = [_plain(child, depth + 1) for child in value]
        return [None if item is _NOTHING else item for item in items]
    return _NOTHING


def parsed(text: str | bytes | None) -> dict[str, Any]:
    """Returns a message of a client."""
    if not isinstance(text, str):
        raise RefusedError("INVALID_JSON", "A message must be text, not bytes.")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError("INVALID_JSON", f"Invalid JSON: {error!s:.200}") from error
    if not isinstance(message, dict):
        raise invalid([], "A message must be an object with the key 'type'.")
    return message


def data_of(message: dict[str, Any], default: Any = None) -> dict[str, Any]:
    """Returns the data of a message, an object."""
    strange = sorted(message.keys() - {"type", "data"})
    if strange:
        raise invalid(
            [strange[0][:80]],
            f"A message has the keys 'type' and 'data', not {strange[0][:80]!r}.",
        )
    data = message.get("data", default)
    if not isinstance(data, dict):
        raise invalid(["data"], f"data of {message['type']!r} must be an object.")
    return data


def dumped(message: Any) -> str:
    """Returns a message as text."""
    # ASCII alone, because a text may have halves of characters, which UTF-8 has not.
    return json.dumps(message, separators=(",", ":"))
