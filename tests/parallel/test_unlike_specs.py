"""Batches of environments whose specs differ: refused, united, or padded."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    constructor,
    make,
    nest,
)
from envkit.actions import ActionRows
from envkit.envs import Catch, TicTacToe
from envkit.errors import SpecError, SpecMismatchError
from envkit.parallel import (
    AsyncParallelPyEnvironment,
    ParallelPyEnvironment,
    RestartPolicy,
)
from envkit.recording import Record, Recording, rebuilt
from envkit.recording.replaying import check
from envkit.specs import EnvironmentSpec, sample_spec_nest
from envkit.specs.batching import common_spec
from envkit.testing import CountingEnv, CrashingEnv
from tests import strategies

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


class Level(CountingEnv):
    """Has as many doors as it is told, and observes how far each is open."""

    def __init__(self, doors=2, width=2, most=100, force=None):
        super().__init__(steps_per_episode=3)
        self._doors, self._width, self._most, self._force = doors, width, most, force
        self.given = []

    def observation_spec(self):
        far = BoundedArraySpec((self._width,), np.float32, 1, self._most)
        return {"doors": far, "count": BoundedArraySpec((), np.int32)}

    def action_spec(self):
        if self._force is not None:
            return BoundedArraySpec((2,), np.float32, -self._force, self._force)
        return BoundedArraySpec((), np.int64, 0, self._doors - 1)

    def get_given(self):
        return self.given

    def _step(self, action):
        self.given.append(np.asarray(action).tolist())
        return super()._step(action)

    def _observe(self):
        count = super()._observe()
        return {"doors": np.full(self._width, 1 + count, np.float32), "count": count}


def levels(*arguments):
    return [functools.partial(Level, *each) for each in arguments]


def batch(makers, **options):
    return BatchedPyEnvironment([maker() for maker in makers], **options)


def pool_on(backend, **fixed):
    return functools.partial(ParallelPyEnvironment, backend=backend, **fixed)


WAYS = [
    pytest.param(batch, id="batch"),
    pytest.param(pool_on("inline"), id="inline"),
    pytest.param(pool_on("thread"), id="thread"),
    pytest.param(pool_on("process", num_workers=2, start_method="fork"), id="process"),
]
everywhere = pytest.mark.parametrize("ways", WAYS)
NARROW, WIDE = (2, 2, 100), (5, 2, 900)


# Refused.


@everywhere
def test_by_default_specs_are_equal(ways):
    with pytest.raises(SpecMismatchError) as caught:
        ways(levels(NARROW, WIDE))
    assert str(caught.value).endswith(
        "The maximum differs at ['doors']: 100.0 and 900.0. Reward and discount specs "
        'agree.\nspecs="union" makes one batch, with the widest bounds.'
    )
    assert ((0, 1), "observation") == (caught.value.envs, caught.value.part)


@pytest.mark.parametrize("specs", ["equal", "union"])
def test_the_error_suggests_padding_if_it_would_help(specs):
    with pytest.raises(SpecMismatchError) as caught:
        batch(levels((2, 2), (2, 3)), specs=specs)
    assert str(caught.value).endswith(
        "The shape differs at ['doors']: (2,) and (3,). Action, reward and discount "
        'specs agree.\nspecs="pad" makes one batch: smaller observations are padded '
        "with zeros, and have a mask."
    )


@pytest.mark.parametrize("specs", ["equal", "union", "pad"])
@pytest.mark.parametrize(
    "other",
    [
        functools.partial(Level, force=1.0),
        CountingEnv,
        functools.partial(CountingEnv, dtype=np.int64),
        TicTacToe,
    ],
    ids=["action", "structure", "dtype", "both"],
)
def test_specs_that_cannot_be_unified_are_refused_without_a_hint(specs, other):
    with pytest.raises(SpecMismatchError) as caught:
        batch([CountingEnv if other is not CountingEnv else Level, other], specs=specs)
    assert "makes a batch" not in str(caught.value)


def test_ranks_that_differ_are_refused():
    class Deep(Level):
        def observation_spec(self):
            deep = BoundedArraySpec((2, 2), np.float32, 1, 100)
            return {**super().observation_spec(), "doors": deep}

    with pytest.raises(SpecMismatchError, match=r"\(2,\) and \(2, 2\)"):
        batch([Level, Deep], specs="pad")


@everywhere
def test_unknown_values_of_the_option_are_refused(ways, message_of):
    assert "specs must be one of 'equal', 'union', 'pad', got 'merge'." == message_of(
        ValueError, lambda: ways(levels(NARROW), specs="merge")
    )


# United.


@everywhere
def test_the_bounds_of_a_union_are_the_widest(ways):
    with ways(levels(NARROW, WIDE, (3, 2, 50)), specs="union") as env:
        spec = env.observation_spec()
        first = env.reset()
        second = env.step([1, 4, 2])

        assert BoundedArraySpec((2,), np.float32, 1, 900) == spec["doors"]
        assert BoundedArraySpec((), np.int64, 0, 4) == env.action_spec()
        assert [[1, 1]] * 3 == first.observation["doors"].tolist()
        assert [1, 1, 1] == second.observation["count"].tolist()


@everywhere
@pytest.mark.parametrize("specs", ["union", "pad"])
@pytest.mark.parametrize("validate", ["first", "never"])
def test_an_action_outside_the_bounds_of_its_row_is_refused(
    ways, specs, validate, message_of
):
    options = {} if ways is batch else {"validate": validate}
    with ways(levels(NARROW, WIDE), specs=specs, **options) as env:
        env.reset()
        env.step([1, 4])
        message = message_of(SpecError, lambda: env.step(np.array([4, 4])))
        after = env.step([1, 4]).observation
    count = after["observation"]["count"] if specs == "pad" else after["count"]

    assert message == (
        f"{type(env).__name__}.step() was given an action of row 0 that does not fit "
        "its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1)\n"
        "  got        4 of type int\n\n"
        "That is the spec of row 0; the bounds of the batch are the widest of all its "
        "rows.\nNone of the environments has moved."
    )
    assert [2, 2] == count.tolist()


@everywhere
def test_forces_outside_the_bounds_of_their_row_are_refused(ways, message_of):
    makers = [functools.partial(Level, force=force) for force in (1.0, 2.0)]
    with ways(makers, specs="union") as env:
        env.reset()
        env.step(np.array([[1, -1], [2, -2]], np.float32))
        message = message_of(
            SpecError, lambda: env.step(np.array([[1, 0], [0, 2.5]], np.float32))
        )

    assert "an action of row 1 that" in message


@everywhere
def test_the_action_of_a_row_that_begins_is_ignored(ways):
    with ways(levels(NARROW, WIDE), specs="union") as env:
        env.reset()
        while not env.step([0, 0]).is_last().all():
            pass
        assert env.step([4, 4]).is_first().all()


def test_actions_of_held_rows_are_ignored():
    with pool_on("inline")(levels(NARROW, WIDE), specs="union") as env:
        env.reset()
        time_step = env.step([4, 4], np.array([False, True]))
        assert [0, 1] == time_step.observation["count"].tolist()
        with pytest.raises(SpecError, match="row 0"):
            env.step([4, 4], np.array([True, False]))


def test_a_handle_checks_the_bounds_of_its_row():
    with pool_on("inline")(levels(NARROW, WIDE), specs="union") as env:
        env.reset()
        env.envs[1].step(4)
        with pytest.raises(SpecError, match="row 0"):
            env.envs[0].step(4)


@pytest.mark.parametrize("validate", ["first", "always", "never"])
def test_rows_sent_to_alone_have_their_own_bounds(validate):
    with AsyncParallelPyEnvironment(
        levels(NARROW, WIDE), backend="inline", specs="union", validate=validate
    ) as env:
        env.reset_async()
        env.recv()
        for _ in range(2):
            env.send([4], [1])
            env.recv()
        with pytest.raises(SpecError, match="action of row 0 that"):
            env.send([4], [0])


def test_one_unbounded_spec_makes_the_union_unbounded():
    class Free(Level):
        def observation_spec(self):
            free = ArraySpec((2,), np.float32)
            return {**super().observation_spec(), "doors": free}

    env = batch([Level, Free], specs="union")

    assert ArraySpec((2,), np.float32) == env.observation_spec()["doors"]


@given(spec=strategies.bounded_specs(), seed=st.integers(0, 2**31))
def test_a_union_contains_every_value_of_its_parts(spec, seed):
    rng = np.random.default_rng(seed)
    sample = sample_spec_nest(spec, rng)
    point = BoundedArraySpec(spec.shape, spec.dtype, sample, sample)
    number = ArraySpec((), np.float32)
    of = [EnvironmentSpec(each, number, number, number) for each in (point, spec)]
    union = common_spec(of, ["a", "b"], "union").observation

    assert spec == union
    assert union.check_array(sample_spec_nest(spec, rng))


# Padded.


@everywhere
def test_smaller_observations_are_padded_with_zeros(ways):
    with ways(levels((2, 2), (3, 4), (2, 1)), specs="pad") as env:
        spec = env.observation_spec()
        env.reset()
        observation = env.step([1, 2, 1]).observation

        assert ["observation", "mask", "action_mask"] == list(spec)
        assert (4,) == spec["observation"]["doors"].shape
        assert [[2, 2, 0, 0], [2, 2, 2, 2], [2, 0, 0, 0]] == (
            observation["observation"]["doors"].tolist()
        )
        assert [1, 1, 1] == observation["observation"]["count"].tolist()
        assert [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]] == (
            observation["mask"]["doors"].astype(int).tolist()
        )
        assert [True] * 3 == observation["mask"]["count"].tolist()
        assert [[1, 1, 0], [1, 1, 1], [1, 1, 0]] == (
            observation["action_mask"].astype(int).tolist()
        )


@everywhere
def test_padding_fits_its_spec_until_the_end(ways):
    options = {} if ways is batch else {"validate": "always"}
    with ways(levels((2, 2), (3, 4)), specs="pad", **options) as env:
        spec = env.time_step_spec()
        for time_step in [env.reset(), *[env.step([0, 2]) for _ in range(8)]]:
            for row in range(2):
                of_row = nest.map_structure(lambda leaf, row=row: leaf[row], time_step)
                nest.map_structure(
                    lambda leaf, value: (
                        leaf.check_array(np.asarray(value))
                        or pytest.fail(f"{value} is not {leaf}")
                    ),
                    spec,
                    of_row,
                )


def test_actions_that_are_no_choices_have_no_mask():
    env = batch([functools.partial(Level, force=1.0)] * 2, specs="pad")
    assert ["observation", "mask"] == list(env.observation_spec())


@everywhere
def test_levels_of_a_game_are_one_batch(ways):
    makers = [functools.partial(Catch, rows=rows, seed=rows) for rows in (3, 5)]
    with ways(makers, specs="pad") as env:
        small, large = makers[0](), makers[1]()
        env.reset()
        shown = env.current_time_step().observation["observation"]

        assert (2, 5, 5) == shown.shape
        assert np.array_equal(small.reset().observation, shown[0, :3])
        assert np.array_equal(large.reset().observation, shown[1])
        assert not shown[0, 3:].any()


@pytest.mark.parametrize("order", [AutoReset.SAME_STEP, AutoReset.DISABLED])
def test_padding_works_in_every_order(order):
    makers = levels((2, 2), (2, 3))
    with pool_on("inline")(makers, specs="pad", autoreset=order) as env:
        env.reset()
        while not (last := env.step([0, 0])).is_last().all():
            pass

        assert [[4, 4, 0], [4, 4, 4]] == last.observation["observation"][
            "doors"
        ].tolist()
        first = env.reset() if order is AutoReset.DISABLED else env.current_time_step()
        assert first.is_first().all()
        assert [2, 3] == first.observation["mask"]["doors"].sum(axis=1).tolist()


def test_batches_in_a_pool_are_padded_row_by_row():
    makers = [functools.partial(Catch, batch_size=2, rows=rows) for rows in (3, 5)]
    with pool_on("inline")(makers, specs="pad") as env:
        first = env.reset()
        second = env.step([0, 1, 2, 0])
        assert (4, 5, 5) == first.observation["observation"].shape
        assert [3, 3, 5, 5] == second.observation["mask"][:, :, 0].sum(axis=1).tolist()
        _ = env.reset(np.array([True, False, False, True]))


def test_an_observation_of_another_shape_is_never_broadcast(message_of):
    class Lying(Level):
        def _observe(self):
            seen = super()._observe()
            wrong = self._episodes == 0 and self._current_step == 2
            return {**seen, "doors": seen["doors"][:1]} if wrong else seen

    with pool_on("inline")(
        [functools.partial(Lying, 2, 2), functools.partial(Level, 2, 3)], specs="pad"
    ) as env:
        env.reset()
        env.step([0, 0])
        with pytest.raises(Exception, match=r"(?s)doors.*shape \(1,\)"):
            env.step([0, 0])


@everywhere
@pytest.mark.parametrize("specs", ["union", "pad"])
def test_states_and_calls_pass_through_padding(ways, specs):
    with ways(levels(NARROW, WIDE), specs=specs) as env:
        env.seed(3)
        env.reset()
        env.step([1, 4])
        token = pickle.loads(pickle.dumps(env.get_state()))
        expected = env.step([0, 3])
        env.reset()
        env.set_state(token)
        again = env.step([0, 3])

        assert all(
            np.array_equal(ours, theirs)
            for ours, theirs in zip(
                nest.flatten(expected), nest.flatten(again), strict=True
            )
        )
        if ways is not batch:
            assert [[1, 0, 0], [4, 3, 3]] == env.call("get_given")


class Breaking(CrashingEnv):
    """Raises at its third step; has as large an observation as it is told."""

    def __init__(self, width):
        super().__init__(crash_at=3)
        self._width = width

    def observation_spec(self):
        return BoundedArraySpec((self._width,), np.int32)

    def _observe(self):
        return np.full(self._width, super()._observe(), np.int32)


@pytest.mark.parametrize("how", ["raise", "SIGKILL"])
def test_replacement_environments_are_padded(how):
    makers = [functools.partial(Breaking, 2), functools.partial(Breaking, 3)]
    if how != "raise":
        makers = [functools.partial(Killed, 2), functools.partial(Killed, 3)]
    with ParallelPyEnvironment(
        makers,
        backend="inline" if how == "raise" else "process",
        start_method="fork",
        num_workers=2,
        specs="pad",
        on_worker_failure=RestartPolicy(max_restarts=9),
    ) as env:
        env.reset()
        for _ in range(6):
            time_step = env.step([0, 0])
            assert [2, 3] == time_step.observation["mask"].sum(axis=1).tolist()

        assert env.statistics().restarts >= 2


class Killed(Breaking):
    """Dies at its third step."""

    def __init__(self, width):
        super().__init__(width)
        self._how = "SIGKILL"


# Where it comes from, and goes.


@pytest.mark.parametrize("specs", ["equal", "union", "pad"])
@pytest.mark.parametrize("pooled", [False, True], ids=["batch", "pool"])
def test_a_padded_pool_is_rebuilt_from_its_recording(specs, pooled, tmp_path):
    rows = [3, 3] if specs == "equal" else [3, 5]
    name = "envkit.envs.catch:Catch"
    makers = [constructor(name, rows=count if specs == "pad" else 3) for count in rows]
    make_env = pool_on("inline") if pooled else batch
    with Record(make_env(makers, specs=specs), tmp_path / "r") as env:
        env.seed(1)
        for _ in range(9):
            env.step([0, 2])
    recording = Recording(tmp_path / "r")
    env, assumed = rebuilt(recording.provenance)

    assert [] == assumed
    assert None is check(recording, env).difference
    env.close()


def test_make_passes_the_option_on():
    with make(f"{__name__}:Level", num_envs=2, backend="inline", specs="pad") as env:
        assert ["observation", "mask", "action_mask"] == list(env.observation_spec())


def test_the_default_checks_actions_as_before():
    """What costs something is there only where rows differ."""
    with pool_on("inline")(levels(NARROW, NARROW), specs="union") as env:
        assert ActionRows is type(env._actions)
    assert isinstance(env, PyEnvironment)
