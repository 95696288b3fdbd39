"""Names for the actions of well-known games, whose libraries tell them only in prose.

`envkit play` derives keys from the names: `left` is an arrow, `fire` the space bar. An
action that is a quantity has two names, `lowest/highest`, or one name if only the
highest value means something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit.specs.arrays import ArraySpec, BoundedArraySpec

__all__ = ["NamedActions", "known_names"]

Names = tuple[str, ...]

_PUSHES = ("left", "nothing", "right")
_SWINGS = ("swing left", "nothing", "swing right")
_PUSH = ("left/right",)
_SWING = ("swing left/swing right",)

# A class may have several sets of actions, which differ in their number.
_GYMNASIUM: dict[str, tuple[Names, ...]] = {
    "AcrobotEnv": (_SWINGS,),
    "BipedalWalker": (("first hip", "first knee", "second hip", "second knee"),),
    "BlackJackJaxEnv": (("stick", "hit"),),
    "BlackjackEnv": (("stick", "hit"),),
    "CarRacing": (
        ("steer left/steer right", "gas", "brake"),
        ("nothing", "steer right", "steer left", "gas", "brake"),
    ),
    "CartPoleEnv": (("left", "right"),),
    "CartPoleJaxEnv": (("left", "right"),),
    "CliffWalkingEnv": (("up", "right", "down", "left"),),
    "CliffWalkingJaxEnv": (("up", "right", "down", "left"),),
    "Continuous_MountainCarEnv": (_PUSH,),
    "FrozenLakeEnv": (("left", "down", "right", "up"),),
    "LunarLander": (
        ("nothing", "left engine", "main thrust", "right engine"),
        ("main thrust", "left engine/right engine"),
    ),
    "MountainCarEnv": (_PUSHES,),
    "PendulumEnv": (_SWING,),
    "PendulumJaxEnv": (_SWING,),
    "TaxiEnv": (("south", "north", "east", "west", "pick up", "drop off"),),
}
_BSUITE: dict[str, tuple[Names, ...]] = {
    "Cartpole": (_PUSHES,),
    "CartpoleSwingup": (_PUSHES,),
    "Catch": (_PUSHES,),
    "MountainCar": (_PUSHES,),
}
_MINATAR = ("nothing", "left", "up", "right", "down", "fire")
_GYMNAX: dict[str, tuple[Names, ...]] = {
    "Acrobot": (_SWINGS,),
    "CartPole": (("left", "right"),),
    "Catch": (_PUSHES,),
    "ContinuousMountainCar": (_PUSH,),
    "MinAsterix": (_MINATAR[:5], _MINATAR),
    "MinBreakout": (("nothing", "left", "right"), _MINATAR),
    "MinFreeway": (("nothing", "up", "down"), _MINATAR),
    "MinSeaquest": (_MINATAR,),
    "MinSpaceInvaders": (("nothing", "left", "right", "fire"), _MINATAR),
    "MountainCar": (_PUSHES,),
    "Pendulum": (_SWING,),
}
_LIBRARIES = {
    "bsuite": _BSUITE,
    "gym": _GYMNASIUM,
    "gymnasium": _GYMNASIUM,
    "gymnax": _GYMNAX,
}
_INNER = ("env", "_env")


class NamedActions:
    """Names the actions of a library's well-known games, for adapters."""

    _foreign: Any
    _action_spec: Any

    @property
    def action_names(self) -> Any:
        """The names of the actions, or of an action's numbers.

        They are the environment's own, if it has some; otherwise those that envkit
        knows. An environment without names lacks the attribute.
        """
        for layer in _layers(self._foreign):
            if (own := getattr(layer, "action_names", None)) is not None:
                return own
        if names := known_names(self._foreign, self._action_spec):
            return names
        # Python then asks `__getattr__`, which explains that there is none.
        raise AttributeError("action_names")


def known_names(env: Any, spec: Any) -> Names:
    """Returns the names of the actions of a library's environment; `()` if unknown.

    Args:
        env: The library's environment, with or without wrappers.
        spec: The spec of its actions.
    """
    count = _count(spec)
    for layer in _layers(env):
        for kind in type(layer).__mro__:
            known = _LIBRARIES.get(kind.__module__.partition(".")[0], {})
            for names in known.get(kind.__name__, ()):
                if len(names) == count:
                    return names
    return ()


def _layers(env: Any) -> Iterator[Any]:
    """Yields an environment's wrappers, and the environment last."""
    seen: list[Any] = []
    while env is not None and not any(env is layer for layer in seen):
        yield env
        seen.append(env)
        found = (getattr(env, "__dict__", {}).get(name) for name in _INNER)
        env = next((inner for inner in found if inner is not None), None)


def _count(spec: Any) -> int:
    """Returns the number of actions to choose from, or of numbers in an action."""
    if isinstance(spec, BoundedArraySpec) and spec.shape == ():
        if spec.dtype.kind in "iu":
            return int(spec.maximum) - int(spec.minimum) + 1
        return 1
    return int(np.prod(spec.shape)) if isinstance(spec, ArraySpec) else 0
