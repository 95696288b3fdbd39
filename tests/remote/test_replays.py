"""Environments of servers that continue where a session was lost."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, RestartPolicy, connect
from envkit.envs import CartPole
from envkit.parallel.messages import ReplayPlan
from envkit.parallel.slab_layout import SlabLayout
from envkit.remote.plain_values import plan_from_plain, plan_to_plain
from envkit.specs.environment_spec import EnvironmentSpec
from tests.parallel.streams import differences
from tests.remote.serving import served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

FRAGILE = "tests.remote.games:Fragile"
REPLAY = RestartPolicy(
    max_restarts=100, within=None, backoff=0, recover="replay", anchor_every=1
)


def played(backend, kills, **options):
    rng = np.random.default_rng(2)
    with ParallelPyEnvironment(
        ["CartPole"] * 4, backend=backend, on_worker_failure=REPLAY, **options
    ) as env:
        env.seed(5)
        seen = [env.reset()]
        for turn in range(60):
            if turn in kills:
                os.kill(env.workers[turn % 2].pid, signal.SIGKILL)
            seen += [env.step(rng.integers(0, 2, 4)), env.repaired]
        return seen, env.statistics().recovered


def test_replay_hides_a_killed_session():
    expected, _ = played("inline", ())
    with served("CartPole") as server:
        actual, recovered = played(server.address, (20, 51), num_workers=2)

    assert [] == differences(expected, actual)
    assert 4 == recovered


def test_replay_hides_a_crash_of_the_environment(tmp_path):
    def streamed(address):
        how = {"num_workers": 2, "on_worker_failure": REPLAY}
        with connect(f"{address}/{FRAGILE}", num_envs=4, **how) as env:
            seen = [env.reset(seed=5)]
            for turn in range(20):
                seen.append(env.step([0, 0, turn in (4, 13), 0]))
                assert not env.repaired.any()
            return seen

    place = tmp_path / "file"
    with served(FRAGILE, arguments={"place": str(place)}) as server:
        expected = streamed(server.address)
        place.touch()
        actual = streamed(server.address)

    assert not place.exists()
    assert [] == differences(expected, actual)


# What a server thinks of plans.


def a_plan(**changes):
    plan = ReplayPlan(
        seed=3,
        known_seed=(3, 0),
        attributes=(),
        state=None,
        ended=(),
        resets=1,
        number=2,
        times=np.arange(2),
        rows=np.zeros(2, np.int64),
        numbers=np.array([4, 6], np.uint32),
        commands=np.ones(2, np.uint8),
        orders=np.zeros(2, np.uint8),
        actions=(np.array([0, 1]),),
        notes=((1, "seed", 4),),
    )
    return plan_to_plain(plan._replace(**changes))


LAYOUT = SlabLayout(EnvironmentSpec.of(CartPole()), ((0, 2),))
BAD = {
    "no list": 7,
    "too short": a_plan()[:-1],
    "strange rows": a_plan(rows=np.array([0, 1])),
    "unknown commands": a_plan(commands=np.array([1, 3], np.uint8)),
    "no columns": a_plan(numbers=[4, 6]),
    "other lengths": a_plan(orders=np.zeros(3, np.uint8)),
    "another order": a_plan(times=np.array([1, 0])),
    "endless resets": a_plan(resets=1 << 40),
    "a negative number": a_plan(number=-2),
    "attributes": a_plan(attributes=(("closed", True),)),
    "a state": a_plan(state=b"pickled"),
    "a call": a_plan(notes=((1, "call", ("close", (), {})),)),
    "half a note": a_plan(notes=((1, "seed"),)),
    "no actions": a_plan(actions=()),
    "other actions": a_plan(actions=(np.zeros((2, 2), np.int64),)),
}


def test_a_plan_arrives_unchanged():
    assert repr(a_plan()) == repr([*plan_from_plain(a_plan(), LAYOUT, 1)])


def test_a_plan_with_an_action_out_of_bounds_is_refused():
    plan = plan_from_plain(a_plan(actions=(np.array([-5, 9]),)), LAYOUT, 1)
    assert [0, 1] == plan.actions[0].tolist()


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_plan_is_refused(case):
    with pytest.raises(ValueError, match=r"plan .*(must|has)"):
        plan_from_plain(BAD[case], LAYOUT, 1)
