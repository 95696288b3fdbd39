"""What the adapters of Gymnasium and of Gym ask of an environment, and of arguments."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from envkit.masked_rows import hand_options
from envkit.py_environment import PyEnvironment
from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import listed

__all__ = [
    "as_discount",
    "check_render_mode",
    "check_single",
    "handed_options",
    "id_without_module",
    "known_to_reset",
    "limited_and_wrapped",
    "name_of",
    "number_of",
    "set_attribute",
]


_LOGGER = logging.getLogger(__name__)


def known_to_reset(env: Any) -> dict[str, None]:
    """Returns what `reset` is always called with by name, for want of anything else.

    Gymnasium's own vectors pass a seed and options in any case, and environments that
    were written for them have no defaults. What some forget to take is left out.

    Example:
        >>> class Forgetful:
        ...     def reset(self, seed): ...
        >>> known_to_reset(Forgetful())
        {'seed': None}
    """
    both = dict.fromkeys(("seed", "options"))
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # Something in C, which does not tell.
        return both
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return both
    return {name: None for name in both if name in parameters}


@contextlib.contextmanager
def handed_options(env: Any, options: Any, rows: Array | None = None) -> Iterator[None]:
    """Hands options to an environment for a reset, and takes back what is left.

    Programs for Gymnasium and PettingZoo pass options to what has none. Of those that
    are lost so, a line in the log tells.

    Args:
        env: The environment.
        options: Those of a single one, or a list with those of each row; `None` or an
            empty dictionary for none.
        rows: In a batch, a mask of the rows that are to be reset; `None` for all.
    """
    is_by_row = isinstance(options, list)
    given = [own for own in options if own] if is_by_row else options
    try:
        if given:
            hand_options(env, options, rows)
    except NotImplementedError as error:
        reason = str(error).partition("\n")[0]
        _LOGGER.warning(
            "reset(options=...) has not reached %s: %s", type(env).__name__, reason
        )
    try:
        yield
    finally:
        if given:
            hand_options(env, None, rows)


def check_single(env: Any, *, adapter: str, library: str) -> None:
    """Raises unless this can be a single environment of the library."""
    # Asked of the innermost: some wrappers warn about such questions.
    if hasattr(getattr(env, "unwrapped", env), "single_observation_space"):
        raise TypeError(
            f"{adapter} was given the vector environment {type(env).__name__}; it "
            "takes a single environment."
        )
    needed = ("reset", "step", "observation_space", "action_space")
    missing = [name for name in needed if not hasattr(env, name)]
    if missing or isinstance(env, type):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{adapter} was given {what}, which is not an environment of {library}. "
            f"{library.lower()}.make(...) makes one."
        )


def name_of(env: Any) -> str:
    """Returns the id that an environment is registered with, or its class's name."""
    registered_as = getattr(getattr(env, "spec", None), "id", None)
    return registered_as or type(getattr(env, "unwrapped", env)).__name__


def as_discount(discount: float) -> float:
    """Returns a discount as a number, if it is one between 0 and 1."""
    number = float(discount)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"discount is {discount}; it lies between 0 and 1.")
    return number


def number_of(reward: Any) -> float | None:
    """Returns a reward as a number, if it is one, of whatever kind.

    Example:
        >>> from fractions import Fraction
        >>> number_of(Fraction(1, 2)), number_of(np.array([3])), number_of("3")
        (0.5, 3.0, None)
    """
    array = np.asarray(reward)
    if array.dtype == object and hasattr(reward, "__float__"):
        return float(reward)
    is_one = array.size == 1 and array.dtype.kind in "biuf"
    return float(array.reshape(())) if is_one else None


def check_render_mode(env: Any, name: str, mode: str) -> None:
    """Raises unless an environment of Gymnasium was made with this `render_mode`."""
    made_with = getattr(env, "render_mode", None)
    if made_with != mode:
        how = f"with render_mode={made_with!r}" if made_with else "without one"
        modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
        remedy = f"Make it with render_mode={mode!r}."
        if modes and mode not in modes:
            remedy = f"Its modes are: {listed(map(repr, modes))}."
        raise NotImplementedError(
            f"{name} cannot render {mode!r}: the render_mode of a Gymnasium "
            f"environment is chosen when it is made, and this one was made {how}. "
            f"{remedy}"
        )


def set_attribute(env: Any, name: str, value: Any, *, force: bool = True) -> bool:
    """Sets an attribute where it is, and if it is nowhere, on the outermost wrapper.

    Environments of Gymnasium know how since 1.0; for older ones this does the same.

    Args:
        env: The environment.
        name: The attribute.
        value: What to set it to.
        force: Whether it is set if nobody has it.

    Returns:
        Whether it was set.

    Example:
        >>> from types import SimpleNamespace
        >>> inner = SimpleNamespace(gravity=9.8)
        >>> set_attribute(SimpleNamespace(env=inner), "gravity", 1.6), inner
        (True, namespace(gravity=1.6))
    """
    # Not what older wrappers forward; and 1.0 knows no force.
    if force and hasattr(type(env), "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
        return True
    layers = [env]
    while (inner := getattr(layers[-1], "__dict__", {}).get("env")) is not None:
        layers.append(inner)
    owners = [layer for layer in layers if _is_own(layer, name)]
    if not (owners or force):
        return False
    setattr((owners or layers)[0], name, value)
    return True


def _is_own(layer: Any, name: str) -> bool:
    return name in getattr(layer, "__dict__", {}) or hasattr(type(layer), name)


def id_without_module(name: str) -> str:
    """Imports the module that stands before an id, if one does; returns the id."""
    module, _, bare_name = name.rpartition(":")
    if module:
        importlib.import_module(module)
    return bare_name


def limited_and_wrapped(
    env: PyEnvironment,
    max_episode_steps: int | None,
    time_limit_wrapper: Callable[[PyEnvironment, int], PyEnvironment],
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]],
) -> PyEnvironment:
    """Puts a limit around an environment, if there is one, and then the wrappers."""
    if max_episode_steps is not None and max_episode_steps > 0:
        env = time_limit_wrapper(env, max_episode_steps)
    for wrap in env_wrappers:
        env = wrap(env)
    return env
