"""Lost episodes of actors in a Ray cluster on this machine."""

from __future__ import annotations

import resource
import signal

import pytest

from envkit import ParallelPyEnvironment
from envkit.testing import chaos
from tests.lost.ledger import episodes_to_play
from tests.lost.leftovers import expect_nothing_since
from tests.lost.numbered import NumberedEnv
from tests.lost.players import ENDLESS, FAULTS, play
from tests.residue import Residue


@pytest.fixture(autouse=True)
def _no_process_left():
    """Replaces the check of each test: the cluster keeps processes for others."""


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """A cluster on this machine."""
    library = pytest.importorskip("ray", reason="ray is not installed")
    before = Residue.now()
    # Both are changed by ray.init().
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    handler = signal.getsignal(signal.SIGTERM)
    library.init(num_cpus=2, include_dashboard=False, logging_level=40)
    yield
    library.shutdown()
    signal.signal(signal.SIGTERM, handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    expect_nothing_since(before)


def test_actors_mark_every_lost_episode():
    faults = {**FAULTS, "every_steps": 40}
    with (
        ParallelPyEnvironment(
            [NumberedEnv] * 4,
            backend="ray",
            num_workers=2,
            step_timeout=1.0,
            on_worker_failure=ENDLESS,
        ) as env,
        chaos(env, **faults),
    ):
        ledger = play(env, episodes_to_play(60))
    ledger.close("crashed", "raised")
