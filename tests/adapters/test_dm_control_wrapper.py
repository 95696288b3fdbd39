"""An environment of dm_env keeps envkit's contract."""

from __future__ import annotations

import collections
import types

import dm_env
import numpy as np
import pytest
from dm_env import specs

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, TimeStep
from envkit.adapters import DmControlWrapper
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import EnvironmentState
from envkit.testing import check_environment
from envkit.utils import validate_py_environment


class Walk(dm_env.Environment):
    """Goes right or left, by chance a little farther; ends after three steps."""

    def __init__(self, last_discount=1.0, random=None):
        self.actions = []
        self.closings = 0
        self._last_discount = last_discount
        self._place = np.zeros(2)
        self._left = 0
        if random is not None:
            self.task = types.SimpleNamespace(random=random)

    def observation_spec(self):
        return collections.OrderedDict(
            place=specs.BoundedArray((2,), np.float64, -10, np.inf, name="place"),
            left=specs.Array((), np.int64, name="left"),
        )

    def action_spec(self):
        return {
            "way": specs.DiscreteArray(2, name="way"),
            "speed": specs.BoundedArray((1,), np.float64, 0.0, [2.0]),
        }

    def _observation(self):
        return collections.OrderedDict(place=self._place, left=self._left)

    def reset(self):
        self._left = 3
        self._place[:] = self.task.random.uniform(size=2) if self.seeded else 0
        return dm_env.restart(self._observation())

    @property
    def seeded(self):
        return hasattr(self, "task")

    def step(self, action):
        self.actions.append(action)
        self._left -= 1
        self._place += action["speed"] * (1 if action["way"] else -1)
        if self._left:
            return dm_env.transition(
                reward=np.float64(0.1), observation=self._observation()
            )
        return dm_env.truncation(
            reward=1, observation=self._observation(), discount=self._last_discount
        )

    def close(self):
        self.closings += 1


class DrawnWalk(Walk):
    """Has physics that draw."""

    def __init__(self):
        super().__init__()
        self.physics = types.SimpleNamespace(render=self._draw)
        self._picture = np.zeros((4, 6, 3), np.uint8)

    def _draw(self, height=4, width=6):
        self._picture += 1
        return self._picture[:height, :width]


class Told(dm_env.Environment):
    """Has the specs and returns the time step that it is told."""

    def __init__(self, time_step=None, **told):
        self._time_step = time_step
        self._told = told

    def reset(self):
        return self._time_step

    def step(self, action):
        return self._time_step

    def observation_spec(self):
        return self._told.get("observation", specs.Array((), np.float64))

    def action_spec(self):
        return self._told.get("action", specs.DiscreteArray(2))

    def reward_spec(self):
        return self._told.get("reward", super().reward_spec())

    def discount_spec(self):
        return self._told.get("discount", super().discount_spec())


RIGHT = {"way": 1, "speed": np.array([1.0])}


def test_specs_are_those_of_the_environment():
    env = DmControlWrapper(Walk())

    observation, action = env.observation_spec(), env.action_spec()

    assert (dict, ["place", "left"]) == (type(observation), list(observation))
    assert (
        BoundedArraySpec((2,), np.float64, -10, np.finfo(np.float64).max)
        == observation["place"]
    )
    assert ArraySpec((), np.int64) == observation["left"]
    assert BoundedArraySpec((), np.int32, 0, 1) == action["way"]
    assert BoundedArraySpec((1,), np.float64, 0.0, 2.0) == action["speed"]
    assert ("place", "way", None) == (
        observation["place"].name,
        action["way"].name,
        action["speed"].name,
    )


def test_reward_and_discount_are_narrowed_to_float32():
    env = DmControlWrapper(Walk())

    assert ArraySpec((), np.float32) == env.reward_spec()
    assert BoundedArraySpec((), np.float32, 0, 1) == env.discount_spec()


def test_other_rewards_keep_their_dtype_and_shape():
    spec = specs.BoundedArray((2,), np.int8, 0, 3)
    told = dm_env.transition(reward=np.array([1, 2], np.int8), observation=0.0)
    env = DmControlWrapper(Told(told, reward=spec))
    env.reset()

    assert BoundedArraySpec((2,), np.int8, 0, 3) == env.reward_spec()
    assert env.reward_spec().check_array(env.step(0).reward)


def test_a_first_has_reward_0_and_discount_1_where_dm_env_has_none():
    time_step = DmControlWrapper(Walk()).reset()

    assert time_step.is_first()
    assert (np.float32, np.float32) == (
        time_step.reward.dtype,
        time_step.discount.dtype,
    )
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)


@pytest.mark.parametrize(("reward", "discount"), [(0.0, 0.0), (5.0, 0.5)])
def test_a_first_is_the_same_whatever_numbers_a_library_puts_there(reward, discount):
    told = dm_env.TimeStep(dm_env.StepType.FIRST, reward, discount, 3.0)

    time_step = DmControlWrapper(Told(told)).reset()

    assert (0.0, 1.0) == (time_step.reward, time_step.discount)


def test_rewards_may_be_nested():
    spec = {"food": specs.Array((), np.float64), "pain": specs.Array((), np.float32)}
    told = dm_env.TimeStep(dm_env.StepType.FIRST, None, None, 3.0)
    env = DmControlWrapper(Told(told, reward=spec))

    assert {"food": 0.0, "pain": 0.0} == env.reset().reward


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_discount_at_the_end_is_that_of_the_environment(discount):
    env = DmControlWrapper(Walk(last_discount=discount))
    env.reset()
    time_steps = [env.step(RIGHT) for _ in range(3)]

    assert [1, 1, 2] == [int(time_step.step_type) for time_step in time_steps]
    assert [1.0, 1.0, discount] == [float(step.discount) for step in time_steps]


def test_the_step_after_the_end_begins_the_next_episode():
    env = DmControlWrapper(Walk())

    assert [0, 1, 1, 2, 0, 1] == [int(env.step(RIGHT).step_type) for _ in range(6)]
    assert 4 == len(env.actions)


def test_every_time_step_fits_its_specs():
    validate_py_environment(DmControlWrapper(Walk()), episodes=3)


def test_it_keeps_the_contract_of_environments():
    report = check_environment(
        lambda: DmControlWrapper(Walk(random=np.random.RandomState(0))),
        require=["episodes", "seed"],
    )

    assert () == report.failed


def test_time_steps_are_envkits():
    env = DmControlWrapper(Walk())

    assert (TimeStep, TimeStep) == (type(env.reset()), type(env.step(RIGHT)))


def test_observations_stay_although_the_environment_reuses_its_array():
    env = DmControlWrapper(Walk())
    places = [env.step(RIGHT).observation["place"] for _ in range(3)]

    np.testing.assert_array_equal([[0, 0], [1, 1], [2, 2]], places)


def test_an_action_reaches_the_environment_as_arrays_of_its_specs():
    env = DmControlWrapper(Walk())
    env.reset()

    env.step({"way": 1, "speed": np.array([0.5], np.float32)})

    (action,) = env.actions
    for name, spec in env.dm_env.action_spec().items():
        spec.validate(action[name])


def test_an_action_that_does_not_fit_is_named_and_moves_nothing():
    env = DmControlWrapper(Walk())
    env.reset()

    with pytest.raises(SpecError) as caught:
        env.step({"way": 1, "speed": np.array([3.0])})

    assert (
        "DmControlWrapper.step() was given an action that does not fit its spec at "
        "action['speed'].\n\n"
        "  expected   BoundedArraySpec(shape=(1,), dtype=float64, minimum=0.0, "
        "maximum=2.0)\n"
        "  got        array of shape (1,), dtype float64, values 3.0 … 3.0\n\n"
        "1 of 1 element is above the maximum 2.0: 3.0 at index (0,). The other leaf "
        "fits."
    ) == str(caught.value)
    assert [] == env.actions


@pytest.mark.parametrize(
    ("time_step", "message"),
    [
        (
            dm_env.transition(reward=1.0, observation=np.zeros(2)),
            "Told returned an observation that does not fit its spec.\n\n"
            "  expected   ArraySpec(shape=(), dtype=float64)\n"
            "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
            "There is one dimension too many, of size 2: a batch where a single value "
            "belongs.",
        ),
        (
            dm_env.transition(reward=None, observation=0.0),
            "Told returned a reward that does not fit its spec.\n\n"
            "  expected   ArraySpec(shape=(), dtype=float32, name='reward')\n"
            "  got        None\n\n"
            "None is not an array. Did a return statement get lost?",
        ),
        (
            dm_env.transition(reward=1.0, observation=0.0, discount=None),
            "Told returned a discount that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=float32, minimum=0.0, "
            "maximum=1.0, name='discount')\n"
            "  got        None\n\n"
            "None is not an array. Did a return statement get lost?",
        ),
    ],
    ids=["observation", "reward", "discount"],
)
def test_what_the_environment_returns_is_checked(time_step, message):
    env = DmControlWrapper(Told(time_step))

    with pytest.raises(SpecError) as caught:
        env.reset()

    assert message == str(caught.value)


def test_specs_may_be_nested_in_lists_and_tuples():
    told = dm_env.TimeStep(dm_env.StepType.FIRST, None, None, [1.0, (True,)])
    nested = [specs.Array((), np.float32), (specs.BoundedArray((), bool, False, True),)]
    env = DmControlWrapper(Told(told, observation=nested))

    assert [ArraySpec((), np.float32), (ArraySpec((), bool),)] == env.observation_spec()
    assert [1.0, (True,)] == env.reset().observation


def test_a_spec_that_has_no_counterpart_is_named_with_its_place():
    text = specs.StringArray((), name="word")

    with pytest.raises(SpecError) as caught:
        DmControlWrapper(Told(observation={"b": specs.Array((), int), "a": [text]}))

    assert (
        f"The spec at observation['a'][0] is {text!r:.120}, which is not supported "
        "yet: there are specs for arrays of numbers, of booleans and of text of a "
        "fixed width."
    ) == str(caught.value)
    assert "observation['a'][0]" == caught.value.path


def test_a_seed_makes_the_next_episodes_repeatable():
    env = DmControlWrapper(Walk(random=np.random.RandomState(0)))

    def places(seed):
        env.seed(seed)
        return [env.reset().observation["place"].tolist() for _ in range(2)]

    assert places(7) == places(7)
    assert places(7) != places(8)
    assert places(None) != places(None)


def test_a_seed_does_not_touch_the_episode_that_is_running():
    random = np.random.RandomState(0)
    env = DmControlWrapper(Walk(random=random))
    env.reset()
    before = random.get_state()[1].tolist()

    env.seed(7)

    assert before == random.get_state()[1].tolist()


def test_a_batch_gives_each_row_a_stream_of_its_own():
    walks = [Walk(random=np.random.RandomState(0)) for _ in range(2)]
    env = BatchedPyEnvironment(list(map(DmControlWrapper, walks)), multithreading=False)
    env.seed(7)

    first, second = env.reset().observation["place"].tolist()

    assert first != second


def test_without_a_generator_there_is_nothing_to_seed():
    with pytest.raises(NotImplementedError) as caught:
        DmControlWrapper(Walk()).seed(7)

    assert (
        "Walk cannot be seeded: dm_env knows no seeds, and neither the environment nor "
        "its task has a RandomState. Give it a seed when you make it."
    ) == str(caught.value)


def test_a_picture_is_a_copy_of_what_the_physics_draw():
    env = DmControlWrapper(DrawnWalk(), render_kwargs={"height": 2})

    first, second = env.render(), env.render("rgb_array")

    assert ((2, 6, 3), np.uint8) == (first.shape, first.dtype)
    assert (1, 2) == (first.max(), second.max())


@pytest.mark.parametrize(
    ("walk", "mode", "message"),
    [
        (Walk, "rgb_array", "Walk cannot render: it has no physics to draw."),
        (DrawnWalk, "human", "DrawnWalk renders 'rgb_array' only, not 'human'."),
    ],
)
def test_what_cannot_be_rendered_is_refused(walk, mode, message):
    with pytest.raises(NotImplementedError) as caught:
        DmControlWrapper(walk()).render(mode)

    assert message == str(caught.value)


def test_closing_twice_closes_once():
    env = DmControlWrapper(Walk())
    env.close()
    env.close()

    assert 1 == env.closings


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reset", lambda env: env.reset()),
        ("step", lambda env: env.step(RIGHT)),
        ("render", lambda env: env.render()),
    ],
)
def test_a_closed_environment_says_so(name, call):
    env = DmControlWrapper(Walk())
    env.reset()
    env.close()

    with pytest.raises(ClosedError) as caught:
        call(env)

    assert (
        f"DmControlWrapper.{name}() was called after close(). A closed environment "
        "stays closed: make a new one."
    ) == str(caught.value)


def test_public_attributes_are_those_of_the_environment_within():
    walk = DrawnWalk()

    assert walk.physics is DmControlWrapper(walk).physics


@pytest.mark.parametrize("name", ["colour", "_place"], ids=["unknown", "private"])
def test_other_attributes_do_not_exist(name):
    with pytest.raises(AttributeError) as caught:
        getattr(DmControlWrapper(Walk()), name)

    assert f"'DmControlWrapper' object has no attribute {name!r}" == str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda env: env.get_state(),
            "Walk cannot save its state: dm_env knows no states.",
        ),
        (
            lambda env: env.set_state(EnvironmentState(None, None)),
            "Walk cannot restore a state: dm_env knows no states.",
        ),
    ],
    ids=["get", "set"],
)
def test_states_are_refused(call, message):
    with pytest.raises(NotImplementedError) as caught:
        call(DmControlWrapper(Walk()))

    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("given_env", "what"),
    [("cartpole", "the string 'cartpole'"), (Walk, "the class Walk")],
)
def test_what_is_no_environment_is_refused(given_env, what):
    with pytest.raises(TypeError) as caught:
        DmControlWrapper(given_env)

    assert (
        f"DmControlWrapper was given {what}, which is not a dm_env.Environment. "
        "dm_control.suite.load(domain, task) makes one."
    ) == str(caught.value)
