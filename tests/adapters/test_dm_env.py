"""An environment of dm_env keeps envkit's contract."""

from __future__ import annotations

import pickle
import random
import threading
import types

import dm_env
import numpy as np
import pytest
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, restart
from envkit.adapters.dm_env import (
    DmEnvWrapper,
    Strings,
    spec_from_dm_env,
    spec_to_dm_env,
)
from envkit.adapters.to_dm_env import PyToDMWrapper
from envkit.errors import SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.testing import CountingEnv, TracingEnv, check_environment
from envkit.utils import validate_py_environment
from tests import strategies
from tests.adapters.dm_env_examples import RIGHT, Dice, Noise, Told, Walk

LAST = dm_env.StepType.LAST


class DrawnWalk(Walk):
    """Has physics that draw."""

    def __init__(self):
        super().__init__()
        self.physics = types.SimpleNamespace(render=self._draw)
        self._picture = np.zeros((4, 6, 3), np.uint8)

    def _draw(self, height=4, width=6):
        self._picture += 1
        return self._picture[:height, :width]


def make_walk():
    return DmEnvWrapper(Walk(random=np.random.RandomState(0)))


def make_dice():
    return DmEnvWrapper(Noise(Dice()))


def told(observation_spec, observation, **more):
    """Returns an environment that says one observation, and its wrapper's options."""
    time_step = dm_env.transition(reward=0.0, observation=observation)
    return Told(time_step, observation=observation_spec, **more)


def test_specs_match_the_environment():
    env = DmEnvWrapper(Walk())

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


def test_only_rewards_and_discounts_become_float32():
    env = DmEnvWrapper(Walk())
    assert ArraySpec((), np.float32) == env.reward_spec()
    assert BoundedArraySpec((), np.float32, 0, 1) == env.discount_spec()
    assert np.float64 == env.reset().observation["place"].dtype


def test_as_float32_chooses_what_becomes_float32():
    env = DmEnvWrapper(Walk(), as_float32=["observation", "action", "discount"])
    env.reset()
    time_step = env.step({"way": 1, "speed": np.array([0.1], np.float32)})

    assert [np.float32, np.float64, np.float32] == [
        time_step.observation["place"].dtype,
        time_step.reward.dtype,
        time_step.discount.dtype,
    ]
    assert np.float32 == env.action_spec()["speed"].dtype
    assert np.float64 == env.dm_env.actions[0]["speed"].dtype


def test_float64_can_be_kept():
    env = DmEnvWrapper(Dice(), as_float32=())
    env.reset()
    twin = Dice()
    twin.reset()
    theirs, ours = twin.step(0), env.step(0)
    assert (theirs.reward, theirs.observation) == (ours.reward, ours.observation)


@settings(max_examples=15)
@given(st.floats(*map(float, np.float32([0.1, 0.3])), width=32))
def test_a_float32_action_stays_within_float64_bounds(action):
    spec = specs.BoundedArray((1,), np.float64, 0.1, 0.3)
    walk = told(specs.Array((), np.float64), 0.0, action=spec)
    env = DmEnvWrapper(walk, as_float32=["action"])
    env.reset()
    env.step(np.array([action], np.float32))
    spec.validate(walk.actions[0])


def test_rewards_of_other_dtypes_are_unchanged():
    spec = specs.BoundedArray((2,), np.int8, 0, 3)
    step = dm_env.transition(reward=np.array([1, 2], np.int8), observation=0.0)
    env = DmEnvWrapper(Told(step, reward=spec))
    env.reset()
    assert BoundedArraySpec((2,), np.int8, 0, 3) == env.reward_spec()
    assert env.reward_spec().check_array(env.step(0).reward)


def test_missing_reward_and_discount_specs_have_defaults():
    env = DmEnvWrapper(
        types.SimpleNamespace(
            observation_spec=lambda: specs.Array((), np.int64),
            action_spec=lambda: specs.DiscreteArray(2),
            reset=lambda: dm_env.restart(3),
            step=lambda action: dm_env.termination(1.5, 4),
        )
    )
    env.reset()
    time_step = env.step(0)
    env.close()

    assert ArraySpec((), np.float32) == env.reward_spec()
    assert BoundedArraySpec((), np.float32, 0, 1) == env.discount_spec()
    assert (1.5, 0.0, 4) == (
        time_step.reward,
        time_step.discount,
        time_step.observation,
    )


@pytest.mark.parametrize(("reward", "discount"), [(None, None), (0.0, 0.0), (5.0, 0.5)])
def test_a_first_always_has_reward_0_and_discount_1(reward, discount):
    step = dm_env.TimeStep(dm_env.StepType.FIRST, reward, discount, 3.0)
    assert repr(restart(np.array(3.0))) == repr(DmEnvWrapper(Told(step)).reset())


def test_rewards_may_be_nested():
    spec = {"food": specs.Array((), np.float64), "pain": specs.Array((), np.float32)}
    step = dm_env.TimeStep(dm_env.StepType.FIRST, None, None, 3.0)
    env = DmEnvWrapper(Told(step, reward=spec))
    assert {"food": 0.0, "pain": 0.0} == env.reset().reward


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_the_final_discount_comes_from_the_environment(discount):
    env = DmEnvWrapper(Walk(last_discount=discount))
    env.reset()
    time_steps = [env.step(RIGHT) for _ in range(3)]
    assert [1, 1, 2] == [int(time_step.step_type) for time_step in time_steps]
    assert [1.0, 1.0, discount] == [float(step.discount) for step in time_steps]


def test_a_step_after_the_end_begins_the_next_episode():
    env = DmEnvWrapper(Walk())
    assert [0, 1, 1, 2, 0, 1] == [int(env.step(RIGHT).step_type) for _ in range(6)]
    assert 4 == len(env.actions)


def test_every_time_step_fits_its_specs():
    validate_py_environment(DmEnvWrapper(Walk()), episodes=3)


def test_worker_processes_return_the_same_stream():
    def play(env):
        env.seed(3)
        return [repr(env.step(np.zeros(2, np.int32))) for _ in range(6)]

    here = BatchedPyEnvironment([make_dice(), make_dice()], multithreading=False)
    with ParallelPyEnvironment([make_dice] * 2, num_workers=1) as there:
        assert play(here) == play(there)


def test_observations_are_copies_of_a_reused_array():
    env = DmEnvWrapper(Walk())
    places = [env.step(RIGHT).observation["place"] for _ in range(3)]
    np.testing.assert_array_equal([[0, 0], [1, 1], [2, 2]], places)


def test_an_action_reaches_the_environment_in_the_form_of_its_spec():
    env = DmEnvWrapper(Walk())
    env.reset()
    env.step({"way": np.array(1), "speed": np.array([0.5], np.float32)})
    (action,) = env.actions
    for name, spec in env.dm_env.action_spec().items():
        spec.validate(action[name])
    assert ({1: "right"}[action["way"]], np.int32) == ("right", type(action["way"]))


def test_an_invalid_action_is_explained_and_moves_nothing(message_of):
    env = DmEnvWrapper(Walk())
    env.reset()

    assert (
        "DmEnvWrapper.step() was given an action that does not fit its spec at "
        "action['speed'].\n\n"
        "  expected   BoundedArraySpec(shape=(1,), dtype=float64, minimum=0.0, "
        "maximum=2.0)\n"
        "  got        array of shape (1,), dtype float64, values 3.0 … 3.0\n\n"
        "1 of 1 element is above the maximum 2.0: 3.0 at index (0,). The other leaf "
        "fits.\nActionClipWrapper(env) clips actions."
    ) == message_of(SpecError, lambda: env.step({"way": 1, "speed": np.array([3.0])}))
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
        (
            None,
            "Told.reset() returned None, not a dm_env.TimeStep.",
        ),
        (
            (0.0, 1.0),
            "Told.reset() returned a tuple of 2 elements, not a dm_env.TimeStep.",
        ),
        (
            dm_env.TimeStep(3, 0.0, 1.0, 0.0),
            "Told.reset() returned a time step with the step type 3. FIRST is 0, MID "
            "is 1, LAST is 2.",
        ),
    ],
    ids=["observation", "reward", "discount", "nothing", "tuple", "step_type"],
)
def test_invalid_results_of_the_environment_are_refused(time_step, message, message_of):
    env = DmEnvWrapper(Told(time_step))
    assert message == message_of(SpecError, env.reset)


def test_specs_may_be_nested_in_lists_and_tuples():
    nested = [specs.Array((), np.float32), (specs.BoundedArray((), bool, False, True),)]
    env = DmEnvWrapper(told(nested, [1.0, (True,)]))
    assert [ArraySpec((), np.float32), (ArraySpec((), bool),)] == env.observation_spec()
    assert [1.0, (True,)] == env.reset().observation


def test_an_unsupported_spec_in_a_nest_is_named_with_its_path():
    wave = specs.Array((), np.complex128, name="wave")

    with pytest.raises(SpecError) as caught:
        DmEnvWrapper(told({"b": specs.Array((), int), "a": [wave]}, None))

    assert (
        f"The spec at observation['a'][0] is {wave!r:.120}, which is not supported: "
        "specs are for arrays of numbers, booleans, text or objects."
    ) == str(caught.value)
    assert "observation['a'][0]" == caught.value.path


@pytest.mark.parametrize(
    "value", ["word", np.array("word"), np.array("word", object)], ids=repr
)
def test_strings_are_objects(value):
    env = DmEnvWrapper(told(specs.StringArray(()), value))
    observation = env.reset().observation
    assert ObjectSpec(kind=Strings(str)) == env.observation_spec()
    assert env.observation_spec().check_array(observation)
    assert "word" == observation[()]


def test_strings_with_a_text_length_become_text():
    env = DmEnvWrapper(told(specs.StringArray((2,)), ["one", "three"]), text_length=5)
    observation = env.reset().observation
    assert TextSpec((2,), "<U5") == env.observation_spec()
    assert ("<U5", ["one", "three"]) == (observation.dtype, observation.tolist())


@pytest.mark.parametrize(
    ("text", "length"), [("sixsix", 6), ("nul\0", 4)], ids=["long", "nul"]
)
def test_text_that_is_too_long_is_refused(text, length, message_of):
    env = DmEnvWrapper(told([specs.StringArray(())], [text]), text_length=5)
    assert (
        "Told returned an observation that does not fit its spec at observation[0].\n\n"
        "  expected   TextSpec(shape=(), dtype=<U5, min_length=0, max_length=5)\n"
        f"  got        array of shape (), dtype object that holds the string {text!r}"
        "\n\n"
        f"A text of {length} characters does not keep its form in <U5. Make the "
        "wrapper with a larger text_length; without one, texts may have any length."
    ) == message_of(SpecError, env.reset)


@pytest.mark.parametrize(
    ("shape", "value", "got", "reason"),
    [
        (
            (),
            5,
            "array of shape (), dtype object that holds 5 of type int",
            "There is 5 of type int; it takes str.",
        ),
        (
            (2,),
            ["a", b"b"],
            "array of shape (2,), dtype object",
            "There is the string b'b' at index (1,); it takes str.",
        ),
        (
            (2,),
            ["a"],
            "a list of 1 element",
            "An array of shape (2,) is expected.",
        ),
        (
            (2, 1),
            [np.zeros((2, 1)), np.zeros((2, 2))],
            "a list of 2 elements",
            "An array of shape (2, 1) is expected.",
        ),
    ],
    ids=repr,
)
def test_values_other_than_strings_are_refused(shape, value, got, reason, message_of):
    env = DmEnvWrapper(told(specs.StringArray(shape), value))
    assert (
        "Told returned an observation that does not fit its spec.\n\n"
        f"  expected   ObjectSpec(shape={shape}, dtype=object, kind=Strings(str))\n"
        f"  got        {got}\n\n"
        f"{reason}"
    ) == message_of(SpecError, env.reset)


@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("text_length", [None, 5])
def test_strings_reach_the_environment_as_str_or_bytes(kind, text_length):
    spec = {"word": specs.StringArray((), kind), "words": specs.StringArray((2,), kind)}
    walk = told(specs.Array((), np.int64), 0, action=spec)
    env = DmEnvWrapper(walk, text_length=text_length)
    env.reset()
    word = kind("go", "ascii") if kind is bytes else "go"

    env.step({"word": word, "words": np.array([word, word])})
    env.step({"word": np.array(word, object), "words": [word, word]})

    for action in walk.actions:
        assert kind is type(action["word"])
        assert [word, word] == spec["words"].validate(action["words"]).tolist()


@pytest.mark.parametrize("text_length", [None, 5])
def test_an_action_other_than_a_string_is_refused(text_length):
    walk = told(specs.Array((), np.int64), 0, action=specs.StringArray(()))
    env = DmEnvWrapper(walk, text_length=text_length)
    env.reset()
    with pytest.raises(SpecError, match=r"was given an action that does not fit"):
        env.step(7)
    assert [] == walk.actions


def test_objects_are_passed_through():
    thing = [{"any": "thing"}]
    spec = specs.Array((), object)
    walk = told(spec, thing, action={"one": spec, "two": specs.Array((2,), object)})
    env = DmEnvWrapper(walk)
    assert ObjectSpec() == env.observation_spec()
    assert thing is env.reset().observation[()]
    env.step({"one": ObjectSpec.wrap(thing), "two": [None, thing[0]]})
    (action,) = walk.actions
    assert (thing, [None, thing[0]]) == (action["one"], action["two"].tolist())


@pytest.mark.parametrize(
    "generator",
    [
        np.random.RandomState(0),
        np.random.default_rng(0),
        np.random.Generator(np.random.Philox(0)),
        random.Random(0),
    ],
    ids=lambda generator: type(generator).__name__,
)
def test_a_seed_makes_later_episodes_repeatable(generator):
    env = DmEnvWrapper(Dice(generator))

    def rolls(seed):
        env.seed(seed)
        return [float(env.reset().observation) for _ in range(2)]

    assert rolls(7) == rolls(7)
    assert rolls(7) != rolls(8)
    assert rolls(None) != rolls(None)
    assert rolls(2**40) == rolls(2**40)


def test_a_seed_seeds_the_only_generator():
    env = make_walk()
    env.seed(7)
    expected = np.random.RandomState(7).uniform(size=2)
    np.testing.assert_array_equal(expected, env.reset().observation["place"])


def test_each_of_several_generators_gets_its_own_stream():
    env = DmEnvWrapper(Noise(Noise(Dice(np.random.default_rng(0)))))
    env.seed(7)
    env.reset()
    outer, inner = env.dm_env._rng, env.dm_env._env._rng
    dice = env.dm_env._env._env._generator
    assert 3 == len({generator.random() for generator in (outer, inner, dice)})


def test_a_seed_leaves_the_running_episode_alone():
    generator = np.random.RandomState(0)
    env = DmEnvWrapper(Walk(random=generator))
    env.reset()
    before = generator.get_state()[1].tolist()
    env.seed(7)
    assert before == generator.get_state()[1].tolist()


def test_a_seed_method_is_called_instead():
    class Seeded(Dice):
        def seed(self, seed):
            self.seeds = [*getattr(self, "seeds", []), seed]

    env = DmEnvWrapper(Seeded())
    env.seed(7)
    before = getattr(env.dm_env, "seeds", [])
    env.reset()
    env.reset()

    assert ([], [7]) == (before, env.dm_env.seeds)


def test_each_row_of_a_batch_has_its_own_stream():
    env = BatchedPyEnvironment([make_walk(), make_walk()], multithreading=False)
    env.seed(7)
    first, second = env.reset().observation["place"].tolist()
    assert first != second


def test_render_returns_a_copy_of_the_physics_picture():
    env = DmEnvWrapper(DrawnWalk(), render_kwargs={"height": 2})
    first, second = env.render(), env.render("rgb_array")
    assert ((2, 6, 3), np.uint8) == (first.shape, first.dtype)
    assert (1, 2) == (first.max(), second.max())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: DmEnvWrapper(Walk()).render(),
            NotImplementedError,
            "Walk cannot render: it has no physics to draw.",
        ),
        (
            lambda: DmEnvWrapper(DrawnWalk()).render("human"),
            ValueError,
            "DrawnWalk renders 'rgb_array' only, not 'human'.",
        ),
        (
            lambda: DmEnvWrapper(Walk(), as_float32=["rewards"]),
            ValueError,
            "as_float32 has no part 'rewards'. The parts are observation, action, "
            "reward, discount.",
        ),
        (
            lambda: DmEnvWrapper(Walk(), as_float32="reward"),
            TypeError,
            "as_float32 must be a list of names, got 'reward'. Write ['reward'].",
        ),
        (
            lambda: DmEnvWrapper(Walk()).seed(7),
            NotImplementedError,
            "Walk cannot be seeded: dm_env has no seeds, and neither the environment "
            "nor its task has a random generator. Give it a seed when you make it.",
        ),
        (
            lambda: DmEnvWrapper(Walk()).get_info(),
            NotImplementedError,
            "DmEnvWrapper has no info.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, message, message_of):
    assert message == message_of(error, call)


def test_get_info_returns_the_environments_info():
    class Informed(Walk):
        def get_info(self):
            return {"walked": 3}

    assert {"walked": 3} == DmEnvWrapper(Informed()).get_info()


def test_the_wrapped_environment_is_accessible():
    walk = DrawnWalk()
    env = DmEnvWrapper(walk)
    assert walk is env.dm_env is env.wrapped_env()
    assert walk.physics is env.physics


def test_a_state_includes_a_pending_seed():
    env = make_dice()
    env.seed(7)
    state = env.get_state()
    first = env.reset().observation
    env.set_state(state)
    assert first == env.reset().observation


def test_an_environments_own_state_methods_are_used():
    class Knowing(Walk):
        def get_state(self):
            return self._left

        def set_state(self, state):
            self._left = state

    env = DmEnvWrapper(Knowing())
    env.reset()
    state = env.get_state()
    env.step(RIGHT)
    env.set_state(state)

    assert ((3, None), 3) == (state.environment, env.dm_env._left)


def test_a_round_trip_from_envkit_loses_nothing():
    def there_and_back():
        return DmEnvWrapper(PyToDMWrapper(TracingEnv()))

    check_environment(there_and_back, steps=60, require=["episodes", "seed", "state"])
    env, twin = there_and_back(), TracingEnv()
    env.seed(5)
    twin.seed(5)
    assert twin.environment_spec() == env.environment_spec()
    for _ in range(30):
        assert repr(twin.step(0)) == repr(env.step(0))


def test_a_round_trip_from_envkit_keeps_render():
    class Drawn(CountingEnv):
        def render(self, mode="rgb_array"):
            return mode

    assert "ansi" == DmEnvWrapper(PyToDMWrapper(Drawn())).render("ansi")


def test_a_row_of_a_batch_can_be_wrapped_again():
    def there_and_back():
        envs = [TracingEnv(row) for row in range(2)]
        batch = BatchedPyEnvironment(envs, multithreading=False)
        return DmEnvWrapper(PyToDMWrapper(batch, row=1))

    report = check_environment(there_and_back, steps=60, require=["episodes"])
    assert {"state", "render"} <= set(report.skipped)


def test_a_round_trip_from_dm_env_loses_nothing():
    dice = PyToDMWrapper(DmEnvWrapper(Dice(), as_float32=()))
    twin = Dice()
    theirs, ours = [twin.reset()], [dice.reset()]
    for _ in range(6):
        is_over = theirs[-1].last()
        theirs.append(twin.reset() if is_over else twin.step(0))
        ours.append(dice.step(0))

    assert [tuple(step) for step in theirs] == [
        (step.step_type, step.reward, step.discount, float(step.observation))
        for step in ours
    ]
    assert repr(twin.action_spec()) == repr(dice.action_spec())
    assert twin.observation_spec() == dice.observation_spec()


# States: complete, independent, or refused.


class Task:
    """Has what tasks of dm_control have."""

    def __init__(self):
        self.random = np.random.RandomState(0)

    def initialize_episode(self, physics):
        pass

    def get_reward(self, physics):
        return 0.0


class Held(Dice):
    """Holds a thing."""

    def __init__(self, thing=None):
        super().__init__()
        self.thing = thing


def rolls(env, steps=5):
    return [
        (int(time_step.step_type), float(time_step.reward), repr(time_step.observation))
        for time_step in (env.step(0) for _ in range(steps))
    ]


def test_a_state_repeats_the_stream_here_and_in_a_twin():
    env, twin = (DmEnvWrapper(Noise(Noise(Dice()))) for _ in range(2))
    rolls(env)
    rolls(twin, 2)
    state = pickle.loads(pickle.dumps(env.get_state()))
    before = rolls(env)
    for other in (env, twin, env):
        other.set_state(state)
        assert before == rolls(other)


def test_restoring_a_state_keeps_the_identity_of_the_parts():
    dice, task = Held(Task()), Task()
    dice.task, dice.here = task, dice
    env = DmEnvWrapper(Noise(dice))
    env.reset()
    parts = dice.task, dice.thing, dice.here
    state = env.get_state()
    expected = [part.random.random() for part in parts[:2]]
    dice.later = 1

    env.set_state(state)

    assert all(
        one is other
        for one, other in zip(parts, (dice.task, dice.thing, dice.here), strict=True)
    )
    assert env.dm_env._env is dice
    assert not hasattr(dice, "later")
    assert expected == [part.random.random() for part in parts[:2]]


def test_a_lambda_in_the_environment_prevents_saving_its_state():
    env = DmEnvWrapper(Held(lambda: 7))
    env.reset()
    with pytest.raises(NotImplementedError, match=r"does not pickle: .*<lambda>"):
        env.get_state()


def test_an_unpicklable_attribute_prevents_saving_the_state(message_of):
    env = DmEnvWrapper(Held(threading.Lock()))
    env.reset()
    assert (
        "Held cannot save its state. A state has everything in the environment and "
        "its wrappers, and something there does not pickle: cannot pickle "
        "'_thread.lock' object"
    ) == message_of(NotImplementedError, env.get_state)


def test_an_environment_without_attributes_has_no_state():
    class Closed:
        __slots__ = ()
        observation_spec = Dice.observation_spec
        action_spec = Dice.action_spec

        def reset(self):
            return dm_env.restart(np.float64(0))

        step = None

    Closed.step = lambda self, action: self.reset()
    env = DmEnvWrapper(Closed())
    env.reset()

    with pytest.raises(NotImplementedError, match=r"__dict__"):
        env.get_state()


@pytest.mark.parametrize(
    ("other", "got"), [(Dice(), "Dice"), (Noise(Walk()), "Walk in Noise")]
)
def test_the_state_of_another_environment_is_refused(other, got, message_of):
    env, other = DmEnvWrapper(Noise(Dice())), DmEnvWrapper(other)
    env.reset()
    other.reset()
    before = pickle.dumps(env.dm_env._env)

    assert (
        "Noise was given the state of another environment.\n\n"
        "  expected   Dice in Noise\n"
        f"  got        {got}\n\n"
        "A state fits the same environment in the same wrappers."
    ) == message_of(ValueError, lambda: env.set_state(other.get_state()))
    assert before == pickle.dumps(env.dm_env._env)


# Specs.


@settings(max_examples=20)
@given(strategies.specs("biufUS"))
def test_a_spec_survives_a_round_trip(spec):
    back = spec_from_dm_env(spec_to_dm_env(spec))
    assert (type(spec), spec, spec.name) == (type(back), back, back.name)


@pytest.mark.parametrize(
    "spec",
    [
        specs.Array((2, 3), np.float16, name="array"),
        specs.BoundedArray((3,), np.float64, [0, -1, -2], 5, name="bounded"),
        specs.BoundedArray((), np.int8, -3, 5),
        specs.BoundedArray((2,), np.uint8, 0, 5),
        specs.DiscreteArray(5, np.int64, name="choice"),
        specs.DiscreteArray(1),
        specs.StringArray((), str, name="word"),
        specs.StringArray((2,), bytes),
        specs.Array((), object, name="thing"),
    ],
    ids=repr,
)
def test_a_spec_of_dm_env_survives_a_round_trip(spec):
    back = spec_to_dm_env(spec_from_dm_env(spec))
    assert repr(spec) == repr(back)


@settings(max_examples=20)
@given(strategies.bounded_specs())
def test_values_of_the_dm_env_spec_fit_the_spec(spec):
    theirs = spec_to_dm_env(spec)
    assert spec.check_array(np.asarray(theirs.generate_value()))


def test_booleans_have_no_bounds():
    theirs = specs.BoundedArray((2,), bool, False, True, name="switches")
    assert type(spec_from_dm_env(theirs)) is ArraySpec
    assert ArraySpec((2,), bool) == spec_from_dm_env(theirs)


def test_narrowing_changes_float64_only():
    double = specs.BoundedArray((2,), np.float64, [0.1, -np.inf], [0.3, np.inf])
    half, whole = specs.Array((), np.float16), specs.Array((), np.int64)

    narrowed = spec_from_dm_env(double, narrow=True)

    largest = np.finfo(np.float32).max
    assert (
        BoundedArraySpec((2,), np.float32, [0.1, -largest], [0.3, largest]) == narrowed
    )
    assert [np.float16, np.int64] == [
        spec_from_dm_env(spec, narrow=True).dtype for spec in (half, whole)
    ]


def test_narrowing_clips_bounds_to_float32():
    double = specs.BoundedArray((), np.float64, -1e300, 1e300)
    assert BoundedArraySpec((), np.float32) == spec_from_dm_env(double, narrow=True)


def test_strings_with_a_text_length_have_a_fixed_width():
    words = specs.StringArray((2,), name="words")
    bits = specs.StringArray((), bytes, name="bits")
    assert TextSpec((2,), "<U7") == spec_from_dm_env(words, text_length=7)
    assert ArraySpec((), "S7") == spec_from_dm_env(bits, text_length=7)


def test_strings_of_any_length_are_objects():
    spec = spec_from_dm_env(specs.StringArray((2,), name="words"))
    assert ObjectSpec((2,), kind=Strings(str)) == spec
    assert "words" == spec.name
    assert spec.check_array(np.array(["", "a very long word"], object))
    assert not spec.check_array(np.array(["one", 2], object))


@pytest.mark.parametrize("kind", [str, bytes])
def test_strings_contain_their_own_samples(kind):
    strings = Strings(kind)
    assert strings.contains(strings.sample(np.random.default_rng(0)))
    assert strings.contains(strings.sample(np.random.RandomState(0)))
    assert strings == pickle.loads(pickle.dumps(strings))
    assert strings != Strings({str: bytes, bytes: str}[kind])
    assert len({Strings(kind), strings, Strings(str), Strings(bytes)}) == 2
    assert f"Strings({kind.__name__})" == repr(strings)


@pytest.mark.parametrize(
    "spec", [specs.Array((), np.complex64), "no spec at all"], ids=["complex", "text"]
)
def test_an_unsupported_spec_is_named_with_its_path(spec):
    with pytest.raises(SpecError) as caught:
        spec_from_dm_env(spec, "observation['a']")
    assert (
        f"The spec at observation['a'] is {spec!r:.120}, which is not supported: specs "
        "are for arrays of numbers, booleans, text or objects."
    ) == str(caught.value)
    assert "observation['a']" == caught.value.path
