"""The names in a class of environments are its author's, apart from the hooks."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    StepType,
    TimeStep,
    restart,
    termination,
    transition,
)
from envkit.wrappers import PyEnvironmentBaseWrapper

HOOKS = {
    "_current_time_step",
    "_get_state",
    "_handle_auto_reset",
    "_reset",
    "_reset_rows",
    "_seed_rows",
    "_set_state",
    "_step",
    "_step_rows",
}
# The private names that `PyEnvironment` put into a subclass before they were moved
# behind one, together with the hooks and with `_abc_impl`, which is Python's.
ONCE_TAKEN = [
    "_abc_impl",
    "_as_mask",
    "_as_moves",
    "_as_options",
    "_await_turn",
    "_begin_at_once",
    "_begins_at_once",
    "_begins_rows",
    "_begun_rows",
    "_changes_order",
    "_check_has_reset",
    "_check_may_choose",
    "_check_others_have_begun",
    "_checked",
    "_checked_order",
    "_checked_rows",
    "_current_time_step",
    "_direct",
    "_direct_row",
    "_ended_in",
    "_get_state",
    "_given_to",
    "_hand_seeds",
    "_handle_auto_reset",
    "_has_order",
    "_is_in_other_order",
    "_keep_seed",
    "_keep_told",
    "_keeper",
    "_late_error",
    "_made_by",
    "_made_from",
    "_made_of",
    "_merge",
    "_merge_structure",
    "_move_in_order",
    "_move_plainly",
    "_moved",
    "_moves_in_other_order",
    "_moves_plainly",
    "_noted_seed",
    "_options_of_reset",
    "_order_keeper",
    "_order_kept",
    "_overrides_should_reset",
    "_packages_behind",
    "_padding_rows",
    "_plainly",
    "_refuse_mask",
    "_refuse_order",
    "_refuse_overridden_template",
    "_refuse_seeds",
    "_reset",
    "_reset_in_order",
    "_reset_masked",
    "_reset_rows",
    "_reset_rows_takes",
    "_reset_takes",
    "_reset_with",
    "_seed_of_reset",
    "_seed_rows",
    "_seeds_rows",
    "_set_state",
    "_step",
    "_step_and_reset",
    "_step_or_reset",
    "_step_rows",
    "_take_options",
    "_take_order_of",
    "_take_seed",
    "_takes_options",
    "_takes_turns",
    "_told_of_last",
]
# Others that came and went, or that envkit reads of its own environments.
LATER_TAKEN = [
    "_accepts_options",
    "_check_open",
    "_closes_at_once",
    "_reset_ahead",
    "_same_ahead",
    "_finish_first",
    "_finish_row",
    "_looks_closely",
    "_note_reliance",
    "_overrides_step",
    "_resets_itself",
    "_thread_turn",
    "_unseen",
]
TAKEN_IN_WRAPPERS = [
    "_check_holds_rows",
    "_check_knows_rows",
    "_check_resets_rows",
    "_is_at_once",
    "_moves_rows",
    "_refuse_batch",
    "_resets_rows",
    "_fits",
    "_restore",
    "_save",
]
NAMES = [
    name
    for name in ONCE_TAKEN + LATER_TAKEN
    if name not in HOOKS and name != "_abc_impl"
]
ORDERS = list(AutoReset)
FIRST, MID, LAST = (int(kind) for kind in (StepType.FIRST, StepType.MID, StepType.LAST))


class Walk(PyEnvironment):
    """Adds actions up for three steps, from a number that its seed draws."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self.rng, self.place, self.clock = np.random.default_rng(5), 0, 0

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 9)

    def _reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.clock, self.place = 0, (options or {}).get("place")
        if self.place is None:
            self.place = int(self.rng.integers(100))
        return restart(np.array(self.place))

    def _step(self, action):
        self.use_names()
        self.clock, self.place = self.clock + 1, self.place + int(action)
        ends = termination if self.clock == 3 else transition
        return ends(np.array(self.place), reward=1.0)

    def get_info(self):
        return {"clock": np.array(self.clock)}

    def _get_state(self):
        return self.rng, self.place, self.clock

    def _set_state(self, state):
        self.rng, self.place, self.clock = state

    def use_names(self):
        """Calls the author's helpers, in the classes that have some."""

    def own_names(self):
        """Returns the author's attributes, in the classes that have some."""
        return {}


class Walks(Walk):
    """Is two such walks."""

    batched = True
    batch_size = 2

    def __init__(self):
        super().__init__()
        self.rngs = [np.random.default_rng(row) for row in range(2)]
        self.place, self.clock = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def _reset(self, seed=None, options=None):
        return self._reset_rows(np.ones(2, bool), seed, options)

    def _reset_rows(self, mask, seed=None, options=None):
        for row in np.flatnonzero(mask):
            if seed is not None and seed[row] is not None:
                self.rngs[row] = np.random.default_rng(seed[row])
            told = (options or [None, None])[row] or {}
            drawn = self.rngs[row].integers(100)
            self.place[row], self.clock[row] = told.get("place", drawn), 0
        return restart(self.place.copy(), batch_size=2)

    def _step(self, action):
        return self._step_rows(action, np.ones(2, bool), np.zeros(2, bool))

    def _step_rows(self, action, stepping, beginning):
        self.use_names()
        self.clock[stepping] += 1
        self.place[stepping] += np.asarray(action)[stepping]
        step_type = np.where(self.clock < 3, MID, LAST)
        if beginning.any():
            self._reset_rows(beginning)
            step_type[beginning] = FIRST
        return TimeStep(
            step_type.astype(np.int32),
            (step_type != FIRST).astype(np.float32),
            (step_type != LAST).astype(np.float32),
            self.place.copy(),
        )

    def get_info(self):
        return {"clock": self.clock.copy()}

    def _get_state(self):
        return self.rngs, self.place, self.clock

    def _set_state(self, state):
        self.rngs, self.place, self.clock = state


class Twice(PyEnvironmentBaseWrapper):
    """Shows everything twice as large."""

    _kept = ("last",)

    def __init__(self, env):
        super().__init__(env)
        self.last = np.zeros(self._dims)

    def _see(self, time_step, rows):
        self.use_names()
        self.last = 2 * np.asarray(time_step.observation)
        return time_step._replace(observation=self.last.copy())

    def use_names(self):
        """Calls the author's helpers, in the classes that have some."""

    def own_names(self):
        """Returns the author's attributes, in the classes that have some."""
        return {}


def names_of(base):
    """Returns the names that an author may use in a subclass of a class."""
    more = TAKEN_IN_WRAPPERS if issubclass(base, PyEnvironmentBaseWrapper) else []
    return NAMES + more


class Attributes:
    """Has an attribute of its own with each name."""

    def __init__(self, *args):
        self.give_names()
        super().__init__(*args)
        self.use_names()
        self.give_names()

    def give_names(self):
        for number, name in enumerate(names_of(type(self))):
            setattr(self, name, number)

    def use_names(self):
        assert {} == self.changed()

    def changed(self):
        names = names_of(type(self))
        mine = {name: getattr(self, name) for name in names}
        return {name: mine[name] for k, name in enumerate(names) if mine[name] != k}

    def own_names(self):
        return self.changed()


def helper(name):
    """Returns a method that takes two arguments and returns them."""

    def method(self, first, *, second):
        return name, first, second

    return method


class Helpers:
    """Calls a helper of its own with each name."""

    def use_names(self):
        for name in names_of(type(self)):
            assert (name, 1, 2) == getattr(self, name)(1, second=2)

    def own_names(self):
        self.use_names()
        return {}


class Constants:
    """Has a constant of its own with each name, on the class."""

    def use_names(self):
        for name in names_of(type(self)):
            assert f"the author's {name}" == getattr(self, name)

    def own_names(self):
        self.use_names()
        return {}


def in_class(kind, base):
    """Returns a subclass whose author uses all names, in one way."""
    made = {
        Attributes: lambda name: None,
        Helpers: helper,
        Constants: "the author's {}".format,
    }[kind]
    own = {} if kind is Attributes else {name: made(name) for name in names_of(base)}
    return type(f"{base.__name__}With{kind.__name__}", (kind, base), own)


KINDS = [Attributes, Helpers, Constants]


def play(env):
    """Uses an environment in every way, and returns all that it has shown."""
    shown = []
    rows = np.arange(env.batch_size or 0)
    action = np.array(2) if not rows.size else np.full(rows.size, 2)

    def show(time_step):
        shown.append([np.asarray(leaf).tolist() for leaf in time_step])
        shown.append(str(env.get_info()))  # of batches in a pool a list
        ended = np.atleast_1d(time_step.step_type) == LAST
        if env.autoreset is AutoReset.DISABLED and ended.any():
            shown.append(env.reset(ended).observation.tolist())

    show(env.reset(seed=3))
    for _ in range(5):
        show(env.step(action))
    show(env.reset(options={"place": 40}))
    env.seed(11)
    show(env.reset())
    show(env.step(action))
    state = env.get_state()
    for _ in range(5):
        show(env.step(action))
    env.set_state(state)
    for _ in range(5):
        show(env.step(action))
    if rows.size:
        first = rows == 0
        show(env.reset(first, seed=[7, *[None] * (rows.size - 1)]))
        show(env.reset(first, options={"place": 30}))
        show(env.step_rows(action, ~first, first))
        if env.holds_rows:
            show(env.step(action, first))
    shown.append(env.provenance()["seed"])
    return shown


def in_order(make, order):
    """Plays in an order, and returns what was shown, and which names have changed."""
    env = make()
    env.autoreset = order
    try:
        shown = play(env)
        changed = env.call("own_names") if hasattr(env, "call") else [env.own_names()]
        return shown, changed
    finally:
        env.close()


def check(make, kind, base, order):
    """Compares an author's class that uses all names with one that uses none."""
    plain, _ = in_order(lambda: make(base), order)
    shown, changed = in_order(lambda: make(in_class(kind, base)), order)
    assert plain == shown
    assert all({} == one for one in changed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_environment_may_use_every_name(kind):
    check(lambda cls: cls(), kind, Walk, AutoReset.NEXT_STEP)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_may_use_every_name(kind, order):
    check(lambda cls: cls(), kind, Walks, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_batch_may_use_every_name(kind, order):
    def make(cls):
        env = BatchedPyEnvironment([cls(), cls()], multithreading=False)
        env.own_names = lambda: env.envs[0].own_names() or env.envs[1].own_names()
        return env

    check(make, kind, Walk, order)


@pytest.mark.parametrize("base", [Walk, Walks])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_environments_in_a_pool_may_use_every_name(kind, order, base):
    def make(cls):
        return ParallelPyEnvironment([cls] * 2, backend="inline")

    check(make, kind, base, order)


@pytest.mark.parametrize("kind", KINDS)
def test_environments_in_processes_may_use_every_name(kind):
    def make(cls):
        return ParallelPyEnvironment([cls] * 2, num_workers=1, start_method="fork")

    check(make, kind, Walk, AutoReset.SAME_STEP)


@pytest.mark.parametrize("inside", [Walk, Walks])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrapper_may_use_every_name(kind, order, inside):
    if inside is Walk and order is not AutoReset.NEXT_STEP:
        with pytest.raises(ValueError, match="orders are for the rows of a batch"):
            in_class(kind, Twice)(inside()).autoreset = order
        return
    check(lambda cls: cls(in_class(kind, inside)()), kind, Twice, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_wrappers_in_a_pool_may_use_every_name(kind, order):
    def make(cls):
        one = functools.partial(wrapped, cls, in_class(kind, Walk))
        return ParallelPyEnvironment([one] * 2, backend="inline")

    check(make, kind, Twice, order)


def wrapped(wrapper, cls):
    return wrapper(cls())


@pytest.mark.parametrize("base", [Walk, Walks])
def test_a_copy_keeps_the_names_of_its_author(base):
    env = in_class(Attributes, base)()
    env.reset()
    other = copy.deepcopy(env)
    assert {} == other.own_names()
    assert play(env) == play(other)


def private_names(env):
    return {name for name in dir(env) if name[0] == "_" and name[:2] != "__"}


@pytest.mark.parametrize("make", [Walk, Walks])
def test_envkit_takes_12_private_names_at_most(make):
    env = make()
    play(env)
    taken = private_names(env)
    assert taken >= HOOKS
    assert len(taken) <= 12


def test_a_wrapper_takes_the_documented_names_beside_those():
    env = Twice(Walks())
    env.autoreset = "same_step"
    play(env)
    documented = {"_act", "_dims", "_env", "_kept", "_see", "_shown"}
    assert documented == private_names(env) - private_names(Walks())


def test_instances_share_the_facts_about_their_class():
    envs = [Walk(), Walk()]
    for env in envs:
        for _ in range(5):
            env.step(1)
    (name,) = private_names(envs[0]) - HOOKS - {"_abc_impl"}
    assert getattr(envs[0], name) is getattr(envs[1], name)
