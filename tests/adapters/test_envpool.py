"""`EnvPoolWrapper`: the numbers of EnvPool's pools, in every reset order."""

from __future__ import annotations

import functools
import os
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envkit
from envkit import AutoReset, BoundedArraySpec, ParallelPyEnvironment, nest
from envkit.adapters import EnvPoolWrapper
from envkit.adapters.values import map_specs
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.testing import check_environment
from tests.adapters.pools import FIRST, LAST, MID, Actions, bare, envpool, row_of
from tests.waiting import until

NEXT_STEP, SAME_STEP, DISABLED = AutoReset
# Each has another kind of observations or actions.
GAMES = {
    "CartPole-v1": {},
    "Pendulum-v1": {"max_episode_steps": 6},
    "FrozenLake-v1": {},
    "MiniGrid-Empty-5x5-v0": {"max_episode_steps": 5},
}
each_game = pytest.mark.parametrize("name", GAMES)
SEEDS = [3, 1, 4]


def wrapped(name="CartPole-v1", seeds=SEEDS, **arguments):
    return EnvPoolWrapper(
        name, num_envs=len(seeds), seed=list(seeds), **GAMES.get(name, {}), **arguments
    )


def assert_same_observation(expected, got):
    """Compares with EnvPool's own, whose dtypes its spaces do not always have."""
    pairs = zip(nest.flatten(expected), nest.flatten(got), strict=True)
    for one, other in pairs:
        assert np.array_equal(one, other)


# The numbers of the pool.


@each_game
def test_time_steps_match_the_bare_pool(name):
    pool = bare(name, SEEDS, **GAMES[name])
    with wrapped(name) as env:
        actions = Actions(env.action_spec(), 3)
        first, _ = pool.reset()
        assert_same_observation(first, env.reset().observation)
        for _ in range(30):
            action = actions.batch()
            over = env.current_time_step().is_last()
            observation, reward, terminated, truncated, _ = pool.step(action)
            time_step = env.step(action)

            assert_same_observation(observation, time_step.observation)
            assert reward.tobytes() == time_step.reward.tobytes()
            kinds = np.where(over, FIRST, MID)
            kinds[terminated | truncated] = LAST
            assert kinds.tolist() == time_step.step_type.tolist()
            assert np.where(terminated, 0, 1).tolist() == time_step.discount.tolist()


@each_game
def test_time_steps_match_their_specs_exactly(name):
    with wrapped(name) as env:
        structure = nest.Structure(env.time_step_spec())
        for time_step in (env.reset(), env.step(Actions(env.action_spec(), 3).batch())):
            leaves = structure.flatten(time_step)
            for leaf, spec in zip(leaves, structure.leaves, strict=True):
                assert ((3, *spec.shape), spec.dtype) == (leaf.shape, leaf.dtype)


def test_a_truncation_keeps_the_discount():
    with wrapped("Pendulum-v1", discount=0.9) as env:
        steps = [env.step(np.zeros((3, 1), np.float32)) for _ in range(8)]
    kinds = [int(time_step.step_type[0]) for time_step in steps]
    discounts = [time_step.discount[0] for time_step in steps]
    assert [FIRST, MID, MID, MID, MID, MID, LAST, FIRST] == kinds
    assert np.array_equal(np.float32([1, *[0.9] * 6, 1]), discounts)


def test_a_first_has_no_reward():
    with wrapped("MetaWorld/ButtonPress-v3", [1], max_episode_steps=1) as env:
        rewards = [env.reset().reward]
        rewards += [env.step(np.zeros((1, 4), np.float32)).reward for _ in range(4)]
    assert [0.0, 0.0, 0.0] == [float(reward[0]) for reward in rewards[::2]]
    assert rewards[1] > 0


def test_an_existing_pool_gives_the_same_stream():
    with EnvPoolWrapper(bare("CartPole-v1", SEEDS)) as env, wrapped() as other:
        assert row_of(env.reset(), 1) == row_of(other.reset(), 1)


def test_arrays_belong_to_the_caller():
    with wrapped() as env, wrapped() as other:
        kept = [env.reset()]
        copies = [nest.map_structure(np.copy, kept[0])]
        for _ in range(20):
            action = np.array([0, 1, 0])
            kept.append(env.step(action))
            copies.append(nest.map_structure(np.copy, kept[-1]))
        same = [row_of(kept[n], 0) == row_of(copies[n], 0) for n in range(21)]
        assert all(same)
        other.reset()
        for _ in range(20):
            time_step = other.step(np.array([0, 1, 0]))
            expected = row_of(time_step, 2)
            for leaf in nest.flatten(time_step):
                leaf[...] = 77
        assert expected == row_of(copies[-1], 2)


# Rows.


def solo_streams(ops, rows, name="CartPole-v1"):
    """Plays every row in a pool of its own, in which nothing can be mixed up."""
    streams = []
    for row in range(rows):
        with wrapped(name, [SEEDS[row]]) as env:
            actions = Actions(env.action_spec(), rows)
            stream = [row_of(env.reset(), 0)]
            for op, mask in ops:
                batch = actions.batch(mask if op == "step" else [False] * rows)
                if not mask[row]:
                    stream.append(stream[-1])
                elif op == "reset":
                    stream.append(row_of(env.reset(), 0))
                else:
                    stream.append(row_of(env.step(batch[row : row + 1]), 0))
            streams.append(stream)
    return streams


masks = st.lists(st.booleans(), min_size=3, max_size=3)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from(["step"] * 7 + ["reset"]), masks)))
def test_a_rows_stream_does_not_depend_on_other_rows(ops):
    ops = [*ops, *[("step", [True, True, False])] * 15]
    with wrapped() as env:
        actions = Actions(env.action_spec(), 3)
        seen = [env.reset()]
        for op, mask in ops:
            if op == "reset":
                seen.append(env.reset(np.array(mask)))
            else:
                seen.append(env.step(actions.batch(mask), np.array(mask)))
        rows = [[row_of(time_step, row) for time_step in seen] for row in range(3)]

    assert solo_streams(ops, 3) == rows


def test_rows_can_step_while_others_reset():
    with wrapped() as env:
        env.reset()
        env.step([0, 0, 0])
        before = env.current_time_step()
        moved = env.step_rows(
            [1, 0, 0], np.array([True, False, False]), np.array([False, True, False])
        )

        assert [MID, FIRST, MID] == moved.step_type.tolist()
        assert row_of(before, 2) == row_of(moved, 2)
        assert [2, 0, 1] == env.get_info()["elapsed_step"].tolist()


def test_an_ended_row_can_reset_while_others_step():
    with wrapped("Pendulum-v1") as env:
        env.reset()
        action = np.zeros((3, 1), np.float32)
        for _ in range(6):
            env.step(action, np.array([True, False, False]))
        moved = env.step_rows(
            action, np.array([False, True, False]), np.array([True, False, False])
        )
        assert [FIRST, MID, FIRST] == moved.step_type.tolist()


# Reset orders.


def transitions_of(env, count):
    """Lists transitions (s, a, r, discount, s') of each row, as bits."""
    env.reset()
    actions = Actions(env.action_spec(), env.batch_size)
    made = [[] for _ in range(env.batch_size)]
    while min(map(len, made)) < count:
        standing = env.current_time_step()
        if env.autoreset is DISABLED and standing.is_last().any():
            standing = env.reset(standing.is_last())
        acting = ~standing.is_last()
        action = actions.batch(acting)
        after = env.step(action)
        for row in np.flatnonzero(acting):
            made[row].append(
                (
                    row_of(standing, row)[3:],
                    action[row].tobytes(),
                    row_of(after, row)[1:],
                )
            )
    return [column[:count] for column in made]


@each_game
@pytest.mark.parametrize("order", [SAME_STEP, DISABLED])
def test_every_autoreset_order_gives_the_same_transitions(name, order):
    with wrapped(name) as env:
        expected = transitions_of(env, 30)
    with wrapped(name, autoreset=order) as env:
        actual = transitions_of(env, 30)
    assert expected == actual


def ended(**arguments):
    """Returns an environment in which row 0 has just ended."""
    env = wrapped("Pendulum-v1", **arguments)
    env.reset()
    action = np.zeros((3, 1), np.float32)
    for _ in range(5):
        env.step(action)
    env.reset(np.array([False, True, True]))
    env.step(action)
    return env, action


def test_same_step_returns_the_last_and_keeps_the_first_as_current():
    env, action = ended(autoreset="same_step")
    last, standing = env.reset(np.zeros(3, bool)), env.current_time_step()
    after = env.step(action)
    env.close()

    assert [LAST, MID, MID] == last.step_type.tolist()
    assert [FIRST, MID, MID] == standing.step_type.tolist()
    assert (0.0, 1.0) == (standing.reward[0], standing.discount[0])
    assert row_of(last, 1) == row_of(standing, 1)
    assert row_of(last, 0)[3:] != row_of(standing, 0)[3:]
    assert [MID, MID, MID] == after.step_type.tolist()


def test_same_step_separates_the_infos_of_both_episodes():
    env, action = ended(autoreset="same_step")
    with env:
        assert [6, 1, 1] == env.get_info()["elapsed_step"].tolist()
        assert [True, False, False] == env.get_info()["truncated"].tolist()
        assert [0, 1, 1] == env.current_info()["elapsed_step"].tolist()
        assert [False, False, False] == env.current_info()["truncated"].tolist()
        env.step(action, np.array([False, True, True]))
        assert [6, 2, 2] == env.get_info()["elapsed_step"].tolist()
        assert [0, 2, 2] == env.current_info()["elapsed_step"].tolist()
        env.step(action)
        assert [1, 3, 3] == env.get_info()["elapsed_step"].tolist()


@pytest.mark.parametrize("mask", [None, np.array([True, False, False])])
def test_same_step_reset_after_the_end_begins_one_episode(mask):
    env, _ = ended(autoreset="same_step")
    with env:
        standing = env.current_time_step()
        time_step = env.reset(mask)
        assert row_of(standing, 0) == row_of(time_step, 0)
        assert 0 == env.get_info()["elapsed_step"][0]


def test_same_step_leaves_a_held_row_where_it_is():
    env, action = ended(autoreset="same_step")
    with env:
        standing = env.current_time_step()
        moved = env.step(action, np.array([False, True, True]))
        assert [LAST, MID, MID] == moved.step_type.tolist()
        assert row_of(standing, 0) == row_of(env.current_time_step(), 0)


def test_disabled_refuses_to_step_an_ended_row(message_of):
    env, action = ended(autoreset=DISABLED)
    with env:
        before = env.current_time_step()
        message = message_of(CallOrderError, lambda: env.step(action))
        both = np.array([True, True, False])
        masked = message_of(CallOrderError, lambda: env.step(action, both))

        assert before is env.current_time_step()
        assert MID == env.step(action, np.array([False, True, False])).step_type[1]
        assert [FIRST, MID, MID] == env.reset(before.is_last()).step_type.tolist()
    assert (
        (
            "step() was called after the episode of row 0 ended. Under "
            "AutoReset.DISABLED, call reset(mask) for them first, or leave them out "
            "with step(action, mask); none of the environments has moved."
        )
        == message
        == masked
    )


@pytest.mark.parametrize("order", [NEXT_STEP, DISABLED])
def test_changing_the_order_does_not_move_rows(order):
    env, action = ended(autoreset=SAME_STEP)
    with env:
        standing = env.current_time_step()
        env.autoreset = order
        assert order is env.autoreset
        assert row_of(standing, 0) == row_of(env.current_time_step(), 0)
        assert [0, 1, 1] == env.get_info()["elapsed_step"].tolist()
        assert [MID] * 3 == env.step(action).step_type.tolist()


def test_a_row_that_ended_under_another_order_begins_with_a_step():
    env, action = ended()
    with env:
        env.autoreset = "same_step"
        assert [LAST, MID, MID] == env.current_time_step().step_type.tolist()
        assert [FIRST, MID, MID] == env.step(action).step_type.tolist()


# Seeds.


def test_equal_seeds_give_equal_streams():
    with wrapped(seeds=[0, 0]) as env:
        env.seed(7)
        first = [env.reset(), env.step([0, 1]), env.step([1, 1])]
        env.seed(7)
        again = [env.reset(), env.step([0, 1]), env.step([1, 1])]
    assert [row_of(ts, 1) for ts in first] == [row_of(ts, 1) for ts in again]


def test_a_rows_seed_does_not_depend_on_the_batch_size():
    with wrapped(seeds=[0, 0]) as few, wrapped(seeds=[0] * 5) as many:
        few.seed(7)
        many.seed(7)
        assert row_of(few.reset(), 1) == row_of(many.reset(), 1)
        assert row_of(many.reset(), 1) != row_of(many.current_time_step(), 2)


def test_seeds_by_row_reach_envpool():
    with wrapped(seeds=[0, 0, 0]) as env:
        env.seed(SEEDS)
        assert_same_observation(
            bare("CartPole-v1", SEEDS).reset()[0], env.reset().observation
        )


def test_seeds_take_effect_at_a_reset_of_all_rows():
    with wrapped(seeds=[0, 0]) as env, wrapped(seeds=[5, 6]) as seeded:
        env.reset()
        env.seed([5, 6])
        env.step([0, 0])
        env.reset(np.array([True, False]))
        assert row_of(seeded.reset(), 0) == row_of(env.reset(), 0)


def test_without_a_seed_streams_differ():
    with EnvPoolWrapper("CartPole-v1") as env, EnvPoolWrapper("CartPole-v1") as other:
        assert row_of(env.reset(), 0) != row_of(other.reset(), 0)


def test_seed_none_draws_a_new_seed():
    with wrapped(seeds=[0]) as env:
        env.seed(None)
        first = row_of(env.reset(), 0)
        env.seed(None)
        assert first != row_of(env.reset(), 0)


# Players.


def by_row(array, info):
    """Puts what EnvPool says of players into the order of their rows."""
    order = np.argsort(info["env_id"])
    return array.reshape(2, 2, *array.shape[1:])[order]


def test_players_are_the_first_dimension_of_a_rows_arrays():
    pool = bare("IntersectionMultiAgent-v0", [1, 2])
    with wrapped("IntersectionMultiAgent-v0", [1, 2]) as env:
        observation, info = pool.reset()
        # Newer versions of EnvPool show a player more of the road.
        assert (2, *observation.shape[1:]) == env.observation_spec().shape
        assert BoundedArraySpec((2,), np.int64, 0, 2, "action") == env.action_spec()
        assert (2,) == env.reward_spec().shape
        time_step = env.reset()
        for number in range(25):
            assert by_row(observation, info).tobytes() == (
                time_step.observation.tobytes()
            )
            action = np.array([[0, 1], [2, number % 3]])
            observation, reward, *_, info = pool.step(action.reshape(-1))
            time_step = env.step(action)
            assert by_row(reward, info).tolist() == time_step.reward.tolist()
        speed = by_row(info["players"]["speed"], info)
        assert speed.tolist() == env.get_info()["players"]["speed"].tolist()


def test_players_who_take_turns_share_one_action():
    with wrapped("Go9x9-v1", [1, 2]) as env:
        assert () == env.action_spec().shape
        assert (2, 9, 9, 17) == env.observation_spec().shape
        env.reset()
        for _ in range(5):
            legal = env.get_info()["legal_action_mask"]
            time_step = env.step(legal.argmax(axis=1))

    assert (2, 2) == time_step.reward.shape
    assert (np.int8, np.float32) == (
        time_step.observation.dtype,
        time_step.reward.dtype,
    )


def test_players_of_one_row_move_together(message_of):
    with wrapped("IntersectionMultiAgent-v0", [1, 2]) as env:
        env.reset()
        action, mask = np.zeros((2, 2), int), np.array([True, False])
        told = [
            message_of(NotImplementedError, lambda: env.reset(mask)),
            message_of(NotImplementedError, lambda: env.step(action, mask)),
        ]

        assert (False, False) == (env.resets_rows, env.holds_rows)
        assert [MID, MID] == env.step(action).step_type.tolist()
    assert [
        "IntersectionMultiAgent-v0 has 2 players in each row. EnvPool only moves such "
        f"rows together: call {call}() without a mask."
        for call in ("reset", "step")
    ] == told
    message = message_of(
        NotImplementedError, lambda: wrapped("Go9x9-v1", autoreset=SAME_STEP)
    )
    assert (
        "Go9x9-v1 has 2 players in each row. EnvPool only moves such rows together, "
        "and begins the next episode with the next step: autoreset=AutoReset.NEXT_STEP."
    ) == message


# What is refused.


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ([0, 1], "2 actions were given for 3 environments."),
        ([0, 1, 2], "1 of 3 elements is above the maximum 1: 2 at index (2,)."),
        (
            np.array([0, -1, 1]),
            "1 of 3 elements is below the minimum 0: -1 at index (1,).",
        ),
    ],
)
def test_an_invalid_action_moves_nothing(action, problem, message_of):
    with wrapped() as env:
        before = env.reset()
        message = message_of(SpecError, lambda: env.step(action))
        assert "EnvPoolWrapper.step() was given an action that does not fit" in message
        assert problem in message
        assert before is env.current_time_step()
        env.step([0, 0, 0])
        assert [1, 1, 1] == env.get_info()["elapsed_step"].tolist()


def test_actions_of_resetting_rows_are_ignored():
    with wrapped(max_episode_steps=1) as env:
        env.reset()
        env.step([0, 0, 0])
        assert [FIRST] * 3 == env.step([9, -9, 0]).step_type.tolist()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: EnvPoolWrapper(3),
            TypeError,
            "EnvPoolWrapper was given 3 of type int, which is not a pool of EnvPool. "
            "envpool.make_gymnasium(...) makes one, and the name of an environment "
            "works too: EnvPoolWrapper('CartPole-v1', num_envs=8).",
        ),
        (
            lambda: EnvPoolWrapper(envpool.make_dm("CartPole-v1")),
            TypeError,
            "EnvPoolWrapper was given a pool with the dm_env interface of EnvPool, "
            "where a truncation looks like a termination: both have a discount of 0. "
            "Make it with env_type='gymnasium'.",
        ),
        (
            lambda: EnvPoolWrapper(bare("CartPole-v1", SEEDS, batch_size=2)),
            ValueError,
            "EnvPoolWrapper was given CartPoleGymnasiumEnvPool in EnvPool's "
            "asynchronous mode, with batch_size=2 and num_envs=3. Make the pool "
            "without a batch_size.",
        ),
        (
            lambda: EnvPoolWrapper(bare("CartPole-v1", SEEDS), num_envs=3),
            TypeError,
            "EnvPoolWrapper was given a pool and 'num_envs', which says how to make "
            "one. Such arguments go with the name of an environment.",
        ),
        (
            lambda: EnvPoolWrapper(bare("CartPole-v1", SEEDS)).seed(7),
            NotImplementedError,
            "CartPoleGymnasiumEnvPool cannot be seeded: EnvPool takes seeds only when "
            "a pool is made, and this one was made already. Make it with a seed, or "
            "give EnvPoolWrapper the name: EnvPoolWrapper('CartPole-v1', num_envs=8).",
        ),
        (
            lambda: wrapped().get_state(),
            NotImplementedError,
            "CartPole-v1 cannot save its state: EnvPool's environments are C++ "
            "objects that offer no copy of themselves. If you need a state, use the "
            "same game from another library, such as Gymnasium or ale-py.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


def test_an_unknown_name_gets_a_suggestion(message_of):
    message = message_of(ValueError, lambda: EnvPoolWrapper("Cartpole-v1"))
    assert message.startswith(
        "EnvPool has no environment named 'Cartpole-v1'. Did you mean 'CartPole-v1'"
    )


# The rest.


def test_render_returns_a_picture_of_every_row():
    with wrapped(render_mode="rgb_array") as env:
        env.reset()
        pictures = env.render()
    assert ((3, 400, 600, 3), np.uint8) == (pictures.shape, pictures.dtype)


def test_environments_that_envpool_cannot_draw_refuse_render(message_of):
    with wrapped("FrozenLake-v1", render_mode="rgb_array") as env:
        env.reset()
        assert (
            "FrozenLake-v1 cannot render: EnvPool has no pictures of it."
        ) == message_of(NotImplementedError, env.render)


def test_other_attributes_come_from_the_pool():
    with wrapped() as env:
        assert 3 == len(env.pool)
        assert env.pool.config == env.config
        assert {} == env.get_info()
        env.reset()
        info = env.get_info()
        info["elapsed_step"][:] = 9
        assert [0, 0, 0] == env.get_info()["elapsed_step"].tolist()
        assert [0, 1, 2] == info["players"]["env_id"].tolist()


def test_a_closed_pool_stays_closed():
    env = wrapped()
    env.reset()
    env.close()
    env.close()
    assert env.pool is None
    for call in (env.reset, lambda: env.step([0, 0, 0]), lambda: env.seed(1)):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CartPole-v1", "MiniGrid-Empty-5x5-v0"])
def test_the_pool_passes_check_environment(name):
    make = functools.partial(EnvPoolWrapper, name, num_envs=2, **GAMES[name])
    features = ["episodes", "held_rows", "info", "masked_reset", "seed"]
    report = check_environment(make, steps=60, require=features)
    assert () == report.failed


@pytest.mark.slow
def test_a_pool_with_several_players_passes_check_environment():
    make = functools.partial(EnvPoolWrapper, "IntersectionMultiAgent-v0", num_envs=2)
    assert () == check_environment(make, steps=40, require=["episodes", "seed"]).failed


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_worker_processes_can_hold_pools(backend):
    recipe = envkit.constructor("envpool:CartPole-v1", num_envs=2)
    assert recipe == pickle.loads(pickle.dumps(recipe))
    with wrapped(seeds=[1, 2, 3, 4]) as env:
        expected = [env.reset(), *(env.step([0, 1, 1, 0]) for _ in range(25))]
    with ParallelPyEnvironment([recipe] * 2, backend=backend, num_workers=2) as env:
        env.seed([1, 2, 3, 4])
        actual = [env.reset(), *(env.step([0, 1, 1, 0]) for _ in range(25))]

    for one, other in zip(expected, actual, strict=True):
        for row in range(4):
            assert row_of(one, row) == row_of(other, row)


def test_specs_match_the_spaces():
    with wrapped("MiniGrid-Empty-5x5-v0") as env:
        kinds = map_specs(lambda spec: (spec.shape, spec.dtype), env.observation_spec())
        assert {
            "direction": ((), np.int64),
            "image": ((7, 7, 3), np.uint8),
            "mission": ((96,), np.uint8),
        } == kinds
        assert BoundedArraySpec((), np.int64, 0, 6, "action") == env.action_spec()


def test_a_missing_minimum_is_no_bound():
    """It writes the smallest number above zero instead."""
    with wrapped("CartpoleSwingup-v1") as env:
        spec = env.observation_spec()["position"]
        time_step = env.reset()
        assert np.finfo(np.float64).min == spec.minimum
        assert (time_step.observation["position"] < 0).any()


def threads():
    return set(os.listdir("/proc/self/task"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists threads")
def test_closing_a_pool_ends_its_threads():
    before = threads()
    with EnvPoolWrapper("CartPole-v1", num_envs=4, num_threads=3) as env:
        begun = threads() - before
        assert len(begun) >= 3
        env.seed(1)
        env.reset()
        assert len(threads() - before) < 6

    # The system lists a thread a moment longer than others wait for it.
    assert until(lambda: not begun & threads())
