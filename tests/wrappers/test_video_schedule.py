"""Which episodes are filmed."""

from __future__ import annotations

import pytest

from envkit.wrappers.video.video_schedule import capped_cubic_video_schedule, schedule


def test_the_usual_episodes_are_cubes_and_then_every_thousandth():
    filmed = [n for n in range(3500) if capped_cubic_video_schedule(n)]

    assert [n**3 for n in range(11)] + [2000, 3000] == filmed


def test_a_step_trigger_alone_films_no_episode():
    assert schedule(None, None, bool) is None


def test_a_trigger_is_used_as_it_is():
    assert schedule(None, bool, None) is bool


@pytest.mark.parametrize("episode", [None, "3", -1, 2.5, float("-inf")])
def test_an_episode_is_known_by_its_number(episode, message_of):
    assert (
        f"episode_id is {episode!r}; it must be an integer of at least 0."
    ) == message_of(ValueError, lambda: capped_cubic_video_schedule(episode))
