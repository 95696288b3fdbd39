"""A vector environment of Gymnasium keeps envkit's contract, in each of its modes."""

from __future__ import annotations

import functools
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from envkit import (
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
)
from envkit.adapters import GymnasiumWrapper, spec_from_gym_space
from envkit.adapters.gymnasium.vector import (
    GymnasiumVectorWrapper,
    VectorActions,
    finish_resets,
)
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.seeding import seed_per_row
from envkit.specs import check_fits
from envkit.utils import validate_py_environment
from envkit.wrappers import PyEnvironmentBaseWrapper, TimeLimit

MODES = ["NextStep", "SameStep", "Disabled"]
MID, END, CUT, BOTH = (False, False), (True, False), (False, True), (True, True)


class Script(gymnasium.Env):
    """Ends as it is told, and counts its episodes and its steps."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012  # Gymnasium's way
    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, flags=(MID, END), render_mode=None, info=None):
        self.render_mode = render_mode
        self.calls = []
        self.level = 1
        self._flags = flags
        self._info = info or {}
        self._episodes = 0

    def _observation(self):
        return np.array([self._episodes, self._steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.calls.append(("reset", seed, options))
        self._episodes += 1
        self._steps = 0
        return self._observation(), {"began": self._episodes}

    def step(self, action):
        self.calls.append(("step", action))
        terminated, truncated = self._flags[self._steps]
        self._steps += 1
        reward = 10.0 * self._episodes + self._steps
        return self._observation(), reward, terminated, truncated, dict(self._info)

    def render(self):
        if self.render_mode == "ansi":
            return "a text"
        return np.full((4, 4, 3), self._steps, np.uint8)

    def raise_level(self, by=1):
        self.level += by
        return self.level

    def close(self):
        self.calls.append(("close",))


class Walk(gymnasium.Env):
    """Goes its random way, of which the seed and the actions decide."""

    observation_space = spaces.Box(-50, 50, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, longest=9):
        self._longest = longest

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._place, {"place": float(self._place[0])}

    def step(self, action):
        self._steps += 1
        stride = self.np_random.uniform(0, 1, 2) * (2 * action - 1)
        # Environments that return a new array each time are not all there are, but
        # those that do not lose their final observation within Gymnasium already.
        self._place = (self._place + stride).astype(np.float32)
        terminated = bool(abs(self._place[0]) > 2)
        info = {"place": float(self._place[0])}
        truncated = self._steps >= self._longest
        return self._place, float(stride[1]), terminated, truncated, info


class Anything(gymnasium.Env):
    """Has a nest of everything."""

    observation_space = spaces.Dict(
        place=spaces.Box(-1, 1, (2,), np.float32),
        news=spaces.Tuple((spaces.Text(4), spaces.MultiBinary(3))),
        level=spaces.Discrete(3, start=-1),
    )
    action_space = spaces.Dict(
        way=spaces.MultiDiscrete([2, 3], start=[1, -1]),
        word=spaces.Text(4, charset="abc"),
        push=spaces.Box(-1, 1, (2,), np.float64),
    )

    def __init__(self):
        self.seen = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.seen.append(action)
        self._steps += 1
        over = self._steps == 3
        return self._observation(), action["push"][0], over, False, {}

    def _observation(self):
        place = np.full(2, self._steps / 10, np.float32)
        news = ("left"[: self._steps + 1], np.array([1, 0, 1], np.int8))
        return {"place": place, "news": news, "level": np.int64(self._steps % 3 - 1)}


class Told(VectorEnv):
    """Is one object for all of its rows, and returns what it is told."""

    single_observation_space = spaces.Discrete(100)
    observation_space = spaces.MultiDiscrete([100, 100])
    single_action_space = spaces.Discrete(2)
    action_space = spaces.MultiDiscrete([2, 2])
    num_envs = 2
    render_mode = None

    def __init__(self, *results, mode=None):
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self._results = list(results)
        self.seeds = []
        self.level = 1

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return np.array([0, 0]), {}

    def step(self, actions):
        return self._results.pop(0)

    def raise_level(self):
        self.level += 1
        return self.level


def told(observation, terminated=(False, False), **infos):
    flags = np.array(terminated), np.zeros(2, bool)
    return np.array(observation), np.ones(2), *flags, infos


def sync(*flags, mode="NextStep", rows=None, **options):
    """Wraps scripts: the first of `rows` flags, or as many with the same."""
    scripts = rows or [flags or (MID, END)] * 2
    names = ("render_mode", "info")
    script = {name: options.pop(name) for name in names if name in options}
    makers = [functools.partial(Script, one, **script) for one in scripts]
    return GymnasiumVectorWrapper(SyncVectorEnv(makers, autoreset_mode=mode), **options)


def walks(mode="NextStep", rows=3, kind=SyncVectorEnv, auto_reset=True, **options):
    vector_env = kind([Walk] * rows, autoreset_mode=mode, **options)
    return GymnasiumVectorWrapper(vector_env, 0.9, auto_reset)


def single_walks(rows=3):
    envs = [GymnasiumWrapper(Walk(), 0.9) for _ in range(rows)]
    return BatchedPyEnvironment(envs, multithreading=False)


def scripts_of(env):
    return env.vector_env.unwrapped.envs


def step_types(env, steps):
    return [env.step([0] * env.batch_size).step_type.tolist() for _ in range(steps)]


def transitions(env, actions, steps):
    """Lists each row's transitions, with actions that are the row's own."""
    order = getattr(env, "autoreset", AutoReset.NEXT_STEP)
    env.seed([11 + row for row in range(env.batch_size)])
    found = [[] for _ in range(env.batch_size)]
    env.reset()
    for _ in range(steps):
        before = env.current_time_step()
        action = [actions[row][len(done) % 20] for row, done in enumerate(found)]
        after = env.step(np.array(action))
        for row in np.flatnonzero(after.step_type != 0).tolist():
            found[row].append(
                (
                    before.observation[row].tolist(),
                    action[row],
                    float(after.reward[row]),
                    float(after.discount[row]),
                    after.observation[row].tolist(),
                    int(after.step_type[row]),
                )
            )
        if order is AutoReset.DISABLED and after.is_last().any():
            env.reset(after.is_last())
    env.close()
    return found


def agree(first, second):
    """Says whether of two lists of rows the shorter ones begin the longer ones."""
    return all(
        ours[: len(theirs)] == theirs[: len(ours)]
        for ours, theirs in zip(first, second, strict=True)
    )


# What it is.


def test_specs_come_from_the_spaces_of_one_row():
    env = sync()
    assert BoundedArraySpec((2,), np.float32, 0, 100) == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert ("observation", "action") == (
        env.observation_spec().name,
        env.action_spec().name,
    )
    assert (True, 2) == (env.batched, env.batch_size)
    arrays = sync(simplify_box_bounds=False)
    assert (2,) == arrays.observation_spec().maximum.shape


@pytest.mark.parametrize(
    ("first", "second", "spec"),
    [
        (
            Script.observation_space,
            spaces.Box(np.float32([-5, 0]), np.float32([100, 200])),
            BoundedArraySpec((2,), np.float32, [-5, 0], [100, 200]),
        ),
        (
            spaces.Discrete(2, start=3),
            spaces.Discrete(8, start=1),
            BoundedArraySpec((), np.int64, 1, 8),
        ),
    ],
    ids=["box", "choices"],
)
def test_differing_bounds_of_rows_are_widened_to_hold_all(first, second, spec):
    def make(space):
        env = Script()
        env.observation_space = space
        return env

    makers = [lambda: make(first), lambda: make(second)]
    env = GymnasiumVectorWrapper(SyncVectorEnv(makers, observation_mode="different"))
    assert spec == env.observation_spec()


def test_an_unrelated_batch_space_widens_nothing():
    env = Told()
    env.observation_space = spaces.MultiDiscrete([[7, 8], [9, 9]])
    spec = GymnasiumVectorWrapper(env).observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 99) == spec


@pytest.mark.parametrize(
    ("mode", "auto_reset", "order"),
    [
        ("NextStep", True, AutoReset.NEXT_STEP),
        ("SameStep", True, AutoReset.SAME_STEP),
        ("Disabled", True, AutoReset.SAME_STEP),
        ("Disabled", False, AutoReset.DISABLED),
    ],
)
def test_the_order_comes_from_the_vector_environment(mode, auto_reset, order):
    env = sync(mode=mode, auto_reset=auto_reset)
    assert order is env.autoreset
    assert (mode == "Disabled", False) == (env.resets_rows, env.holds_rows)


def test_without_metadata_the_order_is_next_step():
    assert AutoReset.NEXT_STEP is GymnasiumVectorWrapper(Told()).autoreset


@pytest.mark.parametrize(
    "mode", [gymnasium.vector.AutoresetMode.SAME_STEP, "SameStep", "same_step"]
)
def test_the_order_can_be_passed(mode):
    env = GymnasiumVectorWrapper(Told(), autoreset_mode=mode)
    assert AutoReset.SAME_STEP is env.autoreset


# Time steps.


@pytest.mark.parametrize("mode", MODES)
def test_reset_begins_an_episode_in_every_row(mode):
    env = sync(mode=mode, discount=0.5)
    first = env.reset()
    second = env.step([0, 1])
    # Nothing has ended.
    assert second is env.current_time_step()
    assert first.is_first().all()
    np.testing.assert_array_equal(np.zeros(2, np.float32), first.reward)
    np.testing.assert_array_equal(np.ones(2, np.float32), first.discount)
    np.testing.assert_array_equal(np.float32([[1, 0]] * 2), first.observation)
    for time_step in [first, second, env.step([0, 1]), env.current_time_step()]:
        check_fits(time_step, env.time_step_spec(), outer_dims=(2,))


@pytest.mark.parametrize("mode", MODES)
def test_discount_and_info_tell_termination_from_truncation(mode):
    env = sync(rows=[(END,), (CUT,), (BOTH,), (MID,)], mode=mode, discount=0.5)
    env.reset()
    time_step, info = env.step([0] * 4), env.get_info()
    assert [2, 2, 2, 1] == time_step.step_type.tolist()
    assert [0.0, 0.5, 0.0, 0.5] == time_step.discount.tolist()
    assert [11.0] * 4 == time_step.reward.tolist()
    assert [True, False, True, False] == info["terminated"].tolist()
    assert [False, True, True, False] == info["truncated"].tolist()


def test_next_step_begins_the_next_episode_with_a_first():
    env = sync(rows=[(MID, END), (MID, MID, CUT)], discount=0.5)
    env.reset()
    assert [[1, 1], [2, 1]] == step_types(env, 2)
    beginning = env.step([0, 0])
    assert [0, 2] == beginning.step_type.tolist()
    assert (0.0, 1.0) == (beginning.reward[0], beginning.discount[0])
    assert [2, 0] == beginning.observation[0].tolist()
    assert [[1, 0], [2, 1]] == step_types(env, 2)


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_same_step_returns_the_final_observation_and_begins_the_next_episode(
    mode,
):
    env = sync(rows=[(MID, END), (MID, MID)], mode=mode, discount=0.5)
    env.reset()
    env.step([0, 0])

    shown, standing = env.step([0, 0]), env.current_time_step()

    assert [2, 1] == shown.step_type.tolist()
    assert [0.0, 0.5] == shown.discount.tolist()
    assert [12.0, 12.0] == shown.reward.tolist()
    np.testing.assert_array_equal(np.float32([[1, 2], [1, 2]]), shown.observation)
    assert [0, 1] == standing.step_type.tolist()
    assert [1.0, 0.5] == standing.discount.tolist()
    assert [0.0, 12.0] == standing.reward.tolist()
    np.testing.assert_array_equal(np.float32([[2, 0], [1, 2]]), standing.observation)


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_same_step_continues_with_a_mid(mode):
    env = sync(MID, END, mode=mode)
    env.reset()
    assert [[1, 1], [2, 2], [1, 1], [2, 2]] == step_types(env, 4)


def test_disabled_needs_a_reset_after_the_end(message_of):
    env = sync(rows=[(MID, END), (MID, MID, MID)], mode="Disabled", auto_reset=False)
    env.reset()
    step_types(env, 2)

    text = message_of(CallOrderError, lambda: env.step([0, 0]))

    assert (
        "step() was called after the episode of row 0 of SyncVectorEnv ended, and this "
        "GymnasiumVectorWrapper was made with auto_reset=False. Call reset(mask) for "
        "them first; none of the environments has moved."
    ) == text
    assert env.current_time_step().is_last().tolist() == [True, False]
    assert [0, 1] == env.reset(np.array([True, False])).step_type.tolist()
    assert [1, 1] == env.step([0, 0]).step_type.tolist()


@pytest.mark.parametrize("auto_reset", [True, False])
def test_a_mask_resets_only_its_rows(auto_reset):
    env = sync(MID, MID, MID, mode="Disabled", auto_reset=auto_reset)
    env.reset()
    env.step([0, 0])
    time_step = env.reset(np.array([False, True]))
    assert [1, 0] == time_step.step_type.tolist()
    np.testing.assert_array_equal(np.float32([[1, 1], [2, 0]]), time_step.observation)
    assert env.current_time_step() is time_step


def test_a_mask_resets_a_row_that_has_begun_its_next_episode():
    env = sync(MID, END, mode="Disabled")
    env.reset()
    step_types(env, 2)

    time_step = env.reset(np.array([False, True]))

    assert [2, 0] == time_step.step_type.tolist()
    np.testing.assert_array_equal(np.float32([[1, 2], [3, 0]]), time_step.observation)
    standing = env.current_time_step()
    assert [0, 0] == standing.step_type.tolist()
    np.testing.assert_array_equal(np.float32([[2, 0], [3, 0]]), standing.observation)


# Nothing is lost, whatever the order.


@settings(max_examples=10)
@given(
    actions=st.lists(
        st.lists(st.integers(0, 1), min_size=20, max_size=20), min_size=2, max_size=2
    ),
    longest=st.integers(1, 9),
)
def test_all_orders_match_single_environments(actions, longest):
    make = functools.partial(Walk, longest)
    singles = [GymnasiumWrapper(make(), 0.9) for _ in range(2)]
    expected = transitions(
        BatchedPyEnvironment(singles, multithreading=False), actions, 30
    )

    for mode, auto_reset in [*((mode, True) for mode in MODES), ("Disabled", False)]:
        vector_env = SyncVectorEnv([make] * 2, autoreset_mode=mode)
        env = GymnasiumVectorWrapper(vector_env, 0.9, auto_reset)
        assert agree(expected, transitions(env, actions, 30))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "shared_memory"), [*((mode, True) for mode in MODES), ("SameStep", False)]
)
def test_async_vector_environments_match_single_environments(mode, shared_memory):
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=12)
    singles = [GymnasiumWrapper(make(), 0.9) for _ in range(2)]
    actions = np.random.default_rng(7).integers(0, 2, (2, 20)).tolist()
    vector_env = AsyncVectorEnv(
        [make] * 2, shared_memory=shared_memory, context="spawn", autoreset_mode=mode
    )

    found = transitions(GymnasiumVectorWrapper(vector_env, 0.9), actions, 60)

    batch = BatchedPyEnvironment(singles, multithreading=False)
    assert agree(transitions(batch, actions, 60), found)


def test_time_steps_match_the_bare_vector_environment():
    """Row by row and bit by bit, against a vector environment without the wrapper."""
    env, bare = walks(), SyncVectorEnv([Walk] * 3)
    env.seed([4, 5, 6])
    expected, _ = bare.reset(seed=[4, 5, 6])
    np.testing.assert_array_equal(expected, env.reset().observation)
    over = np.zeros(3, bool)

    for step in range(40):
        action = np.array([step % 2, step // 2 % 2, 1])
        expected, reward, terminated, truncated, _ = bare.step(action)
        time_step = env.step(action)

        np.testing.assert_array_equal(expected, time_step.observation)
        np.testing.assert_array_equal(np.float32(reward), time_step.reward)
        np.testing.assert_array_equal(over, time_step.is_first())
        over = terminated | truncated
        np.testing.assert_array_equal(over, time_step.is_last())


def test_arrays_are_copies_of_reused_arrays():
    env = GymnasiumVectorWrapper(SyncVectorEnv([Script] * 2, copy=False))
    observations = [env.step([0, 0]).observation[0].tolist() for _ in range(3)]
    kept = env.reset().observation
    env.step([0, 0])
    assert [[1, 0], [1, 1], [1, 2]] == observations
    np.testing.assert_array_equal(np.float32([[2, 0]] * 2), kept)


def test_the_first_kept_beside_a_last_is_safe_from_the_caller():
    env = sync(END, mode="SameStep")
    env.reset()
    env.step([0, 0])
    env.current_time_step().observation[...] = 77
    np.testing.assert_array_equal(
        np.float32([[2, 0]] * 2), env.current_time_step().observation
    )


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_observations_of_every_kind_become_arrays(mode):
    env = GymnasiumVectorWrapper(SyncVectorEnv([Anything] * 2, autoreset_mode=mode))
    action = {
        "way": np.array([[2, -1], [1, 1]]),
        "word": np.array(["ab", "c"]),
        "push": np.array([[0.5, 0.5], [-1.0, 1.0]]),
    }
    env.reset()

    for steps in (1, 2, 3):
        time_step = env.step(action)
        observation = time_step.observation
        assert ["left"[: steps + 1]] * 2 == observation["news"][0].tolist()
        assert [[1, 0, 1]] * 2 == observation["news"][1].tolist()
        assert [steps % 3 - 1] * 2 == observation["level"].tolist()

    assert time_step.is_last().all()
    assert [0.5, -1.0] == time_step.reward.tolist()
    (first, *_), (second, *_) = (row.seen for row in scripts_of(env))
    assert ("ab", "c") == (first["word"], second["word"])


def test_final_observations_may_be_objects():
    class Path(Script):
        observation_space = spaces.Sequence(spaces.Discrete(9))

        def _observation(self):
            return (self._episodes, self._steps)

    env = GymnasiumVectorWrapper(SyncVectorEnv([Path] * 2, autoreset_mode="SameStep"))
    env.reset()
    env.step([0, 0])

    assert [(1, 2)] * 2 == env.step([0, 0]).observation.tolist()
    assert [(2, 0)] * 2 == env.current_time_step().observation.tolist()


def test_a_batch_of_every_kind_of_space_fits_its_specs():
    validate_py_environment(
        GymnasiumVectorWrapper(SyncVectorEnv([Anything] * 2)), episodes=2
    )


def test_final_observations_may_be_one_array():
    """As those of the Arcade Learning Environment's do."""
    env = GymnasiumVectorWrapper(
        Told(told([7, 8], (False, True), final_obs=np.array([0, 66])), mode="SameStep")
    )
    env.reset()
    assert [7, 66] == env.step([0, 0]).observation.tolist()
    assert [7, 8] == env.current_time_step().observation.tolist()


def test_a_vector_environment_for_an_older_gymnasium_is_refused(message_of):
    final = np.array([None, np.int64(66)], object)
    env = GymnasiumVectorWrapper(
        Told(told([7, 8], (False, True), final_observation=final))
    )
    env.reset()
    assert "If it resets with the same step" in message_of(
        SpecError, lambda: env.step([0, 0])
    )


# What does not fit.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rewards_have_the_chosen_dtype(mode, dtype):
    def make(mode):
        return SyncVectorEnv([functools.partial(Walk, 3)] * 2, autoreset_mode=mode)

    # The wrapper begins the episodes itself where that is disabled.
    bare = make("SameStep" if mode == "Disabled" else mode)
    env = GymnasiumVectorWrapper(make(mode), reward_dtype=dtype)
    bare.reset(seed=[4, 5])
    env.seed([4, 5])
    rewards = [env.reset().reward]
    for _ in range(3):
        theirs, ours = bare.step(np.array([1, 0]))[1], env.step([1, 0]).reward
        assert theirs.astype(dtype).tolist() == ours.tolist()
        rewards += [ours, env.current_time_step().reward]
    assert (np.float32(theirs) != theirs).any()
    assert dtype == env.reward_spec().dtype
    assert {np.dtype(dtype)} == {reward.dtype for reward in rewards}


def test_flags_may_be_numbers():
    observation, reward, *_ = told([7, 8])
    result = observation, reward, np.array([0, 1]), [1, 0], {}
    env = GymnasiumVectorWrapper(Told(result))
    env.reset()

    time_step = env.step([0, 0])

    assert ([2, 2], [1.0, 0.0]) == (
        time_step.step_type.tolist(),
        time_step.discount.tolist(),
    )
    assert ([False, True], [True, False]) == (
        env.get_info()["terminated"].tolist(),
        env.get_info()["truncated"].tolist(),
    )


def test_earlier_time_steps_are_safe_from_reused_arrays():
    observation, reward, *_ = told([7, 8])
    flags = np.array([True, False]), np.array([True, True])
    env = GymnasiumVectorWrapper(Told((observation, reward, *flags, {})))
    env.reset()
    time_step = env.step([0, 0])
    for array in (observation, reward, *flags):
        array[...] = 0

    assert ([7, 8], [1.0, 1.0], [0.0, 1.0]) == (
        time_step.observation.tolist(),
        time_step.reward.tolist(),
        time_step.discount.tolist(),
    )
    assert [True, False] == env.get_info()["terminated"].tolist()
    assert [True, True] == env.get_info()["truncated"].tolist()


# Actions.


@pytest.mark.parametrize(
    "actions", [[1, 2], np.array([1, 2]), np.array([1, 2], np.int32), (1, 2)]
)
def test_actions_are_members_of_the_space(actions):
    env = sync()
    env.reset()

    env.step(actions)

    given = [script.calls[-1][1] for script in scripts_of(env)]
    assert [1, 2] == given
    assert all(
        script.action_space.contains(one)
        for script, one in zip(scripts_of(env), given, strict=True)
    )


@pytest.mark.parametrize(
    "actions", [[0, 3], np.array([-1, 0]), [0], [0, 1, 2], [0.5, 1]]
)
def test_invalid_actions_move_nothing(actions):
    env = sync()
    env.reset()
    with pytest.raises(SpecError):
        env.step(actions)
    assert [("reset", None, None)] == scripts_of(env)[0].calls


def test_actions_of_resetting_rows_are_ignored():
    class Picky(Told):
        def step(self, actions):
            assert self.action_space.contains(actions)
            return super().step(actions)

    env = GymnasiumVectorWrapper(Picky(told([7, 8], (False, True)), told([7, 0])))
    env.reset()
    env.step([0, 0])

    assert [1, 0] == env.step([1, 77]).step_type.tolist()


def test_parts_of_actions_of_resetting_rows_are_ignored():
    env = GymnasiumVectorWrapper(SyncVectorEnv([Anything] * 2))
    env.reset()
    for _ in range(3):
        env.step(push())
    time_step = env.step(push(np.nan, "xyz", (7, 7)))
    assert time_step.is_first().all()
    assert 3 == len(scripts_of(env)[0].seen)


def push(value=0.5, word="ab", way=(2, -1)):
    return {
        "way": np.array([way, way]),
        "word": np.array([word, word]),
        "push": np.array([[value, value]] * 2),
    }


@pytest.mark.parametrize(
    "action", [push(1.5), push(np.nan), push(word="xyz"), push(way=(0, 0))]
)
def test_invalid_parts_of_actions_move_nothing(action):
    env = GymnasiumVectorWrapper(SyncVectorEnv([Anything] * 2))
    env.reset()
    with pytest.raises(SpecError):
        env.step(action)
    assert [] == scripts_of(env)[0].seen


# Seeds and options.


def test_each_row_gets_its_own_seed_for_one_reset():
    env = sync()
    for seed in (7, np.array([3, 5]), None):
        env.seed(seed)
        env.reset()
        env.reset()
    first, second = ([call[1] for call in script.calls] for script in scripts_of(env))
    assert [*zip(first, second, strict=True)][:4] == [
        *(tuple(seed_per_row(7, 2)), (None, None)),
        *((3, 5), (None, None)),
    ]
    assert int is type(first[2])
    assert first[4] != second[4]
    assert None not in (first[4], second[4])


def test_masked_and_automatic_resets_use_the_seeds_of_their_rows():
    env = sync(mode="Disabled")
    env.reset()
    env.seed([3, 5])
    env.reset(np.array([True, False]))
    env.reset(np.array([True, True]))
    used = [[call[1] for call in script.calls] for script in scripts_of(env)]
    assert [[None, 3, None], [None, 5]] == used
    env = sync(rows=[(END,), (MID,)], mode="Disabled")
    env.reset()
    env.seed([3, 5])
    env.step([0, 0])
    assert ("reset", 3, {}) == scripts_of(env)[0].calls[-1]


def test_a_seed_is_kept_when_the_reset_fails():
    env = GymnasiumVectorWrapper(Told())
    env.seed(7)
    env.vector_env.reset = lambda **arguments: 1 / 0
    with pytest.raises(ZeroDivisionError):
        env.reset()
    del env.vector_env.reset

    env.reset()
    assert [7] == env.vector_env.seeds


def test_a_native_vector_environment_takes_one_seed():
    env = GymnasiumVectorWrapper(Told())
    for seed in (7, [3, 5], [3, 5], [5, 3], None):
        env.seed(seed)
        env.reset()
    env.reset()

    one, both, again, other, new, none = env.vector_env.seeds
    assert (7, None) == (one, none)
    assert both == again != other
    assert {int} == {type(seed) for seed in (both, other, new)}


def test_options_apply_to_every_reset_by_the_wrapper():
    env = sync(END, mode="Disabled", reset_options={"level": 3})
    env.reset()
    env.step([0, 0])
    env.set_reset_options({"level": 4})
    env.reset()
    env.set_reset_options(None)
    env.reset()

    options = [call[2] for call in scripts_of(env)[0].calls if call[0] == "reset"]
    assert [{"level": 3}, {"level": 3}, {"level": 4}, None] == options


# Infos.


class Contrary(gymnasium.Env):
    """Is truncated by its first step, whose info says otherwise."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 0.0, False, True, {"terminated": True, "truncated": False}


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_the_flags_of_step_override_flags_in_the_info(mode):
    with GymnasiumVectorWrapper(
        SyncVectorEnv([Contrary] * 2, autoreset_mode=mode)
    ) as env:
        env.reset()
        assert [1.0, 1.0] == env.step(np.zeros(2, np.int64)).discount.tolist()
        info = env.get_info()
    assert ([False, False], [True, True]) == (
        info["terminated"].tolist(),
        info["truncated"].tolist(),
    )


def test_infos_present_in_all_rows_are_stacked():
    env = sync(info={"lives": 3, "place": np.array([1.0, 2.0])})
    assert {} == env.get_info()
    env.reset()
    env.step([0, 0])
    info = env.get_info()
    assert {"terminated", "truncated", "lives", "place"} == set(info)
    assert [3, 3] == info["lives"].tolist()
    assert [[1.0, 2.0]] * 2 == info["place"].tolist()


def test_infos_present_in_some_rows_are_listed():
    env = sync(rows=[(MID, END), (END,)], info={"lives": 3, "more": {"deep": [1, 2]}})
    env.reset()
    env.step([0, 0])
    env.step([0, 0])

    first, second = env.get_info()

    # The second row has just begun again.
    assert {"terminated": False, "truncated": False, "began": 2} == second
    assert {
        "terminated": True,
        "truncated": False,
        "lives": 3,
        "more": {"deep": [1, 2]},
    } == first


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_same_step_keeps_the_infos_of_the_end_and_the_beginning(mode):
    env = sync(rows=[(MID, END), (MID, MID)], mode=mode, info={"lives": 3})
    env.reset()
    step_types(env, 2)

    info, (first, second) = env.get_info(), env.current_info()
    assert [True, False] == info["terminated"].tolist()
    assert [3, 3] == info["lives"].tolist()
    assert {"terminated": False, "truncated": False, "began": 2} == first
    assert {"terminated": False, "truncated": False, "lives": 3} == second


def test_infos_without_masks_belong_to_all_rows():
    """Those of several kinds are in a list; and all are copies."""
    both = np.array([3, "none"], object)
    numbers = {"lives": np.array([3, 4]), "map": "cave", "place": np.zeros((2, 3))}
    env = GymnasiumVectorWrapper(
        Told(told([7, 8], lives=both), told([7, 8], **numbers))
    )
    env.reset()
    env.step([0, 0])
    assert [3, "none"] == [info["lives"] for info in env.get_info()]
    env.step([0, 0])
    info = env.get_info()
    assert [3, 4] == info["lives"].tolist()
    assert ["cave", "cave"] == info["map"].tolist()
    info["place"][...] = 7
    assert not env.get_info()["place"].any()


def test_a_masked_reset_replaces_only_its_rows_infos():
    env = sync(MID, END, mode="Disabled", info={"lives": 3})
    env.reset()
    step_types(env, 2)
    env.reset(np.array([False, True]))

    first, second = env.get_info()
    assert {"terminated": True, "truncated": False, "lives": 3} == first
    assert {"terminated": False, "truncated": False, "began": 3} == second
    assert [2, 3] == env.current_info()["began"].tolist()


def test_infos_of_gymnasiums_wrappers_are_split_by_row():
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        SyncVectorEnv([functools.partial(Script, (MID, END))] * 2)
    )
    env = GymnasiumVectorWrapper(recorded)
    env.reset()
    step_types(env, 2)

    episode = env.get_info()["episode"]
    assert ([23.0, 23.0], [2, 2]) == (episode["r"].tolist(), episode["l"].tolist())


# Rendering, closing, forwarding.


def test_pictures_are_stacked_and_copied():
    env = sync(render_mode="rgb_array")
    env.reset()
    first = env.render()
    env.step([0, 0])
    assert ((2, 4, 4, 3), np.uint8, 0) == (first.shape, first.dtype, first.max())
    assert 1 == env.render().max()


def test_results_of_render_other_than_pictures_are_unchanged():
    env = sync(render_mode="ansi")
    env.reset()
    assert ("a text", "a text") == env.render("ansi")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda env: env.reset(), "reset"),
        (lambda env: env.step([0, 0]), "step"),
        (lambda env: env.render(), "render"),
        (lambda env: env.call("level"), "call"),
        (lambda env: env.access("level"), "access"),
        (lambda env: env.reset(np.array([True, False])), "reset"),
    ],
)
def test_a_closed_environment_stays_closed(call, name, message_of):
    env = sync(mode="Disabled")
    env.reset()
    env.close()
    assert (
        f"GymnasiumVectorWrapper.{name}() was called after close(). A closed "
        "environment stays closed: make a new one."
    ) == message_of(ClosedError, lambda: call(env))


def test_attributes_and_methods_of_rows_are_accessible():
    env = sync()
    assert [1, 1] == env.access("level")
    assert [3, 3] == env.call("raise_level", by=2)
    assert [4] == env.call("raise_level", env_ids=[1])
    assert [4, 3] == env.call("level", env_ids=[1, 0])
    env.set_attr("level", [7, 8])
    assert [7, 8] == env.access("level")


def test_a_native_vector_environment_answers_for_all_rows(message_of):
    env = GymnasiumVectorWrapper(Told())
    assert [2, 2] == env.call("raise_level")
    assert [2, 2] == env.access("level")
    assert [2] == env.access("level", env_ids=[1])
    assert (
        "call() was given env_ids, and Told can only be asked as a whole: leave them "
        "out."
    ) == message_of(ValueError, lambda: env.call("raise_level", env_ids=[1]))


def test_public_attributes_are_forwarded_through_wrappers():
    bare = SyncVectorEnv([Script] * 2)
    env = GymnasiumVectorWrapper(
        gymnasium.wrappers.vector.RecordEpisodeStatistics(bare)
    )
    assert (2, (1, 1)) == (env.num_envs, env.get_attr("level"))
    assert 0 == env.episode_count
    assert not hasattr(env, "_env_obs")
    assert not hasattr(env, "nowhere")


# State.


def played(env, steps):
    shown = [env.step([step % 2] * env.batch_size) for step in range(steps)]
    return [
        [leaf.tolist() for leaf in time_step]
        for time_step in (*shown, env.current_time_step())
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_state_restores_the_stream(mode):
    env, other = walks(mode), walks(mode)
    env.seed(3)
    env.reset()
    played(env, 7)
    env.seed(5)
    state = pickle.loads(pickle.dumps(env.get_state()))
    standing, info = env.current_time_step(), env.current_info()
    expected = played(env, 20), env.reset().observation.tolist()

    for restored in (env, other):
        restored.set_state(state)
        np.testing.assert_array_equal(
            standing.observation, restored.current_time_step().observation
        )
        assert str(info) == str(restored.current_info())
        assert expected == (played(restored, 20), restored.reset().observation.tolist())


def doubled(reward):
    return reward * 2


def test_a_state_includes_gymnasiums_wrappers():
    def make():
        bare = SyncVectorEnv([lambda: Walk()] * 2)
        rewarding = gymnasium.wrappers.vector.TransformReward(bare, doubled)
        return GymnasiumVectorWrapper(
            gymnasium.wrappers.vector.RecordEpisodeStatistics(rewarding)
        )

    env, other = make(), make()
    env.seed(3)
    env.reset()
    played(env, 5)
    other.set_state(env.get_state())
    assert played(env, 10) == played(other, 10)
    assert env.episode_count == other.episode_count > 0
    assert str(env.get_info()) == str(other.get_info())


def test_an_unpicklable_attribute_prevents_saving_the_state(message_of):
    env = sync()
    env.vector_env.window = (one for one in ())
    text = message_of(NotImplementedError, env.get_state)
    assert text.startswith(
        "SyncVectorEnv cannot save its state. A state has everything in the "
        "environment and its wrappers, and something there does not pickle: "
    )


# The contract.


def make_in_a_worker():
    vector_env = gymnasium.make_vec(
        "CartPole-v1", 2, vectorization_mode="vector_entry_point"
    )
    return GymnasiumVectorWrapper(vector_env)


@pytest.mark.slow
def test_worker_processes_can_hold_vector_environments():
    name = f"{__name__}:make_in_a_worker"
    with ParallelPyEnvironment([name, name], num_workers=2) as env:
        env.seed(3)
        first = env.reset()
        kinds = [env.step([0] * 4).step_type for _ in range(15)]
    assert (4, 4) == first.observation.shape
    assert {0, 1, 2} == set(np.ravel(kinds).tolist())


# Processes of Gymnasium's.


@pytest.mark.parametrize("part", ["text", "union"])
def test_spaces_that_async_vector_environments_share_only_once_are_refused(
    part, message_of
):
    """AsyncVectorEnv reads them when it is made, and never again."""
    space = {
        "text": spaces.Text(5),
        "union": spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    }[part]
    env = AsyncVectorEnv.__new__(AsyncVectorEnv)
    env.shared_memory, env.num_envs, env._state = True, 2, None
    env.metadata, env.closed, env.action_space = {}, True, spaces.Discrete(2)
    env.single_observation_space = spaces.Dict(
        seen=spaces.Tuple((spaces.Discrete(2), space))
    )

    text = message_of(SpecError, lambda: GymnasiumVectorWrapper(env))

    assert (
        f"AsyncVectorEnv has {space!r:.120} at observation['seen'][1], which an "
        "AsyncVectorEnv with shared memory never updates after it was made. Make it "
        "with shared_memory=False."
    ) == text


@pytest.mark.slow
def test_an_async_vector_reset_after_the_end_begins_one_episode():
    """Without shared memory Gymnasium's begin a second one, a step later."""
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=2)
    vector_env = AsyncVectorEnv([make], shared_memory=False, context="spawn")
    with GymnasiumVectorWrapper(vector_env) as env:
        env.reset()
        step_types(env, 2)
        first = env.reset()

        second = env.step([1])

        assert (1, 1.0) == (second.step_type[0], second.reward[0])
        assert first.observation[0, 0] != second.observation[0, 0]


def test_custom_workers_are_left_alone():
    env = AsyncVectorEnv.__new__(AsyncVectorEnv)
    # Without pipes, an order to a process would fail.
    env.shared_memory, env.worker, env.closed = False, print, True
    finish_resets(env, np.array([0]))


@pytest.mark.slow
def test_async_vector_environments_answer_calls_and_refuse_get_state(message_of):
    make = functools.partial(gymnasium.make, "CartPole-v1")
    vector_env = AsyncVectorEnv([make], context="spawn")
    with GymnasiumVectorWrapper(vector_env) as env:
        env.reset()

        assert [10.0] == env.access("force_mag")
        assert [0.5] == env.call("get_wrapper_attr", "length")
        assert (
            "AsyncVectorEnv cannot save its state: its environments are in "
            "Gymnasium's processes. A SyncVectorEnv can save its environments, and so "
            "can envkit's ParallelPyEnvironment."
        ) == message_of(NotImplementedError, env.get_state)


# Wrappers of envkit's.


def test_wrappers_accept_next_step():
    env = PyEnvironmentBaseWrapper(sync(MID, END))
    env.reset()
    assert [[1, 1], [2, 2], [0, 0], [1, 1]] == step_types(env, 4)


def test_wrappers_refuse_same_step(message_of):
    text = message_of(ValueError, lambda: TimeLimit(walks("SameStep"), 3))
    assert text.startswith("TimeLimit cannot wrap GymnasiumVectorWrapper with ")


def actions_of(space, rows=2):
    return VectorActions(space, spec_from_gym_space(space), rows)


@settings(max_examples=60)
@given(
    choices=st.integers(1, 5),
    action=arrays.arrays(np.int64, 3, elements=st.integers(-7, 7)),
)
def test_discrete_actions_pass_unchanged_or_are_refused(choices, action):
    actions = actions_of(spaces.Discrete(choices), rows=3)

    if ((action >= 0) & (action < choices)).all():
        members = actions.members(action)

        assert action.tolist() == members.tolist()
        assert np.int64 == members.dtype
        assert not np.shares_memory(action, members)
    else:
        with pytest.raises(SpecError):
            actions.members(action)


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("choices", [3, 1 << 16, (1 << 16) + 1, 1 << 40])
def test_a_discrete_space_may_be_large(choices, start):
    actions = actions_of(spaces.Discrete(choices, start=start))
    both = [start, start + choices - 1]
    assert both == actions.members(np.array(both)).tolist()
    for wrong in (start - 1, start + choices):
        with pytest.raises(SpecError):
            actions.members(np.array([start, wrong]))


@pytest.mark.parametrize(
    "action",
    [[1, 2], (1, 2), np.array([1, 2], np.int8), np.array([1, 9, 2, 9])[::2]],
    ids=["list", "tuple", "int8", "every other"],
)
def test_discrete_actions_may_have_other_dtypes(action):
    members = actions_of(spaces.Discrete(3)).members(action)
    assert ([1, 2], np.int64) == (members.tolist(), members.dtype)


def test_unused_actions_are_not_checked_but_counted():
    actions = actions_of(spaces.Discrete(3), rows=3)
    assert [0, 1, 0] == actions.members(np.array([9, 1, -9]), [0, 2]).tolist()
    with pytest.raises(SpecError):
        actions.members(np.array([0, 1]))


# Whole messages.


def stepped(*results, mode=None):
    """Steps as often as there are results, which the environment is told to return."""
    env = GymnasiumVectorWrapper(Told(*results, mode=mode))
    env.reset()
    for _ in results:
        env.step([0, 0])


def with_reward(reward):
    observation, _, *rest = told([7, 8])
    stepped((observation, reward, *rest))


def reset_alone(mode="NextStep"):
    env = sync(mode=mode)
    env.reset()
    return env.reset(np.array([True, False]))


def old_reset():
    env = Told()
    env.reset = lambda **given: np.array([0, 0])
    GymnasiumVectorWrapper(env).reset()


def from_reset(*calls, **options):
    env = sync(**options)
    env.reset()
    return env.step(*calls)


FINAL = np.array([None, "high"], object)
NO_FINAL = (
    "Told ended the episodes of row 1 and did not return their final observations: its "
    "autoreset_mode is SAME_STEP, which has them in infos['final_obs']. If it resets "
    "with the next step, pass autoreset_mode='NextStep'."
)
MADE_WITH = (
    "SyncVectorEnv cannot render 'rgb_array': the render_mode of a Gymnasium "
    "environment is chosen when it is made, and this one was made {}. Make it with "
    "render_mode='rgb_array'."
)
TOO_MANY = (
    "3 seeds for 2 environments. Pass one seed for each environment, or one integer "
    "from which each gets its own."
)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: GymnasiumVectorWrapper(Told(), autoreset_mode="never"),
            ValueError,
            "autoreset_mode must be 'NextStep', 'SameStep' or 'Disabled', or the "
            "AutoresetMode of that name, got the string 'never'.",
        ),
        (
            lambda: sync(auto_reset=False),
            ValueError,
            "GymnasiumVectorWrapper was given auto_reset=False with SyncVectorEnv, "
            "which resets itself: its autoreset_mode is NEXT_STEP. Make it with "
            "AutoresetMode.DISABLED.",
        ),
        *(
            (
                functools.partial(reset_alone, mode),
                NotImplementedError,
                "SyncVectorEnv cannot reset single rows, as it resets itself: its "
                f"autoreset_mode is {order}. Make it with AutoresetMode.DISABLED.",
            )
            for mode, order in (("NextStep", "NEXT_STEP"), ("SameStep", "SAME_STEP"))
        ),
        (
            lambda: from_reset([0, 0], np.array([True, False]), mode="Disabled"),
            NotImplementedError,
            "SyncVectorEnv cannot step without row 1: a vector environment of "
            "Gymnasium steps all its rows. envkit's BatchedPyEnvironment and "
            "ParallelPyEnvironment can step some.",
        ),
        (
            lambda: stepped(told([7, 8], (False, True)), mode="SameStep"),
            SpecError,
            NO_FINAL,
        ),
        (
            lambda: stepped(
                told([7, 8], (False, True), final_obs=np.array([None] * 2, object)),
                mode="SameStep",
            ),
            SpecError,
            NO_FINAL,
        ),
        (
            lambda: stepped(
                told([7, 8], (False, True), final_obs=FINAL), mode="SameStep"
            ),
            SpecError,
            "Told returned a final observation that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=99, name='observation')\n"
            "  got        the string 'high'\n\n"
            "A string is not an array.",
        ),
        (
            lambda: stepped(told([7, 8], (False, True), final_obs=np.array([0, 66]))),
            SpecError,
            "Told returned final observations in its infos: its autoreset_mode is "
            "NEXT_STEP, where they are the observations themselves. If it resets with "
            "the same step, pass autoreset_mode='SameStep'.",
        ),
        (
            lambda: stepped(*[told([7, 8], (False, True))] * 2),
            SpecError,
            "Told ended the episodes of row 1 in two steps in a row: its "
            "autoreset_mode is NEXT_STEP, where the second of these steps begins the "
            "next. If it resets with the same step, pass autoreset_mode='SameStep'.",
        ),
        (
            lambda: stepped(told([7, 8, 9])),
            SpecError,
            "Told returned an observation that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=0, "
            "maximum=99, name='observation')\n"
            "  got        array of shape (3,), dtype int64, values 7 … 9\n\n"
            "Axis 0 has size 3 instead of 2.",
        ),
        *(
            (
                functools.partial(with_reward, reward),
                SpecError,
                f"Told.step() returned {shown} as rewards; in Gymnasium these are an "
                "array of shape (2,), with a number for each row.",
            )
            for reward, shown in (
                (np.ones(3), "array of shape (3,), dtype float64, values 1.0 … 1.0"),
                (["a", "b"], "a list of 2 elements"),
            )
        ),
        (
            lambda: stepped((*told([7, 8])[:2], True, False, {})),
            SpecError,
            "Told.step() returned True of type bool and False of type bool as flags; "
            "in Gymnasium these are two arrays of shape (2,), "
            "with a boolean for each row.",
        ),
        (
            old_reset,
            SpecError,
            "Told.reset() returned array of shape (2,), dtype int64, values 0 … 0; in "
            "Gymnasium it returns the tuple (observations, infos).",
        ),
        (
            lambda: stepped((np.array([7, 8]), np.ones(2), {})),
            SpecError,
            "Told.step() returned a tuple of 3 elements; in Gymnasium it returns the "
            "tuple (observations, rewards, terminated, truncated, infos).",
        ),
        (
            lambda: from_reset([0, 3]),
            SpecError,
            "GymnasiumVectorWrapper.step() was given an action that does not fit its "
            "spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=0, "
            "maximum=2, name='action')\n"
            "  got        array of shape (2,), dtype int64, values 0 … 3\n\n"
            "1 of 2 elements is above the maximum 2: 3 at index (1,).\n"
            "None of the environments has moved.",
        ),
        *(
            (functools.partial(env.seed, seed), ValueError, text)
            for env in (sync(), GymnasiumVectorWrapper(Told()))
            for seed, text in (
                (-1, "A seed cannot be negative, and -1 is."),
                ([1, 2, 3], TOO_MANY),
            )
        ),
        (
            lambda: sync().set_reset_options(3),
            TypeError,
            "The options of a reset are a dictionary such as {'level': 3}, not 3 of "
            "type int.",
        ),
        (
            lambda: sync().set_reset_options({"reset_mask": [1]}),
            ValueError,
            "The options of a reset have a 'reset_mask', which says which rows are "
            "reset this once. Call reset(mask) for that.",
        ),
        (sync().render, NotImplementedError, MADE_WITH.format("without one")),
        (
            sync(render_mode="ansi").render,
            NotImplementedError,
            MADE_WITH.format("with render_mode='ansi'"),
        ),
        (
            lambda: sync().call("reset"),
            ValueError,
            "call('reset') would move environments behind the wrapper's back. Use "
            "reset() itself.",
        ),
        *(
            (
                functools.partial(ask, "_flags"),
                AttributeError,
                "'_flags' is private to the environment; only public names are "
                "forwarded.",
            )
            for ask in (sync().call, sync().access)
        ),
        *(
            (
                functools.partial(ask, "level", env_ids=[0, 2]),
                ValueError,
                "env_ids has 2; there are 2 environments, 0 to 1.",
            )
            for ask in (sync().call, sync().access)
        ),
        (
            lambda: sync().envs,
            AttributeError,
            "'GymnasiumVectorWrapper' object has no attribute 'envs'; its vector_env "
            "may have.",
        ),
        (
            lambda: walks(rows=2).set_state(walks(rows=3).get_state()),
            ValueError,
            "SyncVectorEnv was given the state of another vector environment.\n\n"
            "  expected   SyncVectorEnv, 2 rows\n"
            "  got        SyncVectorEnv, 3 rows\n\n"
            "A state fits the same environments in the same wrappers.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)
