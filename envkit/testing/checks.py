"""Checks that an environment keeps its promises: `check_environment`.

The promises are the rows of the table `CHECKS`. Each row is a function in
`envkit.testing.contract`, grouped by subject, whose docstring is the promise. It takes
a `Trial`, which makes and plays environments. It returns if the promise is kept, raises
`Broken` if it is not, and `Skipped` if it cannot be checked here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from envkit import registry
from envkit.extend import a_or_an, as_environment, describe
from envkit.testing.contract import (
    arrays,
    episodes,
    lifetime,
    randomness,
    rows,
    state,
    views,
)
from envkit.testing.contract.findings import Check, checked_names, run_checks
from envkit.testing.contract.trial import ActionFn, Trial, undisturbed_globals
from envkit.testing.report import EnvironmentReport, Outcome

__all__ = ["CHECKS", "FEATURES", "check_environment"]


_ENDS = ("step_after_last", "grammar", "fits_specs")
_STATE = ("state", "step_after_last")

CHECKS: tuple[Check, ...] = (
    Check(lifetime.constructor),
    Check(lifetime.interface, ("constructor",)),
    Check(lifetime.specs, ("interface",)),
    Check(episodes.time_step, ("specs",)),
    Check(episodes.plays, ("time_step",)),
    Check(episodes.fits_specs, ("time_step",)),
    Check(lifetime.stable_specs, ("plays",)),
    Check(episodes.reset, ("plays",)),
    Check(episodes.first_step, ("reset",)),
    Check(episodes.grammar, ("reset",)),
    Check(episodes.step_after_last, ("reset",)),
    Check(episodes.reset_after_last, ("step_after_last", "grammar")),
    Check(episodes.long_game, _ENDS),
    Check(episodes.first_reward, ("reset", "fits_specs")),
    Check(episodes.first_discount, ("reset", "fits_specs")),
    Check(episodes.discount, ("fits_specs",)),
    Check(episodes.reward, ("fits_specs",)),
    Check(episodes.current_time_step, ("plays",)),
    Check(arrays.kept_results, ("plays",)),
    Check(arrays.separate_arrays, ("kept_results",)),
    Check(arrays.unchanged_actions, ("plays",)),
    Check(randomness.global_random, ("plays",)),
    Check(randomness.seeding, ("global_random",)),
    Check(randomness.reseeding, ("seeding", "step_after_last", "kept_results")),
    Check(randomness.row_seeds, ("seeding", "step_after_last", "fits_specs")),
    Check(randomness.seed_list, ("seeding", "step_after_last")),
    Check(randomness.independence, ("seeding", "step_after_last", "kept_results")),
    Check(arrays.own_arrays, ("seeding", "separate_arrays")),
    Check(arrays.released_actions, ("seeding", "kept_results")),
    Check(episodes.ignored_action, ("seeding", "first_step", "step_after_last")),
    Check(state.state, ("global_random", "step_after_last", "kept_results")),
    Check(state.state_after_first, _STATE),
    Check(state.state_after_last, _STATE),
    Check(state.state_time_step, _STATE),
    Check(state.state_stream, ("state", "seeding")),
    Check(state.state_token, _STATE),
    Check(state.state_pickle, _STATE),
    Check(state.state_in_new_environment, _STATE),
    Check(state.state_garbage, _STATE),
    Check(views.render, ("plays",)),
    Check(views.render_mode, ("render",)),
    Check(views.render_kept, ("render",)),
    Check(views.render_stream, ("render", "seeding")),
    Check(views.info, ("plays",)),
    Check(views.info_spec, ("info",)),
    Check(views.info_kept, ("info",)),
    Check(views.info_stream, ("info_kept", "seeding")),
    Check(rows.masked_reset, _ENDS),
    Check(rows.other_rows, ("masked_reset", "seeding")),
    Check(rows.held_rows, (*_ENDS, "seeding")),
    Check(rows.wrong_action, ("plays",)),
    Check(lifetime.close, ("plays",)),
)

# Features that an environment may lack: their checks are skipped unless required.
FEATURES = (
    "episodes",
    "held_rows",
    "info",
    "info_spec",
    "masked_reset",
    "render",
    "seed",
    "state",
)


def check_environment(
    make_env: str | Callable[[], Any],
    *,
    steps: int = 1000,
    seed: int = 0,
    require: Sequence[str] = (),
    skip: Sequence[str] = (),
    action_fn: ActionFn | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> EnvironmentReport:
    """Checks that an environment keeps every promise of `PyEnvironment`.

    It plays several environments, single or batched, with random actions. It compares
    them with their specs, with themselves after `set_state`, and with others that were
    treated differently. All checks run, and the failures are raised together. A batch
    is checked in its own `autoreset` order. Checks of a feature that the environment
    lacks are skipped, and the report says so: `seed`, `get_state`, `render` or
    `get_info` raises `NotImplementedError`, or `info_spec` declares nothing.

    Args:
        make_env: A constructor of the environment, or a name that `make` knows. It is
            called several dozen times.
        steps: The maximum number of steps of one game. Most games end earlier, when
            every row has finished three episodes. One game runs to the last step, and
            only its step types, dtypes, shapes and bounds are checked.
        seed: The seed of the actions, and of environments that can be seeded.
        require: Features that must not be skipped: "episodes" (an episode ends within
            `steps`), "held_rows", "info", "info_spec", "masked_reset", "render", "seed"
            or "state".
        skip: Names of checks to leave out.
        action_fn: Called as `action_fn(time_step, rng)` to choose actions, for
            environments that do not accept every action of their spec at any time.
        on_outcome: Called with the outcome of each check as soon as it is known, to
            show progress.

    Raises:
        CheckFailed: A promise is broken. It is also an `AssertionError`.

    Example:
        >>> from envkit.testing import CountingEnv, check_environment
        >>> report = check_environment(CountingEnv)
        >>> report.skipped["masked_reset"]
        'the environment is not batched'
        >>> check_environment(CountingEnv, require=["seed", "state"]).failed
        ()
    """
    make = _as_constructor(make_env)
    require = checked_names("require", require, FEATURES)
    skip = checked_names("skip", skip, [check.name for check in CHECKS])
    steps, seed = _as_count("steps", steps, 1), _as_count("seed", seed, 0)
    called = getattr(make_env, "__qualname__", None) or repr(make_env)
    with undisturbed_globals():
        trial = Trial(make, called=called, steps=steps, seed=seed, action_fn=action_fn)
        return run_checks(
            CHECKS, trial, skip=skip, require=require, on_outcome=on_outcome
        )


def _as_constructor(make_env: Any) -> Callable[[], Any]:
    if isinstance(make_env, str):
        return registry.constructor(make_env)
    env = as_environment(make_env)
    if hasattr(env, "time_step_spec") and not isinstance(env, type):
        inner = (
            make_env if env is make_env else getattr(make_env, "unwrapped", make_env)
        )
        kind = type(inner).__name__
        raise TypeError(
            f"make_env is {a_or_an(kind)} object; check_environment needs something to "
            "call that makes one.\n\n"
            "Several environments are made, to compare them with each other:\n\n"
            f"  check_environment({kind}(...))             # the finished dish\n"
            f"  check_environment({kind})                  # the recipe\n"
            f"  check_environment(lambda: {kind}(...))     # the recipe, with arguments"
        )
    if not callable(make_env):
        raise TypeError(
            f"make_env is {describe(make_env)}; check_environment needs something to "
            "call that makes an environment, or a name that envkit.make knows."
        )
    return make_env  # type: ignore[no-any-return]  # callable() says so


def _as_count(name: str, value: Any, least: int) -> int:
    message = f"{name} must be an integer of at least {least}, got {value!r:.40}."
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(message) from None
    if number < least:
        raise ValueError(message)
    return number
