"""Two pure functions of JAX keep envkit's contract, row by row."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax
import jax.numpy as jnp

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
)
from envkit.adapters import FunctionalEnvironment
from envkit.errors import ClosedError, SpecError
from envkit.seeding import seed_per_row
from envkit.testing import check_environment
from tests.adapters.functional_games import WAY, reset, step

# What JAX has to compile takes its time.
pytestmark = pytest.mark.slow

ROWS = 4


def game(batch_size=ROWS, **options):
    return FunctionalEnvironment(reset, step, WAY, batch_size=batch_size, **options)


def actions(steps, rows=ROWS):
    return np.random.default_rng(5).integers(0, 2, (steps, rows)).astype(np.int32)


def by_hand(seeds, moves, params=None):
    """Plays both functions without envkit, mapped over the rows and compiled."""
    begin = jax.jit(jax.vmap(reset, (0, None)))
    go_on = jax.jit(jax.vmap(step, (0, 0, 0, None)))
    split = jax.vmap(jax.random.split)
    keys = split(jnp.stack([jax.random.PRNGKey(seed) for seed in seeds]))
    observation, state = begin(keys[:, 1], params)
    rows = len(seeds)
    yield np.zeros(rows), np.zeros(rows), np.ones(rows), observation
    ended = np.zeros(rows, bool)
    for action in moves:
        keys = split(keys[:, 0])
        first, began = begin(keys[:, 1], params)
        seen, after, reward, terminated, truncated, _ = go_on(
            keys[:, 1], state, action, params
        )
        pick = functools.partial(jnp.where, ended)
        observation = jax.tree.map(pick, first, seen)
        state = jax.tree.map(pick, began, after)
        last = np.array(terminated | truncated) & ~ended
        yield (
            np.where(ended, 0, 1 + last),
            np.where(ended, 0, reward),
            np.where(np.array(terminated) & ~ended, 0, 1),
            observation,
        )
        ended = last


def assert_same(expected, time_step):
    expected = jax.tree.leaves(expected)
    leaves = jax.tree.leaves(tuple(time_step))
    assert len(expected) == len(leaves)
    for ours, theirs in zip(expected, leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(ours).astype(theirs.dtype), theirs)


def test_specs_are_inferred_from_what_the_functions_return():
    env = game()

    assert {
        "around": (
            ArraySpec((), np.float32, "observation"),
            ArraySpec((), np.bool_, "observation"),
        ),
        "place": ArraySpec((), np.int32, "observation"),
    } == env.observation_spec()
    assert (ArraySpec((), np.float32, "reward"), WAY) == (
        env.reward_spec(),
        env.action_spec(),
    )


def test_a_batch_matches_the_bare_functions_bit_for_bit():
    env, moves = game(seed=3), actions(40)
    bare = list(by_hand(seed_per_row(3, ROWS), moves))
    ours = [env.reset(), *(env.step(move) for move in moves)]
    for expected, time_step in zip(bare, ours, strict=True):
        assert_same(expected, time_step)
    assert 10 < sum(int(time_step.is_last().sum()) for time_step in ours)


def test_a_single_environment_draws_from_the_key_of_its_seed():
    env, moves = game(None, seed=3), actions(20, 1)
    bare = list(by_hand([3], moves))
    ours = [env.reset(), *(env.step(move[0]) for move in moves)]
    for expected, time_step in zip(bare, ours, strict=True):
        assert_same(
            [np.asarray(leaf)[0] for leaf in jax.tree.leaves(expected)], time_step
        )


def test_a_row_returns_the_same_in_batches_of_any_size():
    few, many, moves = game(2, seed=3), game(5, seed=3), actions(15, 5)
    few.reset(), many.reset()
    for move in moves:
        row, same = few.step(move[:2]), many.step(move)
        assert_same(jax.tree.map(lambda leaf: leaf[:2], tuple(same)), row)


def test_terminated_and_truncated_together_are_a_termination():
    def ends(key, state, action, params):
        return state, state, 1.0, True, True, {}

    env = FunctionalEnvironment(reset_to_zero, ends, WAY)
    env.reset()

    time_step = env.step(0)

    assert (2, 0.0) == (time_step.step_type, time_step.discount)
    assert {"terminated": True, "truncated": True} == env.get_info()


def reset_to_zero(key, params):
    return jnp.float32(0), jnp.float32(0)


def test_truncation_keeps_the_discount():
    def stops(key, state, action, params):
        return state, state, 1.0, False, True, {}

    env = FunctionalEnvironment(reset_to_zero, stops, WAY, discount=0.5)
    env.reset()

    time_step = env.step(0)

    assert (2, 0.5) == (time_step.step_type, time_step.discount)


def test_a_done_flag_is_a_termination():
    def done(key, state, action, params):
        return state, state, 1.0, True, {}

    env = FunctionalEnvironment(reset_to_zero, done, WAY)
    env.reset()

    assert 0.0 == env.step(0).discount


def test_the_last_time_step_has_the_final_observation():
    env = game(1, seed=1)
    places = [int(env.reset().observation["place"][0])]
    while not (time_step := env.step([1])).is_last()[0]:
        places.append(int(time_step.observation["place"][0]))
    assert places[-1] + 2 == int(time_step.observation["place"][0]) >= 7
    assert int(env.step([1]).observation["place"][0]) < 3


def test_steps_after_the_first_compile_nothing():
    traces = []

    def counted(key, state, action, params):
        traces.append(action)
        return step(key, state, action, params)

    env = FunctionalEnvironment(reset, counted, WAY, batch_size=ROWS, seed=1)
    env.reset()
    env.step(actions(1)[0])
    after_first = len(traces)
    for move in actions(20):
        env.step(move)
        env.step(move, np.arange(ROWS) % 2 == 0)
        env.reset(np.arange(ROWS) == 1)
        env.seed(2)
    env.set_state(env.get_state())
    env.step(move)
    env.reset()
    env.step(move.tolist())

    assert after_first == len(traces)


def test_a_second_environment_of_the_same_functions_compiles_nothing():
    traces = []

    def counted(key, state, action, params):
        traces.append(action)
        return step(key, state, action, params)

    for seed in range(3):
        env = FunctionalEnvironment(reset, counted, WAY, batch_size=ROWS, seed=seed)
        env.reset()
        env.step(actions(1)[0])
        if not seed:
            after_first = len(traces)

    assert after_first == len(traces)


def test_parameters_reach_reset_and_step():
    plain, doubled = game(seed=1), game(seed=1, params=2.0)
    plain.reset(), doubled.reset()
    move = np.ones(ROWS, np.int32)
    np.testing.assert_array_equal(
        plain.step(move).reward * 2, doubled.step(move).reward
    )


def test_a_seed_takes_effect_at_the_next_reset():
    env, other = game(seed=1), game(seed=1)
    env.reset(), other.reset()
    env.seed(9)
    mask = np.arange(ROWS) == 0

    rest = env.step(np.ones(ROWS, int)), other.step(np.ones(ROWS, int))
    begun = env.reset(mask), game(seed=9).reset()

    assert_same(tuple(rest[0]), rest[1])
    for ours, fresh in zip(*map(jax.tree.leaves, begun), strict=True):
        assert ours[0] == fresh[0]


def test_a_reset_with_some_seeds_leaves_the_other_rows_streams_alone():
    env, other = game(seed=1), game(seed=1)
    env.reset(), other.reset()

    begun = env.reset(seed=[9] + [None] * (ROWS - 1))

    rest, first = other.reset(), game(seed=[9] * ROWS).reset()
    leaves = zip(
        *map(jax.tree.leaves, (tuple(begun), tuple(rest), tuple(first))), strict=True
    )
    for ours, gone_on, fresh in leaves:
        assert ours[0] == fresh[0]
        assert ours[1:].tolist() == gone_on[1:].tolist()


def test_without_a_seed_streams_differ():
    keys = {game(None).reset().observation["place"].item() for _ in range(40)}
    assert len(keys) > 1


def test_seeds_above_32_bits_are_truncated_as_in_jax():
    first, second = game(None, seed=2**32 + 5), game(None, seed=5)
    assert_same(tuple(first.reset()), second.reset())


def test_the_info_describes_the_current_time_step():
    env = game(2, seed=1)
    assert {} == env.get_info()
    env.reset()
    env.step([1, 0])
    env.reset(np.array([True, False]))

    info = env.get_info()

    assert {"noise", "steps", "terminated", "truncated"} == set(info)
    np.testing.assert_array_equal([0, 1], info["steps"])
    assert info["noise"][0] == 0 < info["noise"][1]


def test_an_info_other_than_a_dictionary_becomes_the_value_of_info():
    def told(key, state, action, params):
        return state, state, 1.0, False, False, jnp.int32(5)

    env = FunctionalEnvironment(reset_to_zero, told, WAY)
    env.reset()
    env.step(0)

    assert 5 == env.get_info()["info"]


def test_a_state_continues_exactly_in_another_environment():
    env, moves = game(seed=1), actions(20)
    env.reset()
    for move in moves[:7]:
        env.step(move)
    token = env.get_state()
    expected = [env.step(move) for move in moves[7:]]
    other = game(seed=99)

    other.set_state(token)

    for time_step, move in zip(expected, moves[7:], strict=True):
        assert_same(tuple(time_step), other.step(move))


def test_the_state_of_another_batch_is_refused(message_of):
    env = game(2)
    assert (
        "FunctionalEnvironment.set_state() was given the state of another environment."
        "\n\n"
        "  expected   step of batch_size 2 and shapes [(), (), (), (), (), (), ()]\n"
        "  got        step of batch_size 3 and shapes [(), (), (), (), (), (), ()]\n\n"
        "A state fits environments that were made with the same arguments."
    ) == message_of(ValueError, lambda: env.set_state(game(3).get_state()))


def test_random_keys_are_saved_with_the_state():
    def begin(key, params):
        return jnp.float32(0), jax.random.key(3)

    def draw(key, state, action, params):
        state, used = jax.random.split(state)
        return jax.random.uniform(used), state, 0.0, False, False, {}

    env = FunctionalEnvironment(begin, draw, WAY, batch_size=2)
    env.reset()
    env.step([0, 0])
    token = env.get_state()
    expected = env.step([0, 0])
    env.set_state(token)

    assert_same(tuple(expected), env.step([0, 0]))


def test_dataclass_observations_become_dictionaries():
    import flax.struct as struct

    @struct.dataclass
    class Seen:
        near: jax.Array

    def begin(key, params):
        return Seen(jnp.zeros(2)), jnp.int32(0)

    def go_on(key, state, action, params):
        return Seen(jnp.ones(2)), state, 0.0, False, False, {}

    env = FunctionalEnvironment(begin, go_on, WAY, batch_size=1)
    env.reset()

    np.testing.assert_array_equal([[1, 1]], env.step([0]).observation["near"])


def test_an_observation_spec_adds_bounds():
    spec = BoundedArraySpec((), np.float32, 0, 1)
    env = FunctionalEnvironment(reset_to_zero, stay, WAY, spec)
    assert spec == env.observation_spec()


def stay(key, state, action, params):
    return state, state, 0.0, False, False, {}


def test_a_mismatched_observation_spec_is_refused(message_of):
    assert (
        "The observation_spec does not describe what Stay observes.\n\n"
        "  given      ArraySpec(shape=(2,), dtype=float32)\n"
        "  observed   ArraySpec(shape=(), dtype=float32, name='observation')"
    ) == message_of(
        ValueError,
        lambda: FunctionalEnvironment(
            reset_to_zero, stay, WAY, ArraySpec((2,), np.float32), name="Stay"
        ),
    )


def test_reset_and_step_must_return_the_same_kind_of_state(message_of):
    def grows(key, state, action, params):
        return state, jnp.zeros(2), 0.0, False, False, {}

    assert (
        "reset and step of Grows return different things as the state.\n\n"
        "  reset   array of shape (), dtype float32\n"
        "  step    array of shape (2,), dtype float32\n\n"
        "JAX compiles both into one function, so they have to agree."
    ) == message_of(
        SpecError,
        lambda: FunctionalEnvironment(reset_to_zero, grows, WAY, name="Grows"),
    )


def test_reset_and_step_must_return_observations_of_one_structure():
    def other(key, state, action, params):
        return {"a": state}, state, 0.0, False, False, {}

    with pytest.raises(SpecError, match="different things as the observation"):
        FunctionalEnvironment(reset_to_zero, other, WAY)


def test_a_step_with_an_invalid_result_is_refused(message_of):
    def three(key, state, action, params):
        return state, state, 0.0

    assert (
        "The step of a functional environment returned a tuple of 3 elements. It must "
        "return the tuple (observation, state, reward, terminated, truncated, info), "
        "or one with done instead of the two flags."
    ) == message_of(SpecError, lambda: FunctionalEnvironment(reset_to_zero, three, WAY))


def test_a_single_environment_refuses_an_invalid_action(message_of):
    env = game(None)
    env.reset()
    assert (
        "FunctionalEnvironment.step() was given an action that does not fit its spec."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=1)\n"
        "  got        array of shape (), dtype int32, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == message_of(SpecError, lambda: env.step(2))


def test_a_closed_environment_raises_closed_error():
    env = game()
    env.reset()
    env.close()
    env.close()
    with pytest.raises(ClosedError):
        env.step(np.zeros(ROWS, int))


def test_rewards_have_the_requested_dtype():
    env = game(reward_dtype=np.int32)
    assert np.int32 == env.reset().reward.dtype == env.reward_spec().dtype


@pytest.mark.parametrize("rows", [None, ROWS])
def test_the_environment_passes_check_environment(rows):
    check_environment(
        functools.partial(game, rows), steps=60, require=["episodes", "seed", "state"]
    )


def test_a_batch_of_single_environments_passes_check_environment():
    check_environment(
        lambda: BatchedPyEnvironment([game(None), game(None)], multithreading=False),
        steps=40,
    )


def test_worker_processes_return_the_same_stream():
    make_env = functools.partial(game, 2, seed=4)
    here, moves = make_env(), actions(8, 2)
    with ParallelPyEnvironment([make_env]) as env:
        assert_same(tuple(here.reset()), env.reset())
        for move in moves:
            assert_same(tuple(here.step(move)), env.step(move))
