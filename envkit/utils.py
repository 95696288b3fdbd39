"""TF-Agents' `utils`: a check of specs, and conversion to TensorFlow."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.entry_points import loaded, own
from envkit._internal.first_look import leave_unseen
from envkit._internal.objects import as_environment
from envkit.errors import SpecError
from envkit.policies import RandomActions
from envkit.py_environment import PyEnvironment
from envkit.specs.validation import describe, explain
from envkit.types import NestedArray

__all__ = ["get_tf_env", "validate_py_environment"]


def get_tf_env(environment: Any) -> Any:
    """Wraps an environment for TensorFlow; returns a TensorFlow environment unchanged.

    Raises:
        ValueError: The argument is not an environment.
    """
    if not isinstance(environment, PyEnvironment) and not hasattr(environment, "step"):
        raise ValueError(
            f"get_tf_env() was given {describe(environment)}; it takes an environment "
            "of Python or of TensorFlow."
        )
    return loaded(own("envkit.tensorflow")["environment"])(environment)


def validate_py_environment(
    environment: Any,
    episodes: int = 5,
    observation_and_action_constraint_splitter: Callable[[Any], tuple[Any, Any]]
    | None = None,
    action_constraint_suffix: str | None = None,
) -> None:
    """Plays random episodes and checks every time step against `time_step_spec()`.

    `envkit check` checks far more; this is the test that TF-Agents users know.

    Args:
        environment: The environment, single or batched.
        episodes: How many episodes to play, summed over all rows of a batch.
        observation_and_action_constraint_splitter: Splits an observation into the
            policy's observation and a mask of legal actions; random actions obey the
            mask.
        action_constraint_suffix: Without a splitter, the suffix of the observation's
            masks: with `_mask`, the entry `move_mask` says which values `move` may
            have.

    Raises:
        SpecError: A time step does not fit; the error is also a `ValueError`.
    """
    rng = np.random.default_rng()
    environment = as_environment(environment, "validate_py_environment() was given")
    spec = environment.time_step_spec()
    # An object that only resembles an environment may return anything for None.
    batch_size = environment.batch_size
    batched = isinstance(batch_size, numbers.Integral)
    outer_dims = (int(batch_size),) if batched else ()
    act = RandomActions(
        environment.action_spec(),
        rng,
        int(batch_size) if batched else None,
        environment,
    )
    leave_unseen(environment)
    time_step = environment.reset()
    _check(time_step, spec, outer_dims, environment, "reset()")
    played = 0
    while played < episodes:
        action = act(time_step)
        if observation_and_action_constraint_splitter is not None:
            _, mask = observation_and_action_constraint_splitter(time_step.observation)
            structure = nest.Structure(environment.action_spec())
            action = structure.unflatten(
                [
                    _draw_allowed(leaf, mask, rng, outer_dims)
                    for leaf in structure.leaves
                ]
            )
        elif action_constraint_suffix is not None:
            action = _constrained(
                action,
                environment.action_spec(),
                time_step.observation,
                action_constraint_suffix,
                rng,
                outer_dims,
            )
        time_step = environment.step(action)
        _check(time_step, spec, outer_dims, environment, "step()")
        ended = int(np.count_nonzero(time_step.is_last()))
        played += ended
        if ended and not batched and played < episodes:
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


def _last_name(path: str, spec: Any = None) -> str:
    named = path.replace("'", "").replace("]", "").replace("[", ".").split(".")[-1]
    return named or getattr(spec, "name", None) or ""


def _constrained(
    action: NestedArray,
    spec: Any,
    observation: NestedArray,
    suffix: str,
    rng: np.random.Generator,
    outer_dims: tuple[int, ...],
) -> NestedArray:
    """Redraws the actions for which the observation contains a mask."""
    masks = {
        _last_name(path): leaf for path, leaf in nest.flatten_with_paths(observation)
    }
    structure = nest.Structure(spec)
    leaves = structure.flatten(action)
    names = [
        _last_name(path, spec) + suffix
        for path, spec in zip(structure.paths, structure.leaves, strict=True)
    ]
    if not masks.keys() & set(names):
        raise ValueError(
            "No part of the observation has the name of an action and then "
            f"{suffix!r}: expected {' or '.join(names)}, found {', '.join(masks)}."
        )
    for index, (name, leaf) in enumerate(zip(names, structure.leaves, strict=True)):
        if name in masks:
            leaves[index] = _draw_allowed(leaf, masks[name], rng, outer_dims)
    return structure.unflatten(leaves)


def _draw_allowed(
    spec: Any, mask: Any, rng: np.random.Generator, outer_dims: tuple[int, ...]
) -> Any:
    """Draws one of the values that a mask over the last axis allows."""
    mask = np.asarray(mask)
    values = int(np.max(spec.num_values))
    shape = (*outer_dims, *spec.shape, values)
    shared = (*outer_dims, values)
    if mask.shape == shared:  # the same for every element of the action
        mask = mask.reshape(*outer_dims, *[1] * len(spec.shape), values)
    elif mask.shape != shape:
        raise SpecError(
            f"The mask of legal actions has the shape {mask.shape}; {shape} is "
            "expected: the shape of the action, and a place for each of its "
            f"{values} values."
        )
    allowed = np.broadcast_to(mask.astype(bool), shape)
    if not allowed.any(axis=-1).all():
        raise SpecError("The mask of legal actions allows none in at least one place.")
    scores = np.where(allowed, rng.random(allowed.shape), -1.0)
    return (scores.argmax(axis=-1) + spec.minimum).astype(spec.dtype)
