"""How a worker builds, seeds, rebuilds and closes its environments."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from envkit import AutoReset, ParallelPyEnvironment
from envkit.errors import ConstructorError
from envkit.parallel.messages import Hello, RemoteFailure, WorkerJob
from envkit.parallel.worker.environments import (
    EnvironmentHost,
    derived_seed,
    resident_bytes,
    run_setup,
)
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.testing import CountingEnv, CrashingEnv
from tests import residue


class Noted(CountingEnv):
    """Notes what happens to it in a list of the test's."""

    def __init__(self, name, notes, close_error=None):
        super().__init__()
        self.name, self.notes, self._close_error = name, notes, close_error
        notes.append(f"make {name}")

    def seed(self, seed):
        self.notes.append(f"seed {self.name} {seed}")
        return self.name

    def close(self):
        self.notes.append(f"close {self.name}")
        if self._close_error:
            raise self._close_error


def host_of(*makers, first_env=2, **options):
    passes = options.pop("passes", ())
    neighbours = options.pop("neighbours", None)
    job = WorkerJob(1, first_env, makers, **options)
    return EnvironmentHost(job, passes, neighbours)


def noted(*names, **errors):
    """Makes constructors of environments that note what happens to them."""
    notes = []
    makers = [lambda name=name: Noted(name, notes, errors.get(name)) for name in names]
    return makers, notes


def test_environments_are_built_in_order_and_announced():
    makers, notes = noted("a", "b")
    host = host_of(*makers)
    hello = host.build()

    assert ["make a", "make b"] == notes
    assert ["a", "b"] == [env.name for env in host.envs]
    assert isinstance(hello, Hello)
    assert os.getpid() == hello.pid
    assert (None, None) == hello.batch_sizes
    assert (EnvironmentSpec.of(host.envs[0]),) * 2 == hello.specs
    assert (hello.resident > 0) == residue.ON_LINUX


def test_a_batch_is_announced_with_its_size():
    class Batch(CountingEnv):
        batched = True
        batch_size = 3

    assert (None, 3) == host_of(CountingEnv, Batch).build().batch_sizes


def test_large_packages_are_announced(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", os)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert ("torch",) == host_of(CountingEnv).build().heavy_modules


# What may be wrong.


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_a_constructor_that_raises_closes_those_before_it(error):
    makers, notes = noted("a")

    def fail():
        raise error

    host = host_of(*makers, fail, *makers)
    failure = host.build()

    assert ["make a", "close a"] == notes
    assert [] == host.envs
    assert ("constructor", 3, "construct", type(error).__name__, os.getpid()) == (
        failure.kind,
        failure.env,
        failure.command,
        failure.type_name,
        failure.pid,
    )


def test_an_environment_may_be_given_again_after_its_worker_has_closed():
    env, neighbours = CountingEnv(), []
    first = host_of(lambda: env, neighbours=neighbours)
    first.build()
    first.close()
    second = host_of(lambda: env, neighbours=neighbours)
    assert isinstance(second.build(), Hello)


def test_specs_that_raise_are_a_failure_and_everything_is_closed():
    makers, notes = noted("a")

    class NoSpecs(CountingEnv):
        def observation_spec(self):
            raise ValueError("no specs")

    failure = host_of(*makers, NoSpecs).build()

    assert ("constructor", -1, "ValueError", "no specs") == (
        failure.kind,
        failure.env,
        failure.type_name,
        failure.message,
    )
    assert ["make a", "close a"] == notes


def test_what_belongs_to_the_carrier_passes_through():
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host_of(fail, passes=(KeyboardInterrupt,)).build()


# Setup.


def test_setup_runs_before_everything_else():
    makers, notes = noted("a")
    host_of(*makers, setup=lambda: notes.append("setup")).build()
    assert ["setup", "make a"] == notes


def test_a_setup_that_raises_is_a_failure_of_the_worker():
    makers, notes = noted("a")

    def fail():
        sys.exit("no licence")

    failure = host_of(*makers, setup=fail).build()

    assert isinstance(failure, RemoteFailure)
    assert ("setup", -1, "setup", "SystemExit", "no licence") == (
        failure.kind,
        failure.env,
        failure.command,
        failure.type_name,
        failure.message,
    )
    assert [] == notes


def test_a_setup_may_be_named(monkeypatch, tmp_path):
    (tmp_path / "my_setup.py").write_text("calls = []\ndef run(): calls.append(1)")
    monkeypatch.syspath_prepend(tmp_path)
    run_setup("my_setup:run")
    assert [1] == sys.modules.pop("my_setup").calls


# Seeds.


def test_seeds_are_given_when_an_environment_has_been_built():
    makers, notes = noted("a", "b", "c")
    host_of(*makers, seeds=(7, None, [1, 2])).build()

    assert [
        "make a",
        "seed a 7",
        "make b",
        "make c",
        "seed c [1, 2]",
    ] == notes


def test_an_environment_that_is_built_anew_gets_a_seed_of_its_own():
    makers, notes = noted("a", "b")
    host = host_of(*makers, seeds=(7, None))
    host.build()
    notes.clear()
    for index in (0, 0, 1):
        host.rebuild(index)

    assert [
        "close a",
        "make a",
        f"seed a {derived_seed(7, 1)}",
        "close a",
        "make a",
        f"seed a {derived_seed(7, 2)}",
        "close b",
        "make b",
    ] == notes


def test_a_seed_given_later_counts_from_then_on():
    makers, notes = noted("a", "b")
    host = host_of(*makers)
    host.build()
    host.rebuild(1)
    result = host.seed(1, 11)
    notes.clear()
    host.rebuild(0)
    host.rebuild(1)

    assert "b" == result
    assert [
        "close a",
        "make a",
        "close b",
        "make b",
        f"seed b {derived_seed(11, 1)}",
    ] == (notes)


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


# The end.


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit(3)], ids=repr)
def test_closing_goes_on_after_one_that_raised(error):
    makers, notes = noted("a", "b", a=error)
    host = host_of(*makers)
    host.build()
    notes.clear()
    errors = host.close()

    assert ["close a", "close b"] == notes
    assert [error] == errors
    assert [] == host.close()


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit(3)], ids=repr)
def test_an_old_environment_that_cannot_close_is_replaced_all_the_same(error, capsys):
    makers, notes = noted("a", a=error)
    host = host_of(*makers)
    host.build()
    host.rebuild(0)

    assert ["make a", "close a", "make a"] == notes
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"close() of an environment raised {type(error).__name__}: {error} (test_"
    )


def test_a_constructor_may_fail_when_it_is_called_again():
    makers = iter([CountingEnv, lambda: CrashingEnv(where="init")])
    host = host_of(lambda: next(makers)())
    host.build()
    with pytest.raises(
        RuntimeError, match=r"^CrashingEnv was told to raise in init 1\.$"
    ):
        host.rebuild(0)


# Memory.


def test_memory_of_a_process_is_known_on_linux():
    assert (resident_bytes(os.getpid()) > 2**20) == residue.ON_LINUX


def test_memory_of_a_process_that_is_gone_is_zero():
    assert 0 == resident_bytes(2**22 + 1)


def test_a_batch_with_an_order_of_its_own_is_refused():
    def pool_inside():
        return ParallelPyEnvironment(
            [CountingEnv] * 2, backend="inline", autoreset=AutoReset.SAME_STEP
        )

    with pytest.raises(ConstructorError) as caught:
        ParallelPyEnvironment([pool_inside], backend="inline")

    assert (
        "env_constructors[0] returned a ParallelPyEnvironment whose order is "
        "AutoReset.SAME_STEP. In a pool an environment begins the next episode with "
        "the step after a LAST: make it with NEXT_STEP, and give the order to the pool."
    ) in str(caught.value)
