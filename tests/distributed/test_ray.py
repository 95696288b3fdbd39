"""Pools whose workers Ray places, starts and watches."""

from __future__ import annotations

import functools
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import envkit
from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    ParallelPyEnvironment,
    RestartPolicy,
    StandbyEnvironment,
)
from envkit.distributed import RayBackend
from envkit.errors import MissingDependencyError, WorkerCrashed
from tests.parallel import streams
from tests.parallel.contract.check_backend import check_backend
from tests.parallel.environments import Stubborn, Walk
from tests.parallel.trouble import Troubled, exits, plan, signalled
from tests.residue import Process
from tests.sessions.environments import Owned
from tests.sessions.playing import group_of_seven, kill_one, seven_alone
from tests.sessions.running import run
from tests.waiting import is_running, until

HOST = socket.gethostname()
LAST, FIRST = 2, 0


@pytest.fixture(scope="module")
def ray():
    """Connects with a cluster on this machine that has room for eight workers."""
    library = pytest.importorskip("ray", reason="ray is not installed")
    # Both are changed by ray.init().
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    handler = signal.getsignal(signal.SIGTERM)
    library.init(
        num_cpus=8, resources={"games": 4}, include_dashboard=False, logging_level=40
    )
    yield library
    library.shutdown()
    signal.signal(signal.SIGTERM, handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def pool_of(makers, *, workers=2, kind=ParallelPyEnvironment, backend="ray", **options):
    return kind(
        makers,
        num_workers=workers,
        backend=backend,
        start_serially=False,
        **options,
    )


def troubled(count):
    # Long episodes: a loss between two of them is repaired without a sign.
    make = functools.partial(Troubled, steps_per_episode=10**6)
    return [functools.partial(make, env) for env in range(count)]


def pid_of(env, worker=0):
    return env.workers[worker].pid


def actor_of(pid):
    """Returns the process of the actor that has started a worker."""
    return Process.read(f"/proc/{pid}").parent


def assert_loss_is_repaired(env, worker):
    """Steps on; a worker that is being lost must become truncations and go on."""
    lost = until(
        lambda: step if (step := env.step([0] * 4)) and env.repaired.any() else None
    )
    rows = env.repaired
    mine = list(env.workers[worker].rows)

    assert mine == np.flatnonzero(rows).tolist()
    assert (lost.step_type[rows] == LAST).all()
    assert (lost.reward[rows] == 0).all()
    assert (lost.discount[rows] == 1).all()
    assert (env.step([0] * 4).step_type[rows] == FIRST).all()
    assert HOST == env.workers[worker].host


@pytest.mark.slow
def test_a_pool_continues_after_an_actor_was_killed(ray):
    policy = RestartPolicy(max_restarts=9, backoff=0.0)
    with pool_of(troubled(4), on_worker_failure=policy) as env:
        env.reset()
        env.step([0] * 4)
        os.kill(actor_of(pid_of(env, 1)), signal.SIGKILL)

        assert_loss_is_repaired(env, 1)


@pytest.mark.heavy
class TestRay:
    """All that takes longer."""

    def test_the_ray_backend_keeps_the_contract(self, ray):
        report = check_backend(functools.partial(RayBackend, num_cpus_per_worker=0.5))

        assert {} == report.skipped

    def test_sessions_play_and_are_lost_on_ray_as_anywhere(self, ray):
        assert [seven_alone()] * 4 == run(group_of_seven("ray"))
        ends = run(kill_one(Owned, "ray"))
        assert ["crashed", ("terminated", 6.0), ("terminated", 6.0)] == ends

    def test_a_ray_pool_equals_a_local_pool_in_every_order(self, ray):
        with (
            pool_of([Walk] * 5) as env,
            ParallelPyEnvironment([Walk] * 5, backend="inline") as other,
        ):
            for order in AutoReset:
                expected = streams.played(other, order)

                assert str(expected) == str(streams.played(env, order))

    @pytest.mark.parametrize("in_workers", [False, True])
    def test_standby_environments_work_on_ray(self, ray, in_workers):
        actions = np.zeros((3, 2), np.float32)
        pair = functools.partial(StandbyEnvironment, Walk, in_workers=in_workers)
        with (
            pool_of([pair] * 3) as env,
            ParallelPyEnvironment([pair] * 3, backend="inline") as other,
        ):
            env.seed(3), other.seed(3)
            expected = streams.play(other, [actions] * 12)
            assert str(expected) == str(streams.play(env, [actions] * 12))
            env.set_state(other.get_state())
            for _ in range(9):
                assert str(other.step(actions)) == str(env.step(actions))

    def test_a_number_of_environments_is_made_on_as_many_workers_as_it_has_cpus(
        self, ray
    ):
        with envkit.make("CartPole", num_envs=9, backend="ray") as env:
            assert env.reset().is_first().all()
            assert 8 == len(env.workers)

    def test_an_asynchronous_pool_returns_rows_when_they_are_ready(self, ray):
        with pool_of(troubled(4), kind=AsyncParallelPyEnvironment) as env:
            env.reset_async()
            for _ in range(20):
                batch = env.recv(count=2)
                env.send(batch.env_ids, batch.env_ids)

            assert 2 == len(env.recv(count=2).env_ids)

    @pytest.mark.parametrize("end", [exits(3), signalled(signal.SIGSEGV)])
    def test_a_worker_that_ends_is_restarted_beside_the_same_actor(self, ray, end):
        policy = RestartPolicy(max_restarts=9, backoff=0.0)
        with pool_of(troubled(4), on_worker_failure=policy) as env:
            env.reset()
            actor = actor_of(pid_of(env))
            plan(env, 0, "step", end)

            assert_loss_is_repaired(env, 0)
            assert actor == actor_of(pid_of(env))

    @pytest.mark.parametrize("what", ["worker", "actor"])
    def test_environments_continue_after_a_loss(self, ray, what):
        policy = RestartPolicy(max_restarts=9, backoff=0.0, recover="replay")
        actions = np.zeros((4, 2), np.float32)
        with (
            pool_of([Walk] * 4, on_worker_failure=policy) as env,
            ParallelPyEnvironment([Walk] * 4, backend="inline") as other,
        ):
            for each in (env, other):
                each.seed(3)
                each.reset()
            for turn in range(12):
                if turn == 5:
                    pid = pid_of(env, 1)
                    os.kill(pid if what == "worker" else actor_of(pid), signal.SIGKILL)
                    assert until(lambda pid=pid: not is_running(pid))

                assert str(other.step(actions)) == str(env.step(actions))
            assert 2 == env.statistics().recovered

    @pytest.mark.parametrize(
        ("lose", "text"),
        [
            (lambda pid: os.kill(pid, signal.SIGSEGV), "was killed by SIGSEGV"),
            (
                lambda pid: os.kill(actor_of(pid), signal.SIGKILL),
                "lost its Ray actor",
            ),
        ],
        ids=["worker", "actor"],
    )
    def test_the_error_says_how_and_where_a_worker_ended(self, ray, lose, text):
        with pool_of(troubled(2)) as env:
            env.reset()
            pid = pid_of(env, 1)
            lose(pid)
            with pytest.raises(WorkerCrashed) as caught:
                until(lambda: env.step([0] * 2) is None)

            assert f"worker 1 (pid {pid} on {HOST}) {text}" in str(caught.value)
            assert until(lambda: not is_running(pid))

    def test_closing_leaves_no_worker_and_no_actor(self, ray):
        with pool_of([Stubborn] * 2) as env:
            workers = [pid_of(env, worker) for worker in range(2)]
            actors = [actor_of(pid) for pid in workers]

        assert not any(map(is_running, workers))
        assert until(lambda: not any(map(is_running, actors)))

    def test_workers_end_with_the_actor_that_owns_their_pool(self, ray):
        class Owner:
            def open(self):
                self.env = ParallelPyEnvironment([Stubborn] * 2, backend="ray")
                return [worker.pid for worker in self.env.workers]

        owner = ray.remote(Owner).remote()
        workers = ray.get(owner.open.remote())
        actors = [actor_of(pid) for pid in workers]
        ray.kill(owner)

        assert until(lambda: not any(map(is_running, [*workers, *actors])))

    def test_a_worker_gets_the_resources_it_asks_for(self, ray):
        group = ray.util.placement_group([{"CPU": 1, "games": 1}] * 2)
        backend = RayBackend(
            resources={"games": 1},
            placement=group,
            runtime_env={"env_vars": {"GAME": "chess"}},
        )
        with ParallelPyEnvironment([Variable] * 3, backend=backend) as env:
            assert ["chess"] * 3 == list(env.call("variable", "GAME"))
            # A group has as many places as bundles.
            assert 2 == len(env.workers)
        ray.util.remove_placement_group(group)

    @pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
    def test_links_that_others_can_reach_are_encrypted(self, ray, host):
        backend = RayBackend(num_cpus_per_worker=0.5, host=host)
        with pool_of([Walk], workers=1, backend=backend) as env:
            assert env.reset().is_first().all()
            (worker,) = backend._workers.values()

            assert (host != "127.0.0.1") == worker.link.is_tls

    def test_a_worker_that_ray_cannot_place_is_reported(self, ray, caplog, monkeypatch):
        monkeypatch.setattr("envkit.distributed.ray._UNPLACED", 0.0)
        # The actors of the tests before may still give back what they had.
        assert until(lambda: ray.available_resources().get("CPU") == 8)
        backend = RayBackend(num_cpus_per_worker=99, resources={"GPU": 0.5})
        with pytest.raises(TimeoutError):
            pool_of([Walk], backend=backend, start_timeout=2.0)

        assert (
            "Ray has no place for worker 0 yet, which needs 99 CPU, 0.5 GPU: free in "
            "the cluster are 8 CPU, 0 GPU. Fewer workers (num_workers=) or less for "
        ) in caplog.text

    def test_ray_client_is_refused(self, ray, monkeypatch):
        monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
        with pytest.raises(RuntimeError) as caught:
            pool_of([Walk])

        assert str(caught.value).startswith(
            "A pool cannot use Ray by Ray Client (ray://...), because its workers have "
            "to reach it: run this program on a machine of the cluster"
        )

    def test_ray_client_is_refused_before_it_connects(self, ray):
        with program(CLIENT, address="ray://127.0.0.1:1") as driver:
            told = driver.stdout.read()

        assert told.startswith("A pool cannot use Ray by Ray Client (ray://...)")

    def test_workers_and_actors_end_when_the_driver_is_killed(self, ray):
        with program(DRIVER, address=address_of(ray)) as driver:
            workers = [int(word) for word in driver.stdout.readline().split()]
            actors = [actor_of(pid) for pid in workers]
            driver.kill()

        assert 2 == len(workers)
        assert until(lambda: not any(map(is_running, [*workers, *actors])))

    def test_a_pool_survives_ctrl_c_at_any_moment(self, ray):
        with program(INTERRUPTED, address=address_of(ray)) as driver:
            told = driver.stdout.read()

        assert (0, "done") == (driver.returncode, told.strip())

    def test_a_cluster_started_by_the_program_ends_with_it(self, ray):
        with program(DRIVER, address="local") as driver:
            workers = [int(word) for word in driver.stdout.readline().split()]
            actors = [actor_of(pid) for pid in workers]
            raylet = actor_of(actors[0])
            driver.kill()

        assert until(lambda: not any(map(is_running, [*workers, *actors, raylet])))

    def test_a_node_that_is_removed_is_repaired_on_another(self, ray):
        with program(TWO_NODES, address="local") as driver:
            told = driver.stdout.read()

        assert "repaired 2 and [2, 2] then [0, 0]" in told


class Variable(Walk):
    """Tells variables of its process."""

    def variable(self, name):
        return os.environ.get(name)


REFUSED = {
    "no number": (
        {"num_cpus_per_worker": "many"},
        "num_cpus_per_worker must be a number of at least 0, got the string 'many'.",
    ),
    "less than nothing": (
        {"num_cpus_per_worker": -1},
        "num_cpus_per_worker must be a number of at least 0, got -1 of type int.",
    ),
    "CPUs twice": (
        {"resources": {"CPU": 1}},
        "num_cpus_per_worker is what says how many CPUs a worker needs, and resources "
        "must not.",
    ),
    "no amount": (
        {"resources": {"GPU": "one"}},
        "resources must map names to amounts, such as {\"GPU\": 0.25}, got 'GPU': the "
        "string 'one'.",
    ),
    "no names": (
        {"resources": 3},
        'resources must be a dictionary such as {"GPU": 0.25}, got 3 of type int.',
    ),
    "no place": (
        {"placement": "EVERYWHERE"},
        "placement must be 'SPREAD' or 'DEFAULT', a placement group of Ray, or one of "
        "its scheduling strategies, got the string 'EVERYWHERE'.",
    ),
    "no environment": (
        {"runtime_env": "envkit"},
        'runtime_env must be a dictionary as Ray takes it, such as {"env_vars": '
        '{"LEVEL": "3"}}, got the string \'envkit\'.',
    ),
}


@pytest.mark.heavy
@pytest.mark.parametrize("case", REFUSED)
def test_invalid_ray_options_are_refused(case):
    pytest.importorskip("ray", reason="ray is not installed")
    options, text = REFUSED[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        RayBackend(**options)

    assert text == str(caught.value)


def test_a_missing_ray_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError) as caught:
        pool_of([Walk])

    assert (
        'backend="ray" needs the package ray, which is not installed. '
        'pip install "ray>=2.40"'
    ) == str(caught.value)


# Programs.


def address_of(ray):
    return ray.get_runtime_context().gcs_address


def program(text, *, address):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_ADDRESS": address},
    )


DRIVER = """
    import sys
    from envkit import ParallelPyEnvironment
    from tests.parallel.environments import Stubborn

    env = ParallelPyEnvironment([Stubborn] * 2, num_workers=2, backend="ray")
    env.reset()
    print(*(worker.pid for worker in env.workers), flush=True)
    sys.stdin.read()
"""
CLIENT = """
    from envkit import ParallelPyEnvironment
    from envkit.envs import CartPole

    try:
        ParallelPyEnvironment([CartPole], backend="ray")
    except RuntimeError as error:
        print(error)
"""
INTERRUPTED = """
    import os, random, signal, threading
    from envkit import ParallelPyEnvironment, RestartPolicy
    from envkit.testing import CountingEnv

    def interrupted(call, after):
        \"\"\"Makes a call again and again, until Ctrl-C.\"\"\"
        timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                call()
        except KeyboardInterrupt:
            pass

    def start():
        global env
        if env is None:
            env = ParallelPyEnvironment(
                [CountingEnv] * 4, num_workers=2, backend="ray", start_serially=False,
                on_worker_failure=RestartPolicy(max_restarts=99, backoff=0.0),
            )
            env.reset()
        env.step([0] * 4)

    env = None
    moments = random.Random(0)
    for round in range(3):
        # While Ray is being connected, while workers start, once they have.
        after = 0.1
        while env is None:
            interrupted(start, after)
            after *= 2
        for _ in range(30):
            interrupted(lambda: env.step([0] * 4), moments.uniform(0.0, 0.05))
        interrupted(env.reset, 0.01)
        env.close()
        env = None
    print("done", flush=True)
"""
TWO_NODES = """
    import functools, ray
    from ray.cluster_utils import Cluster
    from envkit import ParallelPyEnvironment, RestartPolicy
    from envkit.testing import CountingEnv

    # A node has room for one worker, so each is on its own.
    head = dict(num_cpus=1, include_dashboard=False)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level=40)
    env = ParallelPyEnvironment(
        # A loss between two episodes is repaired without a sign.
        [functools.partial(CountingEnv, 10**6)] * 4, backend="ray",
        start_serially=False,
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=0.0),
    )
    env.reset()
    env.step([0] * 4)
    cluster.add_node(num_cpus=1)
    cluster.remove_node(other, allow_graceful=False)
    while True:
        step = env.step([0] * 4)
        if env.repaired.any():
            break
    rows = env.repaired
    then = env.step([0] * 4)
    print(
        "repaired", rows.sum(), "and", step.step_type[rows].tolist(), "then",
        then.step_type[rows].tolist(), flush=True,
    )
    env.close()
    ray.shutdown()
    cluster.shutdown()
"""
