"""Wrappers that build their environments: anew, or two of them."""

import copy
import functools
from typing import Any

from envkit.wrappers.rebuild_after import RebuildAfter
from envkit.wrappers.standby import StandbyEnvironment
from tests.wrappers.case import Case


def rebuilt(env: Any) -> RebuildAfter:
    """Builds copies of an environment in place of the environment."""
    return RebuildAfter(functools.partial(copy.deepcopy, env), episodes=2)


def standby(env: Any) -> StandbyEnvironment:
    """Builds two copies of an environment."""
    return StandbyEnvironment(functools.partial(copy.deepcopy, env))


# After how many episodes it builds again is not told by a seed.
UNTOLD = ("reseeding",)
PLAIN = ("catch", "gridworld")

CASES = [
    Case("rebuild_after", rebuilt, PLAIN, commutes=False, batched=False, skip=UNTOLD),
    Case("standby", standby, PLAIN, commutes=False, batched=False),
]
