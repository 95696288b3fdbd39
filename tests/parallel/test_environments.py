"""How a pool builds, seeds, replaces and closes its environments."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from envkit import AutoReset, ParallelPyEnvironment, RestartPolicy
from envkit.errors import ConstructorError
from envkit.seeding import derived_seed
from envkit.testing import CountingEnv
from tests.parallel.streams import pool_of


class Noted(CountingEnv):
    """Notes what happens to it in a list of the test's."""

    def __init__(self, name, notes, close_error=None):
        super().__init__()
        self.name, self.notes, self._close_error = name, notes, close_error
        self.raises = False
        notes.append(f"make {name}")

    def seed(self, seed):
        self.notes.append(f"seed {self.name} {seed}")

    def _step(self, action):
        if self.raises:
            raise ValueError("told to")
        return super()._step(action)

    def close(self):
        self.notes.append(f"close {self.name}")
        if self._close_error:
            raise self._close_error


def noted(*names, **errors):
    """Makes constructors of environments that note what happens to them."""
    notes = []
    makers = [lambda name=name: Noted(name, notes, errors.get(name)) for name in names]
    return makers, notes


def refusal_of(makers, **options):
    """Returns the message of the error with which a pool is not made."""
    with pytest.raises(ConstructorError) as refused:
        pool_of(makers, num_workers=1, **options)
    return str(refused.value)


def test_constructors_are_called_in_order_after_the_setup():
    makers, notes = noted("a", "b")
    with pool_of(makers, num_workers=1, worker_setup=lambda: notes.append("setup")):
        assert ["setup", "make a", "make b"] == notes


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")], ids=repr)
def test_a_constructor_that_raises_closes_the_environments_before_it(error):
    makers, notes = noted("a")

    def fail():
        raise error

    message = refusal_of([*makers, fail, *makers])
    assert message.startswith(f"env_constructors[1] raised {type(error).__name__}: no")
    assert ["make a", "close a"] == notes


def test_specs_that_raise_close_every_environment():
    makers, notes = noted("a")

    class NoSpecs(CountingEnv):
        def observation_spec(self):
            raise ValueError("no specs")

    assert "ValueError: no specs" in refusal_of([*makers, NoSpecs])
    assert ["make a", "close a"] == notes


def test_ctrl_c_in_a_constructor_is_ctrl_c():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool_of([interrupt])


def test_an_environment_can_be_reused_after_its_pool_has_closed():
    env = CountingEnv()
    for _ in range(2):
        with pool_of([lambda: env]) as pool:
            assert pool.reset().is_first().all()


def test_a_setup_that_raises_builds_nothing():
    makers, notes = noted("a")
    message = refusal_of(makers, worker_setup=lambda: sys.exit("no licence"))
    assert message.startswith("worker_setup raised SystemExit: no licence")
    assert [] == notes


def test_setup_can_be_given_by_name(monkeypatch, tmp_path):
    (tmp_path / "my_setup.py").write_text("calls = []\ndef run(): calls.append(1)")
    monkeypatch.syspath_prepend(tmp_path)
    with pool_of([CountingEnv], worker_setup="my_setup:run"):
        assert [1] == sys.modules.pop("my_setup").calls


def test_a_new_environment_has_its_own_seed():
    makers, notes = noted("a", "b")
    policy = RestartPolicy(backoff=0.0)
    with pool_of(makers, num_workers=1, on_worker_failure=policy) as pool:
        pool.seed([7, 9])
        pool.reset()
        notes.clear()
        for _ in range(2):
            pool.set_attr("raises", True, env_ids=[0])
            for _ in range(3):
                pool.step([0, 0])

    again = ["close a", "make a"]
    first, second = (f"seed a {derived_seed(7, count)}" for count in (1, 2))
    assert [*again, first, *again, second, "close a", "close b"] == notes


@pytest.mark.parametrize("seed", [0, 7, 2**63, [1, None, 3], None], ids=repr)
def test_the_first_environment_has_the_seed_itself(seed):
    assert seed == derived_seed(seed, 0)


def test_derived_seeds_differ_from_one_another_and_are_always_the_same():
    seeds = [
        derived_seed(seed, rebuilds) for seed in (0, 1, 7) for rebuilds in range(5)
    ]

    assert len(seeds) == len(set(seeds))
    assert seeds == [derived_seed(s, r) for s in (0, 1, 7) for r in range(5)]
    assert {int} == set(map(type, seeds))
    # Those of a batch are derived one by one, and those of NumPy are numbers too.
    assert [derived_seed(1, 3), None] == derived_seed([np.int64(1), None], 3)


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit("stuck")], ids=repr)
def test_closing_continues_after_an_environment_raised(error, caplog):
    makers, notes = noted("a", "b", a=error)
    pool_of(makers, num_workers=1).close()

    assert ["make a", "make b", "close a", "close b"] == notes
    kind = type(error).__name__
    assert f"close() of an environment raised {kind}: stuck" in caplog.text


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit("stuck")], ids=repr)
def test_an_environment_that_cannot_close_is_replaced(error, capsys):
    makers, notes = noted("a", a=error)
    policy = RestartPolicy(backoff=0.0)
    with pool_of(makers, on_worker_failure=policy) as pool:
        pool.reset()
        pool.set_attr("raises", True)
        for _ in range(2):
            pool.step([0])
        assert ["make a", "close a", "make a"] == notes

    kind = type(error).__name__
    assert f"close() of an environment raised {kind}: stuck" in capsys.readouterr().err


def test_a_nested_pool_with_its_own_order_is_refused():
    def pool_inside():
        return ParallelPyEnvironment(
            [CountingEnv] * 2, backend="inline", autoreset=AutoReset.SAME_STEP
        )

    assert (
        "env_constructors[0] returned a ParallelPyEnvironment whose order is "
        "AutoReset.SAME_STEP. In a pool an environment begins the next episode with "
        "the step after a LAST: make it with NEXT_STEP, and give the order to the pool."
    ) in refusal_of([pool_inside])
