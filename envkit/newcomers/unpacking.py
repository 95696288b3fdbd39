"""Finds callers of `reset` and `step` that unpack a tuple of Gymnasium's.

`obs, reward, done, info = env.step(action)` is no error in Python: a time step is a
tuple of four. So the first reset and step look at what the caller does with the result,
which is in the caller's bytecode. Where that cannot be read, nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

__all__ = ["refuse_unpacking"]

_OBSERVATIONS = {"frame", "image", "ob", "obs", "observation", "observations", "state"}
_ENDS = {"done", "dones", "terminal", "terminated", "terminations", "truncated"}
_INFOS = {"info", "infos"}
# They do nothing.
_SKIPPED = {"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN"}


class _Unpacked(NamedTuple):
    """How a caller takes a time step apart.

    Attributes:
        targets: The names that get its parts, "" for what is no name.
        text: The same for a message.
        is_whole: Whether these are all parts, and not the first alone.
    """

    targets: list[str]
    text: str
    is_whole: bool = True


def refuse_unpacking(frame: FrameType | None) -> None:
    """Raises if `reset`, `step` or `recv` was called for a tuple of Gymnasium's.

    Args:
        frame: A frame inside the method.

    Raises:
        ValueError: The caller's line unpacks the time step into other values.
    """
    call, name = "step", "env"
    # Wrappers, and the layers of an environment, return the time step as it is.
    while frame is not None and (env := _environment_of(frame)) is not None:
        if frame.f_code.co_name in ("reset", "step", "recv"):
            call, name = frame.f_code.co_name, type(env).__name__
        frame = frame.f_back
    if frame is None or _is_of_envkit(frame):
        return
    found = _unpacked(frame.f_code, frame.f_lasti)
    if found is not None and _is_wrong(found, call):
        raise ValueError(_message(name, call, found))


def _is_of_envkit(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("envkit.")


def _environment_of(frame: FrameType) -> Any:
    """Returns the environment whose method runs in a frame of envkit, or `None`."""
    code = frame.f_code
    if not _is_of_envkit(frame) or not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    return first if hasattr(type(first), "time_step_spec") else None


def _unpacked(code: CodeType, position: int) -> _Unpacked | None:
    """Returns how the result of the call at a position is taken apart, if it is."""
    import dis

    following = (
        each
        for each in dis.get_instructions(code)
        if each.offset > position and each.opname not in _SKIPPED
    )
    first = next(following, None)
    match first and first.opname:
        case "UNPACK_SEQUENCE":
            count = int(first.arg or 0)  # type: ignore[union-attr]  # there is one
            targets = _targets(following, count)
            named = f"({', '.join(targets)})" if all(targets) else f"{count} values"
            return _Unpacked(targets, named)
        case "UNPACK_EX":
            before = int(first.arg or 0) & 0xFF  # type: ignore[union-attr]  # there is one
            targets = _targets(following, 1) if before else [""]
            return _Unpacked(targets, f"({targets[0]}, ...)", is_whole=False)
        case "LOAD_CONST" | "LOAD_SMALL_INT" if first.argval == 0:  # type: ignore[union-attr]  # there is one
            indexed = next(following, None)
            if indexed is not None and indexed.opname.startswith("BINARY_"):
                targets = _targets(following, 1)
                return _Unpacked(targets, f"({targets[0]}, ...)", is_whole=False)
    return None


def _targets(instructions: Iterator[Any], count: int) -> list[str]:
    """Returns the names to which the next values are assigned."""
    names: list[str] = []
    for each in instructions:
        match each.opname:
            case "STORE_FAST_STORE_FAST":
                names += each.argval
            case "STORE_FAST_LOAD_FAST":
                names.append(each.argval[0])
            case "STORE_SUBSCR" | "POP_TOP":
                names.append("")
            case "STORE_FAST" | "STORE_NAME" | "STORE_GLOBAL" | "STORE_DEREF":
                names.append(each.argval)
            case "STORE_ATTR":
                names.append(each.argval)
            case other if not other.startswith(("LOAD_", "COPY", "PUSH_NULL")):
                break  # another unpacking, or the end of the statement
        if len(names) >= count:
            break
    return list(itertools.islice(itertools.chain(names, itertools.repeat("")), count))


def _is_wrong(found: _Unpacked, call: str) -> bool:
    """Returns True if no part of the result belongs into these names."""
    words = [set(name.lower().split("_")) for name in found.targets]
    if not found.is_whole:
        return bool(words[0] & _OBSERVATIONS)
    parts = 2 if call == "recv" else 4
    if len(words) != parts:
        return True
    if words[0] & _OBSERVATIONS and not words[-1] & _OBSERVATIONS:
        return True
    return bool(words[-1] & _INFOS) or (parts == 4 and bool(words[2] & _ENDS))


def _message(name: str, call: str, found: _Unpacked) -> str:
    if call == "recv":
        return (
            f"{name}.recv() returns the rows that are ready and their TimeStep, not "
            f"{found.text}. Write\n\n"
            "    env_ids, time_step = env.recv()\n\n"
            "and use time_step.observation and time_step.reward."
        )
    if call == "reset":
        line, parts = "env.reset()", "time_step.observation"
    else:
        line = "env.step(action)"
        parts = (
            "time_step.observation, time_step.reward, and time_step.is_last(), which "
            "says whether the episode has ended"
        )
    return (
        f"{name}.{call}() returns a TimeStep, not {found.text}. Write\n\n"
        f"    time_step = {line}\n\n"
        f"and use {parts}; env.get_info() returns the info. As a tuple, a time step is "
        "(step_type, reward, discount, observation)."
    )
