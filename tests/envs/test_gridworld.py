"""GridWorld: walls, goals and images."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import StepType
from envkit.envs import GridWorld

MOVES = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}


def cell(image, channel):
    """Finds the only bright pixel of a channel."""
    ((row, column),) = np.argwhere(image[..., channel])
    assert 255 == image[row, column, channel]
    return int(row), int(column)


def agent(image):
    return cell(image, 1)


def goal(image):
    return cell(image, 0)


@given(
    size=st.integers(2, 5),
    seed=st.integers(0, 99),
    actions=st.lists(st.integers(0, 3), max_size=12),
)
@settings(max_examples=30)
def test_the_agent_walks_until_it_is_at_the_goal_or_out_of_time(size, seed, actions):
    env = GridWorld(size=size, max_episode_steps=10, seed=seed)
    image = env.reset().observation
    for count, action in enumerate(actions, start=1):
        (row, column), (down, right) = agent(image), MOVES[action]
        inside = 0 <= row + down < size and 0 <= column + right < size
        expected = (row + down, column + right) if inside else (row, column)
        aim = goal(image)

        time_step = env.step(action)
        image = time_step.observation

        assert (expected, aim) == (agent(image), goal(image))
        assert not image[..., 2].any()
        arrived = expected == aim
        assert float(arrived) == time_step.reward
        assert float(not arrived) == time_step.discount
        assert (arrived or count == 10) == bool(time_step.is_last())
        if time_step.is_last():
            break


def test_agent_and_goal_start_on_every_pair_of_different_cells():
    images = GridWorld(2000, size=2, seed=1).reset().observation
    pairs = {(agent(image), goal(image)) for image in images}
    assert 4 * 3 == len(pairs)
    assert all(ours != theirs for ours, theirs in pairs)


def test_reaching_the_goal_with_the_last_step_terminates():
    env = GridWorld(size=2, max_episode_steps=1, seed=1)
    endings = set()
    for _ in range(100):
        env.reset()
        time_step = env.step(0)
        info = env.get_info()
        endings.add(
            (
                float(time_step.reward),
                float(time_step.discount),
                bool(info["terminated"]),
                bool(info["truncated"]),
            )
        )

    assert {(0.0, 1.0, False, True), (1.0, 0.0, True, True)} == endings


def test_the_info_has_the_cells():
    env = GridWorld(3, seed=1)
    images = env.reset().observation
    info = env.get_info()
    assert [agent(image) for image in images] == list(map(tuple, info["agent"]))
    assert [goal(image) for image in images] == list(map(tuple, info["goal"]))


def test_without_a_limit_an_episode_continues():
    env = GridWorld(size=2, max_episode_steps=None, seed=2)
    image = env.reset().observation
    # Into the wall above or below, and not into the goal.
    action = 0 if agent(image)[0] == 0 else 2
    types = {int(env.step(action).step_type) for _ in range(150)}
    assert {int(StepType.MID)} == types


def test_the_picture_shows_the_agent_and_the_goal():
    env = GridWorld(size=4, seed=1)
    image = env.reset().observation
    picture = env.render()
    assert (64, 64, 3) == picture.shape
    cells = picture[8::16, 8::16]
    assert (70, 200, 90) == tuple(cells[agent(image)])
    assert (220, 60, 60) == tuple(cells[goal(image)])
