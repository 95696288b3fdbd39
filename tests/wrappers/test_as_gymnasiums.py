"""Wrappers return what Gymnasium's of the same name return, alone and in batches."""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path

import gymnasium
import gymnasium.wrappers.vector
import numpy as np
import pytest
from gymnasium import spaces

import envkit.wrappers
from envkit import BatchedPyEnvironment
from envkit.adapters import GymnasiumWrapper
from envkit.adapters.gymnasium.spaces import space_from_spec
from envkit.wrappers import (
    AtariPreprocessing,
    DiscretizeAction,
    DiscretizeObservation,
    FlattenObservation,
    GrayscaleObservation,
    MaxAndSkipObservation,
    TimeLimit,
    TransposeObservation,
)

DOCS = Path(__file__).parents[2] / "docs"
ROWS = 3


class Showing(gymnasium.Env):
    """Shows samples of a space, and earns what it was given."""

    def __init__(self, observation_space, action_space=None, length=7):
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space or spaces.Discrete(2)
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self._steps += 1
        reward = float(np.sum(action))
        ended = self._steps >= self._length
        return self.observation_space.sample(), reward, ended, False, {}


def theirs(make, wrap, seed, actions):
    """Plays with Gymnasium's wrapper; the step after an end resets, as here."""
    env = wrap(make())
    observation, _ = env.reset(seed=seed)
    stream, ended = [(observation, 0.0)], False
    for action in actions:
        if ended:
            observation, _ = env.reset()
            stream.append((observation, 0.0))
            ended = False
            continue
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        stream.append((observation, reward))
    return stream, env


def ours(env, seed, actions):
    env.seed(seed)
    steps = [env.reset(), *map(env.step, actions)]
    return [(one.observation, one.reward) for one in steps]


def assert_same_streams(make, wrap, wrap_ours, actions, within=0):
    """Compares one environment, and each row of a batch wrapped before and after."""
    rows = [theirs(make, wrap, 5 + row, column) for row, column in enumerate(actions)]

    def adapted():
        return GymnasiumWrapper(make(), reward_dtype=np.float64)

    single = wrap_ours(adapted())
    _assert_same(rows[0][0], ours(single, 5, actions[0]), within)
    seeds = [5 + row for row in range(ROWS)]
    by_step = list(np.stack([np.asarray(column) for column in actions], axis=1))
    before = BatchedPyEnvironment([wrap_ours(adapted()) for _ in range(ROWS)])
    after = wrap_ours(BatchedPyEnvironment([adapted() for _ in range(ROWS)]))
    for batch in (before, after):
        played = ours(batch, seeds, by_step)
        for row in range(ROWS):
            own = [(seen[row], reward[row]) for seen, reward in played]
            _assert_same(rows[row][0], own, within)
    return single, rows[0][1]


def _assert_same(expected, got, within):
    for (seen, reward), (own_seen, own_reward) in zip(expected, got, strict=True):
        seen = np.asarray(seen)
        assert (seen.dtype, seen.shape) == (own_seen.dtype, own_seen.shape)
        wide = np.asarray(own_seen, np.float64)
        np.testing.assert_allclose(seen, wide, rtol=0, atol=within)
        assert reward == own_reward


def choices(count, steps=20):
    rng = np.random.default_rng(3)
    return [rng.integers(0, count, steps) for _ in range(ROWS)]


RANGES = {
    "float32": spaces.Box(np.float32([-1.2, -0.07]), np.float32([0.6, 0.07])),
    "float64": spaces.Box(-0.3, 0.7, (4,), np.float64),
    "integers": spaces.Box(0, 9, (2,), np.int32),
}


@pytest.mark.parametrize("multidiscrete", [False, True])
@pytest.mark.parametrize("bins", [1, 10])
@pytest.mark.parametrize("name", RANGES)
def test_discretized_observations_match_gymnasium(name, bins, multidiscrete):
    if name == "float64":
        bins = tuple(range(bins, bins + 4))
    wrap, wrap_ours = (
        functools.partial(kind, bins=bins, multidiscrete=multidiscrete)
        for kind in (gymnasium.wrappers.DiscretizeObservation, DiscretizeObservation)
    )

    env, expected = assert_same_streams(
        lambda: Showing(RANGES[name]), wrap, wrap_ours, choices(2)
    )

    space = space_from_spec(env.observation_spec())
    assert space == expected.observation_space


def test_values_at_or_beyond_a_bound_are_in_the_outermost_interval():
    space = RANGES["float32"]
    env = GymnasiumWrapper(Showing(space))
    ours = DiscretizeObservation(env, 4, True)
    theirs = gymnasium.wrappers.DiscretizeObservation(Showing(space), 4, True)
    time_step = env.reset()
    for seen in (space.low, space.high, 2 * space.high, (space.low + space.high) / 2):
        own = ours._see(time_step._replace(observation=seen), None).observation

        np.testing.assert_array_equal(theirs.observation(seen), own)


@pytest.mark.parametrize("bins", [1, 2, 7])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_discretized_actions_match_gymnasium(name, bins):
    space = RANGES[name]
    size = space.low.size
    if name == "float64":
        bins = tuple(range(bins, bins + size))
    seen = spaces.Box(0.0, 1.0, (1,))
    wrap, wrap_ours = (
        functools.partial(kind, bins=bins)
        for kind in (gymnasium.wrappers.DiscretizeAction, DiscretizeAction)
    )
    expected = wrap(Showing(seen, space)).action_space

    env, _ = assert_same_streams(
        lambda: Showing(seen, space), wrap, wrap_ours, choices(expected.n)
    )
    assert space_from_spec(env.action_spec()) == expected


def test_discretized_actions_can_have_a_number_per_element():
    seen, space = spaces.Box(0.0, 1.0, (1,)), RANGES["float32"]
    rng = np.random.default_rng(3)
    actions = [rng.integers(0, [3, 5], (20, 2)) for _ in range(ROWS)]
    wrap, wrap_ours = (
        functools.partial(kind, bins=(3, 5), multidiscrete=True)
        for kind in (gymnasium.wrappers.DiscretizeAction, DiscretizeAction)
    )

    env, expected = assert_same_streams(
        lambda: Showing(seen, space), wrap, wrap_ours, actions
    )
    assert space_from_spec(env.action_spec()) == expected.action_space


MIXED = spaces.Dict(
    wheel=spaces.Box(-1.0, 1.0, (2,), np.float32),
    gear=spaces.Discrete(4, start=-1),
    lamps=spaces.MultiBinary(3),
    doors=spaces.MultiDiscrete([2, 3], start=[0, 5]),
    picture=spaces.Box(0, 255, (2, 2), np.uint8),
    deep=spaces.Tuple((spaces.Discrete(2), spaces.Dict(b=spaces.Box(0, 1, (1,))))),
)


@pytest.mark.parametrize(
    "space",
    [
        MIXED,
        spaces.Discrete(5),
        spaces.MultiDiscrete([[2, 3], [4, 2]]),
        spaces.Box(0, 255, (3, 2), np.uint8),
        spaces.Box(0, 3, (2,), np.int64),
        spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    ],
    ids=str,
)
def test_flat_observations_match_gymnasium(space):
    env, expected = assert_same_streams(
        lambda: Showing(space),
        gymnasium.wrappers.FlattenObservation,
        FlattenObservation,
        choices(2),
    )

    spec, box = env.observation_spec(), expected.observation_space
    assert (spec.shape, spec.dtype) == (box.shape, box.dtype)
    for bound, theirs in ((spec.minimum, box.low), (spec.maximum, box.high)):
        np.testing.assert_array_equal(np.broadcast_to(bound, spec.shape), theirs)


def test_wrappers_that_join_numbers_refuse_text():
    env = GymnasiumWrapper(Showing(spaces.Dict(a=spaces.Text(3), b=spaces.Discrete(2))))
    with pytest.raises(ValueError, match=r"FlattenObservation joins numbers.* at"):
        FlattenObservation(env)


@pytest.mark.parametrize("skip", [2, 4])
@pytest.mark.parametrize("length", [8, 12])
def test_skipped_frames_match_gymnasium(skip, length):
    """Where an episode ends early, Gymnasium's shows frames of the action before."""
    assert_same_streams(
        lambda: Showing(RANGES["float32"], length=length),
        functools.partial(gymnasium.wrappers.MaxAndSkipObservation, skip=skip),
        functools.partial(MaxAndSkipObservation, skip=skip),
        choices(2),
    )


def test_an_episode_that_ends_early_shows_its_last_observation():
    make = functools.partial(Showing, RANGES["float32"], length=3)
    plain, skipping = GymnasiumWrapper(make()), GymnasiumWrapper(make())
    plain.seed(3)
    skipping.seed(3)
    env = MaxAndSkipObservation(skipping, skip=4)
    env.reset()
    expected = [plain.reset(), *(plain.step(1) for _ in range(3))][-1]

    last = env.step(1)
    assert last.is_last()
    np.testing.assert_array_equal(expected.observation, last.observation)
    assert 3.0 == last.reward


@pytest.mark.parametrize("keep_dim", [False, True])
def test_gray_pictures_match_gymnasium(keep_dim):
    assert_same_streams(
        lambda: Showing(spaces.Box(0, 255, (9, 7, 3), np.uint8)),
        functools.partial(gymnasium.wrappers.GrayscaleObservation, keep_dim=keep_dim),
        functools.partial(GrayscaleObservation, keep_dim=keep_dim),
        choices(2),
    )


def test_every_colour_is_as_gray_as_in_gymnasium():
    every = np.arange(0, 256, 3, dtype=np.uint8)
    colours = np.stack(np.meshgrid(every, every, every), axis=-1).reshape(-1, 86, 3)
    weights = np.array([0.2125, 0.7154, 0.0721])
    gray = envkit.wrappers.GrayscaleObservation(
        GymnasiumWrapper(Showing(spaces.Box(0, 255, colours.shape, np.uint8)))
    )
    time_step = gray.reset()._replace(observation=colours)

    np.testing.assert_array_equal(
        np.sum(np.multiply(colours, weights), axis=-1).astype(np.uint8),
        gray._see(time_step, None).observation,
    )


def test_the_weights_of_gray_can_be_chosen():
    picture = spaces.Box(0, 255, (1, 1, 3), np.uint8)
    env = GymnasiumWrapper(Showing(picture))
    red = env.reset()._replace(observation=np.uint8([[[255, 0, 0]]]))
    seen = {
        weights: GrayscaleObservation(env, weights=weights)._see(red, None)
        for weights in ("gymnasium", "opencv")
    }
    assert {"gymnasium": 54, "opencv": 76} == {
        weights: one.observation.item() for weights, one in seen.items()
    }
    with pytest.raises(
        ValueError, match=r"^weights must be one of 'gymnasium', 'opencv', got 'rgb'"
    ):
        GrayscaleObservation(env, weights="rgb")


def test_channels_come_first():
    space = spaces.Dict(
        eye=spaces.Box(0, 255, (4, 5, 3), np.uint8), a=RANGES["float32"]
    )
    env = BatchedPyEnvironment([GymnasiumWrapper(Showing(space)) for _ in range(2)])
    env.seed([1, 2])
    time_step = env.reset()

    transposed = TransposeObservation(env, keys="eye")
    seen = transposed._see(time_step, None).observation

    assert (3, 4, 5) == transposed.observation_spec()["eye"].shape
    np.testing.assert_array_equal(
        np.moveaxis(time_step.observation["eye"], -1, 1), seen["eye"]
    )
    np.testing.assert_array_equal(time_step.observation["a"], seen["a"])
    with pytest.raises(ValueError, match=r"^axes must be an order"):
        TransposeObservation(env, (1, 2, 3))


def test_a_time_limit_also_has_gymnasiums_name(message_of):
    env = GymnasiumWrapper(Showing(RANGES["float32"], length=9))
    limited = TimeLimit(env, max_episode_steps=2)
    assert 2 == limited.duration
    assert [0, 1, 2] == [int(limited.step(0).step_type) for _ in range(3)]
    assert (
        "TimeLimit was given duration=3 and max_episode_steps=2, which are two names "
        "of one argument. Pass one of them."
    ) == message_of(TypeError, lambda: TimeLimit(env, 3, max_episode_steps=2))


class Ale:
    """Draws what the game shows, as the emulator does."""

    def __init__(self, game):
        self._game = game

    def lives(self):
        return 3

    def getScreenRGB(self, out):
        out[...] = self._game.shown

    def getScreenGrayscale(self, out):
        out[...] = self._game.shown[..., 0]


class Game(Showing):
    """A game whose pictures are as red as they are green and blue."""

    _frameskip = 1

    def __init__(self, length=40):
        super().__init__(spaces.Box(0, 255, (20, 16, 3), np.uint8), length=length)
        self.ale = Ale(self)

    def get_action_meanings(self):
        return ["NOOP", "FIRE"]

    def _gray(self):
        gray = self.np_random.integers(0, 256, (20, 16, 1), np.uint8)
        self.shown = np.repeat(gray, 3, axis=-1)
        return self.shown.copy()

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        return self._gray(), info

    def step(self, action):
        _, *rest = super().step(action)
        return self._gray(), *rest


@pytest.mark.parametrize("scale_obs", [False, True])
@pytest.mark.parametrize("size", [7, (8, 10), (16, 20)])
@pytest.mark.parametrize(("gray", "newaxis"), [(1, False), (1, True), (0, False)])
def test_atari_pictures_match_gymnasium(gray, newaxis, size, scale_obs):
    pytest.importorskip("cv2")
    arguments = {
        "noop_max": 0,
        "frame_skip": 2,
        "screen_size": size,
        "grayscale_obs": bool(gray),
        "grayscale_newaxis": newaxis,
        "scale_obs": scale_obs,
    }

    # What lies between two grades OpenCV rounds up or down, but for these sizes.
    grade = 1.01 / 255 if scale_obs else 1

    env, expected = assert_same_streams(
        Game,
        functools.partial(gymnasium.wrappers.AtariPreprocessing, **arguments),
        functools.partial(AtariPreprocessing, **arguments),
        choices(2, 15),
        within=grade if size == 7 else 0,
    )

    assert space_from_spec(env.observation_spec()) == expected.observation_space


def test_noop_max_bounds_the_no_ops_at_the_start():
    env = AtariPreprocessing(GymnasiumWrapper(Game(400)), noop_max=5, screen_size=8)
    env.seed(3)
    steps = []
    for _ in range(40):
        env.reset()
        steps.append(env.gym.unwrapped._steps)
    assert {1, 2, 3, 4, 5} == set(steps)
    assert "NoopReset" in repr(env)


def test_pictures_without_colours_cannot_keep_a_colour_axis():
    env = GrayscaleObservation(GymnasiumWrapper(Game()))
    with pytest.raises(ValueError, match="grayscale_obs=False, and the pictures"):
        AtariPreprocessing(env, grayscale_obs=False)


def names_on_the_page():
    text = (DOCS / "reference" / "wrappers.md").read_text("utf-8")
    section = text.partition("## Gymnasium's other wrappers")[2].partition("\n## ")[0]
    left = re.findall(r"^\| (.*?) \|", section, re.M)
    return set(re.findall(r"`(\w+)`", " ".join(left)))


@pytest.mark.parametrize("module", [gymnasium.wrappers, gymnasium.wrappers.vector])
def test_every_gymnasium_wrapper_exists_or_is_on_the_page(module):
    here = set(envkit.wrappers.__all__)
    assert set(module.__all__) - {"vector"} <= here | names_on_the_page()


def test_the_page_names_only_missing_wrappers():
    assert not names_on_the_page() & set(envkit.wrappers.__all__)
