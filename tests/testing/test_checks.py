"""Tests of check_environment: it passes what is right and names what is wrong."""

from __future__ import annotations

import collections
import functools
import pickle
import random

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
    TimeStep,
    constructor,
    restart,
    termination,
    transition,
)
from envkit.envs import Catch
from envkit.errors import EnvkitError, MissingDependencyError
from envkit.realtime import RealTimeEnvironment
from envkit.registry import registered
from envkit.testing import (
    CheckFailed,
    CountingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    check_environment,
)
from envkit.testing.checks import CHECKS, FEATURES
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.wrappers import FixedLength, RecordEpisodeStatistics, TimeLimit
from tests.testing import mutants

NAMES = [check.name for check in CHECKS]

NESTED_SPEC = {
    "camera": BoundedArraySpec((4, 4, 3), np.uint8),
    "text": ArraySpec((), "<U3"),
    "bytes": ArraySpec((), "S3"),
}
VECTOR = BoundedArraySpec((2,), np.float32, -1, 1)


def failure_of(make_env, **options):
    """Returns the error that check_environment raises."""
    with pytest.raises(CheckFailed) as caught:
        check_environment(make_env, **options)
    return caught.value


@functools.cache
def failure_of_mutant(make_env):
    """Returns the error for a mutant; several tests look at the same one."""
    is_late = "Late" in make_env.__name__
    return failure_of(make_env, steps=200 if is_late else 80)


def message_of(error):
    """Returns the text without its last line, which counts all checks there are."""
    return str(error).rpartition("\n\nIn all: ")[0]


class DeclaringCounter(CountingEnv):
    def info_spec(self):
        return {"steps": ArraySpec((), np.int64)}

    def get_info(self):
        return {"steps": self._current_step}


def batch_of_counters():
    counters = [DeclaringCounter(), DeclaringCounter(3)]
    return BatchedPyEnvironment(counters, multithreading=False)


def batch_in_threads():
    return BatchedPyEnvironment([mutants.Walk() for _ in range(3)])


def nested_action():
    return NestedCountingEnv(nested_action=True)


def single_random():
    return RandomPyEnvironment(NESTED_SPEC, VECTOR)


def batched_random():
    return RandomPyEnvironment(NESTED_SPEC, VECTOR, batch_size=3)


class Hermit(EpisodeCountingEnv):
    """Takes what a process has once, such as a window, until it is closed."""

    taken = False

    def __init__(self):
        super().__init__()
        if Hermit.taken:
            raise RuntimeError("There is one already.")
        Hermit.taken = self._has_it = True

    def close(self):
        if self._has_it:
            Hermit.taken = self._has_it = False

    def _step(self, action):
        if not self._has_it:
            raise RuntimeError("It is closed.")
        return super()._step(action)


class SelfAwareHermit(Hermit):
    """Says that it is one."""

    one_per_process = True


def batch_of_a_hermit():
    return BatchedPyEnvironment([SelfAwareHermit()])


def wrapped_hermit():
    return TimeLimit(SelfAwareHermit(), 3)


def hermit_in_virtual_time():
    return RealTimeEnvironment(SelfAwareHermit, hz=10, host="virtual")


class OneStep(CountingEnv):
    """Has episodes of one step, without a MID."""

    def __init__(self):
        super().__init__(steps_per_episode=1)


class Endless(CountingEnv):
    """Has episodes that are longer than any game of the checks."""

    def __init__(self):
        super().__init__(steps_per_episode=10**9)


class WithoutActions(CountingEnv):
    """Takes no action at all."""

    def action_spec(self):
        return ()


class ManyRewards(CountingEnv):
    """Earns a nest of rewards."""

    def reward_spec(self):
        return {"food": ArraySpec((), np.float32), "toys": ArraySpec((2,), np.float32)}

    def _reset(self):
        self._current_step = 0
        return restart(self._observe(), reward_spec=self.reward_spec())

    def _step(self, action):
        self._current_step += 1
        reward = {"food": np.float32(1), "toys": np.ones(2, np.float32)}
        if self._current_step < 3:
            return transition(self._observe(), reward, outer_dims=())
        return termination(self._observe(), reward, outer_dims=())


class Sight:
    """Is equal to itself alone, as objects are."""


class Lock:
    """Neither compares nor pickles."""

    def __init__(self, number):
        self._number = number

    def __repr__(self):
        return f"lock {self._number}"

    def __reduce__(self):
        raise TypeError("This does not pickle.")

    def __deepcopy__(self, memo):
        return self


class Unknown(CountingEnv):
    """Observes NaN, and an object that differs from itself."""

    def observation_spec(self):
        return ArraySpec((2,), np.float64), ArraySpec((2,), object)

    def _observe(self):
        return np.array([np.nan, self._current_step]), np.array(
            [np.nan, Sight()], object
        )


class OneRow(mutants.Walks):
    """Is a batch of one."""

    rows = 1


class UnseededRows(mutants.Walks):
    """Is a batch that cannot be seeded."""

    def seed(self, seed):
        if seed is not None:
            raise NotImplementedError
        super().seed(None)


class Marathon(CountingEnv):
    """Has episodes longer than what is compared otherwise."""

    def __init__(self):
        super().__init__(steps_per_episode=250)


def random_without_actions():
    return RandomPyEnvironment(VECTOR, batch_size=3)


class Constant(CountingEnv):
    """Observes the same read-only array all the time."""

    _sight = np.zeros((), np.int32)
    _sight.setflags(write=False)

    def _observe(self):
        return self._sight


CORRECT = [
    mutants.Walk,
    mutants.Walks,
    mutants.SteadyWalks,
    mutants.Delegate,
    mutants.HandlesTheEndItself,
    mutants.Featureless,
    mutants.FeaturelessCounter,
    CountingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    nested_action,
    single_random,
    batched_random,
    batch_of_counters,
    batch_in_threads,
    OneStep,
    Endless,
    WithoutActions,
    ManyRewards,
    Unknown,
    Constant,
    OneRow,
    UnseededRows,
    SelfAwareHermit,
    batch_of_a_hermit,
    wrapped_hermit,
    hermit_in_virtual_time,
    Marathon,
    random_without_actions,
]


@pytest.mark.parametrize("make_env", CORRECT)
def test_a_correct_environment_passes(make_env):
    report = check_environment(make_env, steps=300 if make_env is Marathon else 80)
    assert () == report.failed
    assert sorted(NAMES) == sorted([*report.passed, *report.skipped])


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("name", registered())
def test_every_environment_that_make_knows_passes(name, batch_size):
    make_env = constructor(name, batch_size=batch_size)
    report = check_environment(make_env, steps=60, require=["render", "seed", "state"])
    assert () == report.failed


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=repr)
def test_a_broken_environment_fails_exactly_its_check(mutant):
    error = failure_of_mutant(mutant.make)
    assert mutant.checks == error.report.failed
    assert mutant.checks[0] == error.check


def test_every_check_catches_a_broken_environment():
    caught = {name for mutant in mutants.MUTANTS for name in mutant.checks}
    assert set(NAMES) == caught


def test_checks_rest_on_earlier_checks_only():
    later = [
        (check.name, need)
        for index, check in enumerate(CHECKS)
        for need in check.needs
        if need not in NAMES[:index]
    ]
    assert [] == later


def test_every_check_states_its_promise_in_one_line():
    promises = [check.function.__doc__.partition("\n")[0] for check in CHECKS]
    assert [] == [promise for promise in promises if not promise.endswith(".")]


def test_the_report_is_a_table_printed_row_by_row():
    told = []
    report = check_environment(
        "envkit.testing:CountingEnv",
        skip=[name for name in NAMES if name > "d"],
        on_outcome=told.append,
    )

    assert report.outcomes == tuple(told)
    assert str(report).startswith(
        "CountingEnv: 3 passed, 49 skipped of 52 checks.\n"
        "\n"
        "  passed   constructor               Each call makes another environment\n"
        "  skipped  interface                 It has the methods of an environment "
        "(left out on request)\n"
    )
    with pytest.raises(AttributeError):
        report.outcomes = ()


class NeedsAPackage(CountingEnv):
    """Cannot draw here."""

    def render(self, mode="rgb_array"):
        raise MissingDependencyError.needed_by(
            "render()", package="pygame", extra="atari"
        )


class AllTogether(mutants.Delegate):
    """Resets no row alone."""

    def reset(self):
        return self._env.reset()


def skipped(report):
    """Returns the names of the checks that were skipped, by the reason."""
    names = collections.defaultdict(set)
    for name, reason in report.skipped.items():
        names[reason].add(name)
    return names


SKIPPED = {
    "two new environments differ, and without seed() nothing can make them alike": (
        *(mutants.Featureless, {}),
        {"ignored_action", "independence", "own_arrays", "released_actions"},
    ),
    "no episode ended in 50 steps": (
        *(Endless, {"steps": 50}),
        {"ignored_action", "reset_after_last", "state_after_last", "step_after_last"},
    ),
    "render() needs pygame": (
        *(NeedsAPackage, {}),
        {"render", "render_kept", "render_mode", "render_stream"},
    ),
    "reset(mask) is not implemented": (AllTogether, {}, {"masked_reset", "other_rows"}),
    "step(action, mask) is not implemented": (mutants.SteadyWalks, {}, {"held_rows"}),
    "other seeds made no difference, so what an environment shows after earlier "
    "episodes may be meant": (CountingEnv, {}, {"reseeding"}),
    "left out on request": (
        *(mutants.DrawsAtRandom, {"skip": ["render_stream"]}),
        {"render_stream"},
    ),
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_a_check_that_cannot_run_is_skipped_with_its_reason(reason):
    make_env, options, names = SKIPPED[reason]
    assert names == skipped(check_environment(make_env, **options))[reason]


def test_checks_of_missing_features_are_skipped():
    report = check_environment(mutants.FeaturelessCounter)

    assert {
        "get_info() is not implemented": {"info", "info_kept", "info_stream"},
        "info_spec() declares nothing": {"info_spec"},
        "render() is not implemented": {name for name in NAMES if "render" in name},
        "seed() is not implemented": {"reseeding", "seeding"},
        "get_state() is not implemented": {name for name in NAMES if "state" in name},
        "the environment is not batched": {
            "held_rows",
            "masked_reset",
            "other_rows",
            "row_seeds",
            "seed_list",
            "wrong_action",
        },
    } == skipped(report)


@pytest.mark.parametrize("skip", [(), ("time_step", "plays", "fits_specs")])
def test_an_environment_limited_to_one_per_process_skips_one_check(skip):
    report = check_environment(SelfAwareHermit, skip=skip, require=["episodes", "seed"])
    usual = check_environment(EpisodeCountingEnv, skip=skip)
    assert {
        **usual.skipped,
        "independence": "a process may hold one such environment (one_per_process)",
    } == report.skipped


def test_the_report_says_how_to_declare_one_environment_per_process():
    error = failure_of(Hermit)

    assert "constructor" == error.check
    assert str(error).startswith(
        "Hermit fails the check 'constructor': The second make_env() raised "
        "RuntimeError: There is one already.\n\nIt was raised in test_checks.py, line "
    )
    assert (
        "The first environment was open. If a process may hold one at a time, let its "
        "property one_per_process return True; it is then closed before the next is "
        "made." in str(error)
    )


def test_a_batch_that_can_hold_rows_passes():
    check_environment(mutants.HoldsRows, require=["held_rows"])


def test_a_required_feature_must_not_be_missing():
    error = failure_of(mutants.FeaturelessCounter, require=["state", "seed"])

    assert ("seeding", "state") == error.report.failed
    assert (
        "FeaturelessCounter fails 2 checks: seeding, state.\n"
        "\n"
        "seeding: seed() is not implemented, and it is required: require=['seed'].\n"
        "\n"
        "state: get_state() is not implemented, and it is required: "
        "require=['state']." == message_of(error)
    )


@pytest.mark.parametrize(
    ("expected", "got", "difference"),
    [
        ({"a": 1}, {"a": 1}, None),
        ([np.nan], [np.nan], None),
        ({"a": 1}, {"b": 1}, ("['a']", "1 (int64)", "nothing")),
        ({"a": 1}, {}, ("['a']", "1 (int64)", "nothing")),
        ({}, {"b": 1}, ("['b']", "nothing", "1 (int64)")),
        (1, 1.0, ("", "1 (int64)", "1.0 (float64)")),
        ("yes", "no!", ("", "'yes' (<U3)", "'no!' (<U3)")),
        ({None}, {0}, ("", "{None} (object)", "{0} (object)")),
        (Lock(1), Lock(2), ("", "lock 1 (object)", "lock 2 (object)")),
    ],
)
def test_the_first_differing_leaf_is_reported(expected, got, difference):
    found = first_difference(snapshot(expected), snapshot(got))
    assert difference == (found and found[:3])


def test_every_feature_can_be_required():
    assert () == check_environment(batch_of_counters, require=FEATURES).failed


MISSING = {
    "episodes": "step_after_last",
    "info": "info",
    "info_spec": "info_spec",
    "render": "render",
    "seed": "seeding",
    "state": "state",
}


@pytest.mark.parametrize("feature", MISSING)
def test_a_missing_required_feature_fails_one_check(feature):
    class Bare(mutants.FeaturelessCounter):
        def __init__(self):
            super().__init__(steps_per_episode=10**6)

    error = failure_of(Bare, require=[feature], steps=30)

    assert (MISSING[feature],) == error.report.failed


def test_independent_failures_are_raised_together():
    class TwoMistakes(CountingEnv):
        def render(self, mode="rgb_array"):
            return super().render("rgb_array")

        def set_state(self, state):
            if state is not None:
                super().set_state(state)

    error = failure_of(TwoMistakes)

    assert (
        "TwoMistakes fails 2 checks: state_garbage, render_mode.\n"
        "\n"
        "state_garbage: set_state() accepted None.\n"
        "\n"
        "  expected   an exception\n"
        "  got        no exception\n"
        "\n"
        "A wrong state is noticed long after, if at all. Override _set_state() and "
        "leave set_state() to PyEnvironment, which looks at what it is given.\n"
        "\n"
        'render_mode: render("no such mode") raised nothing.\n'
        "\n"
        "  expected   an exception\n"
        "  got        array of shape (8, 8, 3), dtype uint8, values 0 … 0\n"
        "\n"
        "A mistyped mode should not go unnoticed: raise a NotImplementedError "
        "that lists the modes there are." == message_of(error)
    )


def test_the_failure_is_an_assertion_error_that_pickles():
    error = failure_of_mutant(mutants.FailsToReset)
    copied = pickle.loads(pickle.dumps(error))
    assert isinstance(error, AssertionError)
    assert isinstance(error, EnvkitError)
    assert "no server" == str(error.__cause__)
    assert ("plays", str(error)) == (copied.check, str(copied))
    assert error.report == copied.report


def test_checks_that_rest_on_a_failed_one_are_skipped():
    error = failure_of_mutant(mutants.NumPysGenerator)
    assert "rests on 'global_random'" == error.report.skipped["seeding"]
    assert "rests on 'seeding'" == error.report.skipped["own_arrays"]
    passed, skipped = len(error.report.passed), len(error.report.skipped)
    assert str(error).splitlines()[-1] == (
        f"In all: {passed} passed, 1 failed, {skipped} skipped of {len(NAMES)} checks."
    )


MESSAGES = {
    mutants.always_the_same_object: """\
Walk fails the check 'constructor': make_env() returned the same Walk object twice.

  expected   two environments
  got        one environment, two times

Make the environment inside the function, so that each call makes one.""",
    mutants.SpecOfWords: """\
SpecOfWords fails the check 'specs': observation_spec()['clock'] is not an ArraySpec.

  expected   an ArraySpec
  got        the string 'int32'

A spec is an ArraySpec or a BoundedArraySpec, or a nest of them.""",
    mutants.NewSpecEachTime: """\
NewSpecEachTime fails the check 'specs': action_spec() returned another spec at \
the next call.

  first   BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, maximum=2.0)
  then    BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, maximum=3.0)

The maximum differs: 2.0 and 3.0. Callers ask once and keep the spec: build the specs \
in __init__ and return them.""",
    mutants.ReturnsATuple: """\
ReturnsATuple fails the check 'time_step': reset() returned a tuple of 2 elements, \
not a TimeStep.

  expected   TimeStep(step_type, reward, discount, observation)
  got        a tuple of 2 elements

Build it with envkit.restart, transition, termination or truncation.""",
    mutants.OneStepTypeForAllRows: """\
OneStepTypeForAllRows fails the check 'time_step': reset() returned a step type of \
the wrong shape, in call 1.

  expected   one array of shape (3,)
  got        0 (int32)

There is one step type for each row of a batch, and a scalar where there is no \
batch.""",
    mutants.OutOfBounds: """\
OutOfBounds fails the check 'fits_specs': step() returned a time step that does not \
fit its spec at observation['clock'].

  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=8)
  got        array of shape (), dtype int32, values 12 … 12

The value 12 is above the maximum 8. The other 4 leaves fit.
This was step 3 of episode 1.""",
    mutants.forgets_to_return_it: """\
NoneType fails the check 'interface': make_env() returned None, not an environment.

  expected   a PyEnvironment
  got        None

Let the function end with the environment it has made: return env.""",
    mutants.EndsInSilenceLate: """\
EndsInSilenceLate fails the check 'long_game': step() went from MID to FIRST.

  expected   MID or LAST
  got        FIRST

An episode begins after a LAST, and only there.
This was step 143 after the first reset().""",
    mutants.LosesAKeyLate: """\
LosesAKeyLate fails the check 'long_game': step() returned a time step that does not \
fit its spec at observation.

  expected   the structure {'position': *, 'clock': *}
  got        a dict of 1 element

Key 'clock' is missing. The other 3 leaves fit.
This was step 142 after the first reset().""",
    mutants.LeavesBoundsLate: """\
LeavesBoundsLate fails the check 'long_game': step() returned a time step that does \
not fit its spec at observation['clock'].

  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=8)
  got        array of shape (), dtype int32, values 9 … 9

The value 9 is above the maximum 8. The other 4 leaves fit.
This was step 142 after the first reset().""",
    mutants.DividesByZero: """\
DividesByZero fails the check 'reward': step() returned a reward that is not finite, \
in step 1 of episode 1.

  expected   a finite number
  got        reward = nan (float32)

It spoils every sum, mean and gradient computed from it. numpy.seterr(all='raise') \
shows where it comes from.""",
    mutants.ReusedInfo: """\
ReusedInfo fails the check 'info_kept': Info 1 of 14 was overwritten later.

  returned   ['clock'] = 0 (int32)
  now        ['clock'] = 8 (int32)

A caller that keeps it would hold a later one instead: return a new one each time, \
with copies of arrays that are written to again.""",
    mutants.ResetReturnsMid: """\
ResetReturnsMid fails the check 'reset': The first reset() returned MID.

  expected   FIRST
  got        MID

An episode begins with envkit.restart(observation).""",
    mutants.ResetsAllRows: """\
ResetsAllRows fails the check 'grammar': step() went from MID to FIRST, after row 2, \
step 4 of its episode 1.

  expected   MID or LAST
  got        FIRST

Row 0 had ended, and row 2 had not: begin an episode only in the rows that ended.""",
    mutants.GoesOnAfterLast: """\
GoesOnAfterLast fails the check 'step_after_last': step() after LAST returned MID, \
after step 4 of episode 1.

  expected   FIRST
  got        MID

The step after LAST must begin the next episode and ignore its action. PyEnvironment \
does so if you pass it handle_auto_reset=True.""",
    mutants.RewardInFirst: """\
RewardInFirst fails the check 'first_reward': reset() returned a FIRST whose reward \
is not 0, in step 0 of episode 1.

  expected   reward = 0
  got        reward = 2.0 (float32)

No action has earned a reward yet; the last action's reward belongs to the LAST. \
envkit.restart(observation) sets it to 0.""",
    mutants.ReusedReward: """\
ReusedReward fails the check 'kept_results': A time step was overwritten after it was \
returned, in row 0, step 0 of its episode 1.

  returned   reward = [0.0, 0.0, 0.0] (float32)
  now        reward = [5.0, 5.0, 5.0] (float32)

Callers keep time steps, in a replay buffer for instance, and would find later values \
in them. Return copies of arrays you write to again: self._state.copy().""",
    mutants.SameArrayEachTime: """\
SameArrayEachTime fails the check 'separate_arrays': Two returned arrays share their \
memory: observation['clock'] of step 0 of episode 1 and observation['clock'] of step 1 \
of episode 1.

  expected   arrays that belong to the caller alone
  got        observation['clock'] and observation['clock'] in the same memory

Writing to one, to normalise it for instance, changes the other. Return a copy each \
time, or make the array read-only: array.setflags(write=False).""",
    mutants.SeedsEverybody: """\
SeedsEverybody fails the check 'global_random': seed() used a global random generator.

  expected   a generator of the environment's own
  got        NumPy's (np.random.seed, np.random.rand and so on) has moved

Anything else in the program moves it too, so a seed promises nothing. Draw everything \
from a generator of the environment's own, and make it anew in seed(): self._rng = \
np.random.default_rng(seed). \
If a library draws, give each environment generators of its own: \
PrivateRandomness(env), from envkit.wrappers.""",
    mutants.AnyNumberOfSeeds: """\
AnyNumberOfSeeds fails the check 'seed_list': seed() accepted 2 seeds for 3 rows.

  expected   a ValueError
  got        no exception

A list has one seed for each row: envkit.seeding.seed_per_row(seed, batch_size) checks \
that and returns them.""",
    mutants.StateWithoutClock: """\
StateWithoutClock fails the check 'state': A state taken in the middle of an episode \
does not bring back what followed, in step 1 from there.

  at first            step_type = 2 (int32)
  after set_state()   step_type = 1 (int32)

_get_state() has to hold all that later steps depend on: counters, positions, and the \
state of the random generator.""",
    mutants.RestoresAnotherTimeStep: """\
RestoresAnotherTimeStep fails the check 'state_time_step': After set_state(), \
current_time_step() is not that of the state.

  when saved   reward = 1.0 (float32)
  restored     reward = 0.0 (float32)

A policy acts on it next. Override _get_state() and _set_state(), and leave \
get_state() and set_state() to PyEnvironment, which keeps it.""",
    mutants.FloatPicture: """\
FloatPicture fails the check 'render': render("rgb_array") did not return a picture.

  expected   uint8 array of shape (height, width, 3)
  got        array of shape (4, 6, 3), dtype float64, values 0.0 … 0.0

Colours last, values from 0 to 255.""",
    mutants.ReusedCanvas: """\
ReusedCanvas fails the check 'render_kept': Picture 1 of 14 was overwritten later.

  returned   array of shape (4, 6, 3), dtype uint8, values 0 … 0
  now        array of shape (4, 6, 3), dtype uint8, values 8 … 8

72 of 72 elements differ, the first at index (0, 0, 0): 0 and 8. A video made of it \
would show one picture all the time: return a copy of the canvas.""",
    mutants.BroadcastsActions: """\
BroadcastsActions fails the check 'wrong_action': step() accepted an action with 1 row \
instead of 3.

  expected   a SpecError
  got        no exception

The call raised nothing, so a learner's mistake goes unnoticed. A wrong action should \
be refused before anything moves: compare its shape with (batch_size, *spec.shape).""",
    mutants.ClosesOnce: """\
ClosesOnce fails the check 'close': The second close() raised RuntimeError.

  expected   nothing happens
  got        This was closed already.

A caller cannot know that the environment is closed already: let close() return where \
there is nothing left to free.""",
}


@pytest.mark.parametrize("make_env", MESSAGES, ids=lambda make_env: make_env.__name__)
def test_a_failure_says_what_happened_where_and_what_to_do(make_env):
    assert MESSAGES[make_env] == message_of(failure_of_mutant(make_env))


def test_differing_arrays_are_shown_side_by_side():
    lines = str(failure_of_mutant(mutants.ResetsOthersInside)).splitlines()
    assert (
        "ResetsOthersInside fails the check 'other_rows': reset(mask) of other rows "
        "changes what row 1 does next." == lines[0]
    )
    assert lines[2].startswith("  without             observation = [")
    assert lines[3].startswith("  after reset(mask)   observation = [")


def test_an_exception_in_step_shows_its_origin():
    class Breaks(CountingEnv):
        def _step(self, action):
            if self._current_step == 2:
                raise OSError("no server\nat port 80")
            return super()._step(action)

    line = Breaks._step.__code__.co_firstlineno + 2

    assert (
        "Breaks fails the check 'plays': step() raised OSError: no server\n"
        "\n"
        "at port 80\n"
        "\n"
        f"It was raised in test_checks.py, line {line}, in _step.\n"
        "\n"
        "This came after step 2 of episode 1. The actions were drawn from "
        "action_spec(); if not all of them are allowed at any time, pass action_fn=, "
        "which chooses them." == message_of(failure_of(Breaks))
    )


def test_an_exception_outside_the_environment_is_reported():
    class TakesNothing(CountingEnv):
        def _step(self):
            return transition(self._observe(), 0.0)

    assert "plays" == failure_of(TakesNothing).check


def test_damage_by_a_written_array_is_reported_as_such():
    class UsesItsObservation(CountingEnv):
        def _step(self, action):
            (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)[
                int(self.current_time_step().observation) % 10**6
                if self._episodes == 0
                else 0
            ]
            return super()._step(action)

    error = failure_of(UsesItsObservation)

    assert ("own_arrays",) == error.report.failed
    assert (
        "UsesItsObservation fails the check 'own_arrays': Writing into arrays that "
        "were returned makes a later call fail." == str(error).splitlines()[0]
    )


def test_an_async_environment_is_referred_to_blocking():
    class Lazy(AsyncEnvironment):
        """Promises everything, and does nothing."""

    Lazy.__abstractmethods__ = frozenset()

    error = failure_of(Lazy)

    assert (
        "Lazy fails the check 'interface': Lazy is an AsyncEnvironment.\n"
        "\n"
        "  expected   a PyEnvironment\n"
        "  got        send() and recv()\n"
        "\n"
        "Check envkit.Blocking(env): it gives it step() and reset()."
        == message_of(error)
    )


class Chess(PyEnvironment):
    """Refuses actions that its mask does not allow, as the rules of a game do."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._legal = 0

    def observation_spec(self):
        return BoundedArraySpec((4,), np.int32, 0, 1)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 3)

    def _observe(self):
        return np.array(np.arange(4) == self._legal % 4, np.int32)

    def _reset(self):
        self._legal = 0
        return restart(self._observe())

    def _step(self, action):
        if action != self._legal % 4:
            raise ValueError("This move is against the rules.")
        self._legal += 1
        if self._legal < 6:
            return transition(self._observe(), 0.0)
        return termination(self._observe(), 1.0)

    def _get_state(self):
        return self._legal

    def _set_state(self, state):
        self._legal = state


def legal(time_step, rng):
    return rng.choice(np.flatnonzero(time_step.observation)).astype(np.int32)


@pytest.mark.parametrize(
    ("make_env", "action_fn", "check"),
    [
        (Chess, legal, "ignored_action"),
        (SelfAwareHermit, lambda time_step, rng: 0, "first_step"),
        (mutants.Walks, lambda *_: np.zeros((3, 2), np.float32), "row_seeds"),
    ],
)
def test_act_chooses_the_actions(make_env, action_fn, check):
    report = check_environment(
        make_env, steps=120, action_fn=action_fn, require=["episodes"]
    )
    assert check in report.passed


def test_unbounded_actions_are_drawn_near_zero():
    seen = []

    class Free(CountingEnv):
        def action_spec(self):
            return ArraySpec((2,), np.float32), BoundedArraySpec(
                (), np.float64, minimum=5.0
            )

        def _step(self, action):
            seen.append(action)
            return super()._step(action)

    check_environment(Free, skip=["released_actions"])

    free, above = zip(*seen, strict=True)
    assert 1 >= np.abs(free).max()
    assert (5 <= np.array(above)).all()
    assert (np.array(above) <= 6).all()


def test_global_generators_are_left_alone():
    states = [random.getstate(), pickle.dumps(np.random.get_state())]  # noqa: NPY002
    failure_of(mutants.NumPysGenerator, steps=50)
    check_environment(CountingEnv, steps=50)
    assert states == [random.getstate(), pickle.dumps(np.random.get_state())]  # noqa: NPY002


def test_every_environment_is_closed():
    open_envs = []

    class Counted(CountingEnv):
        def __init__(self):
            super().__init__()
            open_envs.append(self)

        def close(self):
            if self in open_envs:
                open_envs.remove(self)

    check_environment(Counted)

    assert [] == open_envs


def test_time_steps_of_other_libraries_are_accepted():
    class OtherTimeStep(TimeStep):
        """Has the name and the fields, and is not ours."""

        __slots__ = ()

    OtherTimeStep.__name__ = "TimeStep"

    class Foreign(CountingEnv):
        def _reset(self):
            return OtherTimeStep(*super()._reset())

        def _step(self, action):
            return OtherTimeStep(*super()._step(action))

    # A class of a function does not pickle.
    assert () == check_environment(Foreign, skip=["state_pickle"]).failed


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"make_env": None},
            TypeError,
            "make_env is None; check_environment needs something to call that makes an "
            "environment, or a name that envkit.make knows.",
        ),
        (
            {"make_env": CountingEnv()},
            TypeError,
            "make_env is a CountingEnv object; check_environment needs something to "
            "call that makes one.\n"
            "\n"
            "Several environments are made, to compare them with each other:\n"
            "\n"
            "  check_environment(CountingEnv(...))             # the finished dish\n"
            "  check_environment(CountingEnv)                  # the recipe\n"
            "  check_environment(lambda: CountingEnv(...))     "
            "# the recipe, with arguments",
        ),
        ({"steps": 0}, ValueError, "steps must be an integer of at least 1, got 0."),
        (
            {"steps": 1.5},
            TypeError,
            "steps must be an integer of at least 1, got 1.5.",
        ),
        ({"seed": -1}, ValueError, "seed must be an integer of at least 0, got -1."),
        ({"seed": None}, TypeError, "seed must be an integer of at least 0, got None."),
        (
            {"require": "seed"},
            TypeError,
            "require must be a list of names, got 'seed'.",
        ),
        (
            {"require": ["speed"]},
            ValueError,
            "require has no name 'speed'. Did you mean 'seed'? The names are episodes, "
            "held_rows, info, info_spec, masked_reset, render, seed, state.",
        ),
        (
            {"skip": ["speed"]},
            ValueError,
            "skip has no name 'speed'. Did you mean 'seeding' or 'specs'? The names "
            f"are {', '.join(NAMES)}.",
        ),
    ],
)
def test_an_invalid_argument_is_refused(arguments, kind, message):
    with pytest.raises(kind) as caught:
        check_environment(**{"make_env": CountingEnv} | arguments)
    assert message == str(caught.value)


def test_check_environment_plays_a_limited_number_of_steps():
    """Counts instead of measuring time: this is some milliseconds of work."""
    made, stepped = [], []

    class Counted(mutants.Walk):
        def __init__(self):
            super().__init__()
            made.append(self)

        def _step(self, action):
            stepped.append(self)
            return super()._step(action)

    check_environment(Counted)

    assert len(made) < 80
    assert len(stepped) < 3000


def test_one_game_is_played_for_the_given_number_of_steps():
    ages, longest = [], []

    class Counted(mutants.Ageing):
        def _step(self, action):
            time_step = super()._step(action)
            ages.append(self._age)
            return time_step

    class CountedEndless(Endless):
        def _step(self, action):
            longest.append(self._current_step)
            return super()._step(action)

    check_environment(Counted, steps=333)
    check_environment(CountedEndless, steps=77)

    # The other steps begin an episode after a LAST, every four to nine steps.
    assert 333 * 3 // 4 < max(ages) <= 333
    assert 77 == 1 + max(longest)


BATCHES = {
    "pool": lambda order: ParallelPyEnvironment(
        [functools.partial(CountingEnv, length) for length in (4, 2)],
        backend="inline",
        autoreset=order,
    ),
    "batch": lambda order: BatchedPyEnvironment(
        [CountingEnv(4), CountingEnv(2)], autoreset=order
    ),
    "built-in": lambda order: Catch(batch_size=2, autoreset=order),
    "wrapper": lambda order: RecordEpisodeStatistics(
        TimeLimit(BATCHES["pool"](order), 3)
    ),
    "padded": lambda order: FixedLength(BATCHES["batch"](order), 3),
}


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        *(("pool", order) for order in AutoReset),
        *((kind, AutoReset.SAME_STEP) for kind in BATCHES if kind != "pool"),
        ("batch", AutoReset.DISABLED),
        ("padded", AutoReset.DISABLED),
    ],
)
def test_batches_are_checked_in_each_order(kind, order):
    report = check_environment(
        lambda: BATCHES[kind](order),
        steps=30,
        require=["episodes", "masked_reset", "held_rows", "seed", "state"],
    )
    assert () == report.failed


class Stays(BatchedPyEnvironment):
    """Says SAME_STEP, and stands at the LAST."""

    def current_time_step(self):
        return self._shown

    def _step(self, action):
        self._shown = super()._step(action)
        return self._shown

    def _reset(self):
        self._shown = super()._reset()
        return self._shown


class GoesOn(BatchedPyEnvironment):
    """Says DISABLED, and begins the next episode with the next step."""

    autoreset = property(lambda self: AutoReset.DISABLED, lambda self, order: None)


class MovesOthers(BatchedPyEnvironment):
    """Steps rows that have not ended when others are reset."""

    def _reset_rows(self, mask):
        for row in np.flatnonzero(~mask):
            self._envs[row].step(0)
        begun = super()._reset_rows(mask)
        for shown, moved in zip(self._current_time_step, begun, strict=True):
            np.copyto(shown, moved)
        return begun


@pytest.mark.parametrize(
    ("make_batch", "order", "expected"),
    [
        (
            Stays,
            AutoReset.SAME_STEP,
            "current_time_step() after LAST returned LAST, after row 0, step 3 of its "
            "episode 1.",
        ),
        (
            GoesOn,
            AutoReset.DISABLED,
            "step() at the end of an episode was not refused.",
        ),
        (
            MovesOthers,
            AutoReset.DISABLED,
            "reset(mask) of rows that had ended changed row 1, after row 1, step 3 of "
            "its episode 1.",
        ),
    ],
    ids=["same_step", "disabled", "other rows"],
)
def test_a_broken_autoreset_order_is_found(make_batch, order, expected):
    def make_env():
        return make_batch([CountingEnv(3), CountingEnv(5)], autoreset=order)

    with pytest.raises(CheckFailed) as caught:
        check_environment(make_env, steps=40)

    assert expected in str(caught.value)


def test_an_interrupted_check_leaves_no_environment_open():
    made = []

    class Closing(CountingEnv):
        is_open = True

        def __init__(self):
            super().__init__()
            made.append(self)

        def close(self):
            self.is_open = False

        def seed(self, seed):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_environment(Closing)

    assert made
    assert not any(env.is_open for env in made)
