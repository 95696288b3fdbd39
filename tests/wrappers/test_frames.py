"""`FrameStack` and `DelayObservation`: earlier observations."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
from envkit.envs import Catch
from envkit.testing import CountingEnv, EpisodeCountingEnv
from envkit.wrappers.history.frames import DelayObservation, FrameStack
from tests.wrappers.environments import Drive


def pictures(*shape):
    return RandomPyEnvironment(BoundedArraySpec(shape, np.uint8, 1, 9), ())


def seen(env, steps):
    return [env.step(0).observation.tolist() for _ in range(steps)]


# FrameStack.


def test_the_first_observation_is_repeated():
    env = FrameStack(CountingEnv(steps_per_episode=2), 3)

    assert [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
        [10, 10, 10],
        [10, 10, 11],
    ] == seen(env, 5)


def test_zeros_come_before_the_first_observation_if_asked_for():
    env = FrameStack(CountingEnv(steps_per_episode=2), 3, padding_type="zero")

    assert [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 2],
        [0, 0, 10],
        [0, 10, 11],
    ] == seen(env, 5)


def test_rows_that_begin_anew_have_nothing_of_what_was_before():
    env = FrameStack(Catch(rows=3, batch_size=2, seed=0), 2)
    for _ in range(2):
        before = env.step([1, 1]).observation
    after = env.reset(np.array([False, True])).observation

    assert np.array_equal(before[0], after[0])
    assert np.array_equal(after[1, 0], after[1, 1])


@pytest.mark.parametrize(
    ("shape", "arguments", "expected"),
    [
        ((6, 5), {}, (4, 6, 5)),
        ((6, 5), {"axis": -1}, (6, 5, 4)),
        ((6, 5), {"axis": 1}, (6, 4, 5)),
        ((6, 5, 1), {"axis": -1, "concatenate": True}, (6, 5, 4)),
        ((6, 5, 3), {"axis": -1, "concatenate": True}, (6, 5, 12)),
        ((6, 5), {"concatenate": True}, (24, 5)),
        ((), {"axis": -1}, (4,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_pictures_are_put_together_as_asked(shape, arguments, expected, padding):
    env = FrameStack(pictures(*shape), 4, padding_type=padding, **arguments)

    assert expected == env.observation_spec().shape
    assert expected == env.reset().observation.shape


def test_the_newest_colours_come_last():
    env, bare = (
        FrameStack(pictures(2, 2, 3), 2, axis=-1, concatenate=True),
        (pictures(2, 2, 3)),
    )
    shown = [env.reset(), env.step(())][-1].observation
    first, second = bare.reset().observation, bare.step(()).observation

    assert np.array_equal(np.concatenate([first, second], axis=-1), shown)


def test_every_array_of_a_nest_is_stacked():
    spec = FrameStack(Drive(), 4).observation_spec()

    assert BoundedArraySpec((4, 6, 4, 3), np.uint8, 0, 255) == spec["camera"]
    assert BoundedArraySpec((4, 2), np.float32, -10, [10, 20]) == spec["place"]
    assert ArraySpec((4,), np.float32) == spec["rest"][0]


def test_bounds_stay_where_the_first_observation_is_repeated():
    env = FrameStack(pictures(2), 4)

    assert BoundedArraySpec((4, 2), np.uint8, 1, 9) == env.observation_spec()


def test_bounds_are_widened_for_zeros():
    env = FrameStack(pictures(2), 4, padding_type="zero")

    assert BoundedArraySpec((4, 2), np.uint8, 0, 9) == env.observation_spec()


def test_nothing_is_repeated_in_a_stack_of_one():
    env = FrameStack(pictures(2), 1, padding_type="zero")

    assert BoundedArraySpec((1, 2), np.uint8, 1, 9) == env.observation_spec()


@pytest.mark.parametrize("size", [0, -3, 2.0, False])
def test_a_size_that_is_no_count_is_refused(size, message_of):
    assert (
        f"stack_size is {size!r}; it must be an integer of at least 1."
    ) == message_of(ValueError, lambda: FrameStack(CountingEnv(), size))


def test_another_padding_is_refused(message_of):
    assert (
        "padding_type is 'edge'; it must be 'reset', with which the first observation "
        "of an episode stands for those before it, or 'zero', with which zeros do."
    ) == message_of(
        ValueError, lambda: FrameStack(CountingEnv(), 2, padding_type="edge")
    )


def test_an_axis_that_is_no_integer_is_refused(message_of):
    assert (
        "axis is 'last'; it must be an integer, such as 0 for the first axis or -1 for "
        "the last."
    ) == message_of(ValueError, lambda: FrameStack(CountingEnv(), 2, axis="last"))


def test_an_axis_beyond_the_stack_is_refused(message_of):
    assert (
        "FrameStack cannot stack observations along axis 3: of BoundedArraySpec("
        "shape=(6, 5), dtype=uint8, minimum=1, maximum=9) axis must be from -3 to 2."
    ) == message_of(ValueError, lambda: FrameStack(pictures(6, 5), 2, axis=3))


def test_an_axis_the_observation_does_not_have_is_refused(message_of):
    assert (
        "FrameStack cannot concatenate observations along axis -3: of "
        "BoundedArraySpec(shape=(6, 5), dtype=uint8, minimum=1, maximum=9) axis must "
        "be from -2 to 1."
    ) == message_of(
        ValueError, lambda: FrameStack(pictures(6, 5), 2, axis=-3, concatenate=True)
    )


def test_scalars_in_a_nest_cannot_be_concatenated(message_of):
    assert (
        "FrameStack cannot concatenate observations at ['rest'][0] along axis 0: of "
        "ArraySpec(shape=(), dtype=float32) there is none; without concatenate=True "
        "they are stacked."
    ) == message_of(ValueError, lambda: FrameStack(Drive(), 2, concatenate=True))


def test_the_stack_shows_its_size():
    env = FrameStack(Catch(batch_size=2), 4)

    assert "FrameStack(Catch(batch_size=2), stack_size=4)" == repr(env)
    assert 4 == env.stack_size


# DelayObservation.


def test_observations_come_late_and_zeros_before_them():
    env = DelayObservation(EpisodeCountingEnv(steps_per_episode=3), 2)
    seen = [env.step(0) for _ in range(8)]

    assert [0, 1, 1, 2, 0, 1, 1, 2] == [int(one.step_type) for one in seen]
    assert [0, 0, 0, 1, 0, 0, 0, 1] == [int(one.observation[1]) for one in seen]
    assert [0, 0, 0, 0, 0, 0, 1, 1] == [int(one.observation[0]) for one in seen]


def test_rewards_and_discounts_are_not_delayed():
    env = DelayObservation(CountingEnv(steps_per_episode=2), 5)
    seen = [env.step(0) for _ in range(4)]

    assert [0, 0, 1, 0] == [float(one.reward) for one in seen]
    assert [1, 1, 0, 1] == [float(one.discount) for one in seen]


def test_without_delay_it_is_as_if_it_were_not_there():
    env = DelayObservation(CountingEnv(steps_per_episode=2), 0)

    assert [0, 1, 2, 10, 11] == seen(env, 5)


def test_bounds_are_widened_for_the_zeros_of_a_delay():
    assert [
        BoundedArraySpec((2,), np.uint8, 0, 9),
        BoundedArraySpec((2,), np.uint8, 1, 9),
    ] == [DelayObservation(pictures(2), delay).observation_spec() for delay in (1, 0)]


def test_each_row_is_delayed_for_itself():
    env = DelayObservation(Catch(batch_size=2, seed=3), 1)
    bare = Catch(batch_size=2, seed=3)
    earlier = bare.reset().observation
    env.reset()
    env.reset(np.array([True, False]))
    shown = env.step([1, 1], np.array([False, True])).observation

    assert not shown[0].any()
    assert np.array_equal(earlier[1], shown[1])


@pytest.mark.parametrize("delay", [-1, 0.5, None, True])
def test_a_delay_that_is_no_count_is_refused(delay, message_of):
    assert (f"delay is {delay!r}; it must be an integer of at least 0.") == message_of(
        ValueError, lambda: DelayObservation(CountingEnv(), delay)
    )


def test_the_delay_is_shown():
    env = DelayObservation(CountingEnv(), 2)

    assert "DelayObservation(CountingEnv(), delay=2)" == repr(env)
