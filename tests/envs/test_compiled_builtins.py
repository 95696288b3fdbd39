"""The built-in batches with `compiled=True`: the same numbers, to the last bit."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import AutoReset, make
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.envs.base import _count
from envkit.envs.kernels import compiled, fingerprint
from envkit.errors import MissingDependencyError, SpecError
from envkit.testing import check_environment
from tests.comparing import bits

pytest.importorskip("numba", reason="numba is not installed")

# Episodes are short, so that a few dozen steps see several of them.
MAKERS = {
    "Bandit": functools.partial(Bandit, num_arms=3, episode_length=7),
    "CartPole": functools.partial(CartPole, max_episode_steps=15),
    "CartPole without a limit": functools.partial(CartPole, max_episode_steps=None),
    "Catch": functools.partial(Catch, rows=5, columns=3),
    "GridWorld": functools.partial(GridWorld, size=3, max_episode_steps=6),
    "TicTacToe": TicTacToe,
}
ROWS = 5
every_environment = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def as_python(env):
    """Has a compiled batch run its kernels as the plain Python that they are."""
    kernels = type(env)._kernels
    env._loops = env._loops._replace(
        begin=kernels.begin,
        advance=kernels.advance,
        observe=kernels.observe,
        count=_count,
    )
    return env


def three(make, **given):
    """Returns a batch in NumPy, one compiled, and one of kernels in plain Python."""
    batches = make(ROWS, **given), *(make(ROWS, compiled=True, **given) for _ in "ab")
    as_python(batches[2])
    return batches


def whole(env):
    """Returns all that there is to see of a batch, its state included."""
    return [env.current_time_step(), env.get_info(), env.get_state().environment]


masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)


@every_environment
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from(AutoReset), data=st.data())
@settings(max_examples=8)
def test_compiled_batches_match_numpy_bit_for_bit(make, seed, order, data):
    batches = three(make, seed=seed, autoreset=order)
    highest = int(batches[0].action_spec().maximum)
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):  # Counters run over, as they are meant to.
        for env in batches:
            env.reset()
        for _ in range(30):
            calls = ["step", "step", "step", "step", "mask", "reset", "seed"]
            call = data.draw(st.sampled_from(calls))
            mask = np.array(data.draw(masks)) if call in {"mask", "reset"} else None
            ended = batches[0].current_time_step().is_last()
            if order is AutoReset.DISABLED and call in {"step", "mask"} and ended.any():
                call, mask = "reset", ended
            action = rng.integers(0, highest, ROWS, endpoint=True)
            for env in batches:
                if call == "reset":
                    env.reset(mask)
                elif call == "seed":
                    env.reset(seed=[7, None, None, 8, None], mask=[True] * ROWS)
                else:
                    env.step(action, mask)
            for env in batches[1:]:
                assert bits(whole(batches[0])) == bits(whole(env))


@every_environment
def test_states_are_interchangeable_between_compiled_and_numpy(make):
    slow, fast = make(ROWS, seed=1), make(ROWS, seed=2, compiled=True)
    rng = np.random.default_rng(3)
    highest = int(slow.action_spec().maximum)
    actions = [rng.integers(0, highest, ROWS, endpoint=True) for _ in range(20)]
    for source, target in ((slow, fast), (fast, slow)):
        source.reset()
        for action in actions[:7]:
            source.step(action)
        target.set_state(source.get_state())
        for action in actions:
            assert bits(source.step(action)) == bits(target.step(action))
        assert bits(source.get_info()) == bits(target.get_info())


@every_environment
def test_copies_continue_alike(make):
    env = make(ROWS, seed=1, compiled=True)
    env.reset()
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    action = np.zeros(ROWS, int)
    for _ in range(12):
        expected = env.step(action)
        for each in copies:
            assert each.compiled
            assert bits(expected) == bits(each.step(action))


@pytest.mark.slow
@every_environment
def test_a_compiled_batch_passes_check_environment(make):
    check_environment(functools.partial(make, ROWS, compiled=True))


def test_make_accepts_compiled_environments():
    env = make("CartPole", batch_size=3, compiled=True, seed=1)
    assert env.compiled
    assert not make("CartPole", batch_size=3).compiled
    assert {"batch_size": 3, "compiled": True, "seed": 1} == env.provenance()[
        "arguments"
    ]


def test_actions_are_checked_before_anything_moves():
    env = CartPole(3, seed=1, compiled=True)
    env.reset()
    before = env.get_state()
    with pytest.raises(SpecError, match="The action of row 1 is 2, above the maximum"):
        env.step([0, 2, 1])
    assert bits(before) == bits(env.get_state())


def test_a_single_environment_is_not_compiled(message_of):
    assert (
        "CartPole(compiled=True) must have a batch_size: a single environment has "
        "nothing to gain."
    ) == message_of(ValueError, lambda: CartPole(compiled=True))


class Slippery(CartPole):
    def _advance(self, actions, live):
        return super()._advance(1 - actions, live)


def test_a_subclass_with_its_own_rules_is_not_compiled(message_of):
    assert (
        "Slippery overrides _advance, which the kernels of CartPole ignore; "
        "make it without compiled=True."
    ) == message_of(NotImplementedError, lambda: Slippery(3, compiled=True))


def test_without_numba_the_error_says_how_to_install_it(monkeypatch, message_of):
    class Pole(CartPole):
        """Another class, whose kernels are looked for anew."""

    monkeypatch.setitem(sys.modules, "numba", None)
    assert (
        "Pole(compiled=True) needs the package numba, which is not installed. "
        'pip install "numba>=0.61"'
    ) == message_of(MissingDependencyError, lambda: Pole(3, compiled=True))


def test_nothing_is_compiled_by_default():
    program = (
        "import sys; from envkit.envs import CartPole; CartPole(3).reset(); "
        "print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "False False" == told.stdout.strip()


# What is compiled is kept.

SCALE = 3


def helped(x):
    return x * SCALE


def kernel(values):
    for index in range(len(values)):
        values[index] = helped(values[index])


def again(values):
    return 0 if len(values) == 0 else 1 + again(values[1:])


def around(factor):
    def inner(values):
        return values[0] * factor

    return inner


def test_functions_called_by_a_kernel_are_compiled_with_it():
    values = np.arange(3)
    compiled(kernel)(values)
    assert [0, 3, 6] == values.tolist()
    assert 3 == compiled(again)(values)
    assert 6 == compiled(around(2))(values[1:])


def test_a_kernel_is_compiled_once_per_process():
    assert compiled(kernel) is compiled(kernel)
    assert compiled(kernel) is not compiled(kernel, bounds_checked=True)


def test_a_fingerprint_changes_with_every_dependency_of_a_kernel(monkeypatch):
    prints = [fingerprint(kernel), fingerprint(helped), fingerprint(around(2))]
    assert fingerprint(around(2)) == prints[2]
    assert fingerprint(around(3)) not in prints
    monkeypatch.setitem(globals(), "SCALE", 4)
    assert not {fingerprint(kernel), fingerprint(helped)} & set(prints)
    monkeypatch.setitem(globals(), "SCALE", object())
    assert fingerprint(kernel) is None


def test_compiled_kernels_are_shared_between_processes(tmp_path):
    program = (
        "from envkit.envs import Catch; env = Catch(4, compiled=True, seed=1); "
        "env.reset(); env.step([0] * 4); stats = env._loops.advance.stats; "
        "print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))"
    )
    command = [sys.executable, "-c", program]
    # Where a user's caches are is what the system says.
    where = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    told = [
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **where},
        ).stdout.strip()
        for _ in range(2)
    ]
    assert ["0 1", "1 0"] == told


def test_without_a_writable_cache_kernels_are_still_compiled(tmp_path):
    program = (
        "from envkit.envs import Catch; env = Catch(4, compiled=True, seed=1); "
        "env.reset(); print(env.step([0] * 4).step_type)"
    )
    nowhere = tmp_path / "file"
    nowhere.write_text("", "utf-8")
    where = {"XDG_CACHE_HOME": str(nowhere), "HOME": str(nowhere)}
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **where},
    )
    assert "[1 1 1 1]" == told.stdout.strip()
