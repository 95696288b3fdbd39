"""envkit's environments in Gymnasium's registry, as `envkit/CartPole-v1`.

| id                   | the environment                                              |
|----------------------|--------------------------------------------------------------|
| `envkit/CartPole-v1` | envkit's own, and so for each registered name                |
| `envkit/Acrobot-v1`  | Gymnasium's, in envkit's workers, and so for each of its ids |
|                      | whose name envkit does not have                              |
| `envkit/Make-v0`     | any that `envkit.make` makes: it takes `target=`             |

This module is loaded whenever a program imports envkit and Gymnasium, so it imports no
more than it needs to list the ids.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from envkit import registry

__all__ = ["NAMESPACE", "enter_names"]

NAMESPACE = "envkit"

_MAKE = "envkit.adapters.gymnasium.made:make"
_MAKE_UNLIMITED = "envkit.adapters.gymnasium.made:make_unlimited"
_MAKE_VEC = "envkit.adapters.gymnasium.made:make_vec"
# Facts about envkit's own environments. Finding out would import them.
_FACTS: dict[str, dict[str, Any]] = {
    # Its observation is always 0, and the checker warns of that.
    "Bandit-v1": {"disable_env_checker": True},
    "CartPole-v1": {"max_episode_steps": 500, "reward_threshold": 475.0},
    "GridWorld-v1": {"max_episode_steps": 100},
}


def enter_names() -> None:
    """Brings the ids of envkit's namespace in Gymnasium's registry up to date."""
    gymnasium = sys.modules["gymnasium"]
    if not hasattr(gymnasium, "register_envs"):
        return  # far too old: the adapters refuse versions before 1.0
    specs = _specs(gymnasium)
    for old in [spec for spec in gymnasium.registry.values() if _is_ours(spec)]:
        if old.id not in specs:
            del gymnasium.registry[old.id]
    # Not with `register`, which looks at the whole registry each time.
    for identifier, spec in specs.items():
        if gymnasium.registry.get(identifier) != spec:
            gymnasium.registry[identifier] = spec


def _specs(gymnasium: Any) -> dict[str, Any]:
    """Returns the specifications of all of envkit's ids."""
    own = [_generic()]
    for name in registry.registered():
        # Not every name can be an id.
        with contextlib.suppress(gymnasium.error.Error):
            own.append(_own(name))
    names = {spec.name for spec in own}
    theirs = [
        _pooled(spec)
        for spec in gymnasium.registry.values()
        if _is_theirs(spec) and spec.name not in names
    ]
    return {spec.id: spec for spec in [*own, *theirs]}


def _generic() -> Any:
    return _spec("Make-v0", _MAKE)


def _own(name: str) -> Any:
    facts = _FACTS.get(name, {})
    make = _MAKE_UNLIMITED if "max_episode_steps" in facts else _MAKE
    recipe = registry.constructor(name)
    # Gymnasium's workers know no names that only this program has registered.
    is_known = str(recipe.build).startswith("envkit.envs.")
    target = name if is_known else recipe
    return _spec(name, make, kwargs={"target": target}, **facts)


def _pooled(spec: Any) -> Any:
    """Returns the specification of one of Gymnasium's ids in envkit's namespace."""
    facts = ("max_episode_steps", "nondeterministic", "reward_threshold")
    return _spec(
        spec.id,
        _MAKE_UNLIMITED,
        kwargs={"target": f"gymnasium:{spec.id}"},
        **{name: getattr(spec, name) for name in facts},
    )


def _spec(name: str, entry_point: str, **facts: Any) -> Any:
    from gymnasium.envs.registration import EnvSpec

    return EnvSpec(
        f"{NAMESPACE}/{name}", entry_point, vector_entry_point=_MAKE_VEC, **facts
    )


def _is_ours(spec: Any) -> bool:
    return bool(spec.vector_entry_point == _MAKE_VEC)


def _is_theirs(spec: Any) -> bool:
    """Returns True for an id that Gymnasium itself registers, and can make."""
    point = spec.entry_point
    is_in_gymnasium = isinstance(point, str) and point.startswith("gymnasium.envs.")
    return is_in_gymnasium and spec.namespace is None
