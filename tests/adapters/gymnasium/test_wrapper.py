"""An environment of Gymnasium keeps envkit's contract."""

from __future__ import annotations

import copy
from decimal import Decimal
from fractions import Fraction

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    nest,
    restart,
)
from envkit.adapters import GymnasiumWrapper, PyToGymnasiumVector
from envkit.errors import CallOrderError, SpecError
from envkit.utils import validate_py_environment

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


# What a reset of a script returns, and what it is given if there is nothing to give.
START = np.zeros(2, np.float32), {}
NOTHING = {"seed": None, "options": None}


def wrapped(*flags, **options):
    names = ("reward", "render_mode", "info")
    script = {name: options.pop(name) for name in names if name in options}
    return GymnasiumWrapper(Script(flags or (MID, LAST), **script), **options)


def kinds(env, steps):
    return [int(env.step(0).step_type) for _ in range(steps)]


def test_specs_come_from_the_spaces():
    env = wrapped()
    assert BoundedArraySpec((2,), np.float32, 0, 100) == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 1) == env.action_spec()
    assert ("observation", "action") == (
        env.observation_spec().name,
        env.action_spec().name,
    )


def test_bounds_can_stay_arrays():
    env = wrapped(simplify_box_bounds=False)
    assert (2,) == env.observation_spec().maximum.shape


def test_reset_begins_an_episode():
    env = wrapped()
    assert repr(restart(np.zeros(2, np.float32))) == repr(env.reset())


@pytest.mark.parametrize(
    ("flags", "step_type", "discount"),
    [
        ((False, False), 1, 0.5),
        ((True, False), 2, 0.0),
        ((False, True), 2, 0.5),
        ((True, True), 2, 0.0),
    ],
    ids=["in the middle", "terminated", "truncated", "both"],
)
def test_discount_and_info_tell_termination_from_truncation(flags, step_type, discount):
    env = wrapped(flags, discount=0.5, info={"lives": 0})
    env.reset()
    time_step = env.step(0)
    assert (step_type, 1.0, discount) == (
        time_step.step_type,
        time_step.reward,
        time_step.discount,
    )
    ends = {"terminated": flags[0], "truncated": flags[1]} if any(flags) else {}
    assert {"lives": 0, **ends} == env.get_info()


@pytest.mark.parametrize("own", [True, 7, None])
def test_the_flags_of_step_override_flags_in_the_info(own):
    info = {"terminated": own, "truncated": own}
    env = wrapped((False, True), info=info)
    assert {"terminated": False, "truncated": True} == ending(env)

    with ParallelPyEnvironment(
        [lambda: wrapped((False, True), info=info)] * 2, backend="inline"
    ) as pool:
        vector = PyToGymnasiumVector(pool)
        vector.reset()
        _, _, terminated, truncated, _ = vector.step(np.zeros(2, np.int64))
        assert ([False, False], [True, True]) == (
            terminated.tolist(),
            truncated.tolist(),
        )


def ending(env):
    env.reset()
    env.step(0)
    return env.get_info()


def test_get_info_returns_a_copy_of_the_current_info():
    env = wrapped(info={"lives": 3})
    assert {} == env.get_info()
    env.reset()
    assert {"began": True} == env.get_info()
    env.step(0)
    env.get_info().clear()
    assert {"lives": 3} == env.get_info()


def test_a_step_after_the_end_begins_the_next_episode():
    assert [0, 1, 2, 0, 1, 2, 0] == kinds(wrapped(), 7)


def test_without_auto_reset_a_step_after_the_end_is_refused_until_reset(message_of):
    env = wrapped(auto_reset=False)
    kinds(env, 3)
    assert (
        "The episode of Script has ended, and this GymnasiumWrapper was made with "
        "auto_reset=False. Call reset()."
    ) == message_of(CallOrderError, lambda: env.step(0))
    assert env.reset().is_first()
    assert env.step(0).is_mid()


def test_observations_are_copies_of_a_reused_array():
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


def test_rewards_have_the_requested_dtype():
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
def test_a_reward_other_than_a_number_is_refused(reward, shown, message_of):
    env = wrapped(reward=reward)
    env.reset()
    assert (
        "Script returned a reward that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(), dtype=float32, name='reward')\n"
        f"  got        {shown}\n\n"
        "A reward of a Gymnasium environment is one number."
    ) == message_of(SpecError, lambda: env.step(0))


@pytest.mark.parametrize(
    ("info", "shown"), [([1], "a list of 1 element"), ("lives", "the string 'lives'")]
)
def test_an_info_other_than_a_dictionary_is_refused_on_use(info, shown, message_of):
    env = wrapped(MID, LAST, info=info)
    env.reset()
    env.step(0)

    for call in (env.get_info, lambda: env.step(0)):
        assert (
            f"Script returned {shown} for an info; in Gymnasium it must be a "
            "dictionary, which may be empty."
        ) == message_of(SpecError, call)


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


def test_an_invalid_observation_is_explained(message_of):
    space = spaces.Dict(camera=spaces.Box(0, 255, (2, 2), np.uint8))
    env = GymnasiumWrapper(Echo(space, {"camera": np.zeros((2, 3), np.uint8)}))

    assert (
        "Echo returned an observation that does not fit its spec at "
        "observation['camera'].\n\n"
        "  expected   BoundedArraySpec(shape=(2, 2), dtype=uint8, minimum=0, "
        "maximum=255, name='observation/camera')\n"
        "  got        array of shape (2, 3), dtype uint8, values 0 … 0\n\n"
        "Axis 1 has size 3 instead of 2."
    ) == message_of(SpecError, env.reset)


def test_an_action_is_a_member_of_the_space():
    env = wrapped(MID, LAST)
    env.reset()
    env.step(np.array(1, np.int32))
    ((_, action),) = [call for call in env.gym.calls if call[0] == "step"]
    assert env.gym.action_space.contains(action)
    assert np.int64 is type(action)


def test_an_invalid_action_moves_nothing(message_of):
    env = wrapped()
    env.reset()

    assert (
        "GymnasiumWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, "
        "name='action')\n"
        "  got        array of shape (), dtype int64, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == message_of(SpecError, lambda: env.step(2))
    assert [("reset", None)] == env.gym.calls


@pytest.mark.parametrize("seed", [7, np.int32(7), [7], (7,), np.array([7])])
def test_a_seed_applies_to_the_next_reset_only(seed):
    env = wrapped()
    env.seed(seed)
    env.reset()
    env.reset()
    assert [("reset", 7), ("reset", None)] == env.gym.calls
    assert int is type(env.gym.calls[0][1])


def test_every_reset_passes_seed_and_options_like_gymnasiums_vectors():
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
def test_reset_leaves_out_arguments_that_the_environment_does_not_take(reset):
    game = Script((MID, LAST))
    game.reset = reset
    assert GymnasiumWrapper(game).reset().is_first()


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        (lambda env: None, [{"level": 3}] * 2),
        (lambda env: env.set_reset_options({"level": 4}), [{"level": 4}, {"level": 3}]),
        (lambda env: env.set_reset_options(None), [None, {"level": 3}]),
        (
            lambda env: env.set_reset_options({"level": 4}, always=True),
            [{"level": 4}] * 2,
        ),
    ],
    ids=["the wrapper's", "the next one's", "none for the next one", "from now on"],
)
def test_reset_options_apply_once_or_always(change, passed):
    env = wrapped(LAST, reset_options={"level": 3})
    change(env)
    state = env.get_state()
    kinds(env, 4)
    assert passed == env.gym.options
    env.set_reset_options({"level": 5}, always=True)
    env.set_state(state)
    env.gym.options.clear()
    kinds(env, 4)
    assert passed == env.gym.options


def test_seed_and_options_are_kept_when_the_reset_fails():
    env = wrapped()
    env.gym.reset = lambda **given: 1 / 0
    env.seed(7)
    env.set_reset_options({"level": 4})
    with pytest.raises(ZeroDivisionError):
        env.reset()
    del env.gym.reset
    env.reset()
    assert ([("reset", 7)], [{"level": 4}]) == (env.gym.calls, env.gym.options)


def test_options_are_copied():
    given_options = {"levels": [3]}
    env = wrapped(reset_options=given_options)
    given_options["levels"].append(4)
    env.reset()
    env.gym.options[0].clear()
    env.reset()
    assert [{}, {"levels": [3]}] == env.gym.options


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: wrapped().set_reset_options([3]),
            TypeError,
            "The options of a reset are a dictionary such as {'level': 3}, not a list "
            "of 1 element.",
        ),
        (
            lambda: wrapped().seed(-1),
            ValueError,
            "A seed cannot be negative, and -1 is.",
        ),
        (
            lambda: wrapped().seed(0.5),
            TypeError,
            "A seed is an integer, not 0.5 of type float.",
        ),
        (lambda: wrapped().seed("7"), TypeError, "A seed is an integer, not '7'."),
    ],
)
def test_invalid_seeds_and_options_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


def test_seed_none_draws_a_new_seed():
    env = wrapped()
    for _ in range(2):
        env.seed(None)
        env.reset()
    first, second = (seed for _, seed in env.gym.calls)
    assert None not in (first, second)
    assert first != second


def test_each_row_of_a_batch_has_its_own_stream():
    env = BatchedPyEnvironment([wrapped(), wrapped()], multithreading=False)
    env.seed(7)
    env.reset()
    first, second = (row.gym.calls[0][1] for row in env.envs)
    assert first != second


def test_render_returns_a_copy():
    env = wrapped(render_mode="rgb_array")
    first, second = env.render(), env.render()
    assert (1, 2) == (first.max(), second.max())


def test_results_of_render_other_than_pictures_are_unchanged():
    assert "a text" == wrapped(render_mode="ansi").render("ansi")


@pytest.mark.parametrize(
    ("made_with", "how"), [(None, "without one"), ("ansi", "with render_mode='ansi'")]
)
def test_render_needs_the_environments_render_mode(made_with, how, message_of):
    assert (
        "Script cannot render 'rgb_array': the render_mode of a Gymnasium environment "
        f"is chosen when it is made, and this one was made {how}. Make it with "
        "render_mode='rgb_array'."
    ) == message_of(
        NotImplementedError, lambda: wrapped(render_mode=made_with).render()
    )


def test_a_copy_is_independent():
    env = wrapped(MID, MID, LAST)
    env.reset()
    copied = copy.deepcopy(env)
    copied.step(0)
    np.testing.assert_array_equal(np.float32([1, 1]), env.step(0).observation)
    assert env.gym is not copied.gym


def test_set_state_restores_an_ended_episode():
    env = wrapped(LAST, auto_reset=False)
    kinds(env, 2)
    state = env.get_state()
    env.reset()

    env.set_state(state)
    assert env.current_time_step().is_last()
    with pytest.raises(CallOrderError):
        env.step(0)


@pytest.mark.parametrize("name", SHIPPED)
def test_environments_of_gymnasium_fit_their_specs(name):
    env = GymnasiumWrapper(gymnasium.make(name, max_episode_steps=15))
    env.seed(3)
    validate_py_environment(env, episodes=2)
    env.close()


OLD = "Environments written for the old Gym return other ones."


@pytest.mark.parametrize(
    ("call", "result", "what"),
    [
        (
            "reset",
            np.zeros(2, np.float32),
            "array of shape (2,), dtype float32, values 0.0 … 0.0; in Gymnasium it "
            f"returns the tuple (observation, info). {OLD}",
        ),
        (
            "step",
            (0, 0.0, False, {}),
            "a tuple of 4 elements; in Gymnasium it returns the tuple (observation, "
            f"reward, terminated, truncated, info). {OLD}",
        ),
        (
            "step",
            None,
            "None; in Gymnasium it returns the tuple (observation, reward, terminated, "
            f"truncated, info). {OLD}",
        ),
    ],
)
def test_results_of_the_old_gym_are_refused(call, result, what, message_of):
    env = wrapped()
    env.reset()
    setattr(env.gym, call, lambda *_, **given: result)
    made = {"reset": env.reset, "step": lambda: env.step(0)}
    assert f"Script.{call}() returned {what}" == message_of(SpecError, made[call])
