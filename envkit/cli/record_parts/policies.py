"""Who acts in a recording: chance, or what somebody has named."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.specs.sampling import sample_spec_nest
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import NestedArray

__all__ = ["RANDOM", "Policy", "load_policy"]

Policy = Callable[[TimeStep], NestedArray]

RANDOM = "random"
_ENVIRONMENTS = ("env", "environment")


def load_policy(name: str, env: Any, seed: int | None) -> Policy:
    """Returns what chooses actions.

    Args:
        name: "random", or "module:attribute": something to call with a time step. A
            class is made first, and so is what a function makes whose first argument
            is called `env`; both get the environment, if they take an argument.
        env: The environment that it is for.
        seed: What chance depends on.

    Example:
        >>> from envkit import make
        >>> env = make("Catch", seed=1)
        >>> int(load_policy("random", env, seed=3)(env.reset()))
        2
    """
    if name == RANDOM:
        rng = np.random.default_rng(seed)
        dims = () if env.batch_size is None else (env.batch_size,)
        spec = env.action_spec()
        return lambda _: sample_spec_nest(spec, rng, dims)
    policy: Any = _attribute(name)
    if inspect.isclass(policy):
        make_policy: Any = policy
        policy = make_policy(env) if _first_parameter(policy) else make_policy()
    elif _first_parameter(policy) in _ENVIRONMENTS:
        policy = policy(env)
    if not callable(policy):
        raise TypeError(
            f"The policy {name!r} is {describe(policy)}; it is something to call with "
            "a time step, which returns an action."
        )
    return policy  # type: ignore[no-any-return]  # it can be called


def _attribute(name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ValueError(
            f"The policy is {name!r}; it is 'random' or 'module:attribute', such as "
            "my_package.agents:act."
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"The policy {name!r} cannot be imported: {error}.") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(
                f"The policy {name!r} cannot be imported: {module_name} has no "
                f"{attribute}."
            )
        found = getattr(found, part)
    return found


def _first_parameter(function: Any) -> str:
    """Returns the name of the first argument; "" if there is none or nobody knows."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return ""
    return parameters[0].name
