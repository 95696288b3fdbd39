"""A checkpoint of a pool: a run continues bit for bit, or the file is refused."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import sys
from json import dumps, loads

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ParallelPyEnvironment, RestartPolicy, make
from envkit.errors import CallOrderError, CheckpointError, ClosedError
from envkit.parallel import AsyncParallelPyEnvironment, AutoReset
from envkit.parallel.durability import checkpoint as checkpoint_module
from envkit.provenance import to_plain
from envkit.py_environment import EnvironmentState
from envkit.testing.envs import CountingEnv
from envkit.wrappers import TimeLimit
from tests.parallel import streams
from tests.parallel.environments import Walk
from tests.parallel.streams import pool_of

ACTIONS = np.random.default_rng(4).uniform(-0.9, 0.9, (60, 4, 2)).astype(np.float32)


class Fragile(Walk):
    """A walk that raises when it is told to."""

    def _step(self, action):
        if action[0] == 1:
            raise ValueError("told to")
        return super()._step(action)


class WithGenerator(Walk):
    """Its state is more than plain data."""

    def _get_state(self):
        return self._rng, self._left, self._place

    def _set_state(self, state):
        self._rng, self._left, self._place = state


class WithBytes(Walk):
    """Its state is pickled once more."""

    def _get_state(self):
        return pickle.dumps(super()._get_state())

    def _set_state(self, state):
        super()._set_state(pickle.loads(state))


class Told:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


class Holding(CountingEnv):
    """Has any state."""

    held = None

    def hold(self, value):
        self.held = value

    def _get_state(self):
        return self.held, super()._get_state()

    def _set_state(self, state):
        self.held = state[0]
        super()._set_state(state[1])


def moved_on(env, actions):
    """Plays on from where the environments stand; returns all that comes."""
    seen = []
    for action in actions:
        try:
            standing = env.current_time_step()
        except CallOrderError:
            standing = env.reset()
            seen.append(standing)
        if env.autoreset is AutoReset.DISABLED and standing.is_last().any():
            seen.append(env.reset(standing.is_last()))
        seen += [env.step(action), env.current_time_step()]
    return seen


def loaded(path, constructors, backend="inline", **options):
    def load(*args, **options):
        return ParallelPyEnvironment.load(path, *args, **options)

    return pool_of(constructors, backend, kind=load, **options)


def saved_run(path, constructors=(Walk,) * 4, **options):
    """Saves a pool that has made some steps; returns what comes after."""
    with pool_of(list(constructors), **options) as env:
        env.seed(3)
        env.reset()
        for action in ACTIONS[:7]:
            env.step(action[: len(constructors)])
        env.save(path)
        return streams.digest_of(moved_on(env, ACTIONS[:20, : len(constructors)]))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.integers(0, 12),
    order=st.sampled_from(AutoReset),
    backends=st.tuples(*[st.sampled_from(("inline", "thread"))] * 2),
    workers=st.tuples(*[st.integers(1, 4)] * 2),
    times=st.integers(1, 2),
    seed=st.none() | st.integers(0, 2**32),
)
def test_a_loaded_run_continues_bit_for_bit(
    tmp_path_factory, steps, order, backends, workers, times, seed
):
    path = tmp_path_factory.mktemp("run") / "pool.ckpt"
    constructors = [Walk] * 4
    (one, other), (few, many) = backends, workers
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(
            pool_of(constructors, one, num_workers=few, autoreset=order)
        )
        if seed is not None:
            env.seed(seed)
        if steps:
            env.reset()
            moved_on(env, ACTIONS[:steps])
        env.save(path)
        expected = moved_on(env, ACTIONS[12:40])
        # Saved and loaded again where it stands, too.
        for _ in range(times):
            again = stack.enter_context(
                loaded(path, constructors, other, num_workers=many)
            )
            again.save(path)
        assert again.autoreset is order
        actual = moved_on(again, ACTIONS[12:40])

    assert [] == streams.differences(expected, actual)


@pytest.mark.parametrize(
    "constructor", [Walk, "CartPole", "Catch", "GridWorld", "Bandit", "TicTacToe"]
)
def test_processes_continue_a_run_of_one_process(tmp_path, constructor):
    path = tmp_path / "pool.ckpt"
    with pool_of([constructor] * 4) as env:
        env.seed(3)
        env.reset()
        spec = env.action_spec()
        rng = np.random.default_rng(0)
        size = (12, 4, *spec.shape)
        actions = (
            ACTIONS[:12]
            if constructor is Walk
            else rng.integers(0, spec.num_values, size).astype(spec.dtype)
        )
        for action in actions[:5]:
            with contextlib.suppress(ValueError):
                env.step(action)
        env.save(path)
        expected = env.current_time_step()
    with loaded(path, [constructor] * 4, "process", num_workers=2) as env:
        assert [] == streams.differences(expected, env.current_time_step())
        env.save(tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_an_asynchronous_pool_continues_from_a_checkpoint(tmp_path):
    path = tmp_path / "pool.ckpt"

    def played(env):
        seen = []
        for action in ACTIONS[:20]:
            env.send(action)
            batch = env.recv(4)
            seen.append(streams.row_of(batch.time_step, np.argsort(batch.env_ids)))
        return seen

    with AsyncParallelPyEnvironment([Walk] * 4, backend="inline") as env:
        env.seed(3)
        env.reset_async()
        env.recv()
        env.save(path, {"steps": 0})
        expected = played(env)
    with AsyncParallelPyEnvironment.load(path, [Walk] * 4, backend="inline") as env:
        assert {"steps": 0} == env.extra
        assert [] == streams.differences(expected, played(env))


def test_extra_data_is_restored_unchanged(tmp_path):
    path = tmp_path / "new folder" / "pool.ckpt"
    rng = np.random.default_rng(1)
    extra = {
        "weights": [np.float32([[1.5, -0.0]]), np.asfortranarray(np.eye(3, 2))],
        "rng": rng.bit_generator.state,
        "step": (7, None, 1e-300, b"\x80", float("inf")),
        3: np.int8(4),
    }
    with pool_of([CountingEnv] * 2) as env:
        assert env.extra is None
        env.save(path, extra)
    with loaded(path, [CountingEnv] * 2) as env:
        again = env.extra
    assert str(extra) == str(again)
    assert again["weights"][1].flags.f_contiguous
    assert type(again[3]) is np.int8
    rng.bit_generator.state = again["rng"]


def test_replaced_rows_continue_with_the_same_seeds(tmp_path):
    """Also those that are built anew after the run has been loaded."""
    raising, path = ACTIONS[:30].copy(), tmp_path / "pool.ckpt"
    for step, row in ((3, 1), (9, 2), (14, 1), (20, 3)):
        raising[step, row] = 1
    options = {"on_worker_failure": RestartPolicy(), "num_workers": 2}
    with pool_of([Fragile] * 4, **options) as env:
        env.seed(5)
        env.reset()
        moved_on(env, raising[:12])
        env.save(path)
        expected = moved_on(env, raising[12:])
    with loaded(path, [Fragile] * 4, **options) as env:
        actual = moved_on(env, raising[12:])
        assert 2 == sum(worker.restarts for worker in env.workers)
    assert [] == streams.differences(expected, actual)


@pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet")
def test_a_worker_lost_after_loading_is_recovered(tmp_path):
    path = tmp_path / "pool.ckpt"
    with pool_of([Walk] * 4) as env:
        env.seed(5)
        env.reset()
        moved_on(env, ACTIONS[:5])
        env.save(path)
        expected = [env.step(action) for action in ACTIONS[5:15]]
    policy = RestartPolicy(recover="replay")
    with loaded(path, [Walk] * 4, "process", on_worker_failure=policy) as env:
        actual = [env.step(action) for action in ACTIONS[5:10]]
        os.kill(env.workers[0].pid, signal.SIGKILL)
        actual += [env.step(action) for action in ACTIONS[10:15]]
        assert env.statistics().recovered
    assert [] == streams.differences(expected, actual)


# What cannot be saved.


@pytest.mark.parametrize(
    ("constructor", "told"),
    [
        (WithGenerator, r"in env 0, state\.environment\[0\] is of type .*Generator"),
        (WithBytes, r"in env 0, state\.environment is of type .*bytes"),
    ],
)
def test_a_state_that_needs_pickle_is_refused_unless_both_sides_allow_it(
    tmp_path, constructor, told
):
    path = tmp_path / "pool.ckpt"
    with pool_of([constructor] * 4) as env:
        env.seed(1)
        env.reset()
        with pytest.raises(TypeError, match=rf"save\(\) cannot .*{told}"):
            env.save(path)
        assert [] == os.listdir(tmp_path)
        env.save(path, pickle=True)
        expected = moved_on(env, ACTIONS)
    with pytest.raises(CheckpointError, match=r"pickle=True\)"):
        loaded(path, [constructor] * 4)
    with loaded(path, [constructor] * 4, pickle=True) as env:
        assert [] == streams.differences(expected, moved_on(env, ACTIONS))


def test_extra_data_is_pickled_only_if_both_sides_allow_it(tmp_path):
    path, told = tmp_path / "pool.ckpt", tmp_path / "told"
    with pool_of([CountingEnv]) as env:
        with pytest.raises(TypeError, match=r"extra\['policy'\] is of type .*Told"):
            env.save(path, {"policy": Told(told)})
        env.save(path, {"policy": Told(told)}, pickle=True)
    with pytest.raises(CheckpointError, match="run any code"):
        loaded(path, [CountingEnv])
    assert not told.exists()
    loaded(path, [CountingEnv], pickle=True).close()
    assert told.exists()


def test_values_that_would_change_are_refused(tmp_path):
    itself: list = []
    itself.append(itself)
    with pool_of([Holding]) as env:
        for value in (np.ma.masked_array([1, 2], [True, False]), np.str_("")):
            env.call("hold", value)
            with pytest.raises(TypeError, match=r"state\.environment\[0\] is of type"):
                env.save(tmp_path / "pool.ckpt")
        env.call("hold", None)
        with pytest.raises(TypeError, match="extra"):
            env.save(tmp_path / "pool.ckpt", itself)


def test_a_wrapper_saves_itself_with_its_pool(tmp_path):
    with pool_of([CountingEnv]) as env:
        assert not hasattr(TimeLimit(make("CartPole"), 5), "save")
        with pytest.raises(AttributeError, match="would lack what the wrapper holds"):
            TimeLimit(env, 5).save(tmp_path / "pool.ckpt")


# The file.


def test_a_checkpoint_altered_anywhere_is_refused(tmp_path):
    path = tmp_path / "pool.ckpt"
    saved_run(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 29):
        for bad in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
        ):
            path.write_bytes(bad)
            with pytest.raises(CheckpointError):
                loaded(path, [Walk] * 4)
    path.write_bytes(whole)
    loaded(path, [Walk] * 4).close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda whole: b"", "is not a checkpoint: it begins with b''"),
        (lambda _: b"PK\x03\x04 and more", "is not a checkpoint"),
        (lambda whole: whole[:-5], r"is truncated: \d+ of \d+ bytes are there"),
        (lambda whole: whole[:22], "is truncated"),
        (lambda whole: whole + b" ", "was altered after it was saved"),
        (lambda whole: whole.replace(b"next_step", b"same_step"), "was altered"),
        (
            lambda whole: whole.replace(b"checkpoint 1\n", b"checkpoint 2\n"),
            "is of version 2, and envkit .* reads version 1",
        ),
    ],
)
def test_errors_say_what_is_wrong_with_a_file(tmp_path, change, told):
    path = tmp_path / "pool.ckpt"
    saved_run(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=told):
        loaded(path, [Walk] * 4)


def test_a_forged_checkpoint_is_refused_and_runs_no_code(tmp_path):
    path, told = tmp_path / "pool.ckpt", tmp_path / "told"
    for payload in (b"[]", b"{", b'{"environments": 3}', pickle.dumps(Told(told))):
        path.write_bytes(checkpoint_module._head(payload) + payload)
        with pytest.raises(CheckpointError, match="is broken"):
            loaded(path, [Walk] * 4)


@pytest.mark.parametrize("dressed", [bytes, np.bytes_])
def test_bytes_that_would_be_unpickled_are_no_plain_data(tmp_path, dressed):
    path, told = tmp_path / "pool.ckpt", tmp_path / "told"
    with pool_of([WithBytes]) as env:
        env.save(path, pickle=True)
    payload = loads(path.read_bytes().split(b"\n", 2)[2])
    harm = dressed(pickle.dumps(Told(told)))
    state = EnvironmentState(harm, None, None, None)
    payload["environments"] = [{"plain": dumps(to_plain(state))}]
    content = dumps(payload).encode()
    path.write_bytes(checkpoint_module._head(content) + content)
    with pytest.raises(ValueError, match=r"state\.environment is of type"):
        loaded(path, [WithBytes])
    assert not told.exists()


def test_different_environments_are_refused_and_no_pool_remains(tmp_path):
    path = tmp_path / "pool.ckpt"
    saved_run(path)
    with pytest.raises(CheckpointError, match="of 4 environments, and 3 constructors"):
        loaded(path, [Walk] * 3)
    with pytest.raises(CheckpointError, match="belongs to other environments"):
        loaded(path, [CountingEnv] * 4)
    with pytest.raises(FileNotFoundError):
        loaded(tmp_path / "none", [Walk] * 4)


def test_different_environments_with_equal_leaf_names_are_refused(tmp_path):
    path = tmp_path / "pool.ckpt"
    with ParallelPyEnvironment(["CartPole"] * 2, backend="inline") as env:
        env.reset()
        env.save(path)
    told = r"other environments: its observation is array of shape \(2, 4\)"
    with pytest.raises(CheckpointError, match=told):
        ParallelPyEnvironment.load(path, [CountingEnv] * 2, backend="inline")


@pytest.mark.skipif(os.name != "posix", reason="limits and forks of POSIX")
def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path):
    path = tmp_path / "pool.ckpt"
    expected = saved_run(path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    with pool_of([Walk] * 4) as env:
        env.reset()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            with pytest.raises(OSError, match="too large"):
                env.save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ["pool.ckpt"] == os.listdir(tmp_path)
    assert before == path.read_bytes()
    with loaded(path, [Walk] * 4) as env:
        assert expected == streams.digest_of(moved_on(env, ACTIONS[:20]))


@pytest.mark.skipif(os.name != "posix", reason="limits and forks of POSIX")
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    path = tmp_path / "pool.ckpt"
    results = set()
    with pool_of([CountingEnv]) as env:
        env.save(path, "before")
        for line in range(1, 200):
            child = os.fork()
            if child == 0:
                left = [line]

                def count(frame, event, _, left=left):
                    if frame.f_code.co_filename != checkpoint_module.__file__:
                        return None
                    if event == "line":
                        left[0] -= 1
                        if not left[0]:
                            os.kill(os.getpid(), signal.SIGKILL)
                    return count

                is_done = False
                try:
                    sys.settrace(count)
                    checkpoint_module._replace(path, path.read_bytes()[::-1])
                    is_done = True
                finally:  # Whatever it raises, no second pytest goes on.
                    os._exit(0 if is_done else 1)
            status = os.waitpid(child, 0)[1]
            content = path.read_bytes()
            results.add(content)
            if not status:
                break
        assert not status
        # The old one or the new one, and both have been seen.
        assert 2 == len(results)
        assert content[::-1] in results


def test_a_closed_pool_cannot_be_saved(tmp_path):
    env = pool_of([CountingEnv])
    env.close()
    with pytest.raises(ClosedError):
        env.save(tmp_path / "pool.ckpt")
