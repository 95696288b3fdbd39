"""Wrappers that change the leaves of observations."""

from __future__ import annotations

import collections
import pickle

import gymnasium
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import SpecError
from envkit.specs import add_outer_dims_nest, check_arrays_nest
from envkit.wrappers.observations import (
    DiscretizeObservation,
    DtypeObservation,
    RescaleObservation,
    Rescaling,
    ReshapeObservation,
    TransformObservation,
    cast_spec,
    checked_bounds,
    known_bounds,
    reshaped_spec,
)
from tests import strategies
from tests.wrappers.environments import Drive
from tests.wrappers.showing import showing, showing_rows

UNIT = BoundedArraySpec((2,), np.float32, 0.0, 1.0)
Pair = collections.namedtuple("Pair", ["left", "right"])


def pickled(env):
    return pickle.loads(pickle.dumps(env))


def twice(observation):
    return 2 * observation


class TestTransformObservation:
    def test_shows_what_the_function_returns(self):
        env = TransformObservation(showing(np.array([1.0, 2.0])), twice)
        assert [2.0, 4.0] == env.reset().observation.tolist()

    def test_calls_the_function_once_for_all_rows(self):
        shapes = []

        def look(observation):
            shapes.append(observation.shape)
            return observation

        TransformObservation(CartPole(batch_size=3), look).reset()
        assert [(3, 4)] == shapes

    def test_calls_the_function_once_a_step(self):
        calls = []

        def count(observation):
            calls.append(1)
            return observation

        env = TransformObservation(CartPole(batch_size=3), count)
        env.reset()
        env.step(np.zeros(3, np.int64))
        assert 2 == len(calls)

    def test_turns_numbers_into_arrays(self):
        """NumPy makes a number of twice an array without dimensions."""
        env = TransformObservation(showing(np.array(3.0)), twice)
        assert isinstance(env.reset().observation, np.ndarray)

    def test_gives_the_function_a_copy_that_it_may_change(self):
        def double(observation):
            observation *= 2
            return observation

        inner = CartPole(batch_size=2, seed=1)
        env = TransformObservation(inner, double)
        seen = env.reset().observation
        assert np.array_equal(seen, 2 * inner.current_time_step().observation)

    def test_forgets_the_bounds_that_the_function_may_leave(self):
        env = TransformObservation(GridWorld(), lambda picture: 255 - picture)
        assert "BoundedArraySpec" not in repr(env.observation_spec())
        assert ArraySpec((8, 8, 3), np.uint8) == env.observation_spec()

    def test_has_the_spec_it_was_given(self):
        env = TransformObservation(
            TicTacToe(batch_size=2),
            lambda parts: parts["board"].astype(np.float32) / 2,
            observation_spec=BoundedArraySpec((3, 3), np.float32, 0.0, 1.0),
        )
        assert BoundedArraySpec((3, 3), np.float32, 0.0, 1.0) == env.observation_spec()
        assert (2, 3, 3) == env.reset().observation.shape

    def test_takes_nests_of_every_kind(self):
        env = TransformObservation(
            showing(Pair([np.zeros(2)], {"a": np.ones(3)})),
            lambda pair: Pair(pair.left, {"a": -pair.right["a"]}),
        )
        assert [-1.0, -1.0, -1.0] == env.reset().observation.right["a"].tolist()

    def test_refuses_another_dtype_without_a_spec(self, message_of):
        env = TransformObservation(
            showing(np.zeros(2, np.float32)), lambda vector: vector.astype(np.float64)
        )
        assert (
            "The function of TransformObservation returned an observation that does "
            "not fit its spec.\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
            "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
            "dtype is float64; the spec says float32. NumPy makes float64 by default: "
            "add .astype(np.float32).\n"
            "The spec is the environment's, because you passed no other. If the "
            "function changes it, declare the result: TransformObservation(env, "
            "function, observation_spec=...)."
        ) == message_of(SpecError, env.reset)

    def test_refuses_another_structure_without_a_spec(self, message_of):
        env = TransformObservation(
            TicTacToe(batch_size=2), lambda parts: parts["board"]
        )
        assert (
            "The function of TransformObservation returned an observation that does "
            "not fit its spec.\n\n"
            "  expected   the structure {'board': *, 'mask': *}\n"
            "  got        array of shape (2, 3, 3), dtype int32, values 0 … 0\n\n"
            "The value is a single ndarray; a dictionary is expected.\n"
            "The spec is the environment's, because you passed no other. If the "
            "function changes it, declare the result: TransformObservation(env, "
            "function, observation_spec=...)."
        ) == message_of(SpecError, env.reset)

    def test_refuses_a_shape_that_lost_its_rows(self, message_of):
        env = TransformObservation(
            CartPole(batch_size=3),
            lambda observation: observation[0],
            ArraySpec((4,), np.float32),
        )

        message = message_of(SpecError, env.reset)
        assert (
            "  expected   ArraySpec(shape=(3, 4), dtype=float32)\n"
            "  got        array of shape (4,), dtype float32" in message
        )
        assert message.endswith(
            "The whole batch dimension is missing: expected (3, 4).\n"
            "The function gets the arrays of all rows at once, and returns as many."
        )

    def test_refuses_values_outside_the_bounds_of_the_first_observation(
        self, message_of
    ):
        env = TransformObservation(showing(np.ones(2, np.float32)), twice, UNIT)
        assert (
            "The function of TransformObservation returned an observation that does "
            "not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
            "maximum=1.0)\n"
            "  got        array of shape (2,), dtype float32, values 2.0 … 2.0\n\n"
            "2 of 2 elements are above the maximum 1.0: 2.0 at index (0,).\n"
            "The spec is the observation_spec you passed."
        ) == message_of(SpecError, env.reset)

    def test_refuses_another_dtype_in_a_later_observation(self):
        """A function may take another way then."""
        env = TransformObservation(
            CartPole(batch_size=2, seed=1),
            lambda vector: vector if (abs(vector) < 0.05).all() else vector * 1.0j,
        )
        env.reset()
        with pytest.raises(SpecError, match="dtype is complex64; the spec says"):
            env.step(np.zeros(2, np.int64))

    def test_refuses_another_structure_in_a_later_observation(self):
        env = TransformObservation(
            CartPole(batch_size=2, seed=1),
            lambda vector: vector if (abs(vector) < 0.05).all() else [vector],
        )
        env.reset()
        with pytest.raises(SpecError, match="The value is a list, not an array"):
            env.step(np.zeros(2, np.int64))

    def test_pickles_with_a_function_that_does(self):
        env = TransformObservation(showing(np.ones(2)), twice)
        assert [2.0, 2.0] == pickle.loads(
            pickle.dumps(env)
        ).reset().observation.tolist()


class TestRescaleObservation:
    def test_maps_the_bounds_to_the_new_ones(self):
        spec = BoundedArraySpec((3,), np.uint8, 0, 200)
        env = RescaleObservation(showing(np.array([0, 50, 200], np.uint8), spec), -1, 1)
        assert [-1.0, -0.5, 1.0] == env.reset().observation.tolist()
        assert BoundedArraySpec((3,), np.float32, -1, 1) == env.observation_spec()

    def test_maps_every_leaf_by_its_own_bounds(self):
        spec = {
            "a": BoundedArraySpec((2,), np.float64, [0.0, 10.0], [1.0, 20.0]),
            "b": [BoundedArraySpec((), np.int64, 0, 4, name="count")],
        }
        shown = {"a": np.array([0.5, 20.0]), "b": [np.array(1)]}
        env = RescaleObservation(showing(shown, spec), 0.0, 8.0)

        seen = env.reset().observation
        assert [4.0, 8.0] == seen["a"].tolist()
        assert (2.0, np.float32) == (seen["b"][0], seen["b"][0].dtype)
        assert "count" == env.observation_spec()["b"][0].name

    def test_takes_new_bounds_for_each_element(self):
        env = RescaleObservation(
            showing(np.float32([0.5, 0.5]), UNIT), np.array([0, 10]), [2, 30]
        )
        assert [1.0, 20.0] == env.reset().observation.tolist()

    def test_leaves_masks_unchanged(self):
        env = RescaleObservation(TicTacToe(seed=1), 0.0, 1.0)
        assert np.bool_ == env.observation_spec()["mask"].dtype
        assert env.reset().observation["mask"].all()

    def test_does_not_change_the_environment_s_arrays(self):
        inner = GridWorld(seed=1)
        env = RescaleObservation(inner, -1.0, 1.0)
        env.reset()
        assert 255 == inner.current_time_step().observation.max()

    def test_shows_its_bounds(self):
        env = RescaleObservation(Catch(), 0, 2.5)
        assert (0.0, 2.5) == (env.min_obs, env.max_obs)
        assert "RescaleObservation(Catch(), min_obs=0.0, max_obs=2.5)" == repr(env)

    def test_hands_out_copies_of_its_bounds(self):
        env = RescaleObservation(showing(np.float32([0.5, 0.5]), UNIT), [0, 10], 30)
        env.min_obs[:] = 7
        assert [0.0, 10.0] == env.min_obs.tolist()

    def test_pickles(self):
        env = RescaleObservation(showing(np.float32([0.5, 1]), UNIT), -1.0, 1.0)
        assert [0.0, 1.0] == pickled(env).reset().observation.tolist()

    @pytest.mark.parametrize(
        "bounds", [(-np.inf, 1.0), (0.0, [1.0, np.inf]), (-3e38, 3e38)], ids=str
    )
    def test_refuses_leaves_with_infinite_bounds(self, bounds, message_of):
        spec = BoundedArraySpec((2,), np.float32, *bounds)
        assert (
            "RescaleObservation needs to know the range of every number, and the "
            f"observation has infinite bounds: its spec is {spec!r}. Give it bounds "
            "with TransformObservation, leave it out with SelectObservation, or use "
            "NormalizeObservation instead."
        ) == message_of(
            ValueError,
            lambda: RescaleObservation(showing(np.zeros(2, np.float32), spec), -1, 1),
        )

    def test_refuses_observations_without_numbers(self, message_of):
        env = showing(np.array(True))
        assert (
            "RescaleObservation has nothing to do: the observation holds no integers "
            "and no floats."
        ) == message_of(ValueError, lambda: RescaleObservation(env, -1, 1))

    @pytest.mark.parametrize("bounds", [(1.0, 1.0), (1.0, -1.0)], ids=str)
    def test_refuses_bounds_in_the_wrong_order(self, bounds, message_of):
        assert (
            f"min_obs is 1.0 and max_obs is {bounds[1]}; min_obs must be smaller, in "
            "every element."
        ) == message_of(ValueError, lambda: RescaleObservation(Catch(), *bounds))

    @pytest.mark.parametrize("bound", [np.inf, np.nan])
    def test_refuses_bounds_that_are_not_finite(self, bound, message_of):
        assert f"max_obs must be finite, got {bound}." == message_of(
            ValueError, lambda: RescaleObservation(Catch(), 0, bound)
        )


class TestDtypeObservation:
    def test_casts_every_leaf(self):
        env = DtypeObservation(
            showing({"a": np.array([1, 2]), "b": (np.array(True),)}), np.float32
        )
        seen = env.reset().observation
        assert [1.0, 2.0] == seen["a"].tolist()
        assert {np.dtype(np.float32)} == {leaf.dtype for leaf in nest.flatten(seen)}

    def test_cuts_fractions_off(self):
        spec = BoundedArraySpec((2,), np.float64, -2.5, 2.5)
        env = DtypeObservation(showing(np.array([-1.5, 1.5]), spec), np.int8)
        assert [-1, 1] == env.reset().observation.tolist()
        assert BoundedArraySpec((2,), np.int8, -2, 2) == env.observation_spec()

    @given(
        strategies.spec_nests(strategies.specs("biu"), max_depth=2),
        st.sampled_from([(), (2,)]),
        st.data(),
    )
    def test_observations_fit_the_spec(self, spec, dims, data):
        rows = [
            data.draw(strategies.values(spec)) for _ in range(dims[0] if dims else 1)
        ]
        inner = showing_rows(*rows, spec=spec) if dims else showing(rows[0], spec)
        env = DtypeObservation(inner, np.float64)
        seen = env.reset().observation
        assert check_arrays_nest(
            seen, add_outer_dims_nest(env.observation_spec(), dims)
        )

    def test_shows_its_dtype(self):
        env = DtypeObservation(Catch(), "float64")
        assert "DtypeObservation(Catch(), dtype=dtype('float64'))" == repr(env)

    def test_pickles(self):
        env = pickled(DtypeObservation(showing(np.ones(2)), "f4"))
        assert np.float32 == env.reset().observation.dtype

    @pytest.mark.parametrize("dtype", [None, "nonsense", 7])
    def test_refuses_what_is_no_dtype(self, dtype, message_of):
        assert (
            "dtype must be a dtype of numbers or booleans, such as np.float32, got "
            f"{dtype!r}."
        ) == message_of(TypeError, lambda: DtypeObservation(Catch(), dtype))


class TestReshapeObservation:
    def test_keeps_the_elements_in_order(self):
        env = ReshapeObservation(showing(np.arange(6)), (2, 3))
        assert [[0, 1, 2], [3, 4, 5]] == env.reset().observation.tolist()

    def test_bounds_are_reshaped_too(self):
        spec = BoundedArraySpec((4,), np.int64, 0, [1, 2, 3, 4], name="vector")
        env = ReshapeObservation(showing(np.zeros(4, np.int64), spec), (2, 2))
        assert (
            BoundedArraySpec((2, 2), np.int64, 0, [[1, 2], [3, 4]])
            == env.observation_spec()
        )
        assert "vector" == env.observation_spec().name

    def test_one_size_can_be_left_open(self):
        env = ReshapeObservation(Drive(), [-1])
        assert [(72,), (2,), (1,), (1,)] == [
            spec.shape for spec in nest.flatten(env.observation_spec())
        ]

    def test_makes_an_array_without_dimensions(self):
        env = ReshapeObservation(showing(np.array([[5.0]])), ())
        assert (5.0, ()) == (env.reset().observation, env.reset().observation.shape)

    def test_shows_its_shape(self):
        env = ReshapeObservation(Catch(), [5, 10])
        assert "ReshapeObservation(Catch(), shape=(5, 10))" == repr(env)

    def test_pickles(self):
        env = pickle.loads(
            pickle.dumps(ReshapeObservation(showing(np.ones(4)), (2, 2)))
        )
        assert (2, 2) == env.reset().observation.shape

    @pytest.mark.parametrize("shape", [(-2, 5), (-1, -1)])
    def test_refuses_negative_sizes(self, shape, message_of):
        assert (
            "shape must have sizes of 0 or more; one may be -1, to be worked out from "
            f"the others. Got {shape}."
        ) == message_of(ValueError, lambda: ReshapeObservation(Catch(), shape))


# Mapping the range of a leaf to another.


NUMBERS = st.floats(-1e30, 1e30)


def rescaling(spec, low=-1.0, high=1.0):
    return Rescaling(spec, "", *checked_bounds(low, high))


def has_infinite_bounds(spec):
    if spec.dtype.kind != "f":
        return False
    limits = np.finfo(spec.dtype)
    with np.errstate(over="ignore"):
        width = spec.maximum - spec.minimum
    return bool(
        np.any(spec.minimum == limits.min)
        or np.any(spec.maximum == limits.max)
        or np.any(np.isinf(width))
    )


@st.composite
def ranges(draw):
    low, high = draw(NUMBERS), draw(NUMBERS)
    assume(low < high)
    return low, high


@st.composite
def leaves(draw):
    """Draws a spec with finite bounds, and a batch of arrays that fit it."""
    spec = draw(strategies.bounded_specs(any_byte_order=True))
    assume(not has_infinite_bounds(spec))
    return spec, draw(strategies.values(spec, (3,)))


@given(leaves(), ranges())
def test_values_within_the_bounds_map_into_the_new_ones(leaf, new):
    """Whichever way the arithmetic rounds, in all dtypes; the bounds, too."""
    spec, values = leaf
    rescale = rescaling(spec, *new)

    rescaled = rescale(values)

    assert rescale.spec.dtype == rescaled.dtype
    assert values.shape == rescaled.shape
    assert np.all(rescale.spec.minimum <= rescaled)
    assert np.all(rescaled <= rescale.spec.maximum)

    low, high = (
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    )
    assert np.all(rescale(low) == rescale.spec.minimum)
    width, largest = high.astype(np.longdouble) - low, max(map(abs, new))
    # A quotient of very large and very small numbers is 0, or no number at all.
    if np.all((width > 1e-9) & (width < 1e9)) and new[1] - new[0] > 1e-9:
        np.testing.assert_allclose(
            rescale(high), np.full(spec.shape, new[1]), rtol=0, atol=1e-6 * largest
        )


@given(
    hnp.arrays(np.uint8, (4,), elements=st.integers(0, 255)),
    hnp.arrays(np.uint8, (4,), elements=st.integers(0, 255)),
    ranges(),
)
def test_the_order_of_numbers_is_kept(first, second, new):
    rescale = rescaling(BoundedArraySpec((4,), np.uint8, 0, 255), *new)
    ordered = first <= second
    assert np.all((rescale(first) <= rescale(second))[ordered])


def test_a_leaf_without_dimensions_stays_an_array():
    rescaled = rescaling(BoundedArraySpec((), np.int64, 0, 4))(np.array(3))
    assert isinstance(rescaled, np.ndarray)
    assert 0.5 == rescaled


def test_an_element_with_one_value_becomes_the_new_minimum():
    rescale = rescaling(BoundedArraySpec((2,), np.float32, 1.0, [1.0, 3.0]))
    assert [-1.0, 0.0] == rescale(np.array([1.0, 2.0], np.float32)).tolist()


def test_values_outside_the_bounds_are_not_clipped():
    rescale = rescaling(BoundedArraySpec((), np.float32, 0.0, 1.0), 0.0, 10.0)
    assert 20.0 == rescale(np.array(2.0, np.float32))


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        (np.uint8, np.float32),
        (np.int64, np.float32),
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (">f8", np.float64),
    ],
)
def test_integers_become_float32_and_float64_is_kept(given_dtype, expected):
    assert expected == rescaling(BoundedArraySpec((), given_dtype, 0, 1)).spec.dtype


def test_integers_of_64_bits_keep_their_digits_on_the_way():
    """In float32, two of the largest that differ by less than 2**40 are the same."""
    spec = BoundedArraySpec((), np.int64, 2**62, 2**62 + 4096)
    assert 0.0 == rescaling(spec)(np.array(2**62 + 2048))


def test_the_given_array_is_not_changed():
    given_array = np.array([0.0, 4.0])
    rescaling(BoundedArraySpec((2,), np.float64, 0.0, 4.0))(given_array)
    assert [0.0, 4.0] == given_array.tolist()


def test_bounds_too_far_apart_for_the_dtype_are_refused(message_of):
    spec = BoundedArraySpec((), np.float32, 0.0, 1.0)
    assert (
        "min_obs is -3e+38 and max_obs is 3e+38, which is too far apart for float32, "
        "the dtype of the observation after rescaling."
    ) == message_of(ValueError, lambda: rescaling(spec, -3e38, 3e38))


# What becomes of specs when leaves are cast or reshaped.


def cast(spec, dtype):
    return cast_spec(spec, np.dtype(dtype))


@given(
    strategies.specs("biuf", any_byte_order=True), strategies.dtypes("biuf"), st.data()
)
def test_values_that_fit_a_spec_fit_its_cast(spec, dtype, data):
    result = cast_spec(spec, dtype)
    assume(result is not None)
    value = data.draw(strategies.values(spec))
    with np.errstate(over="ignore"):
        moved = value.astype(dtype)
    # Where a float has no bound, shorter floats may make infinity of it.
    assume(dtype.kind != "f" or np.isfinite(moved).all())
    assert check_arrays_nest(moved, result)


@given(strategies.specs("biuf"))
def test_a_cast_to_the_same_dtype_keeps_the_bounds(spec):
    result = cast_spec(spec, spec.dtype)
    assert (spec, spec.name) == (result, result.name)


@given(strategies.specs("biu"), strategies.dtypes("biu"), st.data())
def test_a_cast_between_integers_changes_no_value(spec, dtype, data):
    assume(cast_spec(spec, dtype) is not None)
    value = data.draw(strategies.values(spec))
    assert value.tolist() == value.astype(dtype).tolist()


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (BoundedArraySpec((), np.int64, 0, 256), np.uint8),
        (BoundedArraySpec((), np.int64, -1, 9), np.uint8),
        (BoundedArraySpec((), np.float32, 0.0, 256.0), np.uint8),
        (BoundedArraySpec((), np.float32, 0.0), np.int64),
        (BoundedArraySpec((), np.float64, 0.0, 1e6), np.float16),
        (BoundedArraySpec((), np.int64, 0, 2), np.bool_),
        (BoundedArraySpec((), np.float32, 0.0, 1.0), np.bool_),
        (ArraySpec((), np.float32), np.int64),
        (ArraySpec((), np.int64), np.int32),
        (ArraySpec((), np.int64), np.float16),
        (ArraySpec((), np.uint8), np.int8),
        (ArraySpec((), "<U3"), np.float32),
        (ArraySpec((), np.complex64), np.float32),
    ],
    ids=str,
)
def test_a_dtype_that_cannot_hold_everything_is_refused(spec, dtype):
    assert cast(spec, dtype) is None


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (ArraySpec((), np.float64), np.float32),
        (ArraySpec((), np.int32), np.int64),
        (ArraySpec((), np.int64), np.float32),
        (ArraySpec((), np.uint8), np.int16),
    ],
    ids=str,
)
def test_an_unbounded_spec_stays_unbounded(spec, dtype):
    assert ArraySpec((), dtype) == cast(spec, dtype)


def test_booleans_are_known_to_be_0_or_1():
    expected = BoundedArraySpec((3,), np.float32, 0.0, 1.0)
    assert expected == cast(ArraySpec((3,), np.bool_), np.float32)


def test_bits_become_booleans():
    spec = BoundedArraySpec((3,), np.int64, 0, 1)
    assert ArraySpec((3,), np.bool_) == cast(spec, np.bool_)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_an_infinite_bound_stays_infinite_in_other_floats(dtype):
    """The largest number of a dtype stands for infinity."""
    spec = BoundedArraySpec((), np.float32, 0.0, np.inf)
    assert BoundedArraySpec((), dtype, 0.0, np.inf) == cast(spec, dtype)


def test_fractions_of_bounds_are_cut_off_like_those_of_values():
    spec = BoundedArraySpec((), np.float32, -1.5, 2.5)
    assert BoundedArraySpec((), np.int8, -1, 2) == cast(spec, np.int8)


def test_text_has_no_bounds():
    assert known_bounds(ArraySpec((), "<U3")) is None


@given(strategies.specs("biuf"), st.data())
def test_values_that_fit_a_spec_fit_it_after_reshaping(spec, data):
    value = data.draw(strategies.values(spec))
    shape = (value.size,)
    assert check_arrays_nest(value.reshape(shape), reshaped_spec(spec, shape))


REFUSED = {
    "TransformObservation: a function that is none": (
        TypeError,
        lambda: TransformObservation(Catch(), np.zeros(2)),
        "TransformObservation needs a function of observations, not array of shape "
        "(2,), dtype float64, values 0.0 … 0.0.",
    ),
    "TransformObservation: a spec that is none": (
        TypeError,
        lambda: TransformObservation(Catch(), twice, {"a": np.zeros(2)}),
        "TransformObservation takes specs, and observation_spec['a'] is array of "
        "shape (2,), dtype float64, values 0.0 … 0.0: use "
        "envkit.ArraySpec(shape, dtype).",
    ),
    "TransformObservation: a space": (
        TypeError,
        lambda: TransformObservation(Catch(), twice, gymnasium.spaces.Discrete(2)),
        "TransformObservation takes specs, and observation_spec is a Discrete object: "
        "use envkit.adapters.spec_from_gym_space(space).",
    ),
    "RescaleObservation: leaves without bounds": (
        ValueError,
        lambda: RescaleObservation(Drive(), -1, 1),
        "RescaleObservation needs to know the range of every number, and the "
        "observation at ['rest'][0] has no bounds: its spec is ArraySpec(shape=(), "
        "dtype=float32). Give it bounds with TransformObservation, leave it out "
        "with SelectObservation, or use NormalizeObservation instead.",
    ),
    "RescaleObservation: bounds that are no numbers": (
        TypeError,
        lambda: RescaleObservation(Catch(), "low", 1),
        "min_obs must be a number, or an array of numbers, got the string 'low'.",
    ),
    "RescaleObservation: bounds that do not broadcast": (
        ValueError,
        lambda: RescaleObservation(
            showing([np.zeros(2, np.float32)], [UNIT]), 0, [1, 2, 3]
        ),
        "max_obs has the shape (3,), which does not broadcast to that of the "
        "observation at [0], (2,).",
    ),
    "RescaleObservation: bounds of a higher rank": (
        ValueError,
        lambda: RescaleObservation(showing(np.zeros(2, np.float32), UNIT), [[0, 0]], 1),
        "min_obs has the shape (1, 2), which does not broadcast to that of the "
        "observation, (2,).",
    ),
    "RescaleObservation: bounds that do not match each other": (
        ValueError,
        lambda: RescaleObservation(Catch(), [0, 0], [1, 2, 3]),
        "min_obs and max_obs must both broadcast to the shape of every leaf of "
        "the observation, got the shapes (2,) and (3,).",
    ),
    "DtypeObservation: a dtype that cannot hold the bounds": (
        ValueError,
        lambda: DtypeObservation(Drive(), np.uint8),
        "DtypeObservation cannot cast the observation at ['place'] to uint8, which "
        "cannot hold every value of its spec: BoundedArraySpec(shape=(2,), "
        "dtype=float32, minimum=-10.0, maximum=[10.0, 20.0]). Choose another "
        "dtype, or reduce the range first, for instance with RescaleObservation.",
    ),
    "DtypeObservation: a dtype of text": (
        ValueError,
        lambda: DtypeObservation(Catch(), "<U3"),
        "dtype must be one of numbers or booleans, such as np.float32, got <U3.",
    ),
    "DiscretizeObservation: bins for another number of elements": (
        ValueError,
        lambda: DiscretizeObservation(
            showing(np.zeros(2, np.float32), UNIT), bins=[3, 4, 5]
        ),
        "bins must be an integer, or have one for each of 2 elements, got [3, 4, 5].",
    ),
    "ReshapeObservation: a shape of another size": (
        ValueError,
        lambda: ReshapeObservation(TicTacToe(), (3, 4)),
        "ReshapeObservation cannot give the observation at ['board'] the shape "
        "(3, 4): it has the shape (3, 3), which is 9 elements.",
    ),
    "ReshapeObservation: a shape that cannot be completed": (
        ValueError,
        lambda: ReshapeObservation(Catch(), (7, -1)),
        "ReshapeObservation cannot give the observation the shape (7, -1): it has "
        "the shape (10, 5), which is 50 elements.",
    ),
    "ReshapeObservation: a number": (
        TypeError,
        lambda: ReshapeObservation(Catch(), 50),
        "shape must be a tuple of integers such as (84, 84, 3), got 50. For a "
        "vector write (50,).",
    ),
    "ReshapeObservation: sizes that are no integers": (
        TypeError,
        lambda: ReshapeObservation(Catch(), (2.0, 25)),
        "shape must be a tuple of integers such as (84, 84, 3), got (2.0, 25).",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_impossible_observation_changes_are_refused(error, call, message, message_of):
    assert message == message_of(error, call)
