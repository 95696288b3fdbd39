"""What `PySC2Wrapper` asks of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from envkit.adapters.pysc2_parts.observations import MASK
from envkit.specs.validation import describe

__all__ = [
    "check_choices",
    "check_names",
    "constructor_of",
    "made_by",
    "takes_seed",
]

_METHODS = ("reset", "step", "observation_spec", "action_spec")
_CHOICES = {
    "actions": ("structured", "passthrough"),
    "agents": ("first", "all"),
    "illegal": ("raise", "noop", "pass"),
    "variable": ("pad", "object"),
}


def check_choices(**choices: str) -> None:
    """Raises unless each argument has one of the values that there are.

    Example:
        >>> check_choices(agents="both")
        Traceback (most recent call last):
        ValueError: agents is 'both'; it is one of 'first', 'all'.
    """
    for name, value in choices.items():
        if value not in _CHOICES[name]:
            raise ValueError(
                f"{name} is {value!r}; it is one of "
                f"{', '.join(map(repr, _CHOICES[name]))}."
            )


def check_names(
    argument: str,
    names: Collection[str] | None,
    agents: Sequence[Mapping[str, Any]],
) -> None:
    """Raises unless an argument names observations that there are.

    Args:
        argument: What it is called.
        names: The names, if any are given.
        agents: What each agent observes, as PySC2 says it.
    """
    if isinstance(names, str):
        raise TypeError(f"{argument} is a string; it is a list of names: [{names!r}].")
    known = {name for shapes in agents for name in shapes}
    if "available_actions" in known:
        known.add(MASK)
    unknown = sorted(set(names or ()) - known)
    if unknown:
        raise ValueError(
            f"{argument} has {unknown[0]!r}, which PySC2 does not observe here. There "
            f"are {', '.join(sorted(known))}."
        )


def constructor_of(env: Any) -> Callable[..., Any] | None:
    """Returns a function that makes environments; `None` if it is one already."""
    if not isinstance(env, type) and _is_environment(env):
        return None
    if callable(env):
        return env  # type: ignore[no-any-return]  # callable() says so
    raise TypeError(
        f"PySC2Wrapper was given {describe(env)}, which is neither an environment of "
        "PySC2 nor a function that makes one."
    )


def made_by(env: Any) -> Any:
    """Returns what a function made, if that is an environment."""
    if not _is_environment(env):
        raise TypeError(
            f"PySC2Wrapper was given a function that returned {describe(env)}, which "
            "is not an environment of PySC2."
        )
    return env


def _is_environment(env: Any) -> bool:
    return all(callable(getattr(env, name, None)) for name in _METHODS)


def takes_seed(make_env: Callable[..., Any]) -> bool:
    """Says whether a function takes `random_seed`."""
    try:
        parameters = inspect.signature(make_env).parameters
    except (TypeError, ValueError):  # It does not tell.
        return False
    return "random_seed" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
