"""Observations to infer specs from, beyond the first one: those of a trial run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.env_adapters.legality import LegalActions
from envkit.adapters.env_adapters.returned import Read
from envkit.specs.sampling import sample_spec_nest
from envkit.types import NestedSpec

__all__ = ["probe"]


def probe(
    reset: Callable[[], Read],
    step: Callable[[Any], Read],
    action_spec: NestedSpec,
    *,
    steps: int,
    legal: Callable[[Any], Any] | None,
    mask_of: LegalActions | None,
) -> list[Any]:
    """Plays random legal actions, and returns what was observed.

    Args:
        reset: Begins an episode.
        step: Takes an action of the specs.
        action_spec: The specs of an action.
        steps: How many there are.
        legal: Says of an observation what is legal, if anybody does.
        mask_of: Makes a mask of what it says.
    """
    rng = np.random.default_rng(0)
    observations = [reset().observation]
    for _ in range(steps):
        if legal is not None and mask_of is not None:
            places = np.flatnonzero(mask_of(legal(observations[-1])))
            action = rng.choice(places) if len(places) else 0
        else:
            action = sample_spec_nest(action_spec, rng)
        read = step(action)
        if read.observation is not None:
            observations.append(read.observation)
        if read.terminated or read.truncated:
            observations.append(reset().observation)
    return observations
