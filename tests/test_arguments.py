"""What several wrappers ask of their arguments, and how they say so."""

from __future__ import annotations

import numpy as np
import pytest

from envkit._internal.arguments import checked_flag
from envkit._shared.arguments import known_dtype
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.testing import CountingEnv
from envkit.wrappers.atari import AtariPreprocessing, NoopReset
from envkit.wrappers.flat_actions import FlattenActionWrapper
from envkit.wrappers.history import DelayObservation, FrameStack, HistoryWrapper
from envkit.wrappers.normalization import (
    NormalizeObservation,
    NormalizeReward,
)
from envkit.wrappers.observations import DtypeObservation
from envkit.wrappers.pictures import (
    AddRenderObservation,
    GrayscaleObservation,
    ResizeObservation,
)
from envkit.wrappers.statistics import RecordEpisodeStatistics
from envkit.wrappers.time_aware import TimeAwareObservation

FLAGS = {
    "include_actions": lambda flag: HistoryWrapper(CountingEnv(), 2, flag),
    "tile_first_step_obs": lambda flag: HistoryWrapper(CountingEnv(), 2, False, flag),
    "concatenate": lambda flag: FrameStack(Catch(), 2, concatenate=flag),
    "frozen": lambda flag: NormalizeReward(Catch(), frozen=flag),
    "integers": lambda flag: NormalizeObservation(Catch(), integers=flag),
    "flatten": lambda flag: TimeAwareObservation(Catch(), flag),
    "normalize_time": lambda flag: TimeAwareObservation(Catch(), True, flag),
    "render_only": lambda flag: AddRenderObservation(Catch(), flag),
    "keep_dim": lambda flag: GrayscaleObservation(GridWorld(), flag),
    "terminal_on_life_loss": lambda flag: AtariPreprocessing(GridWorld(), 4, flag),
}
LARGE = 10**30


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_a_boolean(name, message_of):
    assert f"{name} must be True or False, got the string '3'." == message_of(
        TypeError, lambda: FLAGS[name]("3")
    )


@pytest.mark.parametrize("value", [[], np.array([]), np.array([True]), 2, 1.0, object])
def test_truthy_values_are_no_flags(value):
    with pytest.raises(TypeError, match=r"^x must be True or False, got .*\.$"):
        checked_flag("x", value)


@pytest.mark.parametrize("value", [True, np.True_, 1, np.int64(1)])
def test_numpy_booleans_and_numbers_are_accepted_as_flags(value):
    assert checked_flag("x", value) is True


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        (
            "dict_time_key",
            lambda key: TimeAwareObservation(Catch(), False, dict_time_key=key),
        ),
        ("render_key", lambda key: AddRenderObservation(TicTacToe(), False, key)),
        ("obs_key", lambda key: AddRenderObservation(Catch(), False, obs_key=key)),
    ],
)
@pytest.mark.parametrize(
    ("key", "text"),
    [([], "a list of 0 elements"), (0, "0 of type int"), (None, "None")],
)
def test_a_key_is_a_string(name, wrap, key, text, message_of):
    assert (
        f"{name} must be a string, for it becomes a key of the observation, got {text}."
    ) == message_of(TypeError, lambda: wrap(key))


# What NumPy refuses in as many ways.
@pytest.mark.parametrize(
    "dtype", [0, "abc", [1, 2], {"a": 1}, {"board": "x"}, {}, "(1,i4", np.array(3)]
)
@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("dtype", lambda dtype: DtypeObservation(Catch(), dtype)),
        ("flat_dtype", lambda dtype: FlattenActionWrapper(Catch(), dtype)),
    ],
)
def test_a_dtype_must_be_known_to_numpy(name, wrap, dtype, message_of):
    assert (
        f"{name} must be a dtype of numbers or booleans, such as np.float32, got "
        f"{dtype!r}."
    ) == message_of(TypeError, lambda: wrap(dtype))


def test_the_error_about_a_dtype_quotes_numpy():
    with pytest.raises(TypeError) as caught:
        known_dtype("dtype", "abc")
    assert "data type 'abc' not understood" == str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("name", "most", "wrap"),
    [
        (
            "buffer_length",
            2**63 - 1,
            lambda size: RecordEpisodeStatistics(Catch(), size),
        ),
        ("noop_max", 2**31 - 1, lambda size: NoopReset(CartPole(), size)),
        ("shape[0]", 2**15, lambda size: ResizeObservation(GridWorld(), (size, 4))),
        ("shape[1]", 2**15, lambda size: ResizeObservation(GridWorld(), (4, size))),
        (
            "screen_size",
            2**15,
            lambda size: AtariPreprocessing(GridWorld(), screen_size=size),
        ),
    ],
)
def test_numbers_that_are_too_large_are_refused(name, most, wrap, message_of):
    assert (f"{name} must be an integer of at most {most}, got {LARGE}.") == message_of(
        ValueError, lambda: wrap(LARGE)
    )


@pytest.mark.parametrize("length", [LARGE, 10**17])
@pytest.mark.parametrize(
    ("wrapper", "fewer"),
    [(HistoryWrapper, 0), (FrameStack, 0), (DelayObservation, 1)],
)
def test_a_history_that_no_memory_can_hold_is_refused(
    wrapper, fewer, length, message_of
):
    assert (
        f"{wrapper.__name__} cannot keep {length} observations of each row: there is "
        "not enough memory for such a large array."
    ) == message_of(ValueError, lambda: wrapper(Catch(), length - fewer))


def test_exactly_the_drawn_number_of_noops_is_made():
    env = NoopReset(CountingEnv(10**6), 3)
    env.seed(1)
    assert 1 <= env.reset().observation <= 3
