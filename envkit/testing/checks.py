"""`check_environment`: does an environment keep what environments promise?

The promises are the rows of a table, `CHECKS` in `envkit.testing.contract.table`; what
looks at them is beside it, by subject. This module decides which of them run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envkit import constructors
from envkit.specs.validation import describe
from envkit.testing.contract.findings import Broken, Skipped, raised
from envkit.testing.contract.table import CHECKS, Check
from envkit.testing.contract.trial import ActionFn, Trial, undisturbed_globals
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

__all__ = ["FEATURES", "check_environment"]

# What an environment may lack: its checks are then skipped, unless it is required.
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

    It plays several environments, single or batched, with random actions, and compares
    them: with their specs, with themselves after `set_state`, and with others that
    were treated differently. All checks run; those that failed are raised together.
    A batch is checked in the order of episodes that its `autoreset` says.
    What an environment does not have (`seed`, `get_state`, `render` or `get_info`
    raise `NotImplementedError`, `info_spec` declares nothing) is skipped, and the
    report says so.

    Args:
        make_env: Something to call that makes an environment, or a name that `make`
            knows. It is called some dozens of times.
        steps: The most steps that one game has. Most games end earlier, when every row
            has ended three episodes; one goes on to the last step, and step types,
            dtypes, shapes and bounds are all that is looked at there.
        seed: What the actions, and the environments that can be seeded, depend on.
        require: Features that must not be skipped: "episodes" (an episode ends within
            `steps`), "held_rows", "info", "info_spec", "masked_reset", "render",
            "seed" or "state".
        skip: Names of checks to leave out.
        action_fn: Called as `action_fn(time_step, rng)` to choose actions, for
            environments that do not take any action of their spec at any time.
        on_outcome: Called with the outcome of each check as soon as there is one, to
            show how far it is.

    Raises:
        CheckFailed: A promise is broken. It is an `AssertionError` too.

    Example:
        >>> from envkit.testing import CountingEnv, check_environment
        >>> report = check_environment(CountingEnv)
        >>> report.skipped["masked_reset"]
        'the environment is not batched'
        >>> check_environment(CountingEnv, require=["seed", "state"]).failed
        ()
    """
    make = _as_constructor(make_env)
    _check_names("require", require, FEATURES)
    _check_names("skip", skip, [check.name for check in CHECKS])
    trial = Trial(
        make,
        steps=_as_count("steps", steps, 1),
        seed=_as_count("seed", seed, 0),
        action_fn=action_fn,
    )
    causes: list[BaseException] = []
    outcomes: list[Outcome] = []
    with undisturbed_globals():
        trial.look_ahead()
        trial.close_all()
        for outcome in _outcomes(trial, set(require), set(skip), causes):
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
    report = EnvironmentReport(_name_of(trial, make_env), tuple(outcomes))
    if report.failed:
        raise CheckFailed.because(report) from (causes[0] if causes else None)
    return report


def _outcomes(
    trial: Trial,
    require: set[str],
    skip: set[str],
    causes: list[BaseException],
) -> Iterator[Outcome]:
    """Runs the checks in order; the exceptions behind failures go to `causes`."""
    # Of what failed, and of what could not run because of it: nobody looks further.
    dead: set[str] = set()
    for check in CHECKS:
        name, promise = check.name, check.promise
        blocking = [need for need in check.needs if need in dead]
        if name in skip:
            yield Outcome(name, promise, "skipped", "left out on request")
        elif blocking:
            dead.add(name)
            yield Outcome(name, promise, "skipped", f"rests on {blocking[0]!r}")
        else:
            outcome, cause = _outcome(trial, check, require)
            if outcome.status == "failed":
                dead.add(name)
                causes.extend(filter(None, [cause]))
            yield outcome


def _outcome(
    trial: Trial, check: Check, require: set[str]
) -> tuple[Outcome, BaseException | None]:
    name, promise = check.name, check.promise
    try:
        check.function(trial)
    except Skipped as reason:
        if reason.feature not in require:
            return Outcome(name, promise, "skipped", str(reason)), None
        text = f"{reason}, and it is required: require=[{reason.feature!r}]."
        return Outcome(name, promise, "failed", text), None
    except Broken as broken:
        return Outcome(name, promise, "failed", str(broken)), broken.__cause__
    except Exception as error:
        return Outcome(name, promise, "failed", str(raised(error))), error
    finally:
        trial.close_all()
    return Outcome(name, promise, "passed"), None


def _as_constructor(make_env: Any) -> Callable[[], Any]:
    if isinstance(make_env, str):
        return constructors.constructor(make_env)
    if hasattr(make_env, "time_step_spec") and not isinstance(make_env, type):
        kind = type(make_env).__name__
        raise TypeError(
            f"make_env is a {kind} object; check_environment needs something to call "
            "that makes one.\n\n"
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
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {describe(value)}; it is an integer.") from None
    if number < least:
        raise ValueError(f"{name} is {number}; it is at least {least}.")
    return number


def _check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(given, str):
        raise TypeError(f"{option} is a string; it is a list of names: [{given!r}].")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{option} has no name {unknown[0]!r}. The names are {', '.join(known)}."
        )


def _name_of(trial: Trial, make_env: Any) -> str:
    try:
        return trial.name
    except Exception:
        return getattr(make_env, "__qualname__", None) or repr(make_env)
    finally:
        trial.close_all()
