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
from typing import Any

from envkit.adapters.snapshot import layers_of

__all__ = ["calls_seed", "render_takes_mode", "reset_takes_seed"]

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
    *wrappers, innermost = [_parameters(layer, "reset") for layer in layers_of(env)]
    if not all("seed" in known or _takes_anything(known) for known in wrappers):
        return False
    if "seed" in innermost:
        return True
    return _takes_anything(innermost) and not callable(getattr(env, "seed", None))


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


def _parameters(layer: Any, method: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(getattr(layer, method)).parameters
    except (TypeError, ValueError):  # Something in C, which does not tell.
        return inspect.signature(lambda *args, **kwargs: None).parameters


def _takes_anything(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())
