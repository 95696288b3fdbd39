"""The timing of pictures among the lags, from environments that declare it."""

from __future__ import annotations

import numpy as np

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, PyEnvironment
from envkit.realtime import RealTimeEnvironment
from envkit.time_step import restart, transition


class Screen(PyEnvironment):
    """Has three new pictures in each tick, the last of them 10 ms old."""

    def __init__(self, latency=0.02):
        super().__init__()
        self._latency, self._pictures = latency, 0

    def observation_spec(self):
        return ArraySpec((), np.float32)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def info_spec(self):
        seconds, count = ArraySpec((), np.float64), ArraySpec((), np.int64)
        return {
            "desktop": {"frame_age": seconds, "key_to_pixel": seconds},
            "vnc": {"updates.n": count},
        }

    def get_info(self):
        return {
            "desktop": {
                "frame_age": np.float64(0.01),
                "key_to_pixel": np.float64(self._latency),
            },
            "vnc": {"updates.n": np.int64(self._pictures)},
        }

    def _reset(self):
        self._pictures = 0
        return restart(np.float32(0))

    def _step(self, action):
        self._pictures = 3
        return transition(np.float32(0), 0.0)


def played(env):
    """Plays two steps of two ticks each."""
    real_time = RealTimeEnvironment(env, hz=10, host="virtual", think_time=0.15)
    with real_time:
        real_time.reset()
        action = np.zeros(real_time.batch_size or (), np.int64)
        for _ in range(2):
            real_time.step(action)
        return real_time.lag()


def test_only_the_seen_picture_of_merged_ticks_is_not_missed():
    lag = played(Screen())

    assert 2 == int(lag.ticks_merged)
    assert 5 == int(lag.missed_frames)
    assert 0.02 == float(lag.key_to_pixel)
    assert 0.01 == float(lag.frame_age) - float(lag.observation_age)


def test_each_row_has_its_own_picture_count():
    lag = played(BatchedPyEnvironment([Screen(), Screen(0.5)]))

    assert [5, 5] == lag.missed_frames.tolist()
    assert [0.02, 0.5] == lag.key_to_pixel.tolist()


def test_environments_without_a_screen_report_zeros():
    lag = played("CartPole")

    assert (0, 0, 0) == (lag.frame_age, lag.key_to_pixel, lag.missed_frames)
