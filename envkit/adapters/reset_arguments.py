"""What the `reset` of a library's environment takes, through all of its wrappers."""

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


class ResetArguments:
    """Is a base beside `ForeignEnvironment`, for libraries whose `reset` has arguments.

    Which it takes is looked up when the adapter is made, by `_know_reset`.
    """

    _name: str
    _reset_options: Any
    _next_options: Any

    def _know_reset(self, layers: Iterable[Any], options: Any) -> None:
        """Looks up what `reset` takes, and keeps the options that all resets pass.

        Args:
            layers: The wrappers from the outside, and last the environment.
            options: The options.
        """
        self._known_to_reset = known_to_reset(layers)
        self._reset_options = self._next_options = self._checked_options(options)

    def set_reset_options(
        self, options: Mapping[str, Any] | None, *, always: bool = False
    ) -> None:
        """Chooses the `options` that the next reset passes to the environment.

        They are part of the state.

        Args:
            options: The options, in the environment's words; `None` passes none.
            always: Whether they are for all later resets, too, automatic ones
                included. Otherwise the wrapper goes on with the `reset_options` that it
                was made with.

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
        """Seeds the environment at the next reset; later resets let it go on."""
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
        """Returns what to pass to `reset`."""
        if seed is None and options is None:
            return self._known_to_reset
        return arguments_of_reset(self._known_to_reset, seed, options)


def refuse_seed(name: str) -> NoReturn:
    """Raises, for an environment of this name whose `reset` takes no seed."""
    raise NotImplementedError(f"{name} cannot be seeded: its reset() takes no seed.")


def refuse_options(name: str, options: Mapping[str, Any]) -> NoReturn:
    """Raises, for an environment of this name whose `reset` takes no options."""
    raise NotImplementedError(
        f"{name} takes no reset options, and was given {listed(map(repr, options))}: "
        "its reset() has no argument `options`."
    )
