"""What the `reset` of a library's environment takes, through all of its wrappers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from envkit.extend import listed

__all__ = [
    "Parameters",
    "arguments_of_reset",
    "known_to_reset",
    "parameters_of",
    "refuse_options",
    "refuse_seed",
    "takes_anything",
]

Parameters: TypeAlias = Mapping[str, inspect.Parameter]


def known_to_reset(layers: Iterable[Any]) -> dict[str, None]:
    """Returns the arguments that every `reset` gets by name: `None` for each.

    Vectors of Gymnasium always pass a seed and options, so environments that were
    written for them may have no defaults. An argument that `reset` lacks is left out.
    A wrapper whose `reset` takes any argument passes it on, so the next layer decides.

    Args:
        layers: The wrappers from the outside, and last the environment.

    Example:
        >>> class Wrapper:
        ...     def reset(self, **kwargs): ...
        >>> class Forgetful:
        ...     def reset(self, seed): ...
        >>> known_to_reset([Wrapper(), Forgetful()])
        {'seed': None}
    """
    resets = [parameters_of(layer, "reset") for layer in layers]
    return {name: None for name in ("seed", "options") if _is_taken(name, resets)}


def _is_taken(name: str, resets: list[Parameters]) -> bool:
    for parameters in resets:
        if name in parameters:
            return True
        if not takes_anything(parameters):
            return False
    return True


def arguments_of_reset(
    known: Mapping[str, None], seed: Any, options: Any
) -> dict[str, Any]:
    """Returns what to pass to a `reset`: of what there is, what it takes.

    Example:
        >>> arguments_of_reset({"seed": None}, 7, {"level": 3})
        {'seed': 7}
    """
    given = {"seed": seed, "options": options}
    return {name: given[name] for name in known}


def parameters_of(layer: Any, method: str) -> Parameters:
    """Returns the parameters of a method; of compiled code, those of any method."""
    try:
        return inspect.signature(getattr(layer, method)).parameters
    except (TypeError, ValueError):  # Compiled code may have no signature.
        return inspect.signature(lambda *args, **kwargs: None).parameters


def takes_anything(parameters: Parameters) -> bool:
    """Returns True if a method takes any argument by name."""
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def refuse_seed(name: str) -> NoReturn:
    """Raises, for an environment of this name whose `reset` takes no seed."""
    raise NotImplementedError(f"{name} cannot be seeded: its reset() takes no seed.")


def refuse_options(name: str, options: Mapping[str, Any]) -> NoReturn:
    """Raises, for an environment of this name whose `reset` takes no options."""
    raise NotImplementedError(
        f"{name} takes no reset options, and was given {listed(map(repr, options))}: "
        "its reset() has no argument `options`."
    )
