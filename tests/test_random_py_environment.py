"""`RandomPyEnvironment`: values that fit any spec, and episodes that end at random."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    RandomPolicy,
    RandomPyEnvironment,
)
from envkit.errors import SpecError
from envkit.seeding import seed_per_row
from envkit.specs import check_fits
from envkit.testing import CountingEnv, check_environment
from tests.comparing import bits, told

SPEC = BoundedArraySpec((2, 3), np.int32, -10, 10)
ACTION = BoundedArraySpec((2, 2), np.int32, -10, 10)


def started(**options):
    """Makes an environment in the first step of an episode."""
    env = RandomPyEnvironment(SPEC, **options)
    env.reset()
    return env


def durations(env, episodes):
    """Returns how many steps each of the first episodes of an environment has."""
    lengths = []
    for _ in range(episodes):
        env.reset()
        steps = 1
        while not env.step(0).is_last():
            steps += 1
        lengths.append(steps)
    return lengths


# Observations and time steps.


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        {"image": ArraySpec((4, 4, 3), np.uint8), "flag": ArraySpec((), np.bool_)},
        (ArraySpec((), np.float64), [BoundedArraySpec((2,), np.int64, [0, 5], 9)]),
        (),
    ],
    ids=["one", "dict", "nested", "empty"],
)
def test_every_time_step_fits_its_spec(spec, batch_size):
    env = RandomPyEnvironment(spec, batch_size=batch_size)
    outer_dims = () if batch_size is None else (batch_size,)
    steps = [env.step(0) for _ in range(30)]
    for time_step in steps:
        check_fits(time_step, env.time_step_spec(), outer_dims=outer_dims)
    assert (batch_size is not None, batch_size) == (env.batched, env.batch_size)


def test_observations_differ_from_step_to_step_and_row_to_row():
    env = started(batch_size=2)
    first = env.reset().observation
    kept = first.copy()
    second = env.step(0).observation
    assert kept.tolist() == first.tolist()
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_specs_match_the_arguments():
    env = RandomPyEnvironment({"a": SPEC}, ACTION)
    assert {"a": SPEC} == env.observation_spec()
    assert ACTION == env.action_spec()
    assert () == RandomPyEnvironment(SPEC).action_spec()


# Episodes.


def test_a_first_step_and_a_step_after_the_end_begin_an_episode():
    env = RandomPyEnvironment(SPEC, episode_end_probability=1.0)
    assert [0, 2, 0, 2, 0] == [int(env.step([0]).step_type) for _ in range(5)]


def test_without_auto_reset_a_step_after_the_end_continues():
    env = RandomPyEnvironment(SPEC, episode_end_probability=1.0, auto_reset=False)
    assert [0, 2, 2, 2] == [int(env.step(0).step_type) for _ in range(4)]


def test_an_episode_without_an_end_never_ends():
    env = started(episode_end_probability=0.0)
    assert all(env.step(0).is_mid() for _ in range(200))


@pytest.mark.parametrize(
    ("end", "shortest", "longest"), [(0.9, 1, 5), (0.9, 5, 9), (0.1, 0, 1), (0.1, 4, 4)]
)
def test_episodes_keep_to_their_limits(end, shortest, longest):
    env = RandomPyEnvironment(
        SPEC,
        episode_end_probability=end,
        min_duration=shortest,
        max_duration=longest,
    )
    lengths = durations(env, 60)
    assert (min(lengths) if end > 0.5 else max(lengths)) == (
        shortest if end > 0.5 else longest
    )
    assert max(shortest, 1) <= min(lengths) <= max(lengths) <= longest


def test_an_explicit_reset_restarts_the_count():
    env = started(episode_end_probability=0.0, max_duration=3)
    env.step(0)
    env.step(0)
    env.reset()
    assert [1, 1, 2] == [int(env.step(0).step_type) for _ in range(3)]


def test_the_rows_of_a_batch_end_on_their_own_within_the_limits():
    env = RandomPyEnvironment(
        SPEC, episode_end_probability=0.3, min_duration=2, max_duration=6, batch_size=4
    )
    types = np.array([env.step(0).step_type for _ in range(80)])
    for row in types.T:
        *episodes, _ = "".join(map(str, row)).split("2")
        assert all(episode[0] == "0" for episode in episodes)
        assert all(set(episode[1:]) == {"1"} for episode in episodes)
        assert set(map(len, episodes)) <= {2, 3, 4, 5, 6}
        assert len(episodes) > 3
    assert 4 == len({row.tobytes() for row in types.T})


def test_the_info_counts_the_steps_of_the_episode():
    env = started(batch_size=2, episode_end_probability=0.0)
    infos = [env.get_info()]
    for _ in range(2):
        env.step(0)
        infos.append(env.get_info())
    assert [[0, 0], [1, 1], [2, 2]] == [info["num_steps"].tolist() for info in infos]


# Discounts.


def test_every_step_but_the_last_has_the_discount():
    env = RandomPyEnvironment(SPEC, discount=0.9, min_duration=3, max_duration=3)
    discounts = [env.step(0).discount for _ in range(4)]
    assert [1.0, 0.9, 0.9, 0.0] == pytest.approx([float(each) for each in discounts])
    assert {np.dtype(np.float32)} == {each.dtype for each in discounts}


@pytest.mark.parametrize(("discount", "maximum"), [(0.5, 1.0), (1.0, 1.0), (2.5, 2.5)])
def test_the_discount_spec_holds_every_discount(discount, maximum):
    spec = RandomPyEnvironment(SPEC, discount=discount).discount_spec()
    assert BoundedArraySpec((), np.float32, 0.0, maximum) == spec
    assert "discount" == spec.name


def test_each_row_can_have_its_own_discount():
    env = started(discount=[0.5, 2.0], batch_size=2, episode_end_probability=0.0)
    assert [0.5, 2.0] == env.step(0).discount.tolist()
    assert BoundedArraySpec((), np.float32, 0.0, 2.0) == env.discount_spec()


@pytest.mark.parametrize(
    ("discount", "batch_size", "text"),
    [
        (
            [0.5, 0.5],
            3,
            "one number, or one for each of 3 rows, got a list of 2 elements.",
        ),
        ([0.5], None, "one number, got a list of 1 element."),
        (None, None, "one number, got None."),
        ("high", None, "one number, got the string 'high'."),
    ],
    ids=repr,
)
def test_an_invalid_discount_is_refused(discount, batch_size, text):
    assert (ValueError, f"discount must be {text}") == told(
        lambda: RandomPyEnvironment(SPEC, discount=discount, batch_size=batch_size)
    )


# Rewards.


def test_without_a_reward_function_every_reward_is_zero():
    env = started(batch_size=3)
    assert ([0.0, 0.0, 0.0], np.float32) == (
        env.step(0).reward.tolist(),
        env.step(0).reward.dtype,
    )


def test_a_reward_function_receives_the_step():
    given_to = []

    def reward_fn(step_type, action, observation):
        given_to.append((int(step_type), action, observation))
        return 1

    env = RandomPyEnvironment(SPEC, min_duration=2, max_duration=2, reward_fn=reward_fn)
    first = env.reset()
    steps = [env.step("left"), env.step("right")]
    assert 0.0 == first.reward
    assert [(1, "left"), (2, "right")] == [each[:2] for each in given_to]
    assert all(
        each[2] is step.observation for each, step in zip(given_to, steps, strict=True)
    )


@pytest.mark.parametrize(
    "given_reward", [2, 2.0, np.float64(2.0), np.array(2, np.int8)]
)
def test_a_reward_becomes_float32(given_reward):
    reward = started(reward_fn=lambda *_: given_reward).step(0).reward
    assert (2.0, np.float32, ()) == (reward, reward.dtype, reward.shape)


def test_a_one_element_action_can_be_a_plain_number():
    spec = BoundedArraySpec((1,), np.int32, -10, 10)
    env = RandomPyEnvironment(SPEC, spec, reward_fn=lambda _, action, __: action)
    first, second = env.step(1), env.step(1)
    assert [0.0, 1.0] == [float(first.reward), float(second.reward)]


@pytest.mark.parametrize("given_reward", [np.ones(3), [1.0, 1.0, 1.0], (1, 1, 1)])
def test_a_batch_has_a_reward_for_each_row(given_reward):
    env = started(reward_fn=lambda *_: given_reward, batch_size=3)
    assert [1.0, 1.0, 1.0] == env.step(0).reward.tolist()


def test_a_reward_is_a_copy():
    kept = np.ones(2, np.float32)
    env = started(reward_fn=lambda *_: kept, batch_size=2)
    reward = env.step(0).reward
    kept[:] = 9.0
    assert [1.0, 1.0] == reward.tolist()


@pytest.mark.parametrize(
    ("given_reward", "batch_size", "text"),
    [
        (np.ones(1), None, "shape (1,); () is expected without a batch_size."),
        (np.ones(3), None, "shape (3,); () is expected without a batch_size."),
        (1.0, 5, "shape (); (5,) is expected, one for each of 5 rows."),
        (np.ones(4), 5, "shape (4,); (5,) is expected, one for each of 5 rows."),
        (np.ones((5, 1)), 5, "shape (5, 1); (5,) is expected, one for each of 5 rows."),
    ],
)
def test_a_reward_of_another_shape_is_refused(given_reward, batch_size, text):
    env = started(reward_fn=lambda *_: given_reward, batch_size=batch_size)
    expected = f"reward_fn returned a reward of {text}"
    assert (SpecError, expected) == told(env.step, 0)


@pytest.mark.parametrize(
    ("given_reward", "text"),
    [
        (None, "None"),
        ({"a": 1.0}, "a dict of 1 element"),
        ("much", "the string 'much'"),
        ([[1.0], [1.0, 2.0]], "a list of 2 elements"),
        (1j, "1j of type complex"),
    ],
    ids=repr,
)
def test_a_reward_must_be_a_number(given_reward, text):
    env = started(reward_fn=lambda *_: given_reward)
    expected = (
        f"reward_fn returned {text}. A reward is a number or an array; if nothing was "
        "earned, return 0.0."
    )
    assert (SpecError, expected) == told(env.step, 0)


# Actions.


@pytest.mark.parametrize("action", [0, [0], None, "left", {"any": "thing"}], ids=repr)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_without_an_action_spec_any_action_is_accepted(action, batch_size):
    assert started(batch_size=batch_size, episode_end_probability=0.0).step(action)


@pytest.mark.parametrize(
    ("batch_size", "action"),
    [
        (None, np.zeros((2, 2), np.int32)),
        (None, [[0, 0], [0, 0]]),
        (None, 5),
        (3, np.zeros((3, 2, 2), np.int32)),
        (3, 5),
    ],
)
def test_an_action_has_the_shape_of_its_spec_or_is_one_number(batch_size, action):
    env = started(
        action_spec=ACTION, batch_size=batch_size, episode_end_probability=0.0
    )
    assert env.step(action).is_mid().all()


SHAPED = "BoundedArraySpec(shape={}, dtype=int32, minimum=-10, maximum=10)"


@pytest.mark.parametrize(
    ("spec", "action", "place", "expected", "got", "reason"),
    [
        (
            ACTION,
            [0],
            "",
            SHAPED.format((2, 2)),
            "a list of 1 element",
            "The shape is (1,) instead of (2, 2).",
        ),
        (
            ACTION,
            np.zeros((1, 2, 2), np.int32),
            "",
            SHAPED.format((2, 2)),
            "array of shape (1, 2, 2), dtype int32, values 0 … 0",
            "The shape is (1, 2, 2) instead of (2, 2).",
        ),
        (
            ACTION,
            None,
            "",
            SHAPED.format((2, 2)),
            "None",
            "None is not an array. Did a return statement get lost?",
        ),
        (
            ACTION,
            "left",
            "",
            SHAPED.format((2, 2)),
            "the string 'left'",
            "A string is not an array.",
        ),
        (
            ACTION,
            [[0], [0, 0]],
            "",
            SHAPED.format((2, 2)),
            "a list of 2 elements",
            "Its rows differ in shape, so it cannot be an array.",
        ),
        (
            {"go": (ACTION, ACTION)},
            {"go": (0, np.zeros(2))},
            " at action['go'][1]",
            SHAPED.format((2, 2)),
            "array of shape (2,), dtype float64, values 0.0 … 0.0",
            "The shape is (2,) instead of (2, 2).",
        ),
        (
            {"go": ACTION},
            {"stay": 0},
            "",
            "the structure {'go': *}",
            "a dict of 1 element",
            "Key 'go' is missing; key 'stay' is not in the spec.",
        ),
    ],
    ids=["list", "batch", "None", "text", "ragged", "nested", "structure"],
)
def test_an_action_of_another_shape_is_refused(
    spec, action, place, expected, got, reason
):
    env = started(action_spec=spec)
    text = (
        "RandomPyEnvironment.step() was given an action that does not fit its spec"
        f"{place}.\n\n  expected   {expected}\n  got        {got}\n\n{reason}"
    )
    assert (SpecError, text) == told(env.step, action)


def test_the_actions_of_a_batch_have_a_leading_dimension():
    env = started(action_spec=ACTION, batch_size=3)
    assert told(env.step, np.zeros((2, 2)))[1].endswith(
        f"  expected   {SHAPED.format((3, 2, 2))}\n"
        "  got        array of shape (2, 2), dtype float64, values 0.0 … 0.0\n\n"
        "The shape is (2, 2) instead of (3, 2, 2)."
    )


# Seeds and state.


@pytest.mark.parametrize("batch_size", [None, 3])
def test_it_keeps_what_environments_promise(batch_size):
    """Of seeds, states, resets of single rows, infos and pictures."""
    make = functools.partial(
        RandomPyEnvironment,
        *(SPEC, ACTION),
        batch_size=batch_size,
        min_duration=2,
        max_duration=4,
    )
    require = ["episodes", "info", "render", "seed", "state"]
    check_environment(make, steps=15, require=require)


def test_different_seeds_give_different_streams():
    streams = [
        repr([bits(env.step(0)) for _ in range(5)])
        for env in (
            RandomPyEnvironment(SPEC),
            RandomPyEnvironment(SPEC, seed=42),
            RandomPyEnvironment(SPEC, seed=43),
            RandomPyEnvironment(SPEC, seed=None),
        )
    ]

    # The default makes runs repeatable.
    assert streams[0] == streams[1]
    assert 3 == len(set(streams))


SEEDS = (
    "{} for 3 environments. Pass one seed for each environment, or one integer from "
    "which each gets its own."
)


@pytest.mark.parametrize(
    ("seed", "sizes", "kind", "expected"),
    [
        (-1, [None, 3], ValueError, "A seed cannot be negative, and -1 is."),
        (1.5, [None, 3], TypeError, "A seed is an integer, not 1.5 of type float."),
        ("seven", [None, 3], TypeError, "A seed is an integer, not 'seven'."),
        ([1, 2], [3], ValueError, SEEDS.format("2 seeds")),
        ([1], [3], ValueError, SEEDS.format("1 seed")),
    ],
    ids=repr,
)
def test_an_invalid_seed_is_refused(seed, sizes, kind, expected):
    for batch_size in sizes:
        env = RandomPyEnvironment(SPEC, batch_size=batch_size)
        assert (kind, expected) == told(env.seed, seed)
        assert (kind, expected) == told(
            lambda size=batch_size: RandomPyEnvironment(
                SPEC, seed=seed, batch_size=size
            )
        )


# Pictures.


@pytest.mark.parametrize(
    ("batch_size", "shape"), [(None, (4, 5, 3)), (2, (2, 4, 5, 3))]
)
def test_a_picture_has_the_requested_size(batch_size, shape):
    picture = started(batch_size=batch_size, render_size=[4, 5, 3]).render()
    assert (shape, np.uint8) == (picture.shape, picture.dtype)
    assert (2, 2, 3) == started().render("rgb_array").shape


# Arguments that make no sense.


NO_SHARE = "episode_end_probability must be between 0 and 1, got {}."
TOO_SHORT = (
    "max_duration must be at least 1 and no less than min_duration, which is {}, got "
    "{}."
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"episode_end_probability": 1.5}, NO_SHARE.format(1.5)),
        ({"episode_end_probability": -0.1}, NO_SHARE.format(-0.1)),
        ({"episode_end_probability": float("nan")}, NO_SHARE.format("nan")),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0."),
        ({"batch_size": -2}, "batch_size must be at least 1, got -2."),
        ({"max_duration": 0}, TOO_SHORT.format(0, 0)),
        ({"min_duration": 5, "max_duration": 4}, TOO_SHORT.format(5, 4)),
    ],
    ids=repr,
)
def test_arguments_that_make_no_sense_are_refused(options, expected):
    assert (ValueError, expected) == told(lambda: RandomPyEnvironment(SPEC, **options))


@pytest.mark.parametrize(
    ("call", "kind", "expected"),
    [
        (
            lambda: started().render("human"),
            ValueError,
            "RandomPyEnvironment renders 'rgb_array' only, not 'human'.",
        ),
        (
            lambda: RandomPyEnvironment({"a": 3}).reset(),
            TypeError,
            "Cannot sample 3: it is not an ArraySpec.",
        ),
    ],
    ids=["mode", "spec"],
)
def test_what_cannot_be_done_is_refused(call, kind, expected):
    assert (kind, expected) == told(call)


def test_arguments_are_in_the_order_of_tf_agents():
    env = RandomPyEnvironment(
        SPEC, ACTION, 0.0, 0.5, lambda *_: [1, 2], 2, True, 7, (1, 1, 3), 2, 3
    )
    env.reset()
    time_step = env.step(0)
    assert [1.0, 2.0] == time_step.reward.tolist()
    assert [0.5, 0.5] == time_step.discount.tolist()
    assert (2, 1, 1, 3) == env.render().shape
    assert [[1, 1], [2, 2]] == [env.step(0).step_type.tolist() for _ in range(2)]


def test_an_action_may_be_an_object():
    env = RandomPyEnvironment(ArraySpec((), np.float32), ArraySpec((), object))
    env.reset()
    assert not env.step(np.array("anything", object)).is_first()


MOVES = {"move": BoundedArraySpec((), np.int64, 0, 9999)}
MOVE = BoundedArraySpec((), np.int32, 0, 1)


def moves(policy, steps, row=0):
    return [int(policy.action(step, row)["move"]) for step in steps]


def test_the_policy_is_deterministic_for_a_step():
    forward, backward = RandomPolicy(MOVES, 7), RandomPolicy(MOVES, 7)
    assert moves(forward, range(9)) == moves(backward, reversed(range(9)))[::-1]
    assert len(set(moves(forward, range(9)))) > 7


def test_a_row_draws_like_a_single_environment_with_its_seed():
    three, five = RandomPolicy(MOVES, 7, 3), RandomPolicy(MOVES, 7, 5)
    alone = RandomPolicy(MOVES, seed_per_row(7, 3)[2])
    assert moves(three, range(5), 2) == moves(five, range(5), 2)
    assert moves(alone, range(5)) == moves(five, range(5), 2)
    assert moves(three, range(5), 1) != moves(five, range(5), 2)
    listed = RandomPolicy(MOVES, [4, 5], 2)
    assert moves(RandomPolicy(MOVES, 5), range(5)) == moves(listed, range(5), 1)


def test_the_policys_numbers_differ_from_a_generator_with_its_seed():
    spec = BoundedArraySpec((8,), np.float64, 0.0, 1.0)
    drawn = RandomPolicy(spec, 7).action(0)
    assert drawn.tolist() != np.random.default_rng(7).random(8).tolist()


def test_without_a_seed_the_policy_differs_each_time():
    assert moves(RandomPolicy(MOVES), range(5)) != moves(RandomPolicy(MOVES), range(5))


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_rows_take_the_same_actions_in_every_order_of_resets(order):
    lengths = [2, 3]
    policy = RandomPolicy(MOVE, 3, 2)
    taken = [[], []]
    makers = [lambda own=own: CountingEnv(own) for own in lengths]
    with ParallelPyEnvironment(makers, backend="inline", autoreset=order) as env:
        env.reset()
        for _ in range(9):
            now = env.current_time_step()
            if order == "disabled" and now.is_last().any():
                now = env.reset(now.is_last())
            action = policy(now)
            for row in np.flatnonzero(~now.is_last()).tolist():
                taken[row].append(int(action[row]))
            env.step(action)

    for row in (0, 1):
        steps = range(len(taken[row]))
        assert taken[row] == [int(policy.action(step, row)) for step in steps]
        assert len(taken[row]) == policy.steps[row]


def test_rows_that_answer_in_any_order_take_their_own_actions():
    policy = RandomPolicy(MOVE, 3, 4)
    with AsyncParallelPyEnvironment([CountingEnv] * 4, backend="thread") as env:
        env.reset_async()
        for _ in range(20):
            batch = env.recv(count=2)
            steps = policy.steps[batch.env_ids]
            actions = policy(batch.time_step, batch.env_ids)
            expected = [
                policy.action(int(step), row)
                for step, row in zip(steps, batch.env_ids.tolist(), strict=True)
            ]
            assert np.stack(expected).tolist() == actions.tolist()
            env.send(actions, batch.env_ids)
        env.recv()


def test_the_policy_continues_after_pickling():
    env = CountingEnv(2)
    policy = RandomPolicy(MOVES, 7)
    first = policy(env.reset())
    again = pickle.loads(pickle.dumps(policy))
    second = policy(env.step(0))
    assert moves(policy, [0, 1]) == [int(first["move"]), int(second["move"])]
    assert second == again(env.current_time_step())
    assert [2] == policy.steps.tolist()


def test_masks_exclude_actions_row_by_row():
    policy = RandomPolicy(MOVES | {"gear": MOVE}, 7, 3)
    batch = BatchedPyEnvironment([CountingEnv() for _ in range(3)])
    mask = {"move": None, "gear": np.array([[1, 0], [0, 1], [1, 0]], bool)}
    time_step = batch.reset()
    for _ in range(5):
        assert [0, 1, 0] == policy(time_step, mask=mask)["gear"].tolist()


def test_a_time_step_of_another_batch_is_refused(message_of):
    policy = RandomPolicy(MOVES, 7, 3)
    time_step = BatchedPyEnvironment([CountingEnv(), CountingEnv()]).reset()
    assert (
        "RandomPolicy was given a time step of shape (2,), and there are 3 rows: give "
        "it batch_size, or env_ids for some."
    ) == message_of(ValueError, lambda: policy(time_step))
