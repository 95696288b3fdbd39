"""What an environment of Gym understands, told by its methods and not by a version.

Gym changed its interface several times. Environments and wrappers of every age are
still around, and they stand around one another:

```
            reset returns            step returns  seeds            pictures
to 0.21     observation              4 values      seed(n)          render(mode)
to 0.25     observation              4 values      reset(seed=n)    render(mode)
0.26        (observation, info)      5 values      reset(seed=n)    render()
```

What a method returns can be seen when it returns. What it takes must be known before.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias

from envkit.adapters.snapshot import layers_of

__all__ = [
    "calls_seed",
    "render_takes_mode",
    "reset_needs",
    "reset_takes_options",
    "reset_takes_seed",
]

_Parameters: TypeAlias = Mapping[str, inspect.Parameter]

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def calls_seed(env: Any) -> bool:
    """Says whether `seed()` has to be called for an environment to be seeded.

    Gym's base class has had one until 0.25. From 0.22 on it seeds nothing that
    `reset(seed=...)` does not seed, too, and warns that it is going to disappear.
    """
    if not callable(getattr(env, "seed", None)):
        return False
    if not reset_takes_seed(env):
        return True
    return any(_has_own_seed(layer) for layer in layers_of(env))


def reset_takes_seed(env: Any) -> bool:
    """Says whether `reset` takes a seed, through all wrappers.

    Most wrappers of every age pass on what they are given, so the innermost decides. If
    that, too, takes anything, it is thought to know seeds where nothing else does.
    """
    wrappers, innermost = _resets(env)
    if not _all_take(wrappers, "seed"):
        return False
    if "seed" in innermost:
        return True
    return _takes_anything(innermost) and not callable(getattr(env, "seed", None))


def reset_takes_options(env: Any) -> bool:
    """Says whether `reset` takes options, through all wrappers; since Gym 0.22."""
    wrappers, innermost = _resets(env)
    return _all_take([*wrappers, innermost], "options")


def reset_needs(env: Any, name: str) -> bool:
    """Says whether `reset` has an argument of a name, without a default.

    That of the innermost environment is passed through wrappers which take it.
    """
    wrappers, innermost = _resets(env)
    known = innermost.get(name)
    is_needed = known is not None and known.default is known.empty
    return is_needed and _all_take(wrappers, name)


def _resets(env: Any) -> tuple[list[_Parameters], _Parameters]:
    """Returns the parameters of every wrapper's `reset`, and of the innermost's."""
    *wrappers, innermost = [_parameters(layer, "reset") for layer in layers_of(env)]
    return wrappers, innermost


def _all_take(resets: list[_Parameters], name: str) -> bool:
    return all(name in known or _takes_anything(known) for known in resets)


def render_takes_mode(env: Any) -> bool:
    """Says whether `render` is told what to return, and not the constructor."""
    for layer in layers_of(env):
        known = _parameters(layer, "render")
        if "mode" in known or any(p.kind in _POSITIONAL for p in known.values()):
            return True
        if all(p.kind is not p.VAR_POSITIONAL for p in known.values()):
            return False
    return True


def _has_own_seed(layer: Any) -> bool:
    method = getattr(layer, "seed", None)
    # Those of Gym's own classes do nothing, or call the next layer.
    return getattr(method, "__module__", None) not in ("gym.core", "gymnasium.core")


def _parameters(layer: Any, method: str) -> _Parameters:
    try:
        return inspect.signature(getattr(layer, method)).parameters
    except (TypeError, ValueError):  # Something in C, which does not tell.
        return inspect.signature(lambda *args, **kwargs: None).parameters


def _takes_anything(parameters: _Parameters) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())
