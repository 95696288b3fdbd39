"""Reads the results of an author's `step` and `reset`, in any common form.

```
step     (observation, reward, done)
         (observation, reward, done, info)                      Gym
         (observation, reward, terminated, truncated)
         (observation, reward, terminated, truncated, info)     Gymnasium; Result
         a time step of envkit, dm_env, TF-Agents or PySC2
reset    observation
         (observation, info)
         a time step
```

A pair with a dictionary second is an observation and an info. If that is wrong, or a
library has its own order, the author declares the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from envkit.errors import SpecError
from envkit.extend import Result, describe

__all__ = ["Declared", "reset_reader", "step_reader"]

Declared: TypeAlias = str | Sequence[str | None]

_PARTS = ("observation", "reward", "done", "terminated", "truncated", "info")
_STEP_FORMS = (
    "(observation, reward, done)",
    "(observation, reward, done, info)",
    "(observation, reward, terminated, truncated)",
    "(observation, reward, terminated, truncated, info)",
    "Result(observation, reward, terminated=..., truncated=..., info=...)",
    "a time step",
)


def step_reader(name: str, declared: Declared | None) -> Callable[[Any], Any]:
    """Returns a function that converts a result of `step` to a `Result` or a tuple.

    The tuple has the first five parts of a `Result`.

    Args:
        name: The environment's name, for messages.
        declared: The parts in their order; `None` to tell them by their number.

    Example:
        >>> read = step_reader("Game", "reward, observation, done")
        >>> read((1.0, 7, True))[:3]
        (7, 1.0, True)
    """
    if declared is not None:
        return _declared_reader(name, "step", declared)

    def read(result: Any) -> Any:
        # Hot: called once per step.
        discount = None
        kind = result.__class__
        if kind is tuple and len(result) == 5:
            observation, reward, terminated, truncated, info = result
        elif isinstance(result, Result):
            observation, reward, terminated, truncated, info, discount = result
        else:
            parts = _other_parts(name, result)
            if isinstance(parts, Result):
                return parts
            observation, reward, terminated, truncated, info = parts
        if terminated.__class__ is not bool:
            terminated = _flag(name, terminated, "done")
        if truncated.__class__ is not bool:
            truncated = _flag(name, truncated, "done")
        if info.__class__ is not dict:
            info = _as_info(name, "step", info)
        # Making a tuple takes a fifth of the time of a `Result`.
        parts = observation, reward, terminated, truncated, info
        return parts if discount is None else Result(*parts, discount)

    return read


def _other_parts(name: str, result: Any) -> Any:
    """Returns a `Result` for a time step, and five parts for other forms."""
    if hasattr(result, "step_type") and not _has_five(result):
        return _of_time_step(name, "step", result)
    if not isinstance(result, tuple | list):
        _refuse_step(name, result)
    match len(result):
        case 5:
            return result
        case 3:
            observation, reward, terminated = result
            return observation, reward, terminated, False, None
        case 4:
            observation, reward, done, last = result
            terminated, truncated, info = _of_four(done, last)
            if info is not _UNKNOWN:
                return observation, reward, terminated, truncated, info
        case 1 if hasattr(result[0], "step_type"):
            return _of_time_step(name, "step", result[0])
    _refuse_step(name, result)


def _has_five(result: Any) -> bool:
    return isinstance(result, tuple | list) and len(result) == 5


_UNKNOWN = object()


def _of_four(done: Any, last: Any) -> tuple[Any, Any, Any]:
    """Returns terminated, truncated and info from the last two of four values."""
    if isinstance(last, bool | np.bool_):
        return done, last, None
    if last is None or not isinstance(last, Mapping):
        return done, False, last if last is None else _UNKNOWN
    # Gym's way to say that only a time limit ended the episode.
    limited = bool(last.get("TimeLimit.truncated", False))
    return (False, done, last) if limited else (done, False, last)


def reset_reader(name: str, declared: Declared | None) -> Callable[[Any], Result]:
    """Returns terminated, truncated and info, given the last two of four values.

    Args:
        name: The environment's name, for messages.
        declared: The parts; "observation" for a single value that is not split, and
            `None` to tell by the form.

    Example:
        >>> reset_reader("Game", None)((7, {"lives": 3}))[::4]
        (7, {'lives': 3})
        >>> reset_reader("Game", "observation")((7, {"lives": 3})).observation
        (7, {'lives': 3})
    """
    if declared is not None:
        return _declared_reader(name, "reset", declared)

    def read(result: Any) -> Result:
        if result.__class__ is tuple and len(result) == 2:
            if result[1].__class__ is dict:
                return Result(result[0], 0.0, False, False, dict(result[1]))
        elif hasattr(result, "step_type"):
            return _of_time_step(name, "reset", result)
        if isinstance(result, tuple):
            if len(result) == 1 and hasattr(result[0], "step_type"):
                return _of_time_step(name, "reset", result[0])
            if len(result) == 2 and isinstance(result[1], Mapping):
                return Result(result[0], info=dict(result[1]))
        if result is None:
            raise SpecError(
                f"{name}.reset() returned None; it must return the first observation. "
                "Did a return statement get lost?"
            )
        return Result(result, info={})

    return read


def _declared_reader(
    name: str, call: str, declared: Declared
) -> Callable[[Any], Result]:
    parts = _parts_of(name, call, declared)
    if parts == ["observation"]:
        return lambda result: Result(result, info={})

    def read(result: Any) -> Result:
        if not isinstance(result, tuple | list) or len(result) != len(parts):
            raise SpecError(
                f"{name}.{call}() returned {describe(result)}.\n\n"
                f"  expected   ({', '.join(map(str, parts))}), as {call}_returns says"
            )
        given = dict(zip(parts, result, strict=True))
        ends = given.get("done", False), given.get("terminated", False)
        truncated = given.get("truncated", False)
        return Result(
            given["observation"],
            given.get("reward", 0.0),
            any(_flag(name, end, "done") for end in ends),
            _flag(name, truncated, "truncated"),
            _as_info(name, call, given.get("info")),
        )

    return read


def _parts_of(name: str, call: str, declared: Declared) -> list[str | None]:
    given = declared
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    parts = [None if part == "_" else part for part in given]
    named = [part for part in parts if part is not None]
    unknown = [part for part in named if part not in _PARTS]
    if unknown or "observation" not in named or len(set(named)) < len(named):
        raise ValueError(
            f"{name}.{call}_returns must name the parts of {call}()'s result in order, "
            f"one of them the observation, got {declared!r}. The parts are "
            f"{', '.join(_PARTS)}, and _ for one that is not used."
        )
    return parts


def _of_time_step(name: str, call: str, step: Any) -> Result:
    """Reads a time step of any library; libraries differ in the parts of a `FIRST`."""
    kinds = np.asarray(step.step_type)
    if kinds.shape:
        raise SpecError(
            f"{name}.{call}() returned a time step of a batch of {len(kinds)}; an "
            "Adapter is one environment. Return the time step of one row."
        )
    kind = int(kinds)
    if call == "reset" or kind == 0:
        if call == "step":
            raise SpecError(
                f"{name}.step() returned a FIRST time step. The step that ends an "
                "episode returns a LAST, and envkit calls reset() for the next episode."
            )
        return Result(step.observation, info={})
    discount = 1.0 if step.discount is None else step.discount
    over = kind == 2
    ended = over and not np.any(discount)
    reward = 0.0 if step.reward is None else step.reward
    return Result(step.observation, reward, ended, over and not ended, {}, discount)


def _flag(name: str, value: Any, part: str) -> bool:
    array = np.asarray(value)
    if array.size == 1 and (
        array.dtype == np.bool_ or (array.dtype.kind in "iu" and array in (0, 1))
    ):
        return bool(array)
    raise SpecError(
        f"{name}.step() returned {describe(value)} for {part}, which must be True or "
        "False.\n\n"
        f"{_how_to_declare('step')}"
    )


def _as_info(name: str, call: str, info: Any) -> Mapping[str, Any]:
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise SpecError(
            f"{name}.{call}() returned {describe(info)} for info, which must be a "
            f"dictionary.\n\n{_how_to_declare(call)}"
        )
    return dict(info)


def _how_to_declare(call: str) -> str:
    return (
        "If the parts come in another order, declare it in the class: "
        f'{call}_returns = "reward, observation, done".'
    )


def _refuse_step(name: str, result: Any) -> NoReturn:
    forms = "\n             ".join(_STEP_FORMS)
    reason = (
        "Did a return statement get lost?"
        if result is None
        else _how_to_declare("step")
    )
    raise SpecError(
        f"{name}.step() returned {describe(result)}.\n\n"
        f"  expected   {forms}\n\n"
        f"{reason}"
    )
