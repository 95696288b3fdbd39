"""Checking an environment against its own specs, under TF-Agents' name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.validation import explain
from envkit.types import NestedArray

__all__ = ["validate_py_environment"]


def validate_py_environment(
    environment: Any,
    episodes: int = 5,
    observation_and_action_constraint_splitter: Callable[[Any], tuple[Any, Any]]
    | None = None,
    action_constraint_suffix: str | None = None,
) -> None:
    """Plays random episodes and checks every time step against `time_step_spec()`.

    `envkit.testing.check_environment` checks far more; this is the test that TF-Agents
    users know.

    Args:
        environment: The environment, single or batched.
        episodes: How many episodes to play, counted over all rows of a batch.
        observation_and_action_constraint_splitter: Splits an observation into what a
            policy sees and a mask of legal actions; the random actions then obey it.
        action_constraint_suffix: In a nest of actions, constrains only those whose
            path ends so, such as `_constrained`.

    Raises:
        SpecError: A time step does not fit; it is a `ValueError`.
    """
    rng = np.random.default_rng()
    spec = environment.time_step_spec()
    batch_size = environment.batch_size if environment.batched is True else None
    outer_dims = () if batch_size is None else (batch_size,)
    time_step = environment.reset()
    _check(time_step, spec, outer_dims, environment, "reset()")
    played = 0
    while played < episodes:
        action = sample_spec_nest(environment.action_spec(), rng, outer_dims)
        if observation_and_action_constraint_splitter is not None:
            _, mask = observation_and_action_constraint_splitter(time_step.observation)
            action = _constrained(
                action,
                environment.action_spec(),
                mask,
                action_constraint_suffix,
                rng,
                outer_dims,
            )
        time_step = environment.step(action)
        _check(time_step, spec, outer_dims, environment, "step()")
        ended = int(np.count_nonzero(time_step.is_last()))
        played += ended
        if ended and batch_size is None and played < episodes:
            time_step = environment.reset()
            _check(time_step, spec, outer_dims, environment, "reset()")


def _check(
    time_step: Any, spec: Any, outer_dims: tuple[int, ...], environment: Any, call: str
) -> None:
    text = explain(
        time_step,
        spec,
        subject=f"{type(environment).__name__}.{call} returned a time step that",
        outer_dims=outer_dims,
    )
    if text is not None:
        raise SpecError(f"A time step does not match expected time_step_spec. {text}")


def _constrained(
    action: NestedArray,
    spec: Any,
    mask: Any,
    suffix: str | None,
    rng: np.random.Generator,
    outer_dims: tuple[int, ...],
) -> NestedArray:
    structure = nest.Structure(spec)
    leaves = structure.flatten(action)
    for index, (path, leaf_spec) in enumerate(
        zip(structure.paths, structure.leaves, strict=True)
    ):
        if suffix is None or path.strip("[]'\"").endswith(suffix):
            leaves[index] = _draw_allowed(leaf_spec, np.asarray(mask), rng, outer_dims)
    return structure.unflatten(leaves)


def _draw_allowed(
    spec: Any, mask: Any, rng: np.random.Generator, outer_dims: tuple[int, ...]
) -> Any:
    """Draws one of the values that a mask over the last axis allows."""
    allowed = np.broadcast_to(
        mask.astype(bool), (*outer_dims, *spec.shape, mask.shape[-1])
    )
    if not allowed.any(axis=-1).all():
        raise SpecError("The mask of legal actions allows none in at least one place.")
    scores = np.where(allowed, rng.random(allowed.shape), -1.0)
    return (scores.argmax(axis=-1) + spec.minimum).astype(spec.dtype)
