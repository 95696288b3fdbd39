"""The three orders of episodes: batches in this process, and wrappers around all."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    make,
)
from envkit.adapters import GymnasiumVectorWrapper
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import CallOrderError
from envkit.py_environment import PyEnvironment
from envkit.testing.envs import CountingEnv, CrashingEnv, TracingEnv
from envkit.wrappers import (
    EpisodeLimit,
    FixedLength,
    PyEnvironmentBaseWrapper,
    RecordEpisodeStatistics,
    RunStats,
    TimeLimit,
)

NEXT_STEP, SAME_STEP, DISABLED = AutoReset
with_each_order = pytest.mark.parametrize(
    "order", list(AutoReset), ids=lambda order: order.value
)


def batched(*lengths, order=NEXT_STEP, multithreading=False):
    envs = [CountingEnv(length) for length in lengths]
    return BatchedPyEnvironment(envs, multithreading, autoreset=order)


def threaded(*lengths, order=NEXT_STEP):
    return batched(*lengths, order=order, multithreading=True)


def pooled(*lengths, order=NEXT_STEP):
    makers = [functools.partial(CountingEnv, length) for length in lengths]
    return ParallelPyEnvironment(makers, backend="inline", autoreset=order)


def wrapped(*lengths, order=NEXT_STEP):
    return RunStats(batched(*lengths, order=order))


def wrapped_pool(*lengths, order=NEXT_STEP):
    return RunStats(TimeLimit(pooled(*lengths, order=order), 99))


def blocking(*lengths, order=NEXT_STEP):
    makers = [functools.partial(CountingEnv, length) for length in lengths]
    return Blocking(
        AsyncParallelPyEnvironment(makers, backend="inline", autoreset=order)
    )


KINDS = [batched, threaded, wrapped, wrapped_pool, blocking, pooled]
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def told(time_step):
    """Writes a batch of `CountingEnv` down: step type and observation of each row."""
    names = ["FIRST", "MID", "LAST"]
    return [
        f"{names[int(kind)]} {int(seen)}"
        for kind, seen in zip(time_step.step_type, time_step.observation, strict=True)
    ]


def stands(env):
    return told(env.current_time_step())


@of_each_kind
def test_same_step_wastes_no_step_and_reports_its_state(kind):
    with kind(2, 3, order=SAME_STEP) as env:
        seen = [(told(env.reset()), stands(env))]
        seen += [(told(env.step([0, 0])), stands(env)) for _ in range(5)]
    assert [
        (["FIRST 0", "FIRST 0"], ["FIRST 0", "FIRST 0"]),
        (["MID 1", "MID 1"], ["MID 1", "MID 1"]),
        (["LAST 2", "MID 2"], ["FIRST 10", "MID 2"]),
        (["MID 11", "LAST 3"], ["MID 11", "FIRST 10"]),
        (["LAST 12", "MID 11"], ["FIRST 20", "MID 11"]),
        (["MID 21", "MID 12"], ["MID 21", "MID 12"]),
    ] == seen


@of_each_kind
def test_same_step_begins_all_rows_that_end_together(kind):
    with kind(1, 1, order=SAME_STEP) as env:
        first = told(env.step([0, 0]))
        seen = [(told(env.step([0, 0])), stands(env)) for _ in range(2)]
    assert ["FIRST 0", "FIRST 0"] == first
    assert [
        (["LAST 1", "LAST 1"], ["FIRST 10", "FIRST 10"]),
        (["LAST 11", "LAST 11"], ["FIRST 20", "FIRST 20"]),
    ] == seen


@of_each_kind
def test_disabled_rows_wait_for_a_reset(kind, message_of):
    with kind(1, 3, 1, order=DISABLED) as env:
        env.reset()
        ended = told(env.step([0, 0, 0]))
        message = message_of(CallOrderError, lambda: env.step([0, 0, 0]))
        still = stands(env)
        reset = told(env.reset(np.array([True, False, True])))
        on = told(env.step([0, 0, 0]))

    assert ["LAST 1", "MID 1", "LAST 1"] == ended == still
    assert (
        "step() was called after the episode of rows 0, 2 ended. Under "
        "AutoReset.DISABLED, call reset(mask) for them first, or leave them out with "
        "step(action, mask); none of the environments has moved."
    ) == message
    assert ["FIRST 10", "MID 1", "FIRST 10"] == reset
    assert ["LAST 11", "MID 2", "LAST 11"] == on


@pytest.mark.parametrize("kind", [batched, wrapped, wrapped_pool, pooled])
def test_rows_can_be_held_and_stepped_alone_in_every_order(kind):
    seen = {}
    for order in AutoReset:
        with kind(2, 1, order=order) as env:
            env.reset()
            env.step([0, 0])
            seen[order] = [told(env.step([0, 0], np.array([True, False])))]
            if order is DISABLED:
                with pytest.raises(CallOrderError, match="of row 1 ended"):
                    env.step([0, 0], np.array([False, True]))
                env.reset(np.array([False, True]))
            seen[order].append(told(env.step([0, 0], np.array([False, True]))))
            seen[order].append(stands(env))

    assert {
        NEXT_STEP: [
            ["LAST 2", "LAST 1"],
            ["LAST 2", "FIRST 10"],
            ["LAST 2", "FIRST 10"],
        ],
        SAME_STEP: [
            ["LAST 2", "FIRST 10"],
            ["FIRST 10", "LAST 11"],
            ["FIRST 10", "FIRST 20"],
        ],
        DISABLED: [["LAST 2", "LAST 1"], ["LAST 2", "LAST 11"], ["LAST 2", "LAST 11"]],
    } == seen


@pytest.mark.parametrize(
    ("before", "after", "standing", "stepped"),
    [
        (NEXT_STEP, SAME_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (NEXT_STEP, DISABLED, ["LAST 1", "MID 1"], None),
        (SAME_STEP, NEXT_STEP, ["FIRST 10", "MID 1"], ["LAST 11", "MID 2"]),
        (SAME_STEP, DISABLED, ["FIRST 10", "MID 1"], ["LAST 11", "MID 2"]),
        (DISABLED, NEXT_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (DISABLED, SAME_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
    ],
    ids=lambda value: value.value if isinstance(value, AutoReset) else "",
)
@of_each_kind
def test_the_order_may_change_right_after_an_end(
    kind, before, after, standing, stepped
):
    with kind(1, 5, order=before) as env:
        env.reset()
        env.step([0, 0])
        env.autoreset = after.value
        now = stands(env)
        if stepped is None:
            with pytest.raises(CallOrderError, match="the episode of row 0 ended"):
                env.step([0, 0])
        else:
            assert stepped == told(env.step([0, 0]))
    assert standing == now
    assert after is env.autoreset


@pytest.mark.parametrize("kind", [batched, pooled])
def test_a_wrapper_and_its_batch_share_one_order(kind):
    batch = kind(1, 5)
    with RunStats(TimeLimit(batch, 3)) as env:
        env.reset()
        batch.autoreset = SAME_STEP
        env.step([0, 0])
        inside = env.autoreset, stands(env)
        env.autoreset = DISABLED
        outside = batch.autoreset, env.wrapped_env().autoreset
    assert (SAME_STEP, ["FIRST 10", "MID 1"]) == inside
    assert (DISABLED, DISABLED) == outside


@pytest.mark.parametrize("make_env", [Bandit, CartPole, Catch, GridWorld, TicTacToe])
def test_built_in_batches_take_an_order(make_env):
    env = make_env(2, autoreset="same_step")
    env.seed(1)
    env.reset()
    ended = np.zeros(2, int)
    for _ in range(2000):
        time_step = env.step(np.zeros(2, np.int64))
        now = env.current_time_step()
        assert not time_step.is_first().any()
        assert time_step.is_last().tolist() == now.is_first().tolist()
        ended += time_step.is_last()
        if (ended > 1).all():
            break
    assert (ended > 0).all()


def test_make_passes_the_order_to_the_batch_or_pool():
    with make("Catch", batch_size=2, autoreset="disabled") as env:
        of_batch = env.autoreset
    options = {"num_envs": 2, "backend": "inline", "autoreset": "same_step"}
    with make("Catch", batch_size=2, **options) as env:
        of_pool = env.autoreset, env.batch_size
    assert DISABLED is of_batch
    assert (SAME_STEP, 4) == of_pool


def test_an_invalid_order_is_refused(message_of):
    expected = (
        "autoreset must be one of AutoReset.NEXT_STEP, AutoReset.SAME_STEP, "
        "AutoReset.DISABLED, got 'later'."
    )
    for fails in (
        lambda: batched(1, order="later"),
        lambda: Catch(2, autoreset="later"),
        lambda: make("Catch", batch_size=2, autoreset="later"),
        lambda: setattr(Catch(2), "autoreset", "later"),
        lambda: setattr(RunStats(Catch(2)), "autoreset", "later"),
    ):
        assert expected == message_of(ValueError, fails)


def test_a_single_environment_has_no_other_order(message_of):
    assert (
        "Catch cannot keep AutoReset.SAME_STEP: it is a single environment, and orders "
        "are for the rows of a batch."
    ) == message_of(ValueError, lambda: Catch(autoreset="same_step"))


class Together(PyEnvironment):
    """A batch that resets its rows together only."""

    batched, batch_size = True, 2

    def __init__(self):
        super().__init__()
        self._env = batched(1, 2)

    def observation_spec(self):
        return self._env.observation_spec()

    def action_spec(self):
        return self._env.action_spec()

    def _reset(self):
        return self._env.reset()

    def _step(self, action):
        return self._env.step(action)


class Written(PyEnvironmentBaseWrapper):
    """A wrapper that knows how all rows are reset, and not how some are."""

    def _reset(self):
        return self._env.reset()


def test_a_batch_that_cannot_reset_single_rows_says_so(message_of):
    expected = (
        "{} cannot keep AutoReset.{}: its rows cannot begin an episode one by one: "
        "override _reset_rows(mask) there, or let it keep AutoReset.NEXT_STEP."
    )
    env = Written(batched(1, 2))
    env.reset()
    env.wrapped_env().autoreset = DISABLED

    for name, order, fails in (
        ("Together", "DISABLED", lambda: setattr(Together(), "autoreset", DISABLED)),
        ("Written", "SAME_STEP", lambda: Written(batched(1, 2, order=SAME_STEP))),
        ("Written", "DISABLED", lambda: env.step([0, 0])),
    ):
        assert expected.format(name, order) == message_of(ValueError, fails)


@pytest.mark.parametrize("kind", [batched, wrapped, wrapped_pool, pooled])
def test_the_end_is_returned_even_if_the_next_episode_cannot_begin(kind):
    envs = [
        functools.partial(CrashingEnv, crash_at=2, where="reset", steps_per_episode=2),
        functools.partial(CountingEnv, 9),
    ]
    if kind in (pooled, wrapped_pool):
        env = ParallelPyEnvironment(envs, backend="inline", autoreset=SAME_STEP)
    else:
        env = BatchedPyEnvironment([make() for make in envs], autoreset=SAME_STEP)
    with RunStats(env) if kind in (wrapped, wrapped_pool) else env as env:
        env.reset()
        env.step([0, 0])
        last = told(env.step([0, 0]))
        with pytest.raises(RuntimeError, match="told to raise in reset 2"):
            env.step([0, 0])
        again = told(env.reset(np.array([True, False])))
        on = told(env.step([0, 0]))

    assert ["LAST 2", "MID 2"] == last
    assert "FIRST 10" == again[0]
    assert "MID 11" == on[0]


@with_each_order
@pytest.mark.parametrize("kind", [batched, wrapped, wrapped_pool, pooled])
def test_a_state_restores_the_rows_in_every_order(kind, order):
    with kind(2, 3, order=order) as env, kind(2, 3, order=order) as other:
        env.reset()
        for _ in range(2):
            env.step([0, 0])
        token = pickle.loads(pickle.dumps(env.get_state()))
        streams = []
        for one in (env, other, env):
            one.set_state(token)
            stream = [stands(one)]
            for _ in range(5):
                ended = one.current_time_step().is_last()
                if order is DISABLED and ended.any():
                    one.reset(ended)
                stream.append(told(one.step([0, 0])))
                stream.append(stands(one))
            streams.append(stream)

    assert {SAME_STEP: "FIRST 10"}.get(order, "LAST 2") == streams[0][0][0]
    assert [streams[0]] * 3 == streams


def traced(wrap, order, kind):
    makers = [functools.partial(TracingEnv, 0, 1), functools.partial(TracingEnv, 1, 3)]
    if kind == "pool":
        batch = ParallelPyEnvironment(makers, backend="inline", autoreset=order)
    else:
        batch = BatchedPyEnvironment([make() for make in makers], autoreset=order)
    return wrap(batch) if wrap is not None else batch


@pytest.mark.parametrize("kind", ["batch", "pool"])
@pytest.mark.parametrize("wrap", [None, RunStats, lambda env: TimeLimit(env, 9)])
def test_the_info_belongs_to_the_returned_time_step(wrap, kind):
    with traced(wrap, SAME_STEP, kind) as env:
        env.reset()
        env.step([5, 5])
        infos = [env.get_info(), env.get_info()]
        env.get_state()
        infos.append(env.get_info())
        infos[0]["step"][:] = 77  # It is the caller's.
        env.step([5, 5])
        after = env.get_info()
        env.reset()
        begun = env.get_info()

    for info in infos[1:]:
        assert ([0, 0], [1, 1]) == (info["episode"].tolist(), info["step"].tolist())
    assert ([1, 0], [1, 2]) == (after["episode"].tolist(), after["step"].tolist())
    assert [0, 0] == begun["step"].tolist()


def test_an_info_from_another_order_does_not_appear_later():
    with traced(RunStats, SAME_STEP, "pool") as env:
        env.reset()
        env.step([5, 5])
        env.wrapped_env().autoreset = NEXT_STEP
        env.step([5, 5])
        assert [1, 2] == env.get_info()["step"].tolist()


# What wrappers count and limit.


@with_each_order
@pytest.mark.parametrize("kind", [batched, pooled])
def test_statistics_belong_to_the_returned_step(kind, order):
    with TimeLimit(RecordEpisodeStatistics(kind(2, 3, order=order)), 99) as env:
        env.reset()
        seen = []
        for _ in range(6):
            ended = env.current_time_step().is_last()
            if order is DISABLED and ended.any():
                env.reset(ended)
            last = env.step([0, 0]).is_last()
            episode = env.get_info()["episode"]
            assert last.tolist() == env.episode_ended.tolist()
            assert last.tolist() == episode["ended"].tolist()
            assert env.episode_lengths.tolist() == episode["length"].tolist()
            assert env.episode_returns.tolist() == episode["return"].tolist()
            seen.append(episode["length"].tolist())
        lengths = list(env.length_queue)

    follows = [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2], [2, 3]]
    expected = [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]]
    assert (expected if order is NEXT_STEP else follows) == seen
    assert {NEXT_STEP: [2, 3, 2], SAME_STEP: [2, 3, 2, 2, 3]}.get(
        order, [2, 3, 2, 2, 3]
    ) == lengths


@pytest.mark.parametrize("kind", [batched, pooled])
def test_counts_are_the_same_for_the_same_episodes(kind):
    counts = {}
    for order, steps in ((NEXT_STEP, 14), (SAME_STEP, 12), (DISABLED, 12)):
        with RunStats(kind(4, 4, order=order)) as env:
            env.reset()
            for _ in range(steps):
                ended = env.current_time_step().is_last()
                if order is DISABLED and ended.any():
                    env.reset(ended)
                env.step([0, 0])
            if order is not SAME_STEP:
                env.reset()
            counts[order] = env.episodes, env.resets, env.total_steps
    assert [(6, 8, 24)] * 3 == [counts[order] for order in AutoReset]


@with_each_order
@pytest.mark.parametrize("kind", [batched, pooled])
def test_a_run_has_the_same_episodes_in_every_order(kind, order):
    with RunStats(EpisodeLimit(kind(2, 1, order=order), 2)) as env:
        env.reset()
        seen = []
        for _ in range(8):
            standing = env.current_time_step()
            ended = standing.is_last() & (env.episodes_per_row < 2)
            if order is DISABLED and ended.any():
                env.reset(ended)
            seen.append(told(env.step([0, 0])))
        counts = env.is_over, env.episodes_per_row.tolist(), env.valid.tolist()
    assert ["LAST 12", "LAST 11"] == seen[-1] == seen[-2]
    assert (True, [2, 2], [False, False]) == counts


@pytest.mark.parametrize("kind", [batched, pooled])
def test_episodes_of_one_length_are_padded_before_the_next_begins(kind):
    with RunStats(FixedLength(kind(4, 2, order=SAME_STEP), 3)) as env:
        env.reset()
        seen = [(told(env.step([0, 0])), stands(env)) for _ in range(4)]
    assert [
        (["MID 1", "MID 1"], ["MID 1", "MID 1"]),
        (["MID 2", "LAST 2"], ["MID 2", "LAST 2"]),
        (["LAST 3", "LAST 2"], ["FIRST 0", "FIRST 10"]),
        (["MID 1", "MID 11"], ["MID 1", "MID 11"]),
    ] == seen


def test_same_step_reports_a_repaired_row(tmp_path):
    from envkit import RestartPolicy

    makers = [
        functools.partial(CrashingEnv, crash_at=2, where="step", steps_per_episode=9),
        functools.partial(CountingEnv, 9),
    ]
    with RunStats(
        ParallelPyEnvironment(
            makers,
            backend="inline",
            autoreset=SAME_STEP,
            on_worker_failure=RestartPolicy(backoff=0.0),
        )
    ) as env:
        env.reset()
        env.step([0, 0])
        last = env.step([0, 0])
        repaired = env.repaired.tolist()
        env.step([0, 0])
        later = env.repaired.tolist()

    assert [True, False] == last.is_last().tolist() == repaired
    assert [False, False] == later


# Vector environments of Gymnasium, which have an order of their own.


def vector(mode, *, auto_reset=True):
    gymnasium = pytest.importorskip("gymnasium")
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 2,
        autoreset_mode=gymnasium.vector.AutoresetMode(mode),
    )
    return GymnasiumVectorWrapper(envs, auto_reset=auto_reset)


def test_a_vector_environment_that_resets_nothing_keeps_two_orders(message_of):
    with TimeLimit(vector("Disabled"), 3) as env:
        env.seed(1)
        env.reset()
        ends = [env.step([1, 0]).is_last().tolist() for _ in range(6)]
        env.autoreset = DISABLED
        disabled = env.autoreset
        message = message_of(ValueError, lambda: setattr(env, "autoreset", NEXT_STEP))
    assert [[False] * 2, [False] * 2, [True] * 2] * 2 == ends
    assert DISABLED is disabled
    assert (
        "GymnasiumVectorWrapper cannot keep AutoReset.NEXT_STEP: the autoreset_mode of "
        "SyncVectorEnv is DISABLED. Make it with AutoresetMode.NEXT_STEP."
    ) == message


def test_a_wrapper_refuses_a_vector_environment_that_resets_by_itself(message_of):
    with vector("SameStep") as env:
        message = message_of(ValueError, lambda: TimeLimit(env, 3))
    assert (
        "TimeLimit cannot wrap GymnasiumVectorWrapper with AutoReset.SAME_STEP or give "
        "it another order: GymnasiumVectorWrapper always keeps its own. Wrap the "
        "single environments before they become a batch, or make the batch with "
        "AutoReset.NEXT_STEP."
    ) == message
