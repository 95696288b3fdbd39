"""`PrivateRandomness`: libraries with global generators keep to their seeds."""

from __future__ import annotations

import copy
import functools
import pickle
import random
import threading
from random import randint

import numpy as np
import pytest

import envkit
from envkit import BatchedPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.envs import Catch
from envkit.testing import chaos, check_environment
from envkit.wrappers import PrivateRandomness, TimeLimit, private_generators
from tests.wrappers.lotteries import EPISODE, Keeping, Lottery, Seeded, Torched

private = functools.partial(PrivateRandomness, Lottery)
keeping = functools.partial(PrivateRandomness, Keeping)
seeded = functools.partial(PrivateRandomness, Seeded)
STEPS = 30
REPLAY = RestartPolicy(max_restarts=99, within=None, backoff=0, recover="replay")


@pytest.fixture(params=["copied", "exchanged"])
def way(request, monkeypatch):
    """Both ways of exchanging states: by copying memory, and by the slow functions."""
    if request.param == "exchanged":
        for name in ("_python_memory", "_numpy_gauss_offset"):
            monkeypatch.setattr(private_generators, name, lambda: None)
    return request.param


@pytest.fixture(autouse=True)
def _globals_stay_as_they_are():
    """No test may move the generators of the process, except by drawing itself."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002  # it is watched
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002


def outside():
    """Returns the states of the process's generators, to be compared."""
    numpys = np.random.get_state(legacy=False)  # noqa: NPY002
    return random.getstate(), pickle.dumps(numpys)


def failed(env):
    with pytest.raises(KeyError):
        env.fail()


def action_of(step):
    return step % 3


def played(env, seed, steps=STEPS):
    """Returns what a single environment shows, while the process draws too."""
    env.seed(seed)
    shown = []
    for step in range(steps):
        random.gauss(0, 1)
        np.random.standard_normal()  # noqa: NPY002  # from the global one
        shown.append(env.step(action_of(step)).observation)
    return np.array(shown)


def played_together(pool, seeds, steps=STEPS, before_step=lambda step: None):
    """Returns what a pool shows, a row after the other."""
    pool.seed(list(seeds))
    shown = []
    for step in range(steps):
        before_step(step)
        shown.append(pool.step(np.full(len(seeds), action_of(step))).observation.copy())
    return np.swapaxes(shown, 0, 1)


@pytest.mark.parametrize("make", [private, seeded, keeping])
def test_equal_seeds_give_equal_streams(way, make):
    one, other = played(make(), 7), played(make(), 7)

    np.testing.assert_array_equal(one, other)
    assert (one != played(make(), 8)).any()


def test_without_it_equal_seeds_give_other_streams():
    assert (played(Seeded(), 7)[1:] != played(Seeded(), 8)[1:]).any()
    with ParallelPyEnvironment([Seeded] * 4, num_workers=1, backend="inline") as pool:
        together = played_together(pool, range(4))

    assert (together[0] != played(Seeded(), 0)).any()


@pytest.mark.parametrize("make", [private, seeded])
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_rows_of_one_worker_play_as_they_do_alone(way, make, rows):
    alone = [played(make(), seed) for seed in range(rows)]

    with ParallelPyEnvironment([make] * rows, num_workers=1, backend="inline") as pool:
        np.testing.assert_array_equal(alone, played_together(pool, range(rows)))


@pytest.mark.parametrize("workers", [1, 4])
def test_rows_play_the_same_in_any_number_of_processes(nothing_left_behind, workers):
    alone = [played(private(), seed) for seed in range(4)]

    with ParallelPyEnvironment(
        [private] * 4, num_workers=workers, start_method="fork"
    ) as pool:
        np.testing.assert_array_equal(alone, played_together(pool, range(4)))


def test_rows_in_threads_play_as_they_do_alone(way, nothing_left_behind):
    alone = [played(private(), seed) for seed in range(4)]

    makers = [private] * 4
    with ParallelPyEnvironment(makers, num_workers=4, backend="thread") as pool:
        np.testing.assert_array_equal(alone, played_together(pool, range(4)))
    with BatchedPyEnvironment([private() for _ in range(4)]) as batch:
        np.testing.assert_array_equal(alone, played_together(batch, range(4)))


def test_a_call_waits_for_the_call_of_another_thread():
    order, inside, may_end = [], threading.Event(), threading.Event()

    class Slow(Lottery):
        def pid(self):
            inside.set()
            may_end.wait(60)
            order.append("first")
            return 0

    slow, quick = PrivateRandomness(Slow()), private()
    threads = [threading.Thread(target=slow.pid)]
    threads[0].start()
    assert inside.wait(60)
    threads.append(threading.Thread(target=lambda: order.append(quick.shuffled(3))))
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(60)

    assert "first" == order[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.step(2),
        lambda env: env.reset(),
        lambda env: env.reset(seed=3),
        lambda env: env.seed(None),
        lambda env: env.get_info(),
        lambda env: env.render(),
        lambda env: env.shuffled(9),
        lambda env: env.get_state(),
        lambda env: env.set_state(env.get_state()),
        lambda env: env.close(),
        lambda env: keeping(),
        lambda env: failed(env),
    ],
)
def test_no_call_moves_the_generators_of_the_process(way, call):
    env = keeping()
    env.reset()
    random.gauss(0, 1)
    np.random.standard_normal()  # noqa: NPY002  # so that both keep a number
    before = outside()

    call(env)

    assert before == outside()


def test_infos_pictures_and_methods_draw_from_the_environments_numbers(way):
    def told(env):
        env.reset(seed=4)
        return [
            env.get_info(),
            env.render().tolist(),
            env.shuffled(20),
            env.step(1).observation.tolist(),
        ]

    assert told(private()) == told(private())


def test_infos_and_pictures_leave_the_stream_as_it_is(way):
    env = private()
    env.seed(4)
    shown = []
    for step in range(STEPS):
        shown.append(env.step(action_of(step)).observation)
        env.get_info()
        env.render()

    np.testing.assert_array_equal(played(private(), 4), shown)


def test_an_exception_leaves_the_environment_where_it_had_drawn(way):
    one, other = private(), private()
    for env in (one, other):
        env.reset(seed=4)
        with pytest.raises(KeyError):
            env.fail()

    assert one.shuffled(20) == other.shuffled(20)


def test_environments_without_a_seed_differ():
    streams = [env.reset().observation.tolist() for env in (private(), private())]

    assert streams[0] != streams[1]


def test_a_seed_counts_from_the_next_reset_on(way):
    env, expected = private(), private()
    expected.seed(5)
    expected = [expected.reset().observation, expected.step(1).observation]
    env.reset()

    env.seed(5)
    env.step(2)
    env.get_info()
    np.testing.assert_array_equal(expected[0], env.reset().observation)
    np.testing.assert_array_equal(expected[1], env.step(1).observation)


def test_a_seed_counts_from_the_next_episode_that_a_step_begins():
    env = private()
    expected = private().reset(seed=5).observation
    env.reset()

    env.seed(5)
    for _ in range(EPISODE):
        env.step(2)

    np.testing.assert_array_equal(expected, env.step(0).observation)


def test_none_as_a_seed_begins_a_new_stream():
    env = private()
    first = env.reset(seed=5).observation.tolist()
    env.seed(None)

    assert first != env.reset().observation.tolist()


def test_seed_returns_what_the_environment_returns():
    assert [5] == seeded().seed(5)
    assert private().seed(5) is None


def test_the_seed_is_in_the_provenance():
    env = private()
    env.seed(5)

    assert 5 == env.provenance()["seed"]


def test_a_state_continues_with_the_same_numbers(way):
    env = keeping()
    env.reset(seed=3)
    env.step(1)
    state = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step(2).observation.tolist() for _ in range(12)]
    other = keeping()

    for again in (env, other):
        again.set_state(state)
        assert expected == [again.step(2).observation.tolist() for _ in range(12)]


def test_a_state_fits_both_ways_of_exchanging_states(monkeypatch):
    env = keeping()
    env.reset(seed=3)
    env.step(1)
    state, expected = env.get_state(), env.step(2).observation.tolist()
    for name in ("_python_memory", "_numpy_gauss_offset"):
        monkeypatch.setattr(private_generators, name, lambda: None)
    slow = keeping()

    slow.set_state(state)

    assert expected == slow.step(2).observation.tolist()


def test_a_state_of_other_generators_is_refused(message_of):
    env = PrivateRandomness(Keeping, generators=("random",))
    env.reset()
    assert "made with other arguments" in message_of(
        ValueError, lambda: keeping().set_state(env.get_state())
    )


def test_a_copy_continues_with_the_same_numbers(way):
    env = private()
    env.reset(seed=3)
    twin = copy.deepcopy(env)

    assert env.shuffled(30) == twin.shuffled(30)


def continued(pool):
    actions = np.ones(4, np.int64)
    return [pool.step(actions).observation.tolist() for _ in range(9)]


def test_a_checkpoint_continues_with_the_same_numbers(tmp_path):
    makers, path = [keeping] * 4, tmp_path / "checkpoint"
    options = {"num_workers": 1, "backend": "inline"}
    with ParallelPyEnvironment(makers, **options) as pool:
        played_together(pool, range(4), steps=9)
        pool.save(path)
        expected = continued(pool)

    with ParallelPyEnvironment.load(path, makers, **options) as pool:
        assert expected == continued(pool)


@pytest.mark.parametrize("make", [private, keeping])
def test_recovery_by_replay_continues_bit_for_bit(nothing_left_behind, make):
    alone = [played(make(), seed) for seed in range(4)]
    makers = [make] * 4
    with (
        ParallelPyEnvironment(
            makers, num_workers=1, start_method="fork", on_worker_failure=REPLAY
        ) as pool,
        chaos(pool, every_steps=11),
    ):
        together = played_together(pool, range(4))

        assert 2 == pool.statistics().restarts
        assert not pool.losses()
    np.testing.assert_array_equal(alone, together)


def test_rebuilt_rows_play_the_same_beside_any_number_of_others(nothing_left_behind):
    def after_losses(rows):
        policy = RestartPolicy(max_restarts=9, within=None, backoff=0)
        makers = [private] * rows
        with (
            ParallelPyEnvironment(
                makers, num_workers=1, start_method="fork", on_worker_failure=policy
            ) as pool,
            chaos(pool, every_steps=11),
        ):
            return played_together(pool, range(rows))

    np.testing.assert_array_equal(after_losses(1)[0], after_losses(4)[0])


@pytest.mark.parametrize("names", [("random",), ("numpy",)])
def test_other_generators_than_those_named_stay_shared(names):
    env = PrivateRandomness(Lottery, generators=names)
    env.reset()
    before = outside()

    env.step(1)

    moved = [one != other for one, other in zip(before, outside(), strict=True)]
    assert [name not in names for name in ("random", "numpy")] == moved


def test_wrappers_inside_each_other_restore_what_each_has_found(way):
    outer = PrivateRandomness(private())
    outer.reset(seed=3)
    before = outside()

    outer.step(2)

    assert before == outside()
    one, other = (played(PrivateRandomness(private()), 3) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_an_environment_may_call_its_own_wrapper(way):
    class Calling(Lottery):
        def pid(self):
            return [randint(0, 99), *self.wrapper.shuffled(5), randint(0, 99)]

    def called(wrapper):
        env = PrivateRandomness(Calling())
        env.unwrapped.wrapper = wrapper or env
        env.reset(seed=1)
        return env.pid()

    class Unwrapped:
        shuffled = Lottery.shuffled

    assert called(None) == called(Unwrapped())


def test_torchs_generator_can_be_private():
    torch = pytest.importorskip("torch")
    make = functools.partial(PrivateRandomness, Torched, ("torch",))
    before = torch.get_rng_state()
    streams = []
    for _ in range(2):
        env = make()
        env.reset(seed=3)
        streams.append([env.step(0).observation.tolist() for _ in range(5)])

    assert streams[0] == streams[1]
    assert torch.equal(before, torch.get_rng_state())


def test_make_adds_it():
    env = envkit.make("tests.wrappers.lotteries:Lottery", private_randomness=True)

    assert isinstance(env, PrivateRandomness)
    np.testing.assert_array_equal(played(private(), 3), played(env, 3))
    assert not isinstance(
        envkit.make("tests.wrappers.lotteries:Lottery", private_randomness=False),
        PrivateRandomness,
    )


def test_make_adds_it_in_every_row_of_a_pool():
    alone = [played(private(), seed) for seed in range(4)]
    with envkit.make(
        "tests.wrappers.lotteries:Lottery",
        num_envs=4,
        num_workers=1,
        backend="inline",
        private_randomness=True,
    ) as pool:
        np.testing.assert_array_equal(alone, played_together(pool, range(4)))
        assert [True] * 4 == pool.env_is_wrapped(PrivateRandomness)


def test_check_environment_names_it_and_is_content_with_it():
    with pytest.raises(AssertionError, match=r"PrivateRandomness\(env\)"):
        check_environment(Lottery, steps=20)

    report = check_environment(keeping, steps=40, require=["seed", "state"])

    assert () == report.failed


def test_it_goes_inside_other_wrappers():
    def make():
        return TimeLimit(private(), 4)

    with ParallelPyEnvironment([make] * 4, num_workers=1, backend="inline") as pool:
        together = played_together(pool, range(4))
    np.testing.assert_array_equal([played(make(), seed) for seed in range(4)], together)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: PrivateRandomness(Catch(batch_size=2)),
            ValueError,
            "PrivateRandomness wraps a single environment, and this Catch is a batch "
            "of 2 rows, which one call moves together. Wrap each environment before "
            "they become a batch: ParallelPyEnvironment([lambda: "
            "PrivateRandomness(make_env)] * 8).",
        ),
        (
            lambda: PrivateRandomness(Lottery, generators="numpy"),
            TypeError,
            "generators must be a tuple of names among 'random', 'numpy', 'torch', "
            "got the string 'numpy'.",
        ),
        (
            lambda: PrivateRandomness(Lottery, generators=("jax",)),
            ValueError,
            "generators must be names among 'random', 'numpy', 'torch', got 'jax'.",
        ),
        (
            lambda: PrivateRandomness(Lottery, generators=()),
            ValueError,
            "generators must be names among 'random', 'numpy', 'torch', got none.",
        ),
        (
            lambda: envkit.make(Lottery, private_randomness="numpy"),
            TypeError,
            "private_randomness must be True or False, got the string 'numpy'.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, message, message_of):
    assert message == message_of(error, make)


def test_another_kind_of_generator_behind_numpys_functions_is_refused(message_of):
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        text = message_of(RuntimeError, private)
    finally:
        np.random.set_bit_generator(before)

    assert (
        "The functions of np.random draw from a PCG64, because "
        "np.random.set_bit_generator() was called. PrivateRandomness needs NumPy's own "
        'MT19937: put it back, or pass generators=("random",).'
    ) == text


def test_an_environment_that_replaces_numpys_generator_is_refused(message_of):
    class Replacing(Lottery):
        def pid(self):
            np.random.set_bit_generator(np.random.MT19937(3))
            return 0

    env, before = PrivateRandomness(Replacing), np.random.get_bit_generator()

    assert "It was put back." in message_of(RuntimeError, env.pid)
    assert np.random.get_bit_generator() is before


def test_states_are_copied_where_python_and_numpy_are_usual():
    assert private_generators._python_memory() is not None
    assert private_generators._numpy_gauss_offset() is not None
