"""What was normal so far, learnt from all rows: of observations and of rewards."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit._internal.first_look import leave_unseen
from envkit.envs import CartPole, Catch, GridWorld
from envkit.errors import SpecError
from envkit.time_step import StepType
from envkit.wrappers.limits import FixedLength, TimeLimit
from envkit.wrappers.normalization import (
    NormalizeObservation,
    NormalizeReward,
    RunningStatistics,
)
from envkit.wrappers.rewards import TransformReward
from tests.wrappers.earning import Earning, earning_batch
from tests.wrappers.environments import Drive

ROWS = 4


def cart_pole(seed=1, rows=ROWS):
    return CartPole(batch_size=rows, seed=seed)


def actions(step, rows=ROWS):
    return (np.arange(rows) + step) % 2


def of(*values, shape=()):
    statistics = RunningStatistics(shape)
    for value in values:
        statistics.update(value)
    return statistics


def assert_equal_statistics(expected, got):
    assert expected.count == got.count
    np.testing.assert_allclose(got.mean, expected.mean, 1e-12, 1e-12)
    np.testing.assert_allclose(got.variance, expected.variance, 1e-12, 1e-12)


class Watched(NormalizeObservation):
    """Keeps what the environment showed before it was normalised."""

    def __init__(self, env, **kwargs):
        super().__init__(env, **kwargs)
        self.raw = []

    def _see(self, time_step, rows):
        self.raw.append(np.array(time_step.observation))
        return super()._see(time_step, rows)


def test_observations_are_normalized_by_those_seen_so_far():
    env = Watched(cart_pole())
    shown = [env.reset().observation]
    shown += [env.step(actions(step)).observation for step in range(30)]
    for step, observation in enumerate(shown):
        seen = np.concatenate(env.raw[: step + 1]).astype(np.float64)
        expected = (env.raw[step] - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)

        np.testing.assert_allclose(observation, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("rows", [None, ROWS])
def test_the_statistics_learn_from_every_row(rows):
    env = Watched(CartPole(batch_size=rows, seed=1))
    env.reset()
    for step in range(60):  # More than an episode: each FIRST counts.
        env.step(step % 2 if rows is None else actions(step))
    assert_equal_statistics(of(np.stack(env.raw), shape=(4,)), env.statistics)


def test_held_rows_are_not_counted_again():
    env = Watched(cart_pole())
    env.reset()
    only = np.array([False, True, False, False])
    env.reset(only)
    env.step(actions(0), ~only)
    expected = of(env.raw[0], env.raw[1][only], env.raw[2][~only], shape=(4,))
    assert ROWS + 1 + 3 == env.statistics.count
    assert_equal_statistics(expected, env.statistics)


def test_normalized_observations_are_float32_without_bounds():
    env = NormalizeObservation(Earning([(0, 1)]))
    assert "ArraySpec(shape=(2,), dtype=float32)" == repr(env.observation_spec())
    assert np.float32 == env.reset().observation.dtype


def test_clipped_observations_have_bounds_and_keep_them():
    env = NormalizeObservation(cart_pole(), clip=0.5)
    env.reset()
    shown = [env.step(actions(step)).observation for step in range(10)]
    assert BoundedArraySpec((4,), np.float32, -0.5, 0.5) == env.observation_spec()
    assert 0.5 == np.abs(shown).max()


def test_an_element_that_never_changes_becomes_0():
    env = NormalizeObservation(Catch(seed=1))
    constant = env.reset().observation[5]
    for _ in range(3):
        constant = env.step(1).observation[8]
    assert [0.0] * 5 == constant.tolist()


def test_the_environments_arrays_are_unchanged():
    inner = cart_pole()
    env = NormalizeObservation(inner)
    env.reset()
    kept = inner.current_time_step().observation.copy()
    env.current_time_step().observation[...] = 77.0
    assert kept.tobytes() == inner.current_time_step().observation.tobytes()


def test_only_the_float_leaves_of_a_nest_are_normalized():
    env = NormalizeObservation(Drive(), clip=5.0)
    inside = Drive()
    shown, raw = env.reset().observation, inside.reset().observation

    assert [0.0, 0.0] == shown["place"].tolist()
    assert raw["camera"].tobytes() == shown["camera"].tobytes()
    assert raw["rest"][1] == shown["rest"][1]
    assert env.observation_spec() == {
        "camera": BoundedArraySpec((6, 4, 3), np.uint8, 0, 255),
        "place": BoundedArraySpec((2,), np.float32, -5, 5),
        "rest": (
            BoundedArraySpec((), np.float32, -5, 5),
            BoundedArraySpec((), np.int64, 0, 99),
        ),
    }
    assert (
        "{'camera': None, 'place': RunningStatistics(shape=(2,), count=1), "
        "'rest': (RunningStatistics(shape=(), count=1), None)}"
    ) == repr(env.statistics)


def test_pictures_are_normalized_on_request():
    env = NormalizeObservation(GridWorld(batch_size=3, seed=1), integers=True)
    env.reset()
    shown = env.step([0, 1, 2]).observation
    assert ArraySpec((8, 8, 3), np.float32) == env.observation_spec()
    assert ((3, 8, 8, 3), np.float32) == (shown.shape, shown.dtype)
    assert 6 == env.statistics.count


def test_statistics_choose_the_leaves():
    chosen = {"camera": None, "place": None, "rest": (None, RunningStatistics())}
    env = NormalizeObservation(Drive(), statistics=chosen)
    raw, shown = Drive().reset().observation, env.reset().observation
    assert raw["place"].tolist() == shown["place"].tolist()
    assert np.float32 == shown["rest"][1].dtype
    assert 1 == chosen["rest"][1].count


def test_frozen_statistics_are_used_but_not_updated():
    statistics = of([[0.0] * 4, [2.0] * 4], shape=(4,))
    env = NormalizeObservation(cart_pole(), statistics=statistics, frozen=True)
    inner = cart_pole()
    expected = (inner.reset().observation - 1.0).astype(np.float32)
    np.testing.assert_allclose(env.reset().observation, expected, 1e-6)
    assert (True, 2) == (env.frozen, statistics.count)


def test_learning_can_be_paused_and_resumed():
    env = NormalizeObservation(cart_pole())
    env.reset()
    env.freeze()
    env.step(actions(0))
    assert (True, ROWS) == (env.frozen, env.statistics.count)

    env.unfreeze()
    env.step(actions(0))
    assert (False, 2 * ROWS) == (env.frozen, env.statistics.count)


def test_freezing_affects_all_users_of_shared_statistics():
    statistics = RunningStatistics((4,))
    envs = [NormalizeObservation(cart_pole(), statistics=statistics) for _ in range(2)]
    statistics.freeze()
    for env in envs:
        env.reset()
    assert 0 == statistics.count


def test_an_evaluation_environment_can_share_training_statistics():
    train = NormalizeObservation(cart_pole())
    test = NormalizeObservation(
        cart_pole(7), statistics=train.statistics, frozen=True, clip=3.0
    )
    before = test.reset().observation
    train.reset()
    test.seed(7)
    after = test.reset().observation
    assert test.statistics is train.statistics
    assert ROWS == train.statistics.count
    assert (before != after).all()


def test_the_environments_of_a_batch_can_share_statistics():
    statistics = RunningStatistics((4,))
    rows = [
        NormalizeObservation(CartPole(seed=row), statistics=statistics)
        for row in range(3)
    ]
    BatchedPyEnvironment(rows, multithreading=False).reset()
    assert 3 == statistics.count


def test_a_copied_environment_has_its_own_statistics():
    env = NormalizeObservation(cart_pole())
    env.reset()
    other = copy.deepcopy(env)
    expected = env.step(actions(0)).observation
    assert (2 * ROWS, ROWS) == (env.statistics.count, other.statistics.count)
    assert expected.tobytes() == other.step(actions(0)).observation.tobytes()


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
def test_restoring_a_state_affects_all_users_of_shared_statistics(wrap):
    train = wrap(cart_pole())
    test = wrap(cart_pole(), statistics=train.statistics, frozen=True)
    train.reset()
    train.step(actions(0))
    state = train.get_state()
    count, mean = train.statistics.count, train.statistics.mean.tolist()
    for step in range(9):
        train.step(actions(step))
    train.set_state(state)
    assert train.statistics is test.statistics
    assert (count, mean) == (test.statistics.count, test.statistics.mean.tolist())


def test_a_state_remembers_whether_learning_was_on():
    env = NormalizeObservation(cart_pole())
    env.reset()
    state = env.get_state()
    env.freeze()
    env.set_state(state)
    assert not env.frozen


def test_a_state_with_other_leaves_is_refused_before_anything_changes(message_of):
    env = NormalizeObservation(Drive())
    other = NormalizeObservation(Drive(), integers=True)
    env.reset()
    other.reset()
    before = env.current_time_step()
    assert (
        "NormalizeObservation.set_state() was given the state of a wrapper that "
        "normalises 4 leaves, but this one normalises 2."
    ) == message_of(ValueError, lambda: env.set_state(other.get_state()))
    assert before is env.current_time_step()
    assert 1 == env.statistics["place"].count


def test_a_state_with_statistics_of_another_shape_is_refused(message_of):
    env = NormalizeObservation(cart_pole())
    state = NormalizeObservation(Earning([(0, 1)])).get_state()
    assert (
        "RunningStatistics.set_state() was given statistics for shape (2,), but these "
        "are for shape (4,)."
    ) == message_of(ValueError, lambda: env.set_state(state))


class Oracle:
    """Sums up the returns of one row, one number after the other."""

    def __init__(self, gamma):
        self.gamma, self.sum, self.discount = gamma, 0.0, 1.0

    def see(self, is_first, reward, discount):
        if is_first:
            self.sum, self.discount = 0.0, 1.0
            return None
        self.sum = reward + self.gamma * self.discount * self.sum
        self.discount = discount
        return self.sum


EPISODES = st.lists(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0])),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=3,
)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "reset"]),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    max_size=20,
)


@given(st.tuples(EPISODES, EPISODES, EPISODES), st.sampled_from([0, 0.5, 1]), MOVES)
def test_rewards_are_divided_by_the_deviation_of_all_returns(scripts, gamma, moves):
    """In whatever rows step, and begin, and wait."""
    inner = earning_batch(*scripts)
    env = NormalizeReward(inner, gamma)
    oracles = [Oracle(gamma) for _ in range(3)]
    returns = []
    everyone = [True] * 3
    env.reset()
    for call, mask in [("step", everyone), *moves, ("step", everyone)]:
        rows = np.array(mask)
        shown = env.step(np.zeros(3, int), rows) if call == "step" else env.reset(rows)
        raw = inner.current_time_step()
        for row in np.flatnonzero(rows):
            is_first = raw.step_type[row] == StepType.FIRST
            one = oracles[row].see(is_first, raw.reward[row], raw.discount[row])
            returns += [] if one is None else [one]
        # What was the same each time has no scale.
        varies = len(set(returns)) > 1
        scale = np.sqrt(np.var(returns) + 1e-8) if varies else 1.0

        assert len(returns) == env.statistics.count
        if (np.ptp(returns) if returns else 0) > 1e-6 or not varies:
            np.testing.assert_allclose(
                shown.reward[rows], raw.reward[rows] / scale, 1e-5
            )


def test_a_single_environment_sums_up_returns_too():
    env = NormalizeReward(Earning([(1, 1), (2, 0.5), (4, 0)], [(8, 1)]), gamma=0.5)
    env.reset()
    for _ in range(5):
        env.step(0)
    assert_equal_statistics(of([1.0, 2.5, 4.625, 8.0]), env.statistics)


def test_the_reward_of_a_first_stays_0_and_is_not_counted():
    env = NormalizeReward(earning_batch([[(1, 1)]], [[(3, 1), (5, 1)]]), gamma=1.0)
    assert [0, 0] == env.reset().reward.tolist()
    assert 0 == env.statistics.count

    env.step([0, 0])
    rewards = env.step([0, 0]).reward
    assert 0 == rewards[0]
    assert rewards[1] > 0
    assert_equal_statistics(of([1.0, 3.0, 8.0]), env.statistics)


def test_rewards_are_unchanged_until_returns_differ():
    env = NormalizeReward(Earning([(3, 0)]))
    rewards = [env.reset().reward, *(env.step(0).reward for _ in range(5))]
    assert [0, 3, 0, 3, 0, 3] == [float(reward) for reward in rewards]


def test_a_truncated_episode_does_not_affect_the_next():
    env = NormalizeReward(TimeLimit(Earning([(1, 1)] * 9), 2), gamma=1.0)
    env.reset()
    for _ in range(5):
        env.step(0)
    assert_equal_statistics(of([1.0, 2.0, 1.0, 2.0]), env.statistics)


def test_normalized_rewards_are_float32_and_clipped():
    spec = ArraySpec((), np.int64, name="points")
    env = NormalizeReward(Earning([(1, 1), (-90, 1)], reward_spec=spec), clip=1.5)
    env.reset()
    rewards = [env.step(0).reward for _ in range(2)]
    assert [1.0, -1.5] == [float(reward) for reward in rewards]
    assert [np.float32] * 2 == [reward.dtype for reward in rewards]
    assert BoundedArraySpec((), np.float32, -1.5, 1.5) == env.reward_spec()
    assert "points" == env.reward_spec().name


def test_frozen_returns_continue_without_being_counted():
    env = NormalizeReward(Earning([(1, 1), (2, 1), (4, 1)]), gamma=1.0, frozen=True)
    env.reset()
    assert [1.0, 2.0] == [float(env.step(0).reward) for _ in range(2)]
    assert 0 == env.statistics.count

    env.unfreeze()
    env.step(0)
    assert (1, 7.0) == (env.statistics.count, env.statistics.mean)


def test_each_element_of_a_vector_has_its_own_returns():
    spec = ArraySpec((2,), np.float32)
    scripts = [[([1, 10], 1), ([3, 10], 1)]]
    for env in (
        NormalizeReward(Earning(*scripts, reward_spec=spec), 0.0),
        NormalizeReward(earning_batch(scripts, reward_spec=spec), 0.0),
    ):
        env.reset()
        env.step([0])
        reward = env.step([0]).reward.reshape(2)
        assert [3.0, 10.0] == reward.tolist()
        assert_equal_statistics(of([[1, 10], [3, 10]], shape=(2,)), env.statistics)


def test_each_leaf_of_a_nest_has_its_own_returns():
    spec = {"food": ArraySpec((), np.float32), "won": ArraySpec((), np.bool_)}
    env = NormalizeReward(
        Earning(
            [({"food": 2, "won": False}, 1), ({"food": 6, "won": True}, 1)],
            reward_spec=spec,
        ),
        gamma=0.0,
    )
    env.reset()
    env.step(0)
    reward = env.step(0).reward

    assert {"food": 3.0, "won": True} == {key: leaf[()] for key, leaf in reward.items()}
    assert env.reward_spec() == spec
    assert ("{'food': RunningStatistics(shape=(), count=2), 'won': None}") == repr(
        env.statistics
    )


def test_restoring_brings_back_partial_returns():
    env = NormalizeReward(Earning([(1, 1), (2, 1), (4, 1)]), gamma=1.0)
    env.reset()
    env.step(0)
    state = env.get_state()
    for _ in range(7):
        env.step(0)
    env.set_state(state)
    env.step(0)
    assert_equal_statistics(of([1.0, 3.0]), env.statistics)


def test_the_arguments_are_attributes():
    env = NormalizeReward(cart_pole(), 0.9, 1e-4, clip=3.0, frozen=True)
    assert (0.9, 1e-4, 3.0, True) == (env.gamma, env.epsilon, env.clip, env.frozen)


def test_the_reprs_show_the_arguments():
    env = NormalizeReward(NormalizeObservation(Earning([(0, 1)]), clip=5.0))
    env.freeze()
    assert (
        "NormalizeReward(NormalizeObservation(Earning(), clip=5.0, frozen=False), "
        "gamma=0.99, clip=None, frozen=True)"
    ) == repr(env)


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
@pytest.mark.parametrize("epsilon", [0, -1.0, np.nan, np.inf, "small", None, True])
def test_an_epsilon_that_is_not_positive_is_refused(wrap, epsilon, message_of):
    assert (f"epsilon must be a positive number, got {epsilon!r}.") == message_of(
        ValueError, lambda: wrap(cart_pole(), epsilon=epsilon)
    )


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
@pytest.mark.parametrize("clip", [0, -1.0, np.nan, 1e39, "much", False, 10**400])
def test_a_clip_that_is_not_positive_is_refused(wrap, clip, message_of):
    assert (
        f"clip must be a positive number, or None for no limit, got {clip!r}."
    ) == message_of(ValueError, lambda: wrap(cart_pole(), clip=clip))


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan, "all", None, True])
def test_a_gamma_that_is_not_between_0_and_1_is_refused(gamma, message_of):
    assert (f"gamma must be a number from 0 to 1, got {gamma!r}.") == message_of(
        ValueError, lambda: NormalizeReward(cart_pole(), gamma)
    )


def test_integers_are_normalized_if_there_are_no_floats():
    env = NormalizeObservation(GridWorld(batch_size=3, seed=1))
    assert np.float32 == env.observation_spec().dtype
    assert "uint8" == NormalizeObservation(Drive()).observation_spec()["camera"].dtype


def test_rewards_that_are_no_numbers_are_refused(message_of):
    spec = ArraySpec((), np.bool_)
    assert (
        "NormalizeReward finds nothing to normalise in Earning: its reward has the "
        "dtypes bool."
    ) == message_of(
        ValueError, lambda: NormalizeReward(Earning([(0, 1)], reward_spec=spec))
    )


def test_statistics_of_another_shape_are_refused(message_of):
    given = {"camera": None, "place": RunningStatistics((3,)), "rest": (None, None)}
    assert (
        "statistics['place'] is RunningStatistics(shape=(3,), count=0), but the "
        "observation there is BoundedArraySpec(shape=(2,), dtype=float32, "
        "minimum=-10.0, maximum=[10.0, 20.0]). It must be a spec of numbers, and "
        "statistics for it must be RunningStatistics((2,))."
    ) == message_of(ValueError, lambda: NormalizeObservation(Drive(), statistics=given))


def test_observations_that_are_not_finite_are_refused(message_of):
    env = NormalizeObservation(_Broken(np.array([0.0, np.nan])))
    assert (
        "NormalizeObservation cannot learn from the observation that _Broken returned. "
        "RunningStatistics.update() was given values that would spoil the mean: 1 of 2 "
        "numbers are NaN or infinite. Nothing was counted."
    ) == message_of(SpecError, env.reset)


def test_observations_of_another_shape_are_refused(message_of):
    broken = _Broken(np.zeros((3, 2)))
    leave_unseen(broken)  # Which has looked at its first time steps only.
    env = NormalizeObservation(broken)
    assert (
        "_Broken returned a time step that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float64)\n"
        "  got        array of shape (3, 2), dtype float64, values 0.0 … 0.0\n\n"
        "There is one dimension too many, of size 3: a batch where a single value "
        "belongs."
    ) == message_of(SpecError, env.reset)
    assert 0 == env.statistics.count


class _Broken(Earning):
    """Shows what does not fit its spec."""

    def __init__(self, observation):
        super().__init__([(0, 1)])
        self._observation = observation

    def _observe(self):
        return self._observation


def test_rewards_that_are_not_finite_are_refused(message_of):
    env = NormalizeReward(Earning([(np.inf, 1)]))
    env.reset()
    assert (
        "NormalizeReward cannot learn from the reward that Earning returned. "
        "RunningStatistics.update() was given values that would spoil the mean: 1 of 1 "
        "numbers are NaN or infinite. Nothing was counted."
    ) == message_of(SpecError, lambda: env.step(0))


def test_a_discount_with_dimensions_is_refused(message_of):
    class Discounts(Earning):
        def discount_spec(self):
            return ArraySpec((2,), np.float32)

    assert (
        "NormalizeReward cannot wrap Discounts: its discount is "
        "ArraySpec(shape=(2,), dtype=float32), but a return needs one discount for "
        "each row."
    ) == message_of(ValueError, lambda: NormalizeReward(Discounts([(0, 1)])))


def test_rewards_of_an_inner_wrapper_are_used():
    env = NormalizeReward(TransformReward(Earning([(1, 1)]), lambda r: 5 * r))
    env.reset()
    env.step(0)
    assert 5.0 == env.statistics.mean


# Episodes that are padded.


def test_padding_is_not_learnt_from():
    env = NormalizeObservation(FixedLength(Catch(seed=1), 50))
    env.reset()
    for _ in range(50):
        env.step(1)
    assert 10 == env.statistics.count  # a FIRST, and the steps until the ball is down


def test_unpadded_rows_are_learnt_from():
    rows = [[[(1.0, 1.0)] * 2], [[(1.0, 1.0)] * 4]]
    env = NormalizeObservation(FixedLength(earning_batch(*rows), 4))
    env.reset()
    for _ in range(4):
        env.step([0, 0])
    assert 3 + 5 == env.statistics.count


def test_padding_in_a_masked_step_is_not_learnt_from():
    rows = [[[(1.0, 1.0)] * 2], [[(1.0, 1.0)] * 4]]
    env = NormalizeObservation(FixedLength(earning_batch(*rows), 4))
    env.reset()
    for _ in range(2):
        env.step([0, 0])
    before = env.statistics.count
    env.step([0, 0], [True, False])
    assert before == env.statistics.count


def test_returns_are_not_learnt_from_padding():
    episode = [(1.0, 1.0), (5.0, 0.0)]
    bare, env = (
        NormalizeReward(wrap(Earning(episode)), gamma=1.0)
        for wrap in (lambda env: env, lambda env: FixedLength(env, 9))
    )
    bare.reset()
    env.reset()
    for _ in range(2):
        bare.step(0)
    for _ in range(9):
        env.step(0)

    assert_equal_statistics(bare.statistics, env.statistics)


def test_the_state_remembers_whether_an_episode_is_over():
    def padded():
        return NormalizeObservation(FixedLength(Catch(seed=1), 50))

    env, other = padded(), padded()
    for _ in range(12):
        env.step(1)
    other.reset()
    other.set_state(env.get_state())
    other.step(1)
    assert 10 == other.statistics.count


# Running statistics are those of all values at once, in whatever parts they come.


SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def batches(draw: st.DrawFn, count: int = 4) -> list[np.ndarray]:
    """Draws some batches of arrays of one shape; some may be empty."""
    shape = draw(SHAPES)
    sizes = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    return [
        draw(hnp.arrays(np.float64, (size, *shape), elements=NUMBERS)) for size in sizes
    ]


def assert_are_of(values: np.ndarray, statistics: RunningStatistics) -> None:
    """Compares with NumPy, which looks at everything at once, in float64."""
    assert len(values) == statistics.count
    if not len(values):
        return
    # Of numbers up to 1e6 the mean has 10 digits behind the point, and their squares
    # have none.
    np.testing.assert_allclose(statistics.mean, values.mean(0), 1e-12, 1e-9)
    np.testing.assert_allclose(statistics.variance, values.var(0), 1e-9, 1e-9)


@given(batches())
def test_counting_in_batches_equals_counting_at_once(parts):
    statistics = of(*parts, shape=parts[0].shape[1:])
    assert_are_of(np.concatenate(parts), statistics)


@given(batches())
def test_merging_equals_counting_everything(parts):
    shape = parts[0].shape[1:]
    merged = RunningStatistics(shape)
    for part in parts:
        merged.merge(of(part, shape=shape))
    assert_are_of(np.concatenate(parts), merged)


@given(
    hnp.arrays(np.float64, (2,), elements=st.floats(-1e150, 1e150)),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_constant_values_have_a_variance_of_exactly_0(value, sizes):
    statistics = of(*(np.tile(value, (size, 1)) for size in sizes), shape=(2,))
    assert value.tolist() == statistics.mean.tolist()
    assert [0.0, 0.0] == statistics.variance.tolist()


def test_a_small_spread_of_large_numbers_keeps_its_digits():
    numbers = 1e9 + np.array([4.0, 7.0, 13.0, 16.0])
    assert 22.5 == of(*numbers).variance
    assert 22.5 == of(numbers).variance


def test_many_values_one_by_one_do_not_drift():
    values = np.random.default_rng(0).normal(1000.0, 0.1, (1000, 1000))
    statistics = of(*values, shape=(1000,))
    np.testing.assert_allclose(statistics.variance, values.var(0), rtol=1e-11)


def test_merging_does_not_change_the_other():
    other = of([1.0, 2.0])
    RunningStatistics().merge(other)
    of([5.0]).merge(other)
    assert (2, 1.5) == (other.count, other.mean)


def test_merging_with_itself_counts_everything_twice():
    statistics = of([1.0, 3.0])
    statistics.merge(statistics)
    assert (4, 2.0, 1.0) == (
        statistics.count,
        statistics.mean,
        statistics.variance,
    )


@pytest.mark.parametrize("dims", [(), (3,), (2, 3), (0,), (2, 0)])
def test_all_leading_dimensions_count_as_batch_dimensions(dims):
    statistics = of(np.ones((*dims, 2)), shape=(2,))
    assert np.prod(dims, dtype=int) == statistics.count


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "u8", "f2", "f4", "f8", "g"])
def test_numbers_of_any_dtype_are_counted_in_float64(dtype):
    statistics = of(np.array([[0, 1], [1, 1]], dtype), shape=(2,))
    assert [0.5, 1.0] == statistics.mean.tolist()
    assert [0.25, 0.0] == statistics.variance.tolist()
    assert {np.dtype(float)} == {statistics.mean.dtype, statistics.variance.dtype}


def test_empty_arrays_are_allowed():
    assert 3 == of(np.zeros((3, 0)), shape=(0,)).count


def test_without_values_the_mean_is_0_and_the_variance_1():
    statistics = RunningStatistics((2,))
    assert [0.0, 0.0] == statistics.mean.tolist()
    assert [1.0, 1.0] == statistics.variance.tolist()
    assert [3.0, -4.0] == statistics.normalize([3.0, -4.0]).tolist()


def test_counted_values_are_neither_changed_nor_kept():
    values = np.array([[1.0], [3.0]])
    statistics = of(values, shape=(1,))
    unchanged = values.copy()
    assert unchanged.tolist() == values.tolist()

    values[...] = 100.0
    assert [2.0] == statistics.mean.tolist()


def test_the_mean_is_read_only():
    for statistics in (of([1.0]), pickle.loads(pickle.dumps(of([1.0])))):
        assert not statistics.mean.flags.writeable


def test_frozen_statistics_do_not_count():
    statistics = of([1.0, 3.0])
    statistics.freeze()
    statistics.update([100.0])
    assert (True, 2) == (statistics.frozen, statistics.count)

    statistics.unfreeze()
    statistics.update([2.0])
    assert (False, 3) == (statistics.frozen, statistics.count)


def test_the_scale_is_the_standard_deviation_or_1():
    statistics = of([[0.0, 5.0], [4.0, 5.0]], shape=(2,))
    assert [2.0, 1.0] == statistics.scale(1e-30).tolist()
    assert [3.0, 1.0] == statistics.scale(5.0).tolist()


def test_normalizing_counts_standard_deviations_from_the_mean():
    statistics = of([[0.0, 5.0], [4.0, 5.0]], shape=(2,))
    normalized = statistics.normalize([[2.0, 5.0], [8.0, 6.0]])
    assert np.float32 == normalized.dtype
    assert [[0.0, 0.0], [3.0, 1.0]] == normalized.tolist()
    assert [2.0, -2.0] == statistics.normalize([88.0, -88.0], clip=2).tolist()


def test_a_normalized_number_is_an_array():
    assert isinstance(of([0.0, 4.0]).normalize(8.0, clip=2.0), np.ndarray)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_a_copy_continues_like_the_original(copied):
    statistics = of([[1.0, 2.0], [4.0, 1.0]], shape=(2,))
    other = copied(statistics)
    statistics.update([5.0, 7.0])
    assert 2 == other.count

    other.update([5.0, 7.0])
    assert statistics.mean.tobytes() == other.mean.tobytes()
    assert statistics.variance.tobytes() == other.variance.tobytes()


def test_pickled_statistics_stay_frozen():
    statistics = RunningStatistics()
    statistics.freeze()
    assert pickle.loads(pickle.dumps(statistics)).frozen


def test_a_state_restores_everything():
    statistics = of([1.0, 2.0])
    state = statistics.get_state()
    statistics.update([7.0])
    statistics.freeze()
    statistics.set_state(state)
    assert (2, 1.5, 0.25, False) == (
        statistics.count,
        statistics.mean,
        statistics.variance,
        statistics.frozen,
    )


def test_a_state_shares_no_memory_with_the_statistics():
    statistics = of([1.0, 2.0], shape=())
    state = statistics.get_state()
    statistics.set_state(state)
    state["mean"][...] = 77.0
    assert 1.5 == statistics.mean


def test_threads_can_count_together():
    statistics = RunningStatistics()

    def count_some(start: int) -> None:
        for number in range(start, start + 500):
            statistics.update(float(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_some, range(0, 2000, 500)))
    assert 2000 == statistics.count
    np.testing.assert_allclose(statistics.mean, 999.5)


def test_the_repr_shows_the_count():
    statistics = of([[1.0, 2.0]], shape=(2,))
    assert "RunningStatistics(shape=(2,), count=1)" == repr(statistics)

    statistics.freeze()
    assert "RunningStatistics(shape=(2,), count=1, frozen)" == repr(statistics)


@pytest.mark.parametrize("call", ["update", "normalize"])
def test_values_of_another_shape_are_refused(call, message_of):
    statistics = of([1.0, 2.0], shape=(2,))
    assert (
        f"RunningStatistics.{call}() was given values of the wrong shape or dtype.\n\n"
        "  expected   numbers in an array whose last dimensions are (2,)\n"
        "  got        array of shape (4, 3), dtype float64, values 1.0 … 1.0\n\n"
        "Any number of batch dimensions may come before these."
    ) == message_of(SpecError, lambda: getattr(statistics, call)(np.ones((4, 3))))
    assert 1 == statistics.count


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ("text", "array of shape (), dtype <U4"),
        (None, "None"),
        ({"a": 1.0}, "a dict of 1 element"),
        ([[1.0], [2.0, 3.0]], "a list of 2 elements"),
        (1j, "array of shape (), dtype complex128"),
    ],
)
def test_values_that_are_no_numbers_are_refused(values, what):
    with pytest.raises(SpecError) as caught:
        RunningStatistics().update(values)
    assert f"  got        {what}\n" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1.0, np.nan, 3.0], "1 of 3 numbers are NaN or infinite"),
        ([np.inf, -np.inf], "2 of 2 numbers are NaN or infinite"),
        ([np.inf], "1 of 1 numbers are NaN or infinite"),
        ([1e200, -1e200], "the squares of some numbers are too large for float64"),
    ],
)
@pytest.mark.parametrize("before", [[], [2.0]])
def test_nonfinite_values_are_refused_and_nothing_is_lost(
    values, what, before, message_of
):
    statistics = of(before)
    assert (
        "RunningStatistics.update() was given values that would spoil the mean: "
        f"{what}. Nothing was counted."
    ) == message_of(SpecError, lambda: statistics.update(values))
    assert len(before) == statistics.count
    assert np.isfinite(statistics.mean)


def test_frozen_statistics_refuse_merging(message_of):
    statistics = RunningStatistics()
    statistics.freeze()
    assert (
        "RunningStatistics.merge() was called on frozen statistics, which do not "
        "change. Call unfreeze() first."
    ) == message_of(ValueError, lambda: statistics.merge(of([1.0])))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({}, "a dict of 0 elements"),
        ({1: 2}, "a dict of 1 element"),
        ({4}, "a set object"),
        (b"x", "the string b'x'"),
        ("x", "the string 'x'"),
    ],
)
def test_a_shape_is_a_sequence_of_numbers(shape, text, message_of):
    assert (
        f"RunningStatistics takes the shape of an array, such as (4,), not {text}."
    ) == message_of(TypeError, lambda: RunningStatistics(shape))


REFUSED = {
    "an observation without floats is refused if integers are to stay": (
        ValueError,
        lambda: NormalizeObservation(GridWorld(batch_size=3), integers=False),
        "NormalizeObservation finds nothing to normalise in GridWorld: its observation "
        "has the dtypes uint8. To normalise integers pass integers=True.",
    ),
    "statistics that choose nothing": (
        ValueError,
        lambda: NormalizeObservation(
            Drive(), statistics={"camera": None, "place": None, "rest": (None, None)}
        ),
        "NormalizeObservation finds nothing to normalise in Drive: statistics has None "
        "for every leaf.",
    ),
    "statistics of another kind": (
        TypeError,
        lambda: NormalizeObservation(cart_pole(), statistics=0.5),
        "NormalizeObservation takes RunningStatistics, and statistics is 0.5 of type "
        "float. For a nest pass a nest of them, with None for each leaf that stays as "
        "it is.",
    ),
    "statistics of another structure": (
        SpecError,
        lambda: NormalizeObservation(Drive(), statistics=RunningStatistics((2,))),
        "The argument statistics of NormalizeObservation does not fit its spec.\n\n"
        "  expected   the structure {'camera': *, 'place': *, 'rest': (*, *)}\n"
        "  got        a RunningStatistics object\n\n"
        "The value is a single RunningStatistics; a dictionary is expected.",
    ),
    "merging needs other statistics": (
        TypeError,
        lambda: RunningStatistics().merge([1.0]),
        "RunningStatistics.merge() takes other RunningStatistics, not a list of 1 "
        "element.",
    ),
    "merging statistics of another shape": (
        ValueError,
        lambda: RunningStatistics((2,)).merge(RunningStatistics((3,))),
        "RunningStatistics.merge() was given statistics for shape (3,), but these are "
        "for shape (2,).",
    ),
    "a state that is none": (
        ValueError,
        lambda: RunningStatistics().set_state({"mean": 0.0}),
        "RunningStatistics.set_state() was given a dict of 1 element; it takes what "
        "get_state() returned.",
    ),
    "a state of another shape": (
        ValueError,
        lambda: RunningStatistics().set_state(of([1.0, 2.0], shape=(2,)).get_state()),
        "RunningStatistics.set_state() was given statistics for shape (2,), but these "
        "are for shape ().",
    ),
    "a shape that is none": (
        TypeError,
        lambda: RunningStatistics(3),
        "A shape is an iterable of integers such as (84, 84, 3), not 3. For a vector "
        "write (3,).",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_values_that_cannot_be_normalized_are_refused(error, call, message, message_of):
    assert message == message_of(error, call)
