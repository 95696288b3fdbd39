"""What was normal so far, learnt from all rows: of observations and of rewards."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit.envs import CartPole, Catch, GridWorld
from envkit.errors import SpecError
from envkit.time_step import StepType
from envkit.wrappers.limits import FixedLength, TimeLimit
from envkit.wrappers.normalization.normalizers import (
    NormalizeObservation,
    NormalizeReward,
)
from envkit.wrappers.normalization.running_statistics import RunningStatistics
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


def test_observations_are_normalized_with_what_was_seen_so_far():
    env = Watched(cart_pole())
    shown = [env.reset().observation]
    shown += [env.step(actions(step)).observation for step in range(30)]
    for step, observation in enumerate(shown):
        seen = np.concatenate(env.raw[: step + 1]).astype(np.float64)
        expected = (env.raw[step] - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)

        np.testing.assert_allclose(observation, expected, 1e-5, 1e-5)


def test_a_single_environment_learns_from_every_observation():
    env = Watched(CartPole(seed=1))
    env.reset()
    for step in range(60):  # More than an episode: each FIRST counts.
        env.step(step % 2)

    assert_equal_statistics(of(np.stack(env.raw), shape=(4,)), env.statistics)


def test_a_batch_learns_from_every_row():
    env = Watched(cart_pole())
    env.reset()
    for step in range(60):
        env.step(actions(step))

    assert_equal_statistics(of(np.stack(env.raw), shape=(4,)), env.statistics)


def test_rows_that_have_not_moved_are_not_counted_again():
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


def test_the_arrays_of_the_environment_are_left_alone():
    inner = cart_pole()
    env = NormalizeObservation(inner)
    env.reset()
    kept = inner.current_time_step().observation.copy()
    env.current_time_step().observation[...] = 77.0

    assert kept.tobytes() == inner.current_time_step().observation.tobytes()


def test_of_a_nest_float_leaves_are_normalized_and_others_stay():
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


def test_frozen_statistics_are_used_and_not_changed():
    statistics = of([[0.0] * 4, [2.0] * 4], shape=(4,))
    env = NormalizeObservation(cart_pole(), statistics=statistics, frozen=True)
    inner = cart_pole()
    expected = (inner.reset().observation - 1.0).astype(np.float32)

    np.testing.assert_allclose(env.reset().observation, expected, 1e-6)
    assert (True, 2) == (env.frozen, statistics.count)


def test_learning_can_be_stopped_and_go_on():
    env = NormalizeObservation(cart_pole())
    env.reset()
    env.freeze()
    env.step(actions(0))

    assert (True, ROWS) == (env.frozen, env.statistics.count)

    env.unfreeze()
    env.step(actions(0))

    assert (False, 2 * ROWS) == (env.frozen, env.statistics.count)


def test_statistics_can_be_frozen_for_all_who_share_them():
    statistics = RunningStatistics((4,))
    envs = [NormalizeObservation(cart_pole(), statistics=statistics) for _ in range(2)]
    statistics.freeze()
    for env in envs:
        env.reset()

    assert 0 == statistics.count


def test_an_environment_for_evaluation_sees_what_training_learns():
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


def test_the_parts_of_a_batch_can_share_what_they_learn():
    statistics = RunningStatistics((4,))
    rows = [
        NormalizeObservation(CartPole(seed=row), statistics=statistics)
        for row in range(3)
    ]
    BatchedPyEnvironment(rows, multithreading=False).reset()

    assert 3 == statistics.count


def test_saved_statistics_normalize_as_before():
    env = NormalizeObservation(cart_pole())
    for _ in range(9):
        env.reset()
    loaded = pickle.loads(pickle.dumps(env.statistics))
    first, second = (
        NormalizeObservation(cart_pole(7), statistics=statistics, frozen=True)
        for statistics in (env.statistics, loaded)
    )

    assert first.reset().observation.tobytes() == second.reset().observation.tobytes()


def test_a_copied_environment_learns_for_itself():
    env = NormalizeObservation(cart_pole())
    env.reset()
    other = copy.deepcopy(env)
    expected = env.step(actions(0)).observation

    assert (2 * ROWS, ROWS) == (env.statistics.count, other.statistics.count)
    assert expected.tobytes() == other.step(actions(0)).observation.tobytes()


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
def test_restoring_a_state_reaches_all_who_share_the_statistics(wrap):
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


def test_a_state_says_whether_it_was_learning():
    env = NormalizeObservation(cart_pole())
    env.reset()
    state = env.get_state()
    env.freeze()
    env.set_state(state)

    assert not env.frozen


def test_a_state_with_other_leaves_is_refused_before_anything_changes():
    env = NormalizeObservation(Drive())
    other = NormalizeObservation(Drive(), integers=True)
    env.reset()
    other.reset()
    before = env.current_time_step()

    with pytest.raises(ValueError, match="leaves") as caught:
        env.set_state(other.get_state())

    assert (
        "NormalizeObservation.set_state() was given the state of a wrapper that "
        "normalises 4 leaves; here 2 of the observation are normalised."
    ) == str(caught.value)
    assert before is env.current_time_step()
    assert 1 == env.statistics["place"].count


def test_a_state_with_statistics_of_another_shape_is_refused():
    env = NormalizeObservation(cart_pole())
    state = NormalizeObservation(Earning([(0, 1)])).get_state()

    with pytest.raises(ValueError, match="of shape") as caught:
        env.set_state(state)

    assert (
        "RunningStatistics.set_state() was given statistics of arrays of shape (2,); "
        "these are of arrays of shape (4,)."
    ) == str(caught.value)


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


def test_rewards_stay_as_they_are_until_returns_differ():
    env = NormalizeReward(Earning([(3, 0)]))
    rewards = [env.reset().reward, *(env.step(0).reward for _ in range(5))]

    assert [0, 3, 0, 3, 0, 3] == [float(reward) for reward in rewards]


def test_a_truncated_episode_leaves_nothing_to_the_next():
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


def test_frozen_returns_go_on_and_are_not_counted():
    env = NormalizeReward(Earning([(1, 1), (2, 1), (4, 1)]), gamma=1.0, frozen=True)
    env.reset()

    assert [1.0, 2.0] == [float(env.step(0).reward) for _ in range(2)]
    assert 0 == env.statistics.count

    env.unfreeze()
    env.step(0)

    assert (1, 7.0) == (env.statistics.count, env.statistics.mean)


def test_each_element_of_a_vector_has_returns_of_its_own():
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


def test_each_leaf_of_a_nest_has_returns_of_its_own():
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


def test_restoring_brings_back_returns_in_the_middle_of_an_episode():
    env = NormalizeReward(Earning([(1, 1), (2, 1), (4, 1)]), gamma=1.0)
    env.reset()
    env.step(0)
    state = env.get_state()
    for _ in range(7):
        env.step(0)
    env.set_state(state)
    env.step(0)

    assert_equal_statistics(of([1.0, 3.0]), env.statistics)


def test_the_statistics_of_both_wrappers_are_at_hand():
    env = NormalizeReward(NormalizeObservation(cart_pole()))

    assert () == env.statistics.shape
    assert (4,) == env.wrapped_env().statistics.shape


def test_the_arguments_are_at_hand():
    env = NormalizeReward(cart_pole(), 0.9, 1e-4, clip=3.0, frozen=True)

    assert (0.9, 1e-4, 3.0, True) == (env.gamma, env.epsilon, env.clip, env.frozen)


def test_the_reprs_say_what_matters():
    env = NormalizeReward(NormalizeObservation(Earning([(0, 1)]), clip=5.0))
    env.freeze()

    assert (
        "NormalizeReward(NormalizeObservation(Earning(), clip=5.0, frozen=False), "
        "gamma=0.99, clip=None, frozen=True)"
    ) == repr(env)


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
@pytest.mark.parametrize("epsilon", [0, -1.0, np.nan, np.inf, "small", None, True])
def test_an_epsilon_that_is_not_positive_is_refused(wrap, epsilon):
    with pytest.raises(ValueError, match="epsilon") as caught:
        wrap(cart_pole(), epsilon=epsilon)

    assert f"epsilon is {epsilon!r}; it must be a positive number." == str(caught.value)


@pytest.mark.parametrize("wrap", [NormalizeObservation, NormalizeReward])
@pytest.mark.parametrize("clip", [0, -1.0, np.nan, 1e39, "much", False, 10**400])
def test_a_clip_that_is_not_positive_is_refused(wrap, clip):
    with pytest.raises(ValueError, match="clip") as caught:
        wrap(cart_pole(), clip=clip)

    assert (
        f"clip is {clip!r}; it must be a positive number, or None for no limit."
    ) == str(caught.value)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan, "all", None, True])
def test_a_gamma_that_is_not_between_0_and_1_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma") as caught:
        NormalizeReward(cart_pole(), gamma)

    assert f"gamma is {gamma!r}; it must be a number from 0 to 1." == str(caught.value)


def test_integers_are_normalised_where_there_are_no_floats():
    env = NormalizeObservation(GridWorld(batch_size=3, seed=1))

    assert np.float32 == env.observation_spec().dtype
    assert "uint8" == NormalizeObservation(Drive()).observation_spec()["camera"].dtype


def test_an_observation_without_floats_is_refused_if_integers_are_to_stay():
    with pytest.raises(ValueError, match="nothing") as caught:
        NormalizeObservation(GridWorld(batch_size=3), integers=False)

    assert (
        "NormalizeObservation finds nothing to normalise in GridWorld: its observation "
        "has the dtypes uint8. To normalise integers pass integers=True."
    ) == str(caught.value)


def test_statistics_that_choose_nothing_are_refused():
    with pytest.raises(ValueError, match="nothing") as caught:
        NormalizeObservation(
            Drive(), statistics={"camera": None, "place": None, "rest": (None, None)}
        )

    assert (
        "NormalizeObservation finds nothing to normalise in Drive: statistics has None "
        "for every leaf."
    ) == str(caught.value)


def test_a_reward_that_is_no_number_is_refused():
    spec = ArraySpec((), np.bool_)

    with pytest.raises(ValueError, match="nothing") as caught:
        NormalizeReward(Earning([(0, 1)], reward_spec=spec))

    assert (
        "NormalizeReward finds nothing to normalise in Earning: its reward has the "
        "dtypes bool."
    ) == str(caught.value)


def test_statistics_of_another_kind_are_refused():
    with pytest.raises(TypeError) as caught:
        NormalizeObservation(cart_pole(), statistics=0.5)

    assert (
        "NormalizeObservation takes RunningStatistics, and statistics is 0.5 of type "
        "float. For a nest pass a nest of them, with None for each leaf that is to "
        "stay as it is."
    ) == str(caught.value)


def test_statistics_of_another_shape_are_refused():
    given = {"camera": None, "place": RunningStatistics((3,)), "rest": (None, None)}

    with pytest.raises(ValueError, match="does not go") as caught:
        NormalizeObservation(Drive(), statistics=given)

    assert (
        "statistics['place'] does not go with what it is to normalise: it is "
        "RunningStatistics(shape=(3,), count=0), and the observation is "
        "BoundedArraySpec(shape=(2,), dtype=float32, minimum=-10.0, "
        "maximum=[10.0, 20.0]). Numbers are normalised, with RunningStatistics((2,))."
    ) == str(caught.value)


def test_statistics_of_another_structure_are_refused():
    with pytest.raises(SpecError) as caught:
        NormalizeObservation(Drive(), statistics=RunningStatistics((2,)))

    assert (
        "The argument statistics of NormalizeObservation does not fit its spec.\n\n"
        "  expected   the structure {'camera': *, 'place': *, 'rest': (*, *)}\n"
        "  got        a RunningStatistics object\n\n"
        "The value is a single RunningStatistics; a dictionary is expected."
    ) == str(caught.value)


def test_observations_that_are_not_finite_are_refused():
    env = NormalizeObservation(_Broken(np.array([0.0, np.nan])))

    with pytest.raises(SpecError) as caught:
        env.reset()

    assert (
        "NormalizeObservation cannot learn from observation as _Broken returned it. "
        "RunningStatistics.update() was given values of which 1 of 2 numbers are NaN "
        "or infinite. The mean would be lost for good. Nothing was counted."
    ) == str(caught.value)


def test_observations_of_another_shape_are_refused():
    env = NormalizeObservation(_Broken(np.zeros((3, 2))))

    with pytest.raises(SpecError) as caught:
        env.reset()

    assert (
        "_Broken returned a time step that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float64)\n"
        "  got        array of shape (3, 2), dtype float64, values 0.0 … 0.0\n\n"
        "There is one dimension too many, of size 3: a batch where a single value "
        "belongs."
    ) == str(caught.value)
    assert 0 == env.statistics.count


class _Broken(Earning):
    """Shows what does not fit its spec."""

    def __init__(self, observation):
        super().__init__([(0, 1)])
        self._observation = observation

    def _observe(self):
        return self._observation


def test_rewards_that_are_not_finite_are_refused():
    env = NormalizeReward(Earning([(np.inf, 1)]))
    env.reset()

    with pytest.raises(SpecError) as caught:
        env.step(0)

    assert (
        "NormalizeReward cannot learn from reward as Earning returned it. "
        "RunningStatistics.update() was given values of which 1 of 1 numbers are NaN "
        "or infinite. The mean would be lost for good. Nothing was counted."
    ) == str(caught.value)


def test_a_discount_with_dimensions_is_refused():
    class Discounts(Earning):
        def discount_spec(self):
            return ArraySpec((2,), np.float32)

    with pytest.raises(ValueError, match="discount") as caught:
        NormalizeReward(Discounts([(0, 1)]))

    assert (
        "NormalizeReward cannot wrap Discounts: its discount is "
        "ArraySpec(shape=(2,), dtype=float32), and summing up returns takes one number "
        "for each row."
    ) == str(caught.value)


def test_after_another_wrapper_its_rewards_are_summed_up():
    env = NormalizeReward(TransformReward(Earning([(1, 1)]), lambda r: 5 * r))
    env.reset()
    env.step(0)

    assert 5.0 == env.statistics.mean


# Episodes that are padded.


def test_what_pads_an_episode_is_not_learnt_from():
    env = NormalizeObservation(FixedLength(Catch(seed=1), 50))
    env.reset()
    for _ in range(50):
        env.step(1)

    assert 10 == env.statistics.count  # a FIRST, and the steps until the ball is down


def test_the_rows_that_are_not_padded_are_learnt_from():
    rows = [[[(1.0, 1.0)] * 2], [[(1.0, 1.0)] * 4]]
    env = NormalizeObservation(FixedLength(earning_batch(*rows), 4))
    env.reset()
    for _ in range(4):
        env.step([0, 0])

    assert 3 + 5 == env.statistics.count


def test_a_masked_step_pads_without_being_learnt_from():
    rows = [[[(1.0, 1.0)] * 2], [[(1.0, 1.0)] * 4]]
    env = NormalizeObservation(FixedLength(earning_batch(*rows), 4))
    env.reset()
    for _ in range(2):
        env.step([0, 0])
    before = env.statistics.count
    env.step([0, 0], [True, False])

    assert before == env.statistics.count


def test_no_return_is_learnt_from_what_pads_an_episode():
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


def test_whether_an_episode_is_over_is_a_part_of_the_state():
    def padded():
        return NormalizeObservation(FixedLength(Catch(seed=1), 50))

    env, other = padded(), padded()
    for _ in range(12):
        env.step(1)
    other.reset()
    other.set_state(env.get_state())
    other.step(1)

    assert 10 == other.statistics.count


@pytest.mark.parametrize(
    ("env", "text"),
    [
        (None, "None."),
        (CartPole, "the class CartPole. Did you mean CartPole()?"),
        (3, "3 of type int."),
    ],
)
def test_what_is_no_environment_is_refused(env, text, message_of):
    assert f"NormalizeObservation wraps an environment, not {text}" == message_of(
        TypeError, lambda: NormalizeObservation(env)
    )
