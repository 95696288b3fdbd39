from __future__ import annotations

import numpy as np

from envkit import BatchedPyEnvironment, BoundedArraySpec
from envkit.envs import Catch, TicTacToe
from envkit.errors import SpecError
from envkit.wrappers.observations.parts import RenameObservation
from envkit.wrappers.pictures.rendered_observation import AddRenderObservation
from tests.wrappers.environments import Drive
from tests.wrappers.games import Arcade, Film


class Canvas(Arcade):
    """Draws on the same canvas all the time, and counts the resets."""

    resets = 0

    def __init__(self):
        super().__init__()
        self.canvas = np.zeros((12, 9, 3), np.uint8)

    def render(self, mode="rgb_array"):
        self.canvas[...] = super().render(mode)
        return self.canvas

    def _reset(self):
        self.resets += 1
        return super()._reset()


class NoState(Canvas):
    def get_state(self):
        raise TypeError("It holds a window.")


def test_the_picture_replaces_the_observation():
    env = AddRenderObservation(Catch(seed=1))

    seen = env.reset().observation

    assert BoundedArraySpec(seen.shape, np.uint8, 0, 255) == env.observation_spec()
    assert env.observation_spec().name == "pixels"
    assert np.array_equal(env.render(), seen)
    assert np.array_equal(env.render(), env.step(1).observation) is False


def test_each_time_step_shows_the_environment_as_it_is():
    env = AddRenderObservation(Catch(seed=1))

    for _ in range(12):
        time_step = env.step(2)

        assert np.array_equal(env.render(), time_step.observation)


def test_the_picture_stands_beside_the_observation():
    env = AddRenderObservation(Catch(batch_size=2, seed=1), render_only=False)

    seen = env.reset().observation

    assert {"pixels", "state"} == set(seen)
    assert Catch().observation_spec() == env.observation_spec()["state"]
    assert np.array_equal(
        env.wrapped_env().current_time_step().observation, seen["state"]
    )
    assert np.array_equal(env.render(), seen["pixels"])


def test_a_dictionary_gets_another_entry():
    env = AddRenderObservation(Drive(), False, "film")

    seen = env.reset().observation

    assert (
        {"camera", "film", "place", "rest"} == set(seen) == set(env.observation_spec())
    )
    assert (6, 4, 3) == env.observation_spec()["film"].shape


def test_names_can_be_chosen():
    env = AddRenderObservation(Catch(), False, "picture", "board")

    assert {"picture", "board"} == set(env.observation_spec())


def test_pictures_of_one_canvas_are_copied():
    env = AddRenderObservation(Canvas())

    first = env.reset().observation
    before = first.copy()
    env.step(1)

    assert np.array_equal(before, first)


def test_looking_for_the_size_leaves_an_environment_as_it_was():
    plain, wrapped = Catch(seed=4), AddRenderObservation(Catch(seed=4), False)

    assert np.array_equal(
        plain.reset().observation, wrapped.reset().observation["state"]
    )


def test_an_environment_under_way_is_not_reset():
    env = Canvas()
    env.step(1)
    env.step(1)

    AddRenderObservation(env)

    assert env.resets == 1
    assert env.current_time_step().is_mid()


def test_an_environment_that_cannot_save_its_state_stays_as_reset():
    env = NoState()

    wrapped = AddRenderObservation(env)

    assert env.resets == 1
    assert wrapped.reset().is_first()


def test_the_chain_is_shown():
    assert "AddRenderObservation(Catch(), render_only=True)" == repr(
        AddRenderObservation(Catch())
    )


def test_an_environment_that_does_not_render_is_refused(message_of):
    message = message_of(ValueError, lambda: AddRenderObservation(Film([1, 2])))

    assert message == (
        "AddRenderObservation needs an environment that renders 'rgb_array', and Film "
        "does not: Film cannot render."
    )


class Odd(Catch):
    def render(self, mode="rgb_array"):
        return np.zeros((2, 3))


def test_what_is_no_picture_is_refused(message_of):
    message = message_of(ValueError, lambda: AddRenderObservation(Odd()))

    assert message == (
        "Odd.render() did not return a picture.\n\n"
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        array of shape (2, 3), dtype float64, values 0.0 … 0.0\n\n"
        "Colours last, values from 0 to 255."
    )


def test_a_batch_needs_a_picture_for_each_row(message_of):
    message = message_of(ValueError, lambda: AddRenderObservation(Odd(batch_size=4)))

    assert message == (
        "Odd.render() did not return a picture.\n\n"
        "  expected   uint8 array of shape (4, height, width, 3)\n"
        "  got        array of shape (2, 3), dtype float64, values 0.0 … 0.0\n\n"
        "One picture for each row, colours last, values from 0 to 255."
    )


def test_a_key_that_is_taken_is_refused(message_of):
    message = message_of(
        ValueError, lambda: AddRenderObservation(Drive(), False, "camera")
    )

    assert message == (
        "render_key is 'camera', but the observation of Drive has an entry of that "
        "name already. Choose another name."
    )


def test_keys_that_are_the_same_are_refused(message_of):
    message = message_of(
        ValueError, lambda: AddRenderObservation(Catch(), False, "state")
    )

    assert message == (
        "render_key is 'state', but obs_key is the same. Choose another name."
    )


def test_keys_do_not_matter_where_there_is_no_dictionary():
    assert (12, 9, 3) == AddRenderObservation(
        Arcade(), True, "state"
    ).observation_spec().shape


class Growing(Canvas):
    def render(self, mode="rgb_array"):
        return np.zeros((12 + self._frames, 9, 3), np.uint8)


def test_a_picture_of_another_size_is_refused(message_of):
    env = AddRenderObservation(BatchedPyEnvironment([Growing(), Growing()], False))
    env.reset()

    message = message_of(SpecError, lambda: env.step([0, 0]))

    assert message == (
        "BatchedPyEnvironment.render() returned a picture that does not fit its spec."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(2, 12, 9, 3), dtype=uint8, minimum=0, "
        "maximum=255, name='pixels')\n"
        "  got        array of shape (2, 13, 9, 3), dtype uint8, values 0 … 0\n\n"
        "Axis 1 has size 13 instead of 12.\n"
        "The first picture was of the size expected."
    )


def test_a_picture_of_another_dtype_is_refused(message_of):
    class Fading(Canvas):
        def render(self, mode="rgb_array"):
            return np.zeros((12, 9, 3), np.float32 if self._frames else np.uint8)

    env = AddRenderObservation(Fading())
    env.reset()

    message = message_of(SpecError, lambda: env.step(0))

    assert "dtype is float32; the spec says uint8." in message


def test_keys_that_cannot_be_sorted_are_refused(message_of):
    env = RenameObservation(TicTacToe(), {"board": 0, "mask": 1})

    message = message_of(SpecError, lambda: AddRenderObservation(env, False))

    assert message == (
        "The keys of the dictionary have no order: 'pixels', 0, 1. Nests are flattened "
        "in the order of their keys: use keys of one type."
    )
