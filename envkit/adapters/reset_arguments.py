"""Finds out which arguments an environment's `reset` takes through its wrappers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from envkit.extend import listed, options_copy
from envkit.types import Seed

__all__ = [
    "Parameters",
    "ResetArguments",
    "arguments_of_reset",
    "known_to_reset",
    "parameters_of",
    "refuse_options",
    "refuse_seed",
    "takes_anything",
]

Parameters: TypeAlias = Mapping[str, inspect.Parameter]


def known_to_reset(layers: Iterable[Any]) -> dict[str, None]:
    """Returns the arguments that every `reset` gets by name, with the value `None`.

    Gymnasium's vector environments always pass a seed and options, so environments
    written for them may have no defaults. Arguments that `reset` lacks are left out. A
    wrapper whose `reset` takes any argument passes it on, so the next layer decides.

    Args:
        layers: The wrappers, outermost first, and the environment last.

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
    """Returns the arguments to pass to a `reset` that takes some of them.

    Example:
        >>> arguments_of_reset({"seed": None}, 7, {"level": 3})
        {'seed': 7}
    """
    given = {"seed": seed, "options": options}
    return {name: given[name] for name in known}


def parameters_of(layer: Any, method: str) -> Parameters:
    """Returns the parameters of a method; compiled code may take anything."""
    try:
        return inspect.signature(getattr(layer, method)).parameters
    except (TypeError, ValueError):  # compiled code may have no signature
        return inspect.signature(lambda *args, **kwargs: None).parameters


def takes_anything(parameters: Parameters) -> bool:
    """Returns True if a method takes any argument by name."""
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


class ResetArguments:
    """A second base class beside `ForeignEnvironment`, for a `reset` with arguments.

    `_know_reset` looks up the arguments when the adapter is made.
    """

    _name: str
    _reset_options: Any
    _next_options: Any

    def _know_reset(self, layers: Iterable[Any], options: Any) -> None:
        """Looks up what `reset` takes, and keeps the options of every reset.

        Args:
            layers: The wrappers, outermost first, and the environment last.
            options: The options that every reset passes.
        """
        self._known_to_reset = known_to_reset(layers)
        self._reset_options = self._next_options = self._checked_options(options)

    def set_reset_options(
        self, options: Mapping[str, Any] | None, *, always: bool = False
    ) -> None:
        """Sets the `options` that the next reset passes to the environment.

        They are part of the state.

        Args:
            options: The options, as the environment expects them; `None` passes none.
            always: Whether all later resets pass them too, including automatic ones.
                Otherwise those pass the `reset_options` of the constructor.

        Example:
            >>> import gymnasium
            >>> from envkit.adapters import GymnasiumWrapper
            >>> env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
            >>> env.set_reset_options({"low": 0.01, "high": 0.02})
            >>> observation = env.reset().observation
            >>> bool((observation >= 0.01).all())
            True
            >>> env.close()
        """
        self._next_options = self._checked_options(options)
        if always:
            self._reset_options = self._next_options

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment at the next reset; later resets do not reseed."""
        if "seed" not in self._known_to_reset:
            refuse_seed(self._name)
        return super().seed(seed)  # type: ignore[misc]  # of `ForeignEnvironment`

    def _checked_options(self, options: Mapping[str, Any] | None) -> Any:
        if options and not self._accepts_options():
            refuse_options(self._name, options)
        return options_copy(options)

    def _accepts_options(self) -> bool:
        return "options" in self._known_to_reset

    def _arguments(self, seed: int | None, options: Any) -> dict[str, Any]:
        """Returns the arguments of `reset`."""
        if seed is None and options is None:
            return self._known_to_reset
        return arguments_of_reset(self._known_to_reset, seed, options)


def refuse_seed(name: str) -> NoReturn:
    """Raises for an environment whose `reset` takes no seed."""
    raise NotImplementedError(f"{name} cannot be seeded: its reset() takes no seed.")


def refuse_options(name: str, options: Mapping[str, Any]) -> NoReturn:
    """Raises for an environment whose `reset` takes no options."""
    raise NotImplementedError(
        f"{name} takes no reset options, and was given {listed(map(repr, options))}: "
        "its reset() has no argument `options`."
    )
