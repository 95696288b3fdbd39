"""The environments of one worker are one batch, and say which of them failed."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit.adapters.gymnasium_vector.gymnasium_rows import GymnasiumRows
from envkit.envs import Catch
from envkit.testing import CountingEnv


class Frail(gymnasium.Env):
    """Fails when it is told to, and counts how often it was closed."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  # Gymnasium's way
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(4)
    closed = 0

    def __init__(self, fails_in_reset=False, fails_in_close=False):
        self.render_mode = "ansi"
        self._fails_in_reset = fails_in_reset
        self._fails_in_close = fails_in_close

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self._fails_in_reset:
            raise ValueError("Too cold.")
        self.given = seed, options
        return np.zeros(1, np.float32), {"begun": True}

    def step(self, action):
        if action == 3:
            return np.zeros(1), 0.0, False, {}
        if action == 2:
            raise ValueError("Too hot.")
        return np.ones(1, np.float32), 0.5, bool(action), False, {}

    def render(self):
        return "frail"

    def close(self):
        Frail.closed += 1
        if self._fails_in_close:
            raise ValueError("Stuck.")


def notes_of(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011  # its notes are the subject
        call()
    return str(caught.value), caught.value.__notes__


def test_an_environment_that_raises_is_named():
    rows = GymnasiumRows([Frail] * 3, first_row=6)
    rows.reset()

    assert ("Too hot.", ["env_fns[7] raised in step()."]) == notes_of(
        lambda: rows.step(np.array([0, 2, 0]))
    )


def test_an_environment_that_raises_in_its_reset_is_named():
    rows = GymnasiumRows([Frail, lambda: Frail(fails_in_reset=True)])

    assert ("Too cold.", ["env_fns[1] raised in reset()."]) == notes_of(rows.reset)


def test_a_reset_within_a_step_is_called_so():
    rows = GymnasiumRows([Frail, Frail])
    rows.reset()
    rows.step(np.array([0, 1]))
    rows._envs[1]._fails_in_reset = True

    assert ("Too cold.", ["env_fns[1] raised in reset()."]) == notes_of(
        lambda: rows.step(np.array([0, 0]))
    )


def test_results_of_the_old_gym_are_refused():
    rows = GymnasiumRows([Frail, Frail])
    rows.reset()

    text, notes = notes_of(lambda: rows.step(np.array([0, 3])))

    assert text == (
        "step() returned a tuple of 4 elements; in Gymnasium it returns the tuple "
        "(observation, reward, terminated, truncated, info). Environments written for "
        "the old Gym return other ones."
    )
    assert ["env_fns[1] raised in step()."] == notes


def test_a_reset_without_info_is_refused(message_of):
    class Old(Frail):
        def reset(self, *, seed=None, options=None):
            return np.zeros(1)

    assert (
        "reset() returned array of shape (1,), dtype float64, values 0.0 … 0.0; in "
        "Gymnasium it returns the tuple (observation, info). Environments written for "
        "the old Gym return other ones."
    ) == message_of(TypeError, GymnasiumRows([Old]).reset)


def test_where_one_cannot_be_made_the_others_are_closed():
    def fail():
        raise ValueError("No room.")

    before = Frail.closed

    assert ("No room.", ["env_fns[2] was called."]) == notes_of(
        lambda: GymnasiumRows([Frail, Frail, fail])
    )
    assert before + 2 == Frail.closed


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (Frail, "the class Frail"),
        (7, "7 of type int"),
        (None, "None"),
    ],
)
def test_what_is_no_environment_is_refused(made, what, message_of):
    assert (
        f"It returned {what}, which is no environment of Gymnasium's or envkit's."
    ) == message_of(TypeError, lambda: GymnasiumRows([lambda: made]))


def test_vector_environments_are_refused(message_of):
    made = gymnasium.vector.SyncVectorEnv([Frail])

    assert (
        "It returned the vector environment SyncVectorEnv; vectorize takes functions "
        "that make single environments."
    ) == message_of(TypeError, lambda: GymnasiumRows([lambda: made]))


def test_batches_of_envkit_are_refused(message_of):
    assert (
        "PyToGymnasium was given Catch, which is a batch: PyToGymnasiumVector takes "
        "those."
    ) == message_of(ValueError, lambda: GymnasiumRows([lambda: Catch(batch_size=2)]))


def test_spaces_have_to_be_of_one_shape(message_of):
    class Wide(Frail):
        observation_space = spaces.Box(0, 9, (2,), np.float32)

    assert (
        "env_fns[4] and env_fns[5] have different observation_spaces, so they cannot "
        "form one batch.\n\n  Box(0.0, 9.0, (1,), float32)\n"
        "  Box(0.0, 9.0, (2,), float32)"
    ) == message_of(RuntimeError, lambda: GymnasiumRows([Frail, Wide], first_row=4))


def test_seeds_and_options_are_for_the_next_reset_alone():
    rows = GymnasiumRows([Frail] * 3, first_row=1)
    rows.seed([5, None, 6])
    rows.set_reset_options({"hot": True}, [False, True, True, False])

    rows.reset()

    expected = [(5, {"hot": True}), (None, {"hot": True}), (6, None)]
    assert expected == [env.given for env in rows._envs]

    rows.reset(np.array([True, False, False]))

    assert [(None, None), *expected[1:]] == [env.given for env in rows._envs]


def test_reports_say_how_episodes_end_and_where_infos_are():
    class Report(Frail):
        def step(self, action):
            ends = bool(action & 1), bool(action & 2)
            return np.ones(1, np.float32), 1.0, *ends, {"a": 1} if action > 1 else {}

    rows = GymnasiumRows([Report] * 4)

    assert [4] * 4 == rows.reset().observation["report"].tolist()

    time_step = rows.step(np.arange(4))

    assert [0, 1, 6, 7] == time_step.observation["report"].tolist()
    assert [1, 2, 2, 2] == time_step.step_type.tolist()
    assert [1.0, 0.0, 1.0, 0.0] == time_step.discount.tolist()
    assert {3: ({"a": 1}, {"a": 1})} == rows.row_infos([3, 9])


def test_the_info_of_the_end_is_kept_beside_that_of_the_beginning():
    rows = GymnasiumRows([Frail] * 2)
    rows.reset()
    rows.step(np.array([0, 1]))

    rows.reset(np.array([False, True]))

    assert {0: ({}, {}), 1: ({}, {"begun": True})} == rows.row_infos([0, 1])

    rows.step(np.array([0, 0]))

    assert {1: ({}, {})} == rows.row_infos([1])


def test_the_info_of_the_end_is_not_written_to_by_the_reset():
    class Writing(Frail):
        def __init__(self):
            super().__init__()
            self.info = {"mask": np.ones(2, bool), "deep": {"seen": [np.ones(1)]}}

        def _write(self, value):
            self.info["mask"][:] = value
            self.info["deep"]["seen"][0][:] = value
            return self.info

        def reset(self, *, seed=None, options=None):
            return super().reset()[0], self._write(False)

        def step(self, action):
            return np.ones(1, np.float32), 1.0, True, False, self._write(True)

    rows = GymnasiumRows([Writing])
    rows.reset()
    rows.step(np.array([0]))

    rows.reset(np.array([True]))

    ended, begun = rows.row_infos([0])[0]
    assert ([True, True], 1.0) == (ended["mask"].tolist(), *ended["deep"]["seen"][0])
    assert ([False, False], 0.0) == (begun["mask"].tolist(), *begun["deep"]["seen"][0])


def test_rewards_are_as_exact_as_gymnasiums():
    class Exact(Frail):
        def step(self, action):
            return np.ones(1, np.float32), 1 / 3, False, False, {}

    rows = GymnasiumRows([Exact])
    rows.reset()

    assert [1 / 3] == rows.step(np.array([0])).reward.tolist()


def test_environments_of_envkit_become_gymnasiums():
    rows = GymnasiumRows([CountingEnv] * 2)
    rows.reset()

    assert [1, 1] == rows.step(np.array([0, 0])).observation["observation"].tolist()


def test_equal_spaces_travel_once():
    found = GymnasiumRows([lambda: gymnasium.make("CartPole-v1")] * 2).row_spaces()

    assert found.observation[0] is found.observation[1]
    assert found.action[0] is found.action[1]


def test_every_environment_is_closed_also_if_another_cannot_be():
    rows = GymnasiumRows([Frail, lambda: Frail(fails_in_close=True), Frail])
    before = Frail.closed

    with pytest.raises(ValueError, match="Stuck"):
        rows.close()

    assert before + 3 == Frail.closed
    rows.close()
