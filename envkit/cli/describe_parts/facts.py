"""What there is to know of an environment, found out by asking it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.autoreset import AutoReset
from envkit.cli.describe_parts.spec_texts import plain_leaves
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.info_spec import info_spec_of

__all__ = ["facts_of", "info_text", "layers_of", "limit_of", "specs_of"]

# Under which names wrappers and environments tell how long episodes are at most.
# The last is MiniGrid's.
_LIMITS = ("duration", "max_episode_steps", "fix_length", "max_steps")


def specs_of(env: Any) -> dict[str, Any]:
    """Returns the nests of specs by what they are of."""
    specs: dict[str, Any] = EnvironmentSpec.of(env)._asdict()
    declared = info_spec_of(env)
    return {**specs, "info": declared} if declared else specs


def facts_of(env: Any) -> dict[str, Any]:
    """Asks an environment for everything; it is reset for that.

    Returns:
        Data that JSON can hold. Where something cannot be done, `reason` says why.
    """
    provenance: dict[str, Any] = getattr(env, "provenance", dict)()
    facts = {
        "id": provenance.get("id"),
        "version": provenance.get("version"),
        "class": f"{type(env).__module__}:{type(env).__qualname__}",
        "layers": layers_of(env),
        "batch": _batch(env),
        "specs": {part: plain_leaves(spec) for part, spec in specs_of(env).items()},
        "episode": {"max_steps": limit_of(env)},
        "seed": _can(lambda: env.seed(0)),
    }
    if not isinstance(env, AsyncEnvironment):
        begun = _can(lambda: env.reset())
        facts["reset"] = begun
        facts["info"] = _info(env)
        facts["render"] = _rendered(env)
        facts["state"] = _can(lambda: env.get_state())
    return {**facts, "provenance": provenance}


def limit_of(env: Any) -> int | None:
    """Returns after how many steps an episode ends at the latest, if that is told.

    Of a batch, in the row where it may be longest.
    """
    rows = getattr(env, "envs", None) if not hasattr(env, "access") else None
    if isinstance(rows, list | tuple) and rows:
        return _largest([limit_of(row) for row in rows])
    told = [
        *(_told(env, name) for name in _LIMITS),
        getattr(getattr(env, "spec", None), "max_episode_steps", None),
        # dm_control tells nobody, and knows: infinity where there is no limit.
        getattr(getattr(env, "dm_env", None), "_step_limit", None),
    ]
    return min((limit for limit in map(_as_limit, told) if limit), default=None)


def _told(env: Any, name: str) -> Any:
    """Returns an attribute of an environment, or the largest of those in a pool."""
    value = getattr(env, name, None)
    if value is not None or not hasattr(env, "access"):
        return value
    try:
        values = env.access(name)
    except Exception:  # Their workers raise what they raise.
        return None
    values = values if isinstance(values, list) else [values]
    return _largest([_as_limit(value) for value in values])


def _largest(limits: list[int | None]) -> int | None:
    """Returns the largest limit, or `None` where there is an episode without one."""
    known = [limit for limit in limits if limit is not None]
    return max(known, default=None) if len(known) == len(limits) else None


def _as_limit(value: Any) -> int | None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return int(float(value)) if is_number and math.isfinite(value) else None


def layers_of(env: Any) -> list[str]:
    """Names the classes of an environment and of those in it, the outermost first.

    Example:
        >>> from envkit import make
        >>> from envkit.wrappers import TimeLimit
        >>> layers_of(TimeLimit(make("Catch"), 5))
        ['TimeLimit', 'Catch']
    """
    layers = [env]
    while callable(getattr(type(layers[-1]), "wrapped_env", None)):
        layers.append(layers[-1].wrapped_env())
    if hasattr(type(layers[-1]), "gym"):
        layers.append(layers[-1].gym.unwrapped)
    return [type(layer).__name__ for layer in layers]


def info_text(leaf: Any) -> str:
    """Writes what an info holds in a few words.

    Example:
        >>> info_text(np.float32(3)), info_text("lost"), info_text(np.zeros(2))
        ('float32', 'str', 'float64 (2,)')
    """
    if isinstance(leaf, np.ndarray | np.generic):
        return " ".join([str(leaf.dtype), *([str(leaf.shape)] if leaf.shape else [])])
    return type(leaf).__name__


def _batch(env: Any) -> dict[str, Any]:
    if isinstance(env, AsyncEnvironment):
        return {"kind": "asynchronous", "rows": env.num_envs}
    if not env.batched:
        return {"kind": "single", "rows": None}
    return {
        "kind": "batch",
        "rows": int(env.batch_size),
        "autoreset": AutoReset.kept_by(env).value,
        "resets_rows": bool(getattr(env, "resets_rows", False)),
        "holds_rows": bool(getattr(env, "holds_rows", False)),
    }


def _info(env: Any) -> dict[str, Any]:
    answer = _asked(lambda: env.get_info())
    if "reason" in answer:
        return {"possible": False, **answer}
    value = answer["value"]
    if isinstance(value, Mapping) and not value:
        return {"possible": True, "holds": []}
    try:
        leaves = nest.flatten_with_paths(value)
    except Exception:  # Its keys may be anything.
        leaves = [("", value)]
    holds = [{"path": path, "what": info_text(leaf)} for path, leaf in leaves]
    return {"possible": True, "holds": holds}


def _rendered(env: Any) -> dict[str, Any]:
    answer = _asked(lambda: env.render())
    if "reason" in answer:
        return {"possible": False, **answer}
    picture = np.asarray(answer["value"])
    return {
        "possible": True,
        "shape": list(picture.shape),
        "dtype": str(picture.dtype),
    }


def _can(call: Callable[[], Any]) -> dict[str, Any]:
    answer = _asked(call)
    return {"possible": "reason" not in answer} | (
        {"reason": answer["reason"]} if "reason" in answer else {}
    )


def _asked(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": call()}
    # What is asked for within the call may be missing as well.
    except NotImplementedError as error:
        return {"reason": _line(error)}
    except Exception as error:  # It is somebody else's environment.
        return {"reason": f"{type(error).__name__}: {_line(error)}".rstrip(": ")}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
