"""An environment of Gymnasium keeps envkit's contract."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from fractions import Fraction

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    nest,
    restart,
)
from envkit.adapters import GymnasiumWrapper
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.specs import sample_spec_nest
from envkit.testing import check_environment
from envkit.utils import validate_py_environment
from tests.adapters.gym_spaces import WANTS_SETTLED, Interval, same

SHIPPED = [
    "Acrobot-v1",
    "Blackjack-v1",
    "CartPole-v1",
    "FrozenLake-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
]
MID, LAST, LAST_TOO = (False, False), (True, False), (False, True)


class Script(gymnasium.Env):
    """Ends as it is told, and reuses the array it returns."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012  # Gymnasium's way
    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, flags=(MID, LAST), reward=1.0, render_mode=None, info=None):
        self.render_mode = render_mode
        self.calls = []
        self.options = []
        self._flags = flags
        self._reward = reward
        self._info = info or {}
        self._observation = np.zeros(2, np.float32)
        self._picture = np.zeros((4, 4, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.calls.append(("reset", seed))
        self.options.append(options)
        self._ahead = list(self._flags)
        self._observation[:] = 0
        return self._observation, {"began": True}

    def step(self, action):
        self.calls.append(("step", action))
        self._observation += 1
        terminated, truncated = self._ahead.pop(0)
        return self._observation, self._reward, terminated, truncated, self._info

    def render(self):
        self._picture += 1
        return self._picture if self.render_mode == "rgb_array" else "a text"

    def close(self):
        self.calls.append(("close",))


class Echo(gymnasium.Env):
    """Returns what it is given to return."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space, observation):
        self.observation_space = observation_space
        self._observation = observation

    def reset(self, *, seed=None, options=None):
        return self._observation, {}


class Nested(gymnasium.Env):
    """Has a nest of everything, ends by chance, and reuses what it can."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # Gymnasium's way
    render_mode = "rgb_array"
    observation_space = spaces.Dict(
        place=spaces.Box(-1, 1, (2,), np.float32),
        news=spaces.Tuple((spaces.Text(4), spaces.MultiBinary(3))),
        level=spaces.Discrete(3, start=-1),
    )
    action_space = spaces.Dict(
        way=spaces.MultiDiscrete([2, 3], start=[1, -1]),
        word=spaces.Text(4),
        push=spaces.Box(-1, 1, (2,), np.float64),
    )

    def __init__(self):
        self._picture = np.zeros((4, 4, 3), np.uint8)

    def _observation(self):
        return {
            "place": self._place,
            "news": ("left", [1, 0, 1]),
            "level": self._steps % 3 - 1,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._place = np.zeros(2, np.float32)
        return self._observation(), {"steps": 0}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        self._place[:] = self.np_random.uniform(-1, 1, 2)
        terminated, truncated = self._place[0] > 0.7, self._steps > 15
        info = {"steps": self._steps}
        return self._observation(), action["push"][0], terminated, truncated, info

    def render(self):
        self._picture[:] = self._steps
        return self._picture


# What a reset of a script returns, and what it is given if there is nothing to give.
START = np.zeros(2, np.float32), {}
NOTHING = {"seed": None, "options": None}


def wrapped(*flags, **options):
    names = ("reward", "render_mode", "info")
    script = {name: options.pop(name) for name in names if name in options}
    return GymnasiumWrapper(Script(flags or (MID, LAST), **script), **options)


def nested():
    return GymnasiumWrapper(Nested())


def kinds(env, steps):
    return [int(env.step(0).step_type) for _ in range(steps)]


class Odd(gymnasium.Env):
    """Has spaces of every kind, text of certain letters and objects among them."""

    observation_space = spaces.Dict(
        path=spaces.Sequence(spaces.Discrete(9)),
        map=spaces.Graph(spaces.Box(-1, 1, (2,), np.float64), None),
        thing=spaces.OneOf([spaces.Discrete(3, start=5), spaces.Text(3)]),
        word=spaces.Text(5, min_length=1, charset="ab"),
    )
    action_space = spaces.Tuple(
        [
            Interval(5),
            spaces.OneOf([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
            spaces.Text(3, charset="xy"),
        ]
    )

    def _observation(self):
        numbers = self.np_random.integers(0, 9, 4).tolist()
        nodes = self.np_random.uniform(-1, 1, (1 + numbers[0], 2))
        number = np.int64(5 + numbers[1] % 3)
        return {
            "path": tuple(np.int64(number) for number in numbers),
            "map": spaces.GraphInstance(nodes, None, None),
            "thing": (1, "abc") if self._steps % 2 else (0, number),
            "word": "b" * (1 + numbers[2] % 5),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        reward = float(action[0][0] + action[1][0])
        return self._observation(), reward, self._steps >= 5, False, {}


def odd():
    return GymnasiumWrapper(Odd())


def test_specs_come_from_the_spaces():
    env = wrapped()

    assert BoundedArraySpec((2,), np.float32, 0, 100) == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 1) == env.action_spec()
    assert ("observation", "action") == (
        env.observation_spec().name,
        env.action_spec().name,
    )


def test_bounds_stay_arrays_if_that_is_asked_for():
    env = wrapped(simplify_box_bounds=False)

    assert (2,) == env.observation_spec().maximum.shape


def test_reset_begins_an_episode():
    time_step = wrapped(discount=0.5).reset()

    assert time_step.is_first()
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)
    np.testing.assert_array_equal(np.zeros(2, np.float32), time_step.observation)


def test_a_step_in_the_middle_has_the_discount_of_the_wrapper():
    env = wrapped(discount=0.5)
    env.reset()

    time_step = env.step(0)

    assert time_step.is_mid()
    assert (1.0, 0.5) == (time_step.reward, time_step.discount)


@pytest.mark.parametrize(
    ("flags", "discount"),
    [((True, False), 0.0), ((False, True), 0.5), ((True, True), 0.0)],
    ids=["terminated", "truncated", "both"],
)
def test_discount_tells_termination_from_truncation(flags, discount):
    env = wrapped(flags, discount=0.5)
    env.reset()

    time_step = env.step(0)

    assert time_step.is_last()
    assert (1.0, discount) == (time_step.reward, time_step.discount)


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_info_keeps_both_flags_at_the_end(flags):
    env = wrapped(flags, info={"lives": 0})
    env.reset()
    env.step(0)

    assert {
        "lives": 0,
        "terminated": flags[0],
        "truncated": flags[1],
    } == env.get_info()


def test_info_is_that_of_the_current_time_step():
    env = wrapped(info={"lives": 3})

    assert {} == env.get_info()
    env.reset()
    assert {"began": True} == env.get_info()
    env.step(0)
    assert {"lives": 3} == env.get_info()


def test_info_may_be_changed_by_whoever_asked():
    env = wrapped(info={"lives": 3})
    env.reset()
    env.step(0)

    env.get_info().clear()

    assert {"lives": 3} == env.get_info()


def test_the_step_after_the_end_begins_the_next_episode():
    assert [0, 1, 2, 0, 1, 2, 0] == kinds(wrapped(), 7)


def test_without_auto_reset_a_step_after_the_end_is_refused_until_reset():
    env = wrapped(auto_reset=False)
    kinds(env, 3)

    with pytest.raises(CallOrderError) as caught:
        env.step(0)

    assert (
        "The episode of Script has ended, and this GymnasiumWrapper was made with "
        "auto_reset=False. Call reset()."
    ) == str(caught.value)
    assert env.reset().is_first()
    assert env.step(0).is_mid()


def test_observations_stay_although_the_environment_reuses_its_array():
    env = wrapped(MID, MID, LAST)
    observations = [env.step(0).observation for _ in range(4)]

    np.testing.assert_array_equal(
        np.float32([[0, 0], [1, 1], [2, 2], [3, 3]]), observations
    )


@pytest.mark.parametrize(
    "reward",
    [
        *(2, 2.0, np.float64(2), np.float32(2), np.int8(2)),
        *(np.array(2.0), np.array([2]), Fraction(2), Decimal(2)),
    ],
    ids=repr,
)
def test_a_reward_becomes_a_float32_scalar(reward):
    env = wrapped(reward=reward)
    env.reset()

    time_step = env.step(0)

    assert env.reward_spec().check_array(time_step.reward)
    assert 2.0 == time_step.reward


def test_rewards_are_of_the_dtype_that_is_asked_for():
    env = wrapped(MID, LAST, reward=0.1, reward_dtype=np.float64)

    rewards = [env.step(0).reward for _ in range(4)]

    assert ArraySpec((), np.float64) == env.reward_spec()
    assert all(env.reward_spec().check_array(reward) for reward in rewards)
    assert [0.0, 0.1, 0.1, 0.0] == [float(reward) for reward in rewards]


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (np.zeros(2), "array of shape (2,), dtype float64, values 0.0 … 0.0"),
        (None, "None"),
        ("much", "the string 'much'"),
    ],
)
def test_a_reward_that_is_no_number_is_refused(reward, shown):
    env = wrapped(reward=reward)
    env.reset()

    with pytest.raises(SpecError) as caught:
        env.step(0)

    assert (
        "Script returned a reward that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(), dtype=float32, name='reward')\n"
        f"  got        {shown}\n\n"
        "A reward of a Gymnasium environment is one number."
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("info", "shown"), [([1], "a list of 1 element"), ("lives", "the string 'lives'")]
)
def test_an_info_that_is_no_dictionary_is_refused_where_it_is_used(info, shown):
    env = wrapped(MID, LAST, info=info)
    env.reset()
    env.step(0)

    for call in (env.get_info, lambda: env.step(0)):
        with pytest.raises(SpecError) as caught:
            call()

        assert (
            f"Script returned {shown} for an info; in Gymnasium it is a dictionary, "
            "which may be empty."
        ) == str(caught.value)


def test_observations_are_converted_to_their_spec():
    space = spaces.Dict(
        place=spaces.Tuple((spaces.Discrete(9), spaces.Box(0, 1, (2,), np.float32))),
        word=spaces.Text(5),
    )
    env = GymnasiumWrapper(Echo(space, {"place": [3, [0.5, 1]], "word": "left"}))

    observation = env.reset().observation

    for spec, leaf in zip(
        nest.flatten(env.observation_spec()), nest.flatten(observation), strict=True
    ):
        assert spec.check_array(leaf)
    assert 3 == observation["place"][0]
    assert "left" == observation["word"]


def test_an_observation_that_does_not_fit_is_named():
    space = spaces.Dict(camera=spaces.Box(0, 255, (2, 2), np.uint8))
    env = GymnasiumWrapper(Echo(space, {"camera": np.zeros((2, 3), np.uint8)}))

    with pytest.raises(SpecError) as caught:
        env.reset()

    assert (
        "Echo returned an observation that does not fit its spec at "
        "observation['camera'].\n\n"
        "  expected   BoundedArraySpec(shape=(2, 2), dtype=uint8, minimum=0, "
        "maximum=255, name='observation/camera')\n"
        "  got        array of shape (2, 3), dtype uint8, values 0 … 0\n\n"
        "Axis 1 has size 3 instead of 2."
    ) == str(caught.value)


def test_an_action_is_a_member_of_the_space():
    env = wrapped(MID, LAST)
    env.reset()

    env.step(np.array(1, np.int32))

    ((_, action),) = [call for call in env.gym.calls if call[0] == "step"]
    assert env.gym.action_space.contains(action)
    assert np.int64 is type(action)


def test_an_action_that_does_not_fit_moves_nothing():
    env = wrapped()
    env.reset()

    with pytest.raises(SpecError) as caught:
        env.step(2)

    assert (
        "GymnasiumWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, "
        "name='action')\n"
        "  got        array of shape (), dtype int64, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == str(caught.value)
    assert [("reset", None)] == env.gym.calls


def test_a_seed_is_for_the_next_reset_alone():
    env = wrapped()
    env.seed(7)
    env.reset()
    env.reset()

    assert [("reset", 7), ("reset", None)] == env.gym.calls


def test_every_reset_passes_a_seed_and_options_as_gymnasiums_vectors_do():
    game = Script((MID, LAST))
    given = []
    game.reset = lambda seed, options: (given.append((seed, options)), START)[1]
    env = GymnasiumWrapper(game)

    env.reset()
    env.reset(seed=7, options={"level": 3})
    env.reset()

    assert [(None, None), (7, {"level": 3}), (None, None)] == given


@pytest.mark.parametrize(
    "reset",
    [
        lambda: START,
        lambda seed=None: START,
        lambda **given: START if given == NOTHING else None,
    ],
)
def test_what_a_reset_forgets_to_take_is_left_out(reset):
    game = Script((MID, LAST))
    game.reset = reset

    assert GymnasiumWrapper(game).reset().is_first()


def test_every_reset_passes_the_options_of_the_wrapper():
    env = wrapped(LAST, reset_options={"level": 3})

    kinds(env, 4)

    assert [{"level": 3}] * 2 == env.gym.options


def test_options_may_be_for_the_next_reset_alone():
    env = wrapped(LAST, reset_options={"level": 3})
    env.set_reset_options({"level": 4})

    kinds(env, 4)

    assert [{"level": 4}, {"level": 3}] == env.gym.options


def test_no_options_may_be_for_the_next_reset_alone():
    env = wrapped(LAST, reset_options={"level": 3})
    env.set_reset_options(None)

    kinds(env, 4)

    assert [None, {"level": 3}] == env.gym.options


def test_options_may_be_for_all_later_resets():
    env = wrapped(LAST)
    env.set_reset_options({"level": 4}, always=True)

    kinds(env, 4)

    assert [{"level": 4}] * 2 == env.gym.options


def test_options_that_no_reset_has_passed_are_kept_when_the_reset_fails():
    env = wrapped()
    reset = env.gym.reset
    env.gym.reset = lambda **kwargs: 1 / 0
    env.set_reset_options({"level": 4})
    with pytest.raises(ZeroDivisionError):
        env.reset()
    env.gym.reset = reset

    env.reset()

    assert [{"level": 4}] == env.gym.options


def test_options_stay_as_they_were_given():
    given_options = {"levels": [3]}
    env = wrapped(reset_options=given_options)

    given_options["levels"].append(4)
    env.reset()
    env.gym.options[0].clear()
    env.reset()

    assert [{}, {"levels": [3]}] == env.gym.options


def test_set_state_brings_back_the_options():
    env = wrapped(LAST, reset_options={"level": 3})
    env.set_reset_options({"level": 4})
    state = env.get_state()
    env.set_reset_options({"level": 5}, always=True)

    env.set_state(state)
    kinds(env, 4)

    assert [{"level": 4}, {"level": 3}] == env.gym.options


def test_options_are_a_dictionary():
    with pytest.raises(TypeError) as caught:
        wrapped().set_reset_options([3])

    assert (
        "The options of a reset are a dictionary such as {'level': 3}, not a list of "
        "1 element."
    ) == str(caught.value)


def test_a_seed_that_no_reset_has_used_is_kept_when_the_reset_fails():
    env = GymnasiumWrapper(Echo(spaces.Discrete(2), "wrong"))
    env.gym.reset = lambda **given: 1 / 0
    env.seed(7)
    with pytest.raises(ZeroDivisionError):
        env.reset()
    seeds = []
    env.gym.reset = lambda seed, options: (seeds.append(seed), (0, {}))[1]

    env.reset()

    assert [7] == seeds


@pytest.mark.parametrize("seed", [np.int32(7), [7], (7,), np.array([7])])
def test_a_seed_reaches_gymnasium_as_a_python_integer(seed):
    env = wrapped()
    env.seed(seed)
    env.reset()

    ((_, used),) = env.gym.calls

    assert (int, 7) == (type(used), used)


def test_no_seed_means_a_new_one():
    env = wrapped()
    for _ in range(2):
        env.seed(None)
        env.reset()

    first, second = (seed for _, seed in env.gym.calls)

    assert None not in (first, second)
    assert first != second


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "A seed cannot be negative, and -1 is."),
        (0.5, TypeError, "A seed is an integer, not 0.5 of type float."),
        ("7", TypeError, "A seed is an integer, not '7'."),
    ],
)
def test_what_is_no_seed_is_refused(seed, error, message):
    with pytest.raises(error) as caught:
        wrapped().seed(seed)

    assert message == str(caught.value)


def test_a_batch_gives_each_row_a_stream_of_its_own():
    env = BatchedPyEnvironment([wrapped(), wrapped()], multithreading=False)
    env.seed(7)
    env.reset()

    first, second = (row.gym.calls[0][1] for row in env.envs)

    assert first != second


def test_a_picture_is_a_copy():
    env = wrapped(render_mode="rgb_array")

    first, second = env.render(), env.render()

    assert (1, 2) == (first.max(), second.max())


def test_what_is_no_picture_is_rendered_as_it_is():
    assert "a text" == wrapped(render_mode="ansi").render("ansi")


@pytest.mark.parametrize(
    ("made_with", "how"), [(None, "without one"), ("ansi", "with render_mode='ansi'")]
)
def test_rendering_needs_the_mode_that_the_environment_was_made_with(made_with, how):
    with pytest.raises(NotImplementedError) as caught:
        wrapped(render_mode=made_with).render()

    assert (
        "Script cannot render 'rgb_array': the render_mode of a Gymnasium environment "
        f"is chosen when it is made, and this one was made {how}. Make it with "
        "render_mode='rgb_array'."
    ) == str(caught.value)


def test_closing_twice_closes_once():
    env = wrapped()
    env.close()
    env.close()

    assert [("close",)] == env.gym.calls


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reset", lambda env: env.reset()),
        ("step", lambda env: env.step(0)),
        ("render", lambda env: env.render()),
    ],
)
def test_a_closed_environment_says_so(name, call):
    env = wrapped(render_mode="rgb_array")
    env.reset()
    env.close()

    with pytest.raises(ClosedError) as caught:
        call(env)

    assert (
        f"GymnasiumWrapper.{name}() was called after close(). A closed environment "
        "stays closed: make a new one."
    ) == str(caught.value)


def test_public_attributes_are_those_of_the_environment_within():
    env = GymnasiumWrapper(gymnasium.wrappers.TimeLimit(Script(), 5))

    assert env.gym.unwrapped is env.unwrapped
    assert env.gym.unwrapped.calls is env.calls


@pytest.mark.parametrize("name", ["colour", "_flags"], ids=["unknown", "private"])
def test_other_attributes_do_not_exist(name):
    with pytest.raises(AttributeError) as caught:
        getattr(wrapped(), name)

    assert f"'GymnasiumWrapper' object has no attribute {name!r}" == str(caught.value)


def test_a_copy_is_an_environment_of_its_own():
    env = wrapped(MID, MID, LAST)
    env.reset()

    copied = copy.deepcopy(env)
    copied.step(0)

    np.testing.assert_array_equal(np.float32([1, 1]), env.step(0).observation)
    assert env.gym is not copied.gym


@pytest.mark.parametrize("name", SHIPPED)
@given(seed=st.integers(0, 2**31 - 1), before=st.integers(0, 30))
@settings(max_examples=3)
def test_after_set_state_the_same_actions_give_the_same_time_steps(name, seed, before):
    env = GymnasiumWrapper(gymnasium.make(name, max_episode_steps=25))
    env.seed(seed)
    env.action_space.seed(seed)
    actions = [env.action_space.sample() for _ in range(before + 60)]
    for action in actions[:before]:
        env.step(action)
    state = pickle.loads(pickle.dumps(env.get_state()))

    def go_on():
        return [repr((env.step(action), env.get_info())) for action in actions[before:]]

    ahead = go_on()
    env.set_state(state)

    assert ahead == go_on()


def test_set_state_brings_back_that_an_episode_has_ended():
    env = wrapped(LAST, auto_reset=False)
    kinds(env, 2)
    state = env.get_state()
    env.reset()

    env.set_state(state)

    assert env.current_time_step().is_last()
    with pytest.raises(CallOrderError):
        env.step(0)


@pytest.mark.parametrize(
    "make_env",
    [
        nested,
        lambda: BatchedPyEnvironment([nested(), nested()], multithreading=False),
    ],
    ids=["single", "batched"],
)
def test_an_environment_with_nests_keeps_the_contract_of_environments(make_env):
    features = ["episodes", "info", "render", "seed", "state"]

    assert () == check_environment(make_env, require=features).failed


@pytest.mark.parametrize(
    "make_env",
    [
        odd,
        lambda: BatchedPyEnvironment([odd(), odd()], multithreading=False),
        lambda: ParallelPyEnvironment([odd, odd], backend="inline"),
    ],
    ids=["single", "batched", "inline"],
)
@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
def test_an_environment_with_spaces_of_every_kind_keeps_the_contract(make_env):
    assert () == check_environment(make_env, require=["seed", "state"]).failed


@WANTS_SETTLED
def test_values_that_are_no_arrays_come_from_other_processes_as_they_are():
    batch = BatchedPyEnvironment([odd(), odd()], multithreading=False)
    with ParallelPyEnvironment([odd, odd], num_workers=2) as pool:
        assert batch.observation_spec() == pool.observation_spec()
        assert batch.action_spec() == pool.action_spec()
        for env in (batch, pool):
            env.seed(3)
        time_steps = [(batch.reset(), pool.reset())]
        actions = np.random.default_rng(0)
        for _ in range(7):
            action = sample_spec_nest(batch.action_spec(), actions, (2,))
            time_steps.append((batch.step(action), pool.step(action)))

    for ours, theirs in time_steps:
        for expected, actual in zip(
            nest.flatten(ours), nest.flatten(theirs), strict=True
        ):
            assert same(expected.tolist(), actual.tolist())


@pytest.mark.parametrize("name", SHIPPED)
def test_what_gymnasium_ships_keeps_to_its_specs(name):
    env = GymnasiumWrapper(gymnasium.make(name, max_episode_steps=30))
    env.seed(3)

    validate_py_environment(env, episodes=3)
    env.close()


@pytest.mark.parametrize("name", SHIPPED)
def test_equal_seeds_and_actions_give_gymnasiums_own_steps(name):
    env = GymnasiumWrapper(gymnasium.make(name))
    own = gymnasium.make(name)
    env.seed(5)
    own.action_space.seed(5)
    observations = [(env.reset().observation, own.reset(seed=5)[0])]

    for _ in range(15):
        action = own.action_space.sample()
        time_step = env.step(action)
        observation, reward, terminated, truncated, _ = own.step(action)
        observations.append((time_step.observation, observation))
        assert np.float32(reward) == time_step.reward
        assert (terminated or truncated) == time_step.is_last()
        if time_step.is_last():
            break

    for ours, theirs in observations:
        np.testing.assert_array_equal(np.asarray(theirs), np.asarray(ours))


@pytest.mark.parametrize(
    ("given_env", "what"),
    [
        ("CartPole-v1", "the string 'CartPole-v1'"),
        (None, "None"),
        (Script, "the class Script"),
    ],
)
def test_what_is_no_environment_is_refused(given_env, what):
    with pytest.raises(TypeError) as caught:
        GymnasiumWrapper(given_env)

    assert (
        f"GymnasiumWrapper was given {what}, which is not an environment of "
        "Gymnasium. gymnasium.make(...) makes one."
    ) == str(caught.value)


def test_a_vector_environment_is_refused():
    envs = gymnasium.vector.SyncVectorEnv([Script])

    with pytest.raises(TypeError) as caught:
        GymnasiumWrapper(envs)

    assert (
        "GymnasiumWrapper was given the vector environment SyncVectorEnv; it takes a "
        "single environment."
    ) == str(caught.value)
    envs.close()


@pytest.mark.parametrize("discount", [-0.5, 1.5, float("nan")])
def test_a_discount_outside_its_range_is_refused(discount):
    with pytest.raises(ValueError, match=r"^discount is ") as caught:
        wrapped(discount=discount)

    assert f"discount is {discount}; it lies between 0 and 1." == str(caught.value)


def test_a_reset_in_the_way_of_the_old_gym_is_refused():
    env = wrapped()
    env.gym.reset = lambda **given: np.zeros(2, np.float32)

    with pytest.raises(SpecError) as caught:
        env.reset()

    assert (
        "Script.reset() returned array of shape (2,), dtype float32, values 0.0 … 0.0; "
        "in Gymnasium it returns the tuple (observation, info). Environments written "
        "for the old Gym return other ones."
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("result", "what"),
    [((0, 0.0, False, {}), "a tuple of 4 elements"), (None, "None")],
)
def test_a_step_in_the_way_of_the_old_gym_is_refused(result, what):
    env = wrapped()
    env.reset()
    env.gym.step = lambda action: result

    with pytest.raises(SpecError) as caught:
        env.step(0)

    assert (
        f"Script.step() returned {what}; in Gymnasium it returns the tuple "
        "(observation, reward, terminated, truncated, info). Environments written for "
        "the old Gym return other ones."
    ) == str(caught.value)


def test_time_steps_are_made_of_arrays():
    env = wrapped()

    assert repr(restart(np.zeros(2, np.float32))) == repr(env.reset())
