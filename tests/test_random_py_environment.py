"""`RandomPyEnvironment`: values that fit any spec, and episodes that end at random."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment, nest
from envkit.errors import SpecError
from envkit.specs import check_fits

SPEC = BoundedArraySpec((2, 3), np.int32, -10, 10)
ACTION = BoundedArraySpec((2, 2), np.int32, -10, 10)


def told(call, *args):
    """Returns the kind and the whole message of what a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the caller compares it
        call(*args)
    return type(raised.value), str(raised.value)


def bits(value):
    """Returns all there is to compare in a nest of arrays: dtypes, shapes and bytes."""
    leaves = map(np.asarray, nest.flatten(value))
    return [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves]


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
    for _ in range(30):
        check_fits(env.step(0), env.time_step_spec(), outer_dims=outer_dims)


def test_observations_differ_from_step_to_step_and_row_to_row():
    env = started(batch_size=2)
    first, second = env.reset().observation, env.step(0).observation

    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_an_observation_belongs_to_the_caller():
    env = started()
    observation = env.step(0).observation
    before = observation.copy()
    env.step(0)

    assert before.tolist() == observation.tolist()


@pytest.mark.parametrize(
    ("batch_size", "batched"), [(None, False), (1, True), (4, True)]
)
def test_a_batch_size_makes_a_batch(batch_size, batched):
    env = RandomPyEnvironment(SPEC, batch_size=batch_size)

    assert (batched, batch_size) == (env.batched, env.batch_size)


def test_specs_are_those_that_were_given():
    env = RandomPyEnvironment({"a": SPEC}, ACTION)

    assert {"a": SPEC} == env.observation_spec()
    assert ACTION == env.action_spec()
    assert () == RandomPyEnvironment(SPEC).action_spec()


def test_what_is_no_spec_is_refused_when_it_is_sampled():
    env = RandomPyEnvironment({"a": 3})
    expected = "Cannot sample 3: it is not an ArraySpec."

    assert (TypeError, expected) == told(env.reset)


# Episodes.


def test_a_first_step_and_a_step_after_the_end_begin_an_episode():
    env = RandomPyEnvironment(SPEC, episode_end_probability=1.0)

    assert [0, 2, 0, 2, 0] == [int(env.step([0]).step_type) for _ in range(5)]


def test_without_auto_reset_a_step_after_the_end_goes_on():
    env = RandomPyEnvironment(SPEC, episode_end_probability=1.0, auto_reset=False)

    assert [0, 2, 2, 2] == [int(env.step(0).step_type) for _ in range(4)]


def test_an_episode_that_cannot_end_does_not():
    env = started(episode_end_probability=0.0)

    assert all(env.step(0).is_mid() for _ in range(200))


@pytest.mark.parametrize("shortest", [1, 5])
def test_no_episode_is_shorter_than_the_shortest(shortest):
    env = RandomPyEnvironment(SPEC, episode_end_probability=0.9, min_duration=shortest)

    assert shortest == min(durations(env, 60))


@pytest.mark.parametrize("longest", [1, 5])
def test_no_episode_is_longer_than_the_longest(longest):
    env = RandomPyEnvironment(SPEC, episode_end_probability=0.1, max_duration=longest)

    assert longest == max(durations(env, 60))


def test_equal_limits_make_every_episode_as_long():
    env = RandomPyEnvironment(SPEC, min_duration=4, max_duration=4)

    assert [4] * 5 == durations(env, 5)


def test_an_explicit_reset_starts_the_counting_again():
    env = started(episode_end_probability=0.0, max_duration=3)
    env.step(0)
    env.step(0)
    env.reset()

    assert [1, 1, 2] == [int(env.step(0).step_type) for _ in range(3)]


def test_the_rows_of_a_batch_end_on_their_own():
    env = RandomPyEnvironment(SPEC, episode_end_probability=0.3, batch_size=4)
    types = np.array([env.step(0).step_type for _ in range(60)])
    for row in types.T:
        episodes = "".join(map(str, row)).split("2")

        assert all(set(episode[1:]) <= {"1"} for episode in episodes)
        assert all(episode[:1] in ("0", "") for episode in episodes)
        assert len(episodes) > 3
    assert 4 == len({row.tobytes() for row in types.T})


def test_limits_hold_for_each_row():
    env = RandomPyEnvironment(
        SPEC, episode_end_probability=0.5, min_duration=2, max_duration=4, batch_size=3
    )
    types = np.array([env.step(0).step_type for _ in range(80)])
    for row in types.T:
        *whole, _ = "".join(map(str, row)).split("2")

        assert {2, 3, 4} >= {len(episode) for episode in whole}


def test_a_masked_reset_starts_only_its_rows_again():
    env = RandomPyEnvironment(SPEC, episode_end_probability=0.0, batch_size=3)
    env.reset()
    env.step(0)
    time_step = env.reset([False, True, False])

    assert [1, 0, 1] == time_step.step_type.tolist()
    assert [1, 0, 1] == env.get_info()["num_steps"].tolist()


def test_the_info_counts_the_steps_of_the_episode():
    env = started(episode_end_probability=0.0)
    counts = [int(env.get_info()["num_steps"])]
    for _ in range(2):
        env.step(0)
        counts.append(int(env.get_info()["num_steps"]))

    assert [0, 1, 2] == counts


def test_an_info_is_not_changed_by_later_steps():
    env = started(batch_size=2, episode_end_probability=0.0)
    info = env.get_info()
    env.step(0)

    assert [0, 0] == info["num_steps"].tolist()


# Discounts.


def test_the_discount_is_that_of_every_step_but_the_last():
    env = RandomPyEnvironment(SPEC, discount=0.9, min_duration=3, max_duration=3)
    discounts = [env.step(0).discount for _ in range(4)]

    assert [1.0, 0.9, 0.9, 0.0] == pytest.approx([float(each) for each in discounts])
    assert {np.dtype(np.float32)} == {each.dtype for each in discounts}


@pytest.mark.parametrize(("discount", "maximum"), [(0.5, 1.0), (1.0, 1.0), (2.5, 2.5)])
def test_the_discount_spec_holds_every_discount(discount, maximum):
    spec = RandomPyEnvironment(SPEC, discount=discount).discount_spec()

    assert BoundedArraySpec((), np.float32, 0.0, maximum) == spec
    assert "discount" == spec.name


def test_each_row_may_have_its_discount():
    env = started(discount=[0.5, 2.0], batch_size=2, episode_end_probability=0.0)

    assert [0.5, 2.0] == env.step(0).discount.tolist()
    assert BoundedArraySpec((), np.float32, 0.0, 2.0) == env.discount_spec()


@pytest.mark.parametrize(
    ("discount", "batch_size", "text"),
    [
        (
            [0.5, 0.5],
            3,
            "a list of 2 elements; one number, or one for each of 3 rows, is expected.",
        ),
        ([0.5], None, "a list of 1 element; one number is expected."),
        (None, None, "None; one number is expected."),
        ("high", None, "the string 'high'; one number is expected."),
    ],
    ids=repr,
)
def test_what_is_no_discount_is_refused(discount, batch_size, text):
    assert (ValueError, f"discount is {text}") == told(
        lambda: RandomPyEnvironment(SPEC, discount=discount, batch_size=batch_size)
    )


# Rewards.


def test_without_a_reward_function_every_reward_is_zero():
    env = started(batch_size=3)

    assert ([0.0, 0.0, 0.0], np.float32) == (
        env.step(0).reward.tolist(),
        env.step(0).reward.dtype,
    )


def test_a_reward_function_is_told_of_the_step():
    given_to = []

    def reward_fn(step_type, action, observation):
        given_to.append((int(step_type), action, observation))
        return 1

    env = RandomPyEnvironment(SPEC, min_duration=2, max_duration=2, reward_fn=reward_fn)
    env.reset()
    steps = [env.step("left"), env.step("right")]

    assert [(1, "left"), (2, "right")] == [each[:2] for each in given_to]
    assert all(
        each[2] is step.observation for each, step in zip(given_to, steps, strict=True)
    )


def test_a_reset_has_no_reward_whatever_the_reward_function():
    env = RandomPyEnvironment(SPEC, reward_fn=lambda *_: 7.0)

    assert 0.0 == env.reset().reward


@pytest.mark.parametrize(
    "given_reward", [2, 2.0, np.float64(2.0), np.array(2, np.int8)]
)
def test_a_reward_becomes_float32(given_reward):
    reward = started(reward_fn=lambda *_: given_reward).step(0).reward

    assert (2.0, np.float32, ()) == (reward, reward.dtype, reward.shape)


def test_an_action_of_one_element_may_be_given_and_rewarded_as_a_number():
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


def test_none_as_a_reward_is_refused():
    env = started(reward_fn=lambda *_: None)
    expected = (
        "reward_fn returned None. A reward is a number or an array; where nothing was "
        "earned, return 0.0."
    )

    assert (SpecError, expected) == told(env.step, 0)


@pytest.mark.parametrize(
    ("given_reward", "text"),
    [
        ({"a": 1.0}, "a dict of 1 element"),
        ("much", "the string 'much'"),
        ([[1.0], [1.0, 2.0]], "a list of 2 elements"),
        (1j, "1j of type complex"),
    ],
    ids=repr,
)
def test_a_reward_that_is_no_number_is_refused(given_reward, text):
    env = started(reward_fn=lambda *_: given_reward)
    expected = (
        f"reward_fn returned {text}. A reward is a number or an array; where nothing "
        "was earned, return 0.0."
    )

    assert (SpecError, expected) == told(env.step, 0)


# Actions.


@pytest.mark.parametrize("action", [0, [0], None, "left", {"any": "thing"}], ids=repr)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_without_an_action_spec_any_action_will_do(action, batch_size):
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


@pytest.mark.parametrize(
    ("action", "got", "shape"),
    [
        ([0], "a list of 1 element", "(1,)"),
        (np.zeros(2), "array of shape (2,), dtype float64, values 0.0 … 0.0", "(2,)"),
        (
            np.zeros((1, 2, 2), np.int32),
            "array of shape (1, 2, 2), dtype int32, values 0 … 0",
            "(1, 2, 2)",
        ),
    ],
    ids=["list", "vector", "batch"],
)
def test_an_action_of_another_shape_is_refused(action, got, shape):
    env = started(action_spec=ACTION)
    expected = (
        "RandomPyEnvironment.step() was given an action that does not fit its spec."
        "\n\n  expected   BoundedArraySpec(shape=(2, 2), dtype=int32, minimum=-10, "
        f"maximum=10)\n  got        {got}\n\nThe shape is {shape} instead of (2, 2)."
    )

    assert (SpecError, expected) == told(env.step, action)


@pytest.mark.parametrize(
    ("action", "got", "reason"),
    [
        (None, "None", "None is not an array. Did a return statement get lost?"),
        ("left", "the string 'left'", "A string is not an array."),
        (
            [[0], [0, 0]],
            "a list of 2 elements",
            "Its rows differ in shape, so it is no array.",
        ),
    ],
    ids=repr,
)
def test_an_action_that_is_no_array_is_refused(action, got, reason):
    env = started(action_spec=ACTION)
    expected = (
        "RandomPyEnvironment.step() was given an action that does not fit its spec."
        "\n\n  expected   BoundedArraySpec(shape=(2, 2), dtype=int32, minimum=-10, "
        f"maximum=10)\n  got        {got}\n\n{reason}"
    )

    assert (SpecError, expected) == told(env.step, action)


def test_the_wrong_part_of_a_nested_action_is_named():
    env = started(action_spec={"go": (ACTION, ACTION)}, batch_size=3)
    expected = (
        "RandomPyEnvironment.step() was given an action that does not fit its spec at "
        "action['go'][1].\n\n"
        "  expected   BoundedArraySpec(shape=(3, 2, 2), dtype=int32, minimum=-10, "
        "maximum=10)\n"
        "  got        array of shape (2, 2), dtype float64, values 0.0 … 0.0\n\n"
        "The shape is (2, 2) instead of (3, 2, 2)."
    )

    assert (SpecError, expected) == told(env.step, {"go": (0, np.zeros((2, 2)))})


def test_an_action_of_another_structure_is_refused():
    env = started(action_spec={"go": ACTION})
    expected = (
        "RandomPyEnvironment.step() was given an action that does not fit its spec."
        "\n\n"
        "  expected   the structure {'go': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'go' is missing; key 'stay' is not in the spec."
    )

    assert (SpecError, expected) == told(env.step, {"stay": 0})


# Seeds and state.


@pytest.mark.parametrize("batch_size", [None, 3])
@given(seed=st.integers(0, 2**64))
@settings(max_examples=10)
def test_equal_seeds_give_equal_streams(batch_size, seed):
    def stream(env):
        return [bits(env.step(0)) for _ in range(20)]

    made = RandomPyEnvironment(SPEC, batch_size=batch_size, seed=seed)
    seeded = RandomPyEnvironment(SPEC, batch_size=batch_size)
    seeded.seed(seed)

    assert stream(made) == stream(seeded)


def test_different_seeds_give_different_streams():
    streams = [
        [bits(env.step(0)) for _ in range(5)]
        for env in (
            RandomPyEnvironment(SPEC),
            RandomPyEnvironment(SPEC, seed=43),
            RandomPyEnvironment(SPEC, seed=None),
        )
    ]

    assert 3 == len({repr(stream) for stream in streams})


def test_a_batch_takes_one_seed_for_each_row():
    streams = []
    for seeds in ([1, 2], [1, 2], [1, 3]):
        env = RandomPyEnvironment(SPEC, batch_size=2)
        env.seed(seeds)
        streams.append([bits(env.step(0)) for _ in range(5)])

    assert streams[0] == streams[1]
    assert streams[0] != streams[2]


@pytest.mark.parametrize(("seeds", "count"), [([1, 2], "2 seeds"), ([1], "1 seed")])
def test_a_list_of_seeds_of_another_length_is_refused(seeds, count):
    env = RandomPyEnvironment(SPEC, batch_size=3)
    expected = (
        f"{count} for 3 environments. Pass one seed for each environment, or one "
        "integer from which each gets its own."
    )

    assert (ValueError, expected) == told(env.seed, seeds)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize(
    ("seed", "kind", "expected"),
    [
        (-1, ValueError, "A seed cannot be negative, and -1 is."),
        (1.5, TypeError, "A seed is an integer, not 1.5 of type float."),
        ("seven", TypeError, "A seed is an integer, not 'seven'."),
    ],
    ids=repr,
)
def test_what_is_no_seed_is_refused(seed, kind, expected, batch_size):
    env = RandomPyEnvironment(SPEC, batch_size=batch_size)

    assert (kind, expected) == told(env.seed, seed)
    assert (kind, expected) == told(lambda: RandomPyEnvironment(SPEC, seed=seed))


def test_the_default_seed_makes_runs_repeatable():
    first, second = RandomPyEnvironment(SPEC), RandomPyEnvironment(SPEC, seed=42)

    assert bits(first.reset()) == bits(second.reset())


@settings(max_examples=20)
@given(
    batch_size=st.sampled_from([None, 1, 3]),
    before=st.integers(0, 12),
    between=st.integers(0, 12),
)
def test_setting_a_state_is_the_identity_on_the_future(batch_size, before, between):
    env = RandomPyEnvironment(
        SPEC, batch_size=batch_size, min_duration=2, max_duration=5
    )
    for _ in range(before):
        env.step(0)
    token = pickle.loads(pickle.dumps(env.get_state()))
    expected = [bits(env.step(0)) for _ in range(12)]
    for _ in range(between):
        env.step(0)
    env.set_state(token)

    assert expected == [bits(env.step(0)) for _ in range(12)]


# Pictures.


@pytest.mark.parametrize(
    ("batch_size", "shape"), [(None, (4, 5, 3)), (2, (2, 4, 5, 3))]
)
def test_a_picture_has_the_size_that_was_asked_for(batch_size, shape):
    picture = started(batch_size=batch_size, render_size=[4, 5, 3]).render()

    assert (shape, np.uint8) == (picture.shape, picture.dtype)


def test_a_picture_is_two_by_two_unless_asked_otherwise():
    assert (2, 2, 3) == started().render("rgb_array").shape


def test_rendering_does_not_change_what_happens():
    env, watched = started(), started()
    for _ in range(20):
        watched.render()

        assert bits(env.step(0)) == bits(watched.step(0))


def test_another_mode_of_rendering_is_refused():
    expected = "RandomPyEnvironment renders 'rgb_array' only, not 'human'."

    assert (ValueError, expected) == told(started().render, "human")


# Arguments that make no sense.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"episode_end_probability": 1.5},
            "episode_end_probability is 1.5; a probability lies between 0 and 1.",
        ),
        (
            {"episode_end_probability": -0.1},
            "episode_end_probability is -0.1; a probability lies between 0 and 1.",
        ),
        (
            {"episode_end_probability": float("nan")},
            "episode_end_probability is nan; a probability lies between 0 and 1.",
        ),
        ({"batch_size": 0}, "batch_size is 0; a batch has at least one row."),
        ({"batch_size": -2}, "batch_size is -2; a batch has at least one row."),
        (
            {"max_duration": 0},
            "max_duration is 0; it must be at least 1 and no less than min_duration, "
            "which is 0.",
        ),
        (
            {"min_duration": 5, "max_duration": 4},
            "max_duration is 4; it must be at least 1 and no less than min_duration, "
            "which is 5.",
        ),
    ],
    ids=repr,
)
def test_arguments_that_make_no_sense_are_refused(options, expected):
    assert (ValueError, expected) == told(lambda: RandomPyEnvironment(SPEC, **options))


def test_arguments_stand_in_the_order_that_tf_agents_users_know():
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
