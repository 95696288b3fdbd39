"""Clipped and transformed rewards, row by row, in vectors and in nests."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import CartPole, Catch
from envkit.errors import SpecError
from envkit.wrappers.rewards import ClipReward, TransformReward, add_in_rows, sum_spec
from tests.wrappers.earning import Earning, earning_batch

VECTOR = ArraySpec((2,), np.float32, name="two")
NEST = {"food": ArraySpec((), np.float32), "gold": ArraySpec((2,), np.int64)}


def earnings(*rewards, discount=1.0):
    """An episode with these rewards."""
    return [(reward, discount) for reward in rewards]


def play(env, steps):
    """Returns the rewards of a reset and of some steps."""
    action = 0 if env.batch_size is None else np.zeros(env.batch_size, np.int64)
    return [env.reset().reward] + [env.step(action).reward for _ in range(steps)]


def lists(rewards):
    return [np.asarray(reward).tolist() for reward in rewards]


@pytest.mark.parametrize(
    ("low", "high", "clipped"),
    [
        (-1.0, 2.0, [0, -1, 0.5, 2]),
        (None, 2, [0, -3, 0.5, 2]),
        (0, None, [0, 0, 0.5, 5]),
    ],
)
def test_rewards_are_clipped_to_the_range(low, high, clipped):
    env = ClipReward(Earning(earnings(-3, 0.5, 5)), low, high)
    assert clipped == lists(play(env, 3))


def test_infinite_rewards_are_clipped_too():
    env = ClipReward(Earning(earnings(np.inf, -np.inf)), min_reward=-1.0)
    rewards = play(env, 2)
    assert np.finfo(np.float32).max == rewards[1]
    assert -1.0 == rewards[2]


def test_the_reward_of_a_first_stays_0_outside_the_range():
    env = ClipReward(earning_batch([earnings(3)], [earnings(0, 1)]), 1.0, 2.0)
    assert [[0, 0], [2, 1], [0, 1], [2, 0]] == lists(play(env, 3))
    assert (0.0, 2.0) == (env.reward_spec().minimum, env.reward_spec().maximum)


def test_a_range_below_0_makes_room_for_the_reward_of_a_first():
    spec = ClipReward(CartPole(), max_reward=-1.0).reward_spec()
    assert (np.finfo(np.float32).min, 0.0) == (spec.minimum, spec.maximum)


def test_each_element_of_a_vector_has_its_own_range():
    env = ClipReward(
        Earning(earnings([5, 5], [-5, -5]), reward_spec=VECTOR), [-1, -2], [1, 2]
    )
    assert [[0, 0], [1, 2], [-1, -2]] == lists(play(env, 2))
    assert BoundedArraySpec((2,), np.float32, [-1, -2], [1, 2]) == env.reward_spec()
    assert "two" == env.reward_spec().name


def test_every_leaf_of_a_nest_is_clipped_and_keeps_its_dtype():
    env = ClipReward(
        Earning(earnings({"food": 7, "gold": [-9, 1]}), reward_spec=NEST), -2, 2
    )
    _, reward = play(env, 1)
    assert {"food": 2.0, "gold": [-2, 1]} == {
        name: leaf.tolist() for name, leaf in reward.items()
    }
    assert env.reward_spec() == {
        "food": BoundedArraySpec((), np.float32, -2, 2),
        "gold": BoundedArraySpec((2,), np.int64, -2, 2),
    }


def test_narrower_bounds_are_kept():
    spec = BoundedArraySpec((), np.float32, 0.0, 5.0)
    env = ClipReward(Earning(earnings(1), reward_spec=spec), -1.0, 2.0)
    assert BoundedArraySpec((), np.float32, 0.0, 2.0) == env.reward_spec()


def test_given_limits_may_be_changed_later():
    limits = np.array([1.0, 2.0])
    env = ClipReward(Earning(earnings([5, 5]), reward_spec=VECTOR), max_reward=limits)
    limits[...] = 100.0
    assert [1, 2] == lists(play(env, 1))[1]
    assert [1, 2] == env.max_reward.tolist()


def test_the_repr_shows_the_range():
    env = ClipReward(Earning(earnings(1)), max_reward=2)
    assert "ClipReward(Earning(), min_reward=None, max_reward=2)" == repr(env)


GOLD = ArraySpec((), np.int64)


@pytest.mark.parametrize(
    ("spec", "low", "high", "message"),
    [
        (
            VECTOR,
            1,
            0.5,
            "reward, which is ArraySpec(shape=(2,), dtype=float32, name='two'), between"
            " min_reward=1 and max_reward=0.5. BoundedArraySpec min has values greater "
            "than max: minimum 1 is above maximum 0.5.",
        ),
        (
            {"gold": GOLD},
            [1, 2],
            None,
            "reward['gold'], which is ArraySpec(shape=(), dtype=int64), between "
            "min_reward=[1, 2] and max_reward=None. minimum is not compatible with "
            "shape (): its own shape is (2,), which does not broadcast to it.",
        ),
        (
            GOLD,
            None,
            0.5,
            "reward, which is ArraySpec(shape=(), dtype=int64), between min_reward=None"
            " and max_reward=0.5. Limits of integers must be whole numbers.",
        ),
        (
            GOLD,
            None,
            np.nan,
            "reward, which is ArraySpec(shape=(), dtype=int64), between min_reward=None"
            " and max_reward=nan. A limit must not be NaN.",
        ),
        (
            GOLD,
            None,
            "much",
            "reward, which is ArraySpec(shape=(), dtype=int64), between min_reward=None"
            " and max_reward='much'. maximum must be numbers, not 'much'.",
        ),
        (
            GOLD,
            None,
            np.inf,
            "reward, which is ArraySpec(shape=(), dtype=int64), between min_reward=None"
            " and max_reward=inf. maximum is not within the range of int64: inf is not "
            "between -9223372036854775808 and 9223372036854775807.",
        ),
        (
            ArraySpec((), np.bool_),
            0,
            None,
            "reward, which is ArraySpec(shape=(), dtype=bool), between min_reward=0 and"
            " max_reward=None. BoundedArraySpec needs an integer or floating dtype, not"
            " bool: only numbers have bounds. Use ArraySpec for it.",
        ),
    ],
)
def test_limits_that_do_not_fit_the_reward_are_refused(
    spec, low, high, message, message_of
):
    assert (f"ClipReward cannot clip {message}") == message_of(
        ValueError, lambda: ClipReward(Earning([], reward_spec=spec), low, high)
    )


def test_the_function_sees_the_rewards_of_all_rows_at_once():
    seen = []

    def double(reward):
        seen.append(reward.shape)
        return 2 * reward

    env = TransformReward(earning_batch([earnings(1, 2)], [earnings(3, 4)]), double)
    assert [[0, 0], [2, 6], [4, 8]] == lists(play(env, 2))
    assert [(2,), (2,)] == seen


def test_the_function_sees_a_single_environment_as_one_row():
    seen = []

    def double(reward):
        seen.append(reward.shape)
        return 2 * reward

    rewards = play(TransformReward(Earning(earnings(1, 2)), double), 2)
    assert [0, 2, 4] == lists(rewards)
    assert [(1,), (1,)] == seen
    assert {((), np.dtype(np.float32))} == {(one.shape, one.dtype) for one in rewards}


def test_the_function_does_not_apply_to_a_first():
    env = TransformReward(earning_batch([earnings(1)], [earnings(1, 1)]), np.exp)
    e = float(np.exp(np.float32(1)))
    assert [[0, 0], [e, e], [0, e], [e, 0]] == lists(play(env, 3))


@pytest.mark.parametrize("masked", [False, True])
def test_the_function_never_sees_the_0_of_a_first(masked):
    env = TransformReward(
        earning_batch([earnings(1)], [earnings(1, 1)], [earnings(1, 1)]), np.log
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a division by 0
        play(env, 3)
        if masked:
            env.reset(np.array([False, True, False]))
            env.step(np.zeros(3, np.int64), np.array([True, False, True]))


def test_the_function_may_change_its_argument():
    def halve(reward):
        reward /= 2
        return reward

    inner = Earning(earnings(5))
    env = TransformReward(inner, halve)
    assert [0, 2.5] == lists(play(env, 1))
    assert 5.0 == inner.current_time_step().reward


@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_function_may_return_the_same_array_again(batch_size):
    result = np.zeros(batch_size or 1, np.float32)

    def count(reward):
        result[...] += 1
        return result

    env = TransformReward(Catch(batch_size), count)
    rewards = play(env, 3)
    assert [0, 1, 2, 3] == [reward.flat[0] for reward in rewards]


def test_a_vector_can_become_a_number():
    env = TransformReward(
        earning_batch([earnings([1, 2])], [earnings([3, 4])], reward_spec=VECTOR),
        lambda reward: reward.sum(axis=1),
        ArraySpec((), np.float32),
    )
    assert [[0, 0], [3, 7], [0, 0]] == lists(play(env, 2))


def test_a_nest_can_become_another():
    env = TransformReward(
        Earning(earnings({"food": 2, "gold": [3, 4]}), reward_spec=NEST),
        lambda reward: (reward["food"], reward["gold"][:, 0].astype(np.float32)),
        (ArraySpec((), np.float32), ArraySpec((), np.float32)),
    )
    assert [[0, 0], [2, 3]] == [list(map(float, reward)) for reward in play(env, 1)]


def test_without_a_spec_only_the_bounds_are_dropped():
    spec = BoundedArraySpec((), np.float32, 0, 1, name="coins")
    env = TransformReward(Earning(earnings(1), reward_spec=spec), lambda r: 5 * r)
    assert "ArraySpec(shape=(), dtype=float32, name='coins')" == repr(env.reward_spec())


def test_np_sign_turns_rewards_into_signs():
    spec = BoundedArraySpec((), np.float32, -1, 1)
    env = TransformReward(Earning(earnings(-7, 0, 0.1)), np.sign, spec)
    assert [0, -1, 0, 1] == lists(play(env, 3))
    assert spec == env.reward_spec()


ONE_ROW = (
    "The function gets the rewards of all rows at once and returns as many (1, without "
    "a batch). If it changes the shape or dtype of one row's reward, pass reward_spec=."
)


@pytest.mark.parametrize(
    ("function", "got", "reason"),
    [
        (
            lambda reward: reward.astype(np.float64),
            "array of shape (1,), dtype float64, values 3.0 … 3.0",
            "dtype is float64; the spec says float32. NumPy makes float64 by default: "
            "add .astype(np.float32).",
        ),
        (
            lambda reward: reward[0],
            f"{np.float32(3)!r} of type float32",
            "The value is a single number; an array of shape (1,) is expected.",
        ),
        (
            lambda reward: reward[:, np.newaxis],
            "array of shape (1, 1), dtype float32, values 3.0 … 3.0",
            "There is one dimension too many, of size 1: a batch where a single value "
            "belongs.",
        ),
        (
            lambda reward: reward.tolist(),
            "a list of 1 element",
            "The value is a list, not an array: use np.array(..., np.float32).",
        ),
        (
            lambda reward: None,
            "None",
            "None is not an array. Did a return statement get lost?",
        ),
    ],
)
def test_a_result_that_does_not_fit_is_refused(function, got, reason, message_of):
    env = TransformReward(Earning(earnings(3)), function)
    env.reset()
    assert (
        "The function of TransformReward returned a reward that does not fit its spec."
        "\n\n"
        "  expected   ArraySpec(shape=(1,), dtype=float32, name='reward')\n"
        f"  got        {got}\n\n"
        f"{reason}\n"
        f"{ONE_ROW}"
    ) == message_of(SpecError, lambda: env.step(0))


def test_a_result_beyond_the_promised_bounds_is_refused(message_of):
    env = TransformReward(
        earning_batch([earnings(3)], [earnings(0.5)]),
        lambda reward: reward,
        BoundedArraySpec((), np.float32, 0, 1),
    )
    env.reset()

    assert (
        "The function of TransformReward returned a reward that does not fit its spec."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0)\n"
        "  got        array of shape (2,), dtype float32, values 0.5 … 3.0\n\n"
        "1 of 2 elements is above the maximum 1.0: 3.0 at index (0,).\n"
        "The function gets the rewards of all rows at once and returns as many (2). "
        "If it changes the shape or dtype of one row's reward, pass reward_spec=."
    ) == message_of(SpecError, lambda: env.step([0, 0]))


def test_a_result_of_another_structure_names_the_place(message_of):
    env = TransformReward(
        Earning(earnings({"food": 2, "gold": [3, 4]}), reward_spec=NEST),
        lambda reward: {"food": reward["food"]},
    )
    env.reset()
    assert (
        "The function of TransformReward returned a reward that does not fit its spec."
        "\n\n"
        "  expected   the structure {'food': *, 'gold': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'gold' is missing.\n"
        f"{ONE_ROW}"
    ) == message_of(SpecError, lambda: env.step(0))


def test_the_limits_attribute_is_a_copy():
    env = ClipReward(Catch(), np.array(-0.5), np.array(0.5))
    env.min_reward[...] = -0.9
    env.max_reward[...] = 0.9
    assert (-0.5, 0.5) == (env.min_reward, env.max_reward)


# reward_sums.


def test_bounds_cover_the_sum_of_rewards():
    spec = BoundedArraySpec((2,), np.float32, [-1.0, 0.5], [2.0, 3.0], name="reward")
    summed = sum_spec(spec, 3)
    assert BoundedArraySpec((2,), np.float32, [-3.0, 0.5], [6.0, 9.0]) == summed
    assert summed.name == "reward"


def test_bounds_also_cover_a_single_reward():
    assert BoundedArraySpec((), np.int64, -8, -1) == sum_spec(
        BoundedArraySpec((), np.int64, -2, -1), 4
    )


def test_a_spec_without_bounds_stays():
    spec = ArraySpec((), np.float32)
    assert sum_spec(spec, 4) is spec


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_bounds_are_never_beyond_their_dtype(dtype):
    spec = BoundedArraySpec((), dtype)
    assert spec == sum_spec(spec, 4)


def test_a_bound_beyond_the_dtype_becomes_its_limit():
    spec = BoundedArraySpec((2,), np.int8, [-100, 3], [30, 40])
    assert BoundedArraySpec((2,), np.int8, [-128, 3], [120, 127]) == sum_spec(spec, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("most", [7, 10, 100])
def test_rewards_at_their_bounds_add_up_to_the_bounds_of_the_sum(dtype, most):
    """Float sums are rounded at each step, and a product only once."""
    spec = BoundedArraySpec((2,), dtype, [-0.1, -0.7], [0.1, 0.3])
    summed = sum_spec(spec, most)
    for reward, bound in [
        (spec.minimum, summed.minimum),
        (spec.maximum, summed.maximum),
    ]:
        total = reward
        for _ in range(most - 1):
            total = add_in_rows(np.array(True), total, reward)
        assert bound.tolist() == total.tolist()


def test_the_sum_of_more_rewards_than_can_be_added_has_no_bounds():
    spec = BoundedArraySpec((), np.float32, -0.1, 0.0)
    summed = sum_spec(spec, 2**62)
    assert BoundedArraySpec((), np.float32, None, 0.0) == summed


def test_integers_are_multiplied_exactly():
    spec = BoundedArraySpec((), np.int64, -(2**53) - 1, 2**61)
    summed = sum_spec(spec, 4)
    assert -4 * (2**53 + 1) == summed.minimum
    assert np.iinfo(np.int64).max == summed.maximum


ROWS = np.array([True, True, True, False])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_a_sum_beyond_the_limits_of_integers_is_the_limit(dtype):
    info = np.iinfo(dtype)
    total = np.array([info.max - 1, info.min, 3, info.max], dtype)
    reward = np.array([2, -1 if info.min else 0, 4, 1], dtype)
    added = add_in_rows(ROWS, total, reward)
    assert dtype == added.dtype
    assert [info.max, info.min, 7, info.max] == added.tolist()


@given(st.data(), st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, ">i2"]))
def test_sums_of_integers_are_exact_within_their_limits(data, dtype):
    dtype = np.dtype(dtype)
    info = np.iinfo(dtype)
    number = st.integers(int(info.min), int(info.max))
    total, reward = data.draw(number), data.draw(number)
    added = add_in_rows(np.array(True), np.array(total, dtype), np.array(reward, dtype))
    assert ((), dtype) == (added.shape, added.dtype)
    assert min(max(total + reward, info.min), info.max) == added


def test_a_sum_of_many_rewards_is_within_its_spec():
    spec = BoundedArraySpec((), np.int8, -100, 100)
    total = reward = np.array(100, np.int8)
    for _ in range(3):
        total = add_in_rows(np.array(True), total, reward)
    assert sum_spec(spec, 4).check_array(total)
    assert 127 == total


def test_floats_overflow_to_infinity_without_a_warning():
    large = np.array([3e38, -3e38, 1.0], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        added = add_in_rows(np.array([True] * 3), large, large)
        single = add_in_rows(np.array(True), large[0, ...], large[0, ...])
    assert [np.inf, -np.inf, 2.0] == added.tolist()
    assert np.inf == single


def test_booleans_add_up_to_any():
    total = np.array([True, False, False, False])
    reward = np.array([True, True, False, True])
    assert [True, True, False, False] == add_in_rows(ROWS, total, reward).tolist()


def test_rewards_are_added_in_the_rows_of_vectors():
    total, reward = (
        np.array([[1, 100], [1, 100]], np.int8),
        np.full((2, 2), 50, np.int8),
    )
    added = add_in_rows(np.array([True, False]), total, reward)
    assert [[51, 127], [1, 100]] == added.tolist()


REFUSED = {
    "clipping needs a limit": (
        ValueError,
        lambda: ClipReward(CartPole()),
        "ClipReward needs min_reward, max_reward or both: without a limit there is "
        "nothing to clip.",
    ),
    "what is no function": (
        TypeError,
        lambda: TransformReward(CartPole(), 0.5),
        "TransformReward needs a function of rewards, not 0.5 of type float.",
    ),
    "a reward spec that is none": (
        TypeError,
        lambda: TransformReward(CartPole(), np.sign, {"a": np.float32}),
        "TransformReward takes specs, and reward_spec['a'] is a type object: use "
        "envkit.ArraySpec(shape, dtype).",
    ),
    "a reward spec without room for a first": (
        ValueError,
        lambda: TransformReward(
            CartPole(), np.exp, BoundedArraySpec((), np.float32, 1, 2)
        ),
        "reward_spec is BoundedArraySpec(shape=(), dtype=float32, minimum=1.0, "
        "maximum=2.0), but its bounds must include 0, the reward of every FIRST.",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_reward_arguments_are_refused(error, call, message, message_of):
    assert message == message_of(error, call)
