"""Rows that are stepped without time steps are as they would be with them."""

from __future__ import annotations

import copy
import functools
import types
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ParallelPyEnvironment
from envkit.errors import EnvkitError
from envkit.nest import flatten
from envkit.wrappers import TimeLimit

gymnasium = pytest.importorskip("gymnasium")

from envkit.adapters import (  # noqa: E402
    Adapter,
    DmEnvWrapper,
    GymnasiumWrapper,
    GymWrapper,
    spec_from_gym_space,
)
from envkit.adapters.adapter.adapted import AdaptedEnvironment  # noqa: E402

BOX = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
PICTURE = gymnasium.spaces.Box(0, 255, (2, 3), np.uint8)
NUMBER = gymnasium.spaces.Discrete(5)
LINE = gymnasium.spaces.Box(0, 255, (3,), np.uint8)
OBSERVATIONS = [BOX, PICTURE, LINE, NUMBER]
ACTIONS = [
    gymnasium.spaces.Discrete(3, start=2),
    gymnasium.spaces.Discrete(2),
    gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
    gymnasium.spaces.MultiDiscrete([2, 3]),
    gymnasium.spaces.MultiBinary(3),
]
REWARDS = [
    0.5, 1, True, np.float64(0.1), np.float32(0.1), np.int32(3), np.array(0.25),
    np.array([1.5]), float("nan"), 2**70, -0.0, np.float16(0.1), "much", None, 1j,
]  # fmt: skip
FLAGS = [False, True, np.bool_(False), np.bool_(True), 0, 1, None, np.array(True)]
INFOS = [
    {},
    "counted",
    "counted",
    {"lives": 2},
    {"terminated": True, "truncated": True},
    None,
    [1],
]


def observed(space, how, count):
    """Returns an observation that fits, or one that nearly does."""
    base = np.arange(np.prod(space.shape, dtype=int)).reshape(space.shape) + count % 3
    if space.shape == ():
        fitting = np.int64(count % 5)
        others = [count % 5, True, np.array(count % 5), 2.0, np.uint8(3), [1], "two"]
    else:
        fitting = (base / 8).astype(space.dtype)
        read_only = fitting.copy()
        read_only.flags.writeable = False
        others = [
            fitting.tolist(), read_only, fitting.astype(np.float64), fitting[:1],
            np.asfortranarray(fitting), fitting[None], fitting.tobytes(), None,
            np.ma.masked_array(fitting), fitting.astype(object), memoryview(fitting),
            fitting.astype(fitting.dtype.newbyteorder()), fitting[..., ::-1],
            bytearray(fitting.tobytes()),
        ]  # fmt: skip
    return fitting if how == 0 else others[how % len(others)]


class Odd(gymnasium.Env):
    """Does what it is told, step by step; every observation is in the same array."""

    def __init__(self, space, actions, script, number):
        self.observation_space, self.action_space = space, actions
        self.script, self.count, self.taken = script, 7 * number, []
        self._buffer = np.zeros(space.shape, space.dtype)

    def reset(self, *, seed=None, options=None):
        self.count += 1 if seed is None else seed
        return self._in_buffer(observed(self.observation_space, 0, self.count)), {}

    def step(self, action):
        self.taken.append(action)
        now = self.script[self.count % len(self.script)]
        how, reward = now["how"], now["reward"]
        self.count += 1
        if isinstance(reward, str) and reward == "counted":
            reward = self.count / 8
        info = {"count": self.count} if isinstance(now["info"], str) else now["info"]
        if how == "raise":
            raise ValueError(f"step {self.count}")
        if how == "four":
            return None, 1.0, False, {}
        observation = observed(self.observation_space, how, self.count)
        if how == 0:
            observation = self._in_buffer(observation)
        return observation, reward, now["terminated"], now["truncated"], info

    def _in_buffer(self, observation):
        if self.observation_space.shape == ():
            return observation
        self._buffer[...] = observation
        return self._buffer

    def move(self, number):
        """Changes what comes, and spoils the observation that was shown."""
        self.count += number
        self._buffer.fill(1)
        return self.count

    def exchange_step(self):
        """Puts another method in place of `step`."""
        self.step = functools.partial(self.step_reversed, self.step)

    def step_reversed(self, step, action):
        observation, reward, *rest = step(action)
        return observation, 2 * reward if type(reward) is float else reward, *rest


class OddBegins(Odd):
    """Begins its episodes as it steps."""

    def reset(self, *, seed=None, options=None):
        first, _ = super().reset(seed=seed)
        now = self.script[self.count % len(self.script)]
        if now["how"] == "raise":
            raise ValueError(f"reset {self.count}")
        if now["how"] != 0:
            first = observed(self.observation_space, now["how"], self.count)
        return first, now["info"]


class OldOdd(Odd):
    """The same as Gym had it: a step returns four values, a reset the observation."""

    def reset(self):
        return super().reset()[0]

    def step(self, action):
        result = super().step(action)
        if len(result) == 4:
            return result
        observation, reward, terminated, truncated, info = result
        if truncated is not False and isinstance(info, dict):
            info = {"TimeLimit.truncated": truncated, **info}
        return observation, reward, terminated or truncated, info


class OldWithTimeSteps(GymWrapper):
    """Overrides the step, so that nothing goes past it."""

    def _step(self, action):
        return super()._step(action)


class WithTimeSteps(GymnasiumWrapper):
    """Overrides the step, so that nothing goes past it."""

    def _step(self, action):
        return super()._step(action)


class DmOdd(Odd):
    """The same as dm_env has it: a time step, whose discount tells how it ended."""

    def observation_spec(self):
        return dm_spec(self.observation_space)

    def action_spec(self):
        return dm_spec(self.action_space)

    def reset(self):
        if self.count % 7 == 3 and len(self.script) > 4:
            return types.SimpleNamespace(step_type=0, observation=[1])
        first = super().reset()[0]
        return types.SimpleNamespace(
            step_type=0, reward=None, discount=None, observation=first
        )

    def step(self, action):
        result = super().step(action)
        if len(result) == 4:
            return result
        observation, reward, terminated, truncated, info = result
        discount = 0.0 if terminated else 0.5 if info == {"lives": 2} else 1.0
        return types.SimpleNamespace(
            step_type=2 if terminated or truncated else 1,
            reward=reward,
            discount=discount,
            observation=observation,
        )


class DmOddWithInfo(DmOdd):
    def get_info(self):
        return {"count": self.count} if self.count % 3 else {}


def dm_spec(space):
    spec = types.SimpleNamespace(shape=space.shape, dtype=space.dtype, name=None)
    if isinstance(space, gymnasium.spaces.Box):
        spec.minimum, spec.maximum = space.low, space.high
    elif isinstance(space, gymnasium.spaces.Discrete):
        spec.minimum = space.start
        spec.maximum = space.start + space.n - 1
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        spec.minimum, spec.maximum = 0, space.nvec - 1
    return spec


class DmWithTimeSteps(DmEnvWrapper):
    """Overrides the step, so that nothing goes past it."""

    def _step(self, action):
        return super()._step(action)


class OddAdapter(Adapter):
    """The same as an author writes it."""

    discount = 0.5

    def __init__(self, game):
        self.game = game

    def start(self):
        return self.game

    def observation_spec(self):
        return spec_from_gym_space(self.game.observation_space)

    def action_spec(self):
        return spec_from_gym_space(self.game.action_space)

    def reset(self, seed=None):
        return self.game.reset(seed=seed)

    def step(self, action):
        return self.game.step(action)

    def move(self, number):
        return self.game.move(number)

    def exchange_step(self):
        self.game.exchange_step()

    @property
    def taken(self):
        return self.game.taken


class StepsItself(AdaptedEnvironment):
    """Overrides the step, so that nothing goes past it."""

    def _step(self, action):
        return super()._step(action)


class OddAdapterWithTimeSteps(OddAdapter, environment=StepsItself):
    pass


def made(kind, space, actions, script, limit, number):
    if issubclass(kind, Adapter):
        env = kind(Odd(space, actions, script, number))
    elif issubclass(kind, DmEnvWrapper):
        game = DmOddWithInfo if len(script) % 2 else DmOdd
        env = kind(game(space, actions, script, number))
    else:
        game = OldOdd if issubclass(kind, GymWrapper) else Odd
        env = kind(game(space, actions, script, number), discount=0.5)
    return TimeLimit(env, limit) if limit else env


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


def outcome(call):
    """Returns what a call returns, or what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "returned", copy.deepcopy(call())
        except (EnvkitError, ValueError, TypeError, NotImplementedError) as error:
            first_line = str(error).partition("\n")[0]
            return type(error).__name__, first_line, str(error.__cause__)


ROWS = 3
# Most steps are plain, and most others in all but one respect.
PLAIN = {
    "how": 0,
    "reward": "counted",
    "terminated": False,
    "truncated": False,
    "info": {},
}
OVER = {**PLAIN, "truncated": True}
ODD = [
    *({"how": how} for how in [*range(1, 15), "raise", "four"]),
    *({"reward": reward} for reward in REWARDS),
    *({name: flag} for name in ("terminated", "truncated") for flag in FLAGS),
    *({"info": info} for info in INFOS),
    {"how": 1, "reward": 3, "info": {"lives": 1}},
    {"how": 2, "terminated": True, "truncated": True},
]
steps = st.one_of(
    *([st.just(PLAIN)] * 4), st.sampled_from(ODD).map(lambda odd: {**PLAIN, **odd})
)
masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(any)
calls = st.one_of(
    *([st.tuples(st.just("play"), st.integers(0, 2**16))] * 4),
    st.tuples(st.just("step"), st.just("wrong")),
    st.tuples(st.just("step_rows"), masks),
    st.tuples(st.just("reset"), st.one_of(st.none(), masks)),
    st.tuples(st.just("current_time_step"), st.none()),
    st.tuples(st.just("get_info"), st.none()),
    st.tuples(st.just("move"), st.integers(1, 5)),
    st.tuples(st.just("exchange_step"), st.none()),
    st.tuples(st.just("seed"), st.integers(0, 9)),
    st.tuples(st.just("options"), st.none()),
    st.tuples(st.just("state"), st.none()),
)


def actions_of(space, seed):
    if seed == "wrong":
        return np.full((ROWS, *space.shape), 9, space.dtype)
    rng = np.random.default_rng(seed)
    space.seed(int(rng.integers(2**31)))
    rows = np.stack([np.asarray(space.sample()) for _ in range(ROWS)])
    # The pool casts floats of another width.
    wide = seed % 3 == 0 and rows.dtype == np.float32
    return rows.astype(np.float64) if wide else rows


def done_to(env, what, how, space):
    match what:
        case "step":
            return env.step(actions_of(space, how))
        case "play":
            seeds = range(how, how + 1 + how % 6)
            return [copy.deepcopy(env.step(actions_of(space, seed))) for seed in seeds]
        case "step_rows":
            return env.step(actions_of(space, 5), np.array(how))
        case "reset":
            return env.reset(None if how is None else np.array(how))
        case "move" | "exchange_step":
            return env.call(what, *([] if how is None else [how]))
        case "current_time_step":
            return env.call("current_time_step")
        case "get_info":
            return env.get_info()
        case "rows_with_info":
            return env.rows_with_info()
        case "call reset":
            return env.call("reset")
        case "call step":
            return env.call("step", 1)
        case "call state":
            (state,) = env.call("get_state", env_ids=[0])
            return env.call("set_state", state)
        case "call exchange_step":
            return env.call("exchange_step")
        case "call seed":
            return env.call("seed", how)
        case "seed":
            return env.seed([how + row for row in range(ROWS)])
        case "options":
            return env.reset(options={"speed": 1})
        case "state":
            env.set_state(env.get_state())
            return env.current_time_step()
    raise AssertionError(what)


NEW = GymnasiumWrapper, WithTimeSteps
OLD = GymWrapper, OldWithTimeSteps
DM = DmEnvWrapper, DmWithTimeSteps
OWN = OddAdapter, OddAdapterWithTimeSteps
for direct, other in (NEW, OLD, DM, OWN):
    other.__name__ = direct.__name__  # It stands in messages,
    other.__module__ = direct.__module__  # which advise an author's class.


def pools_of(space, actions, scripts, limit, kinds=NEW, shift=0, **chosen):
    """Makes a pool whose rows may be direct, and one whose rows may not."""
    return [
        ParallelPyEnvironment(
            [
                functools.partial(
                    made, kind, space, actions, script, limit, number + shift
                )
                for number, script in enumerate(scripts)
            ],
            backend="inline",
            **chosen,
        )
        for kind in kinds
    ]


def check_alike(pools, what, how, actions):
    mine, theirs = (
        outcome(functools.partial(done_to, pool, what, how, actions)) for pool in pools
    )
    assert same(mine, theirs), (what, how, mine, theirs)
    if mine[0].startswith("EnvironmentRaised"):
        again = [outcome(pool.reset) for pool in pools]
        assert same(*again), again


# The last number says how far the rows are in their scripts when they begin, so that
# what is odd comes early in some episodes and late in others.
@pytest.mark.parametrize(
    ("space", "wants_infos", "kinds", "shift"),
    [
        (BOX, False, NEW, 0),
        (PICTURE, True, NEW, 1),
        (LINE, False, NEW, 2),
        (NUMBER, True, NEW, 3),
        (BOX, True, OLD, 0),
        (BOX, True, DM, 1),
        (PICTURE, False, DM, 2),
        (BOX, True, OWN, 0),
        (PICTURE, False, OWN, 1),
        (NUMBER, False, OWN, 2),
    ],
    ids=str,
)
def test_odd_steps_have_the_same_result_as_with_time_steps(
    space, wants_infos, kinds, shift
):
    """Each row has an oddity of its own."""
    for first in range(0, len(ODD), ROWS):
        odds = (ODD + ODD)[first : first + ROWS]
        scripts = [[PLAIN, PLAIN, {**PLAIN, **odd}, PLAIN] for odd in odds]
        pools = pools_of(space, ACTIONS[1], scripts, 9, kinds, shift)
        with pools[0], pools[1]:
            for pool in pools:
                pool.reset()
                if wants_infos:
                    pool.rows_with_info()
            for _ in range(4):
                check_alike(pools, "play", 1, ACTIONS[1])
                if wants_infos:
                    check_alike(pools, "rows_with_info", None, None)
                check_alike(pools, "get_info", None, None)
                check_alike(pools, "current_time_step", None, None)


@pytest.mark.parametrize("order", ["next_step", "same_step"])
@pytest.mark.parametrize("wants_infos", [False, True])
@pytest.mark.parametrize(
    "odd", [{"how": 1}, {"how": 4}, {"how": "raise"}, {"info": {"lives": 1}}], ids=str
)
def test_odd_resets_have_the_same_result_as_with_time_steps(order, wants_infos, odd):
    script = [PLAIN, OVER, PLAIN, OVER, {**OVER, **odd}, PLAIN]
    pools = [
        ParallelPyEnvironment(
            [
                functools.partial(kind, OddBegins(BOX, ACTIONS[1], script, number))
                for number in range(ROWS)
            ],
            backend="inline",
            autoreset=order,
        )
        for kind in NEW
    ]
    with pools[0], pools[1]:
        check_alike(pools, "reset", None, ACTIONS[1])
        for _ in range(20):
            if wants_infos:
                check_alike(pools, "rows_with_info", None, None)
            check_alike(pools, "play", 0, ACTIONS[1])
            check_alike(pools, "get_info", None, None)
            check_alike(pools, "current_time_step", None, None)


@pytest.mark.parametrize("what", ["reset", "step", "state", "exchange_step", "seed"])
def test_calls_in_an_environment_are_respected(what):
    """A reset that is called begins the count of the limit anew, for example."""
    pools = pools_of(BOX, ACTIONS[1], [[PLAIN]] * ROWS, limit=6)
    with pools[0], pools[1]:
        check_alike(pools, "reset", None, None)
        for count in range(6):
            check_alike(pools, "play", 3, ACTIONS[1])
            check_alike(pools, f"call {what}", count, ACTIONS[1])
            check_alike(pools, "current_time_step", None, None)


def test_rows_are_direct_until_something_unusual_happens():
    """Otherwise the other tests would compare time steps with time steps."""
    envs = []

    def constructor():
        envs.append(GymnasiumWrapper(Odd(BOX, ACTIONS[1], [PLAIN], 0)))
        return envs[-1]

    with ParallelPyEnvironment([constructor] * 2, backend="inline") as pool:
        pool.reset()
        pool.step([0, 1])
        pool.step([0, 1])
        assert [True, True] == [is_direct(env) for env in envs]
        observations = pool.step([0, 1]).observation
        for env, row in zip(envs, observations, strict=True):
            assert same(row, env.current_time_step().observation)
            assert same(row, copy.deepcopy(env)._current_time_step.observation)
        pool.call("move", 1, env_ids=[0])
        assert [False, True] == [is_direct(env) for env in envs]
        pool.step([0, 1])
        pool.step([0, 1])
        assert [True, True] == [is_direct(env) for env in envs]
        pool.reset(np.array([False, True]))
        pool.step([0, 1])
        assert [True, True] == [is_direct(env) for env in envs]
        envs[0].gym.script = [{**PLAIN, "truncated": True}]
        types = [pool.step([0, 1]).step_type.tolist() for _ in range(3)]
        assert [[2, 1], [0, 1], [2, 1]] == types
        assert [True, True] == [is_direct(env) for env in envs]
        envs[0].gym.script = [{**PLAIN, "how": 14, "truncated": True}]
        pool.step([0, 1])
        pool.step([0, 1])
        assert [False, True] == [is_direct(env) for env in envs]


@pytest.mark.parametrize("kind", [GymnasiumWrapper, GymWrapper])
def test_rows_that_begin_in_the_step_of_their_end_are_direct(kind):
    made_with = Odd if kind is GymnasiumWrapper else OldOdd
    env = kind(made_with(BOX, ACTIONS[1], [PLAIN, PLAIN, OVER], 0))
    with ParallelPyEnvironment(
        [lambda: env], backend="inline", autoreset="same_step"
    ) as pool:
        pool.reset()
        types = []
        for _ in range(8):
            types.extend(pool.step([1]).step_type.tolist())
        assert [0, 1, 2] == sorted({*types, *pool.current_time_step().step_type})
        assert is_direct(env)


@pytest.mark.parametrize("how", [2, 14])
def test_an_environment_whose_steps_must_all_be_finished_makes_time_steps(how):
    """Observations that are lists, or floats of another width, are converted."""
    env = GymnasiumWrapper(Odd(BOX, ACTIONS[1], [{**PLAIN, "how": how}], 0))
    with ParallelPyEnvironment([lambda: env], backend="inline") as pool:
        pool.reset()
        were_direct = []
        for _ in range(8):
            pool.step([0])
            were_direct.append(is_direct(env))
        assert not were_direct[-1]
        env.gym.script = [PLAIN]
        pool.step([0])
        assert not is_direct(env)
        pool.call("move", 0)
        pool.step([0])
        pool.step([0])
        assert is_direct(env)


@pytest.mark.parametrize(
    ("kind", "game"), [(DmEnvWrapper, DmOdd), (OddAdapter, Odd), (GymWrapper, OldOdd)]
)
def test_environments_of_every_library_can_skip_time_steps(kind, game):
    env = kind(game(BOX, ACTIONS[1], [PLAIN, PLAIN, OVER], 0))
    with ParallelPyEnvironment([lambda: env], backend="inline") as pool:
        pool.reset()
        pool.step([0])
        pool.step([0])
        types = []
        for _ in range(5):
            types.extend(pool.step([1]).step_type.tolist())
            assert is_direct(env)
        assert [0, 1, 2] == sorted(set(types))


@pytest.mark.parametrize("limit", [4, 100])
def test_a_held_environment_knows_its_progress(limit):
    """Between two steps of the pool it is as if it had made every time step."""
    pairs = []
    for kind in NEW:
        envs = [
            made(kind, BOX, ACTIONS[1], [PLAIN] * 7 + [OVER], limit, number)
            for number in range(2)
        ]
        held = [lambda env=env: env for env in envs]
        pairs.append((envs, ParallelPyEnvironment(held, backend="inline")))
    (direct, pool), (others, other_pool) = pairs
    with pool, other_pool:
        for step in range(24):
            for each in (pool, other_pool):
                each.step([1, 0], [True, step % 5 > 0])
            for env, other in zip(direct, others, strict=True):
                assert env._steps == other._steps
                assert same(copy.deepcopy(env)._steps, other._steps)
                assert same(env.current_time_step(), other.current_time_step())
        assert all(is_direct(env) for env in direct)
        for env, other in zip(direct, others, strict=True):
            state = env.get_state()
            other.set_state(other.get_state())
            env.set_state(state)
            for _ in range(2 * limit if limit < 9 else 9):
                assert same(env.step(1), other.step(1))


def is_direct(env):
    return env._envkit.direct is not None


@given(
    space=st.sampled_from(OBSERVATIONS),
    actions=st.sampled_from(ACTIONS),
    script=st.lists(steps, min_size=6, max_size=30),
    limit=st.sampled_from([0, 1, 4, 9]),
    order=st.sampled_from(["next_step", "same_step", "disabled"]),
    validate=st.sampled_from(["first", "first", "never", "always"]),
    kinds=st.sampled_from([NEW, NEW, OLD, DM, OWN]),
    plan=st.lists(calls, min_size=8, max_size=40),
    wants_infos=st.booleans(),
)
def test_direct_streams_equal_those_with_time_steps(
    space, actions, script, limit, order, validate, kinds, plan, wants_infos
):
    chosen = {"autoreset": order, "validate": validate}
    pools = pools_of(space, actions, [script] * ROWS, limit, kinds, **chosen)
    with pools[0], pools[1]:
        if wants_infos:
            for pool in pools:
                outcome(pool.rows_with_info)
        for what, how in [("reset", None), *plan]:
            check_alike(pools, what, how, actions)
        taken = [flatten(pool.access("taken")) for pool in pools]
        assert same(*taken)
