from __future__ import annotations

import pickle

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.py_environment import PyEnvironment
from envkit.time_step import restart
from envkit.wrappers.pictures.arithmetic import grayscale, resize
from envkit.wrappers.pictures.images import (
    CropObservation,
    GrayscaleObservation,
    ResizeObservation,
)
from tests.wrappers.environments import Drive
from tests.wrappers.games import Arcade, Film


class Still(PyEnvironment):
    """Shows the same thing all the time."""

    def __init__(self, spec, observation):
        super().__init__()
        self._spec, self._observation = spec, observation

    def observation_spec(self):
        return self._spec

    def action_spec(self):
        return ArraySpec((), np.int64)

    def _reset(self):
        return restart(self._observation)

    def _step(self, action):
        return self._reset()


def still(shape, dtype=np.uint8, minimum=None, maximum=None):
    picture = np.random.default_rng(1).integers(0, 255, shape).astype(dtype)
    if minimum is None:
        return Still(ArraySpec(shape, dtype), picture), picture
    return Still(BoundedArraySpec(shape, dtype, minimum, maximum, "eye"), picture), None


def test_grayscale_shows_how_bright_pictures_are():
    env, picture = still((5, 4, 3))

    gray = GrayscaleObservation(env, weights="opencv").reset().observation

    assert np.array_equal(grayscale(picture), gray)


def test_grayscale_can_keep_the_dimension_of_colours():
    env, picture = still((5, 4, 3))

    env = GrayscaleObservation(env, keep_dim=True, weights="opencv")

    assert env.observation_spec().shape == (5, 4, 1)
    assert np.array_equal(grayscale(picture)[..., None], env.reset().observation)


def test_grayscale_keeps_bounds_that_are_the_same_everywhere():
    env, _ = still((5, 4, 3), np.uint8, 0, 200)

    spec = GrayscaleObservation(env).observation_spec()

    assert BoundedArraySpec((5, 4), np.uint8, 0, 200) == spec
    assert spec.name == "eye"


def test_grayscale_of_bounds_by_colour_is_gray_too():
    env, _ = still((5, 4, 3), np.uint8, 0, [255, 0, 0])

    spec = GrayscaleObservation(env).observation_spec()

    assert BoundedArraySpec((5, 4), np.uint8, 0, 54) == spec


def test_resizing_keeps_the_channels():
    env, picture = still((5, 4, 3))

    env = ResizeObservation(env, (7, 2))

    assert (7, 2, 3) == env.observation_spec().shape
    resized = resize(picture, (7, 2), channels=True)
    assert np.array_equal(resized, env.reset().observation)


def test_resizing_takes_pictures_without_channels():
    env, picture = still((5, 4))

    env = ResizeObservation(env, [7, 2])

    assert ArraySpec((7, 2), np.uint8) == env.observation_spec()
    assert np.array_equal(resize(picture, (7, 2)), env.reset().observation)


def test_resizing_resizes_the_bounds():
    env, _ = still((2, 2), np.uint8, [[0, 0], [0, 0]], [[10, 20], [30, 40]])

    spec = ResizeObservation(env, (1, 2)).observation_spec()

    assert BoundedArraySpec((1, 2), np.uint8, 0, [20, 30]) == spec


def test_cropping_cuts_out_a_rectangle():
    env, picture = still((6, 5, 3))

    env = CropObservation(env, top=1, left=2, height=3, width=2)

    assert (3, 2, 3) == env.observation_spec().shape
    assert np.array_equal(picture[1:4, 2:4], env.reset().observation)


def test_cropping_goes_to_the_edge_unless_told():
    env, picture = still((6, 5), np.float32)

    env = CropObservation(env, 1, 2)

    assert ArraySpec((5, 3), np.float32) == env.observation_spec()
    assert np.array_equal(picture[1:, 2:], env.reset().observation)


def test_cropping_crops_the_bounds():
    env, _ = still((2, 3), np.int32, [[0, 1, 2]], [[7], [9]])

    spec = CropObservation(env, top=1, left=1).observation_spec()

    assert BoundedArraySpec((1, 2), np.int32, [[1, 2]], 9) == spec


def test_a_part_is_no_view_of_the_picture():
    """The environment may draw into its picture again."""
    env, picture = still((6, 5))

    part = CropObservation(env, 1).reset().observation

    assert not np.shares_memory(picture, part)


@pytest.mark.parametrize(
    "wrap",
    [GrayscaleObservation, lambda env: ResizeObservation(env, (3, 9))],
)
def test_of_a_nest_all_pictures_are_changed_and_nothing_else(wrap):
    plain, env = Drive(), Drive()
    camera = plain.observation_spec()["camera"]
    before = plain.reset().observation

    seen = wrap(env).reset().observation

    changed = wrap(Still(camera, before["camera"]))
    assert changed.observation_spec() == wrap(env).observation_spec()["camera"]
    assert np.array_equal(changed.reset().observation, seen["camera"])
    assert plain.observation_spec()["rest"] == wrap(env).observation_spec()["rest"]
    assert np.array_equal(before["place"], seen["place"])


def two_eyes():
    spec = {eye: ArraySpec((4, 4, 3), np.uint8) for eye in ("left", "right")}
    return Still({"eyes": spec, "map": ArraySpec((4, 4), np.uint8)}, None)


def test_keys_say_which_pictures_are_changed():
    env = ResizeObservation(two_eyes(), (2, 2), keys="map")

    assert (4, 4, 3) == env.observation_spec()["eyes"]["left"].shape
    assert (2, 2) == env.observation_spec()["map"].shape


def test_keys_name_whole_branches():
    env = ResizeObservation(two_eyes(), (2, 2), keys=["eyes"])

    assert (2, 2, 3) == env.observation_spec()["eyes"]["left"].shape
    assert (2, 2, 3) == env.observation_spec()["eyes"]["right"].shape
    assert (4, 4) == env.observation_spec()["map"].shape


def test_keys_of_tuples_are_numbers():
    both = (ArraySpec((4, 4), np.uint8), ArraySpec((4, 4), np.uint8))

    spec = CropObservation(Still(both, None), 1, keys=1).observation_spec()

    assert [(4, 4), (3, 4)] == [leaf.shape for leaf in spec]


def test_the_chain_is_shown():
    env = CropObservation(ResizeObservation(GridWorld(), (4, 6)), 1, width=3)

    assert repr(env) == (
        "CropObservation(ResizeObservation(GridWorld(), shape=(4, 6)), "
        "top=1, left=0, height=None, width=3)"
    )
    assert (
        "GrayscaleObservation(GridWorld(), keep_dim=False, weights='gymnasium')"
        == repr(GrayscaleObservation(GridWorld()))
    )


def test_wrappers_of_pictures_pickle():
    env = CropObservation(GrayscaleObservation(GridWorld(seed=1)), 1)
    env = ResizeObservation(env, (3, 3))

    copied = pickle.loads(pickle.dumps(env))

    assert np.array_equal(env.reset().observation, copied.reset().observation)


def test_grayscale_refuses_what_is_no_picture(message_of):
    message = message_of(ValueError, lambda: GrayscaleObservation(Catch()))

    assert message == (
        "GrayscaleObservation changes pictures, and the observation of Catch is none."
        "\n\n"
        "  expected   uint8 pictures of shape (height, width, 3)\n"
        "  got        BoundedArraySpec(shape=(10, 5), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='board')\n\n"
        "DtypeObservation casts observations to another dtype."
    )


def test_grayscale_refuses_what_is_gray(message_of):
    message = message_of(
        ValueError, lambda: GrayscaleObservation(Arcade(colours=False))
    )

    assert message == (
        "GrayscaleObservation changes pictures, and the observation of Arcade is none."
        "\n\n"
        "  expected   uint8 pictures of shape (height, width, 3)\n"
        "  got        BoundedArraySpec(shape=(12, 9), dtype=uint8, minimum=0, "
        "maximum=255, name='screen')"
    )


def test_resizing_refuses_vectors(message_of):
    message = message_of(
        ValueError, lambda: ResizeObservation(Drive(), (3, 3), keys="place")
    )

    assert message == (
        "ResizeObservation changes pictures, and the observation of Drive at ['place'] "
        "is none.\n\n"
        "  expected   uint8 pictures of shape (height, width) or (height, width, "
        "channels)\n"
        "  got        BoundedArraySpec(shape=(2,), dtype=float32, minimum=-10.0, "
        "maximum=[10.0, 20.0])"
    )


def test_a_nest_without_pictures_is_refused(message_of):
    message = message_of(ValueError, lambda: GrayscaleObservation(TicTacToe()))

    assert message == (
        "GrayscaleObservation changes uint8 pictures of shape (height, width, 3), and "
        "the observation of TicTacToe has none. It has ['board'], ['mask']."
    )


def test_keys_that_are_not_there_are_refused(message_of):
    message = message_of(
        ValueError, lambda: CropObservation(Drive(), 1, keys=("camera", "cam"))
    )

    assert message == (
        "CropObservation was given the key 'cam', and the observation of Drive has "
        "nothing there. It has ['camera'], ['place'], ['rest'][0], ['rest'][1]."
    )


def test_keys_of_a_single_array_are_refused(message_of):
    message = message_of(
        ValueError, lambda: GrayscaleObservation(GridWorld(), keys="image")
    )

    assert message == (
        "GrayscaleObservation was given keys='image', but the observation of GridWorld "
        "is a single array. Leave keys out."
    )


@pytest.mark.parametrize("shape", [84, (84, 84, 3), (84,), None])
def test_a_shape_that_is_no_height_and_width_is_refused(message_of, shape):
    message = message_of(ValueError, lambda: ResizeObservation(GridWorld(), shape))

    assert message == (
        f"shape is {shape!r}; it must be a height and a width, such as (84, 84)."
    )


@pytest.mark.parametrize(("shape", "place"), [((0, 4), 0), ((4, 2.5), 1)])
def test_a_size_that_is_no_size_is_refused(message_of, shape, place):
    message = message_of(ValueError, lambda: ResizeObservation(GridWorld(), shape))

    assert message == (
        f"shape[{place}] is {shape[place]}; it must be an integer of at least 1."
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"top": -1}, "top is -1; it must be an integer of at least 0."),
        ({"left": 0.5}, "left is 0.5; it must be an integer of at least 0."),
        (
            {"height": 0},
            "height is 0; it must be an integer of at least 1, or None for the rest.",
        ),
        (
            {"width": "3"},
            "width is '3'; it must be an integer of at least 1, or None for the rest.",
        ),
        (
            {"top": 8},
            "CropObservation cannot cut lines 8 to the last out of the observation of "
            "GridWorld, which has 8 of them, counted from 0.",
        ),
        (
            {"left": 5, "width": 4},
            "CropObservation cannot cut columns 5 to 8 out of the observation of "
            "GridWorld, which has 8 of them, counted from 0.",
        ),
    ],
)
def test_a_rectangle_that_is_not_there_is_refused(message_of, arguments, expected):
    message = message_of(ValueError, lambda: CropObservation(GridWorld(), **arguments))

    assert expected == message


def test_a_rectangle_that_is_not_in_all_pictures_is_refused(message_of):
    message = message_of(ValueError, lambda: CropObservation(Drive(), height=7))

    assert message == (
        "CropObservation cannot cut lines 0 to 6 out of the observation of Drive at "
        "['camera'], which has 6 of them, counted from 0. Name the pictures with "
        "keys=(...)."
    )


def test_cropping_refuses_vectors(message_of):
    message = message_of(ValueError, lambda: CropObservation(CartPole(), 1))

    assert message == (
        "CropObservation changes pictures, and the observation of CartPole is none."
        "\n\n"
        "  expected   pictures of shape (height, width) or (height, width, channels)\n"
        f"  got        {CartPole().observation_spec()!r}"
    )


def test_pictures_can_be_cropped_made_gray_and_resized():
    env = CropObservation(Arcade(), top=2, height=8)
    env = ResizeObservation(GrayscaleObservation(env), (4, 4))

    assert (4, 4) == env.reset().observation.shape
    assert np.uint8 == env.step(1).observation.dtype


def test_handle_auto_reset_is_taken_by_place():
    envs = [
        GrayscaleObservation(Still(ArraySpec((2, 2, 3), np.uint8), None), False, True),
        ResizeObservation(Film([1]), (2, 2), True),
        CropObservation(Film([1]), 0, 0, 2, 2, True),
    ]

    assert [True] * 3 == [env._handle_auto_reset for env in envs]


def test_an_array_without_dimensions_is_no_height_and_width(message_of):
    message = message_of(
        ValueError, lambda: ResizeObservation(GridWorld(), np.array(3))
    )

    assert message == (
        "shape is array(3); it must be a height and a width, such as (84, 84)."
    )
