from __future__ import annotations

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit._shared.pixels import check_picture, grayscale, resize, tiled
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import SpecError
from envkit.py_environment import PyEnvironment
from envkit.time_step import restart
from envkit.wrappers.observation_parts import RenameObservation
from envkit.wrappers.pictures import (
    AddRenderObservation,
    CropObservation,
    GrayscaleObservation,
    ResizeObservation,
)
from tests.wrappers.environments import Drive
from tests.wrappers.games import Arcade, Film

SIDES = st.integers(1, 12)
SEEDS = st.integers(0, 2**16)


def noise(seed, *shape):
    # Many points at the ends of the range, and many halves among the means.
    values = np.array([0, 1, 2, 3, 128, 254, 255], np.uint8)
    return np.random.default_rng(seed).choice(values, shape)


def test_brightness_matches_opencv():
    colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 200, 30]]
    gray = grayscale(np.array([colours], np.uint8))
    assert [[76, 150, 29, 255, 124]] == gray.tolist()


@given(seed=SEEDS)
def test_brightness_is_the_weighted_mean_of_the_colours(seed):
    picture = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), np.uint8)
    weights = np.array([0.299, 0.587, 0.114])
    # The weights are those of OpenCV, which have a little over four digits.
    assert np.abs(grayscale(picture) - picture @ weights).max() <= 0.51


def test_gray_pixels_keep_their_brightness():
    picture = np.arange(256, dtype=np.uint8)[:, np.newaxis, np.newaxis]
    assert np.array_equal(picture[..., 0], grayscale(picture.repeat(3, axis=2)))


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_a_smaller_picture_has_the_means_of_areas(seed, old, new):
    new = tuple(map(min, old, new))
    picture = noise(seed, *old)

    small = resize(picture, new)

    # As many equal points as both sizes go into; each new one is so many of them.
    fine = picture.repeat(new[0], axis=0).repeat(new[1], axis=1).astype(np.int64)
    sums = fine.reshape(new[0], old[0], new[1], old[1]).sum(axis=(1, 3))
    means = sums / (old[0] * old[1])
    # OpenCV rounds halves up where it halves both sizes, else to the even grade.
    is_halved = old == (2 * new[0], 2 * new[1])
    assert np.array_equal(np.floor(means + 0.5) if is_halved else np.rint(means), small)


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_a_larger_picture_is_interpolated_linearly(seed, old, new):
    new = tuple(map(max, old, new))
    picture = noise(seed, *old)

    large = resize(picture, new)

    points = [(np.arange(n) + 0.5) * o / n - 0.5 for n, o in zip(new, old, strict=True)]
    lines = picture.astype(float)
    for axis in (0, 1):
        lines = np.apply_along_axis(
            lambda line, axis=axis: np.interp(points[axis], np.arange(old[axis]), line),
            axis,
            lines,
        )
    assert np.abs(large - lines).max() <= 0.5 + 1e-9


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES), rows=SIDES)
def test_pictures_are_resized_the_same_alone_and_in_a_batch(seed, old, new, rows):
    pictures = noise(seed, 2, rows, *old, 3)
    batch = resize(pictures, new, channels=True)
    assert (2, rows, *new, 3) == batch.shape
    for index in np.ndindex(2, rows):
        alone = resize(pictures[index], new, channels=True)
        assert np.array_equal(alone, batch[index])
        gray = resize(grayscale(pictures[index]), new)
        assert np.array_equal(gray, resize(grayscale(pictures), new)[index])


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_channels_are_resized_one_by_one(seed, old, new):
    picture = noise(seed, *old, 4)
    together = resize(picture, new, channels=True)
    alone = [resize(picture[..., channel], new) for channel in range(4)]
    assert np.array_equal(np.stack(alone, axis=-1), together)


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_brighter_pictures_do_not_become_darker(seed, old, new):
    picture = noise(seed, *old)
    brighter = np.maximum(picture, noise(seed + 1, *old))
    assert (resize(picture, new) <= resize(brighter, new)).all()


@pytest.mark.parametrize(
    ("old", "new"), [((210, 160), (84, 84)), ((257, 271), (256, 9))]
)
def test_large_pictures_have_exact_means_too(old, new):
    """The second has sums that are too large for float32."""
    picture = noise(1, *old)
    small = resize(picture, new)
    rows = picture.repeat(new[0], axis=0).reshape(new[0], *old).sum(axis=1)
    sums = rows.repeat(new[1], axis=1).reshape(*new, old[1]).sum(axis=2)
    assert np.array_equal(np.rint(sums / (old[0] * old[1])), small)


def test_many_pictures_are_resized_block_by_block():
    pictures = noise(1, 40, 100, 100)
    small = resize(pictures, (50, 50))
    assert np.array_equal(resize(pictures[37], (50, 50)), small[37])


def test_pictures_of_the_right_size_are_copied():
    picture = noise(1, 4, 5)
    same = resize(picture, (4, 5))
    assert np.array_equal(picture, same)
    assert not np.shares_memory(picture, same)


def test_noncontiguous_pictures_are_resized_correctly():
    wide = noise(1, 6, 8)
    assert np.array_equal(resize(wide[::-1].copy(), (3, 2)), resize(wide[::-1], (3, 2)))


def test_an_empty_batch_stays_empty():
    assert (0, 2, 3) == resize(np.zeros((0, 4, 4), np.uint8), (2, 3)).shape


def test_halved_pictures_round_halves_up_as_opencv_does():
    """And to the even grade in all other sizes."""
    picture = np.array([[0, 1, 2, 3], [0, 1, 2, 3]], np.uint8)
    assert [[1, 3]] == resize(picture, (1, 2)).tolist()
    assert [[0, 2]] == resize(picture[:1], (1, 2)).tolist()


# What `render` returns: `check_picture` and `tiled`.


@pytest.mark.parametrize(
    "picture",
    [
        None,
        [[[0, 0, 0]]],
        np.zeros((4, 6, 3)),
        np.zeros((4, 6), np.uint8),
        np.zeros((4, 6, 4), np.uint8),
        np.zeros((0, 6, 3), np.uint8),
        np.zeros((2, 4, 6, 3), np.uint8),
    ],
)
def test_anything_but_a_picture_is_refused(picture, message_of):
    message = message_of(ValueError, lambda: check_picture(picture, (), "It"))
    assert message.startswith(
        "It did not return a picture.\n\n"
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        "
    )


def test_a_batch_has_one_picture_for_each_row(message_of):
    check_picture(np.zeros((2, 4, 6, 3), np.uint8), (2,), "It")
    assert (
        "It did not return a picture.\n\n"
        "  expected   uint8 array of shape (3, height, width, 3)\n"
        "  got        array of shape (2, 4, 6, 3), dtype uint8, values 0 … 0\n\n"
        "One picture for each row, colours last, values from 0 to 255."
    ) == message_of(
        ValueError,
        lambda: check_picture(np.zeros((2, 4, 6, 3), np.uint8), (3,), "It"),
    )


@given(count=st.integers(1, 40), height=st.integers(1, 5), width=st.integers(1, 5))
def test_tiles_form_a_nearly_square_grid(count, height, width):
    picture = tiled(np.ones((count, height, width, 3), np.uint8))
    lines, columns = (
        (picture.shape[0] + 2) / (height + 2),
        (picture.shape[1] + 2) / (width + 2),
    )
    assert 3 == picture.shape[-1]
    assert columns - lines in (0, 1)
    assert lines * columns >= count
    assert count * height * width * 3 == (picture == 1).sum()


def test_tiles_are_filled_row_by_row():
    pictures = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    canvas = tiled(np.broadcast_to(pictures, (3, 1, 1, 3)))[:, :, 0]
    assert [[0, 96, 96, 1], [96] * 4, [96] * 4, [2, 96, 96, 96]] == canvas.tolist()


def test_a_single_tile_is_the_picture():
    picture = np.full((4, 6, 3), 8, np.uint8)
    assert np.array_equal(picture, tiled(picture[None]))


# images.


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


def test_grayscale_shows_brightness():
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


def test_grayscale_converts_bounds_by_colour():
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


def test_cropping_extends_to_the_edge_by_default():
    env, picture = still((6, 5), np.float32)
    env = CropObservation(env, 1, 2)
    assert ArraySpec((5, 3), np.float32) == env.observation_spec()
    assert np.array_equal(picture[1:, 2:], env.reset().observation)


def test_cropping_crops_the_bounds():
    env, _ = still((2, 3), np.int32, [[0, 1, 2]], [[7], [9]])
    spec = CropObservation(env, top=1, left=1).observation_spec()
    assert BoundedArraySpec((1, 2), np.int32, [[1, 2]], 9) == spec


def test_a_cropped_picture_is_a_copy():
    """The environment may draw into its picture again."""
    env, picture = still((6, 5))
    part = CropObservation(env, 1).reset().observation
    assert not np.shares_memory(picture, part)


@pytest.mark.parametrize(
    "wrap",
    [GrayscaleObservation, lambda env: ResizeObservation(env, (3, 9))],
)
def test_only_the_pictures_of_a_nest_are_changed(wrap):
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


def test_keys_choose_the_pictures_to_change():
    env = ResizeObservation(two_eyes(), (2, 2), keys="map")
    assert (4, 4, 3) == env.observation_spec()["eyes"]["left"].shape
    assert (2, 2) == env.observation_spec()["map"].shape


def test_keys_can_name_whole_branches():
    env = ResizeObservation(two_eyes(), (2, 2), keys=["eyes"])
    assert (2, 2, 3) == env.observation_spec()["eyes"]["left"].shape
    assert (2, 2, 3) == env.observation_spec()["eyes"]["right"].shape
    assert (4, 4) == env.observation_spec()["map"].shape


def test_keys_of_tuples_are_numbers():
    both = (ArraySpec((4, 4), np.uint8), ArraySpec((4, 4), np.uint8))
    spec = CropObservation(Still(both, None), 1, keys=1).observation_spec()
    assert [(4, 4), (3, 4)] == [leaf.shape for leaf in spec]


def test_repr_shows_the_wrapped_chain():
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


@pytest.mark.parametrize("shape", [84, (84, 84, 3), (84,), None])
def test_an_invalid_picture_shape_is_refused(message_of, shape):
    assert (
        f"shape must be a height and a width, such as (84, 84), got {shape!r}."
    ) == message_of(ValueError, lambda: ResizeObservation(GridWorld(), shape))


@pytest.mark.parametrize(("shape", "place"), [((0, 4), 0), ((4, 2.5), 1)])
def test_an_invalid_picture_size_is_refused(message_of, shape, place):
    assert (
        f"shape[{place}] must be an integer of at least 1, got {shape[place]}."
    ) == message_of(ValueError, lambda: ResizeObservation(GridWorld(), shape))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"top": -1}, "top must be an integer of at least 0, got -1."),
        ({"left": 0.5}, "left must be an integer of at least 0, got 0.5."),
        (
            {"height": 0},
            "height must be an integer of at least 1, or None for the rest, got 0.",
        ),
        (
            {"width": "3"},
            "width must be an integer of at least 1, or None for the rest, got '3'.",
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
def test_a_rectangle_outside_the_picture_is_refused(message_of, arguments, expected):
    assert (expected) == message_of(
        ValueError, lambda: CropObservation(GridWorld(), **arguments)
    )


def test_pictures_can_be_cropped_made_gray_and_resized():
    env = CropObservation(Arcade(), top=2, height=8)
    env = ResizeObservation(GrayscaleObservation(env), (4, 4))
    assert (4, 4) == env.reset().observation.shape
    assert np.uint8 == env.step(1).observation.dtype


def test_handle_auto_reset_can_be_positional():
    envs = [
        GrayscaleObservation(Still(ArraySpec((2, 2, 3), np.uint8), None), False, True),
        ResizeObservation(Film([1]), (2, 2), True),
        CropObservation(Film([1]), 0, 0, 2, 2, True),
    ]
    assert [True] * 3 == [env._handle_auto_reset for env in envs]


# rendered_observation.


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


def test_each_time_step_has_the_current_picture():
    env = AddRenderObservation(Catch(seed=1))
    for _ in range(12):
        time_step = env.step(2)
        assert np.array_equal(env.render(), time_step.observation)


def test_the_picture_is_added_to_the_observation():
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


def test_pictures_of_a_reused_canvas_are_copied():
    env = AddRenderObservation(Canvas())
    first = env.reset().observation
    before = first.copy()
    env.step(1)
    assert np.array_equal(before, first)


def test_finding_the_size_does_not_change_the_environment():
    plain, wrapped = Catch(seed=4), AddRenderObservation(Catch(seed=4), False)
    assert np.array_equal(
        plain.reset().observation, wrapped.reset().observation["state"]
    )


def test_a_running_environment_is_not_reset():
    env = Canvas()
    env.step(1)
    env.step(1)
    AddRenderObservation(env)
    assert env.resets == 1
    assert env.current_time_step().is_mid()


def test_an_environment_without_state_stays_reset():
    env = NoState()
    wrapped = AddRenderObservation(env)
    assert env.resets == 1
    assert wrapped.reset().is_first()


def test_repr_shows_the_picture_wrapper():
    assert "AddRenderObservation(Catch(), render_only=True)" == repr(
        AddRenderObservation(Catch())
    )


class Odd(Catch):
    def render(self, mode="rgb_array"):
        return np.zeros((2, 3))


def test_keys_are_ignored_without_a_dictionary():
    assert (12, 9, 3) == AddRenderObservation(
        Arcade(), True, "state"
    ).observation_spec().shape


class Growing(Canvas):
    def render(self, mode="rgb_array"):
        return np.zeros((12 + self._frames, 9, 3), np.uint8)


def test_a_picture_of_another_size_is_refused(message_of):
    env = AddRenderObservation(BatchedPyEnvironment([Growing(), Growing()], False))
    env.reset()
    assert (
        "BatchedPyEnvironment.render() returned a picture that does not fit its spec."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(2, 12, 9, 3), dtype=uint8, minimum=0, "
        "maximum=255, name='pixels')\n"
        "  got        array of shape (2, 13, 9, 3), dtype uint8, values 0 … 0\n\n"
        "Axis 1 has size 13 instead of 12.\n"
        "The first picture had the expected size."
    ) == message_of(SpecError, lambda: env.step([0, 0]))


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
    assert (
        "The keys of the dictionary have no order: 'pixels', 0, 1. Nests are flattened "
        "in the order of their keys: use keys of one type."
    ) == message_of(SpecError, lambda: AddRenderObservation(env, False))


REFUSED = {
    "gray: what is no picture": (
        lambda: GrayscaleObservation(Catch()),
        "GrayscaleObservation changes pictures, and the observation of Catch is not "
        "one.\n\n"
        "  expected   uint8 pictures of shape (height, width, 3)\n"
        "  got        BoundedArraySpec(shape=(10, 5), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='board')\n\n"
        "DtypeObservation casts observations to another dtype.",
    ),
    "gray: what is gray already": (
        lambda: GrayscaleObservation(Arcade(colours=False)),
        "GrayscaleObservation changes pictures, and the observation of Arcade is not "
        "one.\n\n"
        "  expected   uint8 pictures of shape (height, width, 3)\n"
        "  got        BoundedArraySpec(shape=(12, 9), dtype=uint8, minimum=0, "
        "maximum=255, name='screen')",
    ),
    "resizing refuses vectors": (
        lambda: ResizeObservation(Drive(), (3, 3), keys="place"),
        "ResizeObservation changes pictures, and the observation of Drive at ['place'] "
        "is not one.\n\n"
        "  expected   uint8 pictures of shape (height, width) or (height, width, "
        "channels)\n"
        "  got        BoundedArraySpec(shape=(2,), dtype=float32, minimum=-10.0, "
        "maximum=[10.0, 20.0])",
    ),
    "a nest without pictures": (
        lambda: GrayscaleObservation(TicTacToe()),
        "GrayscaleObservation changes uint8 pictures of shape (height, width, 3), and "
        "the observation of TicTacToe has none. It has ['board'], ['mask'].",
    ),
    "keys that are not there": (
        lambda: CropObservation(Drive(), 1, keys=("camera", "cam")),
        "CropObservation was given the key 'cam', and the observation of Drive has "
        "nothing there. It has ['camera'], ['place'], ['rest'][0], ['rest'][1].",
    ),
    "keys of a single array": (
        lambda: GrayscaleObservation(GridWorld(), keys="image"),
        "GrayscaleObservation was given keys='image', but the observation of GridWorld "
        "is a single array. Leave keys out.",
    ),
    "a rectangle that is not in all pictures": (
        lambda: CropObservation(Drive(), height=7),
        "CropObservation cannot cut lines 0 to 6 out of the observation of Drive at "
        "['camera'], which has 6 of them, counted from 0. Name the pictures with "
        "keys=(...).",
    ),
    "cropping refuses vectors": (
        lambda: CropObservation(CartPole(), 1),
        "CropObservation changes pictures, and the observation of CartPole is not "
        "one.\n\n"
        "  expected   pictures of shape (height, width) or (height, width, channels)\n"
        f"  got        {CartPole().observation_spec()!r}",
    ),
    "an array without dimensions is no height and width": (
        lambda: ResizeObservation(GridWorld(), np.array(3)),
        "shape must be a height and a width, such as (84, 84), got array(3).",
    ),
    "an environment that does not render": (
        lambda: AddRenderObservation(Film([1, 2])),
        "AddRenderObservation needs an environment that renders 'rgb_array', and Film "
        "does not: Film cannot render: override render(mode), which returns a uint8 "
        'array of shape (height, width, 3) for "rgb_array".',
    ),
    "what is no picture": (
        lambda: AddRenderObservation(Odd()),
        "Odd.render() did not return a picture.\n\n"
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        array of shape (2, 3), dtype float64, values 0.0 … 0.0\n\n"
        "Colours last, values from 0 to 255.",
    ),
    "a batch needs a picture for each row": (
        lambda: AddRenderObservation(Odd(batch_size=4)),
        "Odd.render() did not return a picture.\n\n"
        "  expected   uint8 array of shape (4, height, width, 3)\n"
        "  got        array of shape (2, 3), dtype float64, values 0.0 … 0.0\n\n"
        "One picture for each row, colours last, values from 0 to 255.",
    ),
    "a key that is taken": (
        lambda: AddRenderObservation(Drive(), False, "camera"),
        "render_key is 'camera', but the observation of Drive has an entry of that "
        "name already. Choose another name.",
    ),
    "keys that are the same": (
        lambda: AddRenderObservation(Catch(), False, "state"),
        "render_key is 'state', but obs_key is the same. Choose another name.",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_impossible_picture_changes_are_refused(call, message, message_of):
    assert message == message_of(ValueError, call)
