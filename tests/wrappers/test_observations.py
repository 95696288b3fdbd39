"""Wrappers that change the leaves of observations."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import SpecError
from envkit.specs import add_outer_dims_nest, check_arrays_nest
from envkit.wrappers.observations.transforms import (
    DtypeObservation,
    RescaleObservation,
    ReshapeObservation,
    TransformObservation,
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

    def test_gives_the_rows_of_a_batch_to_the_function_at_once(self):
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

    def test_makes_arrays_of_the_numbers_of_arithmetic(self):
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
            "The spec is that of the environment, as no other was given. If the "
            "function is to change it, say into what: TransformObservation(env, "
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
            "The spec is that of the environment, as no other was given. If the "
            "function is to change it, say into what: TransformObservation(env, "
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
            "The spec is the one that was given as observation_spec."
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

    def test_refuses_a_function_that_is_none(self, message_of):
        assert (
            "TransformObservation needs a function of observations, not array of shape "
            "(2,), dtype float64, values 0.0 … 0.0."
        ) == message_of(TypeError, lambda: TransformObservation(Catch(), np.zeros(2)))

    def test_refuses_a_spec_that_is_none(self, message_of):
        assert (
            "TransformObservation takes specs, and observation_spec['a'] is array of "
            "shape (2,), dtype float64, values 0.0 … 0.0: use "
            "envkit.ArraySpec(shape, dtype)."
        ) == message_of(
            TypeError,
            lambda: TransformObservation(Catch(), twice, {"a": np.zeros(2)}),
        )

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

    def test_maps_each_row_of_a_batch(self):
        env = RescaleObservation(
            showing_rows(np.float32([0, 1]), np.float32([1, 1]), spec=UNIT), -1, 1
        )

        assert [[-1, 1], [1, 1]] == env.reset().observation.tolist()

    def test_takes_new_bounds_for_each_element(self):
        env = RescaleObservation(
            showing(np.float32([0.5, 0.5]), UNIT), np.array([0, 10]), [2, 30]
        )

        assert [1.0, 20.0] == env.reset().observation.tolist()

    def test_leaves_masks_as_they_are(self):
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

    def test_refuses_leaves_without_bounds(self, message_of):
        assert (
            "RescaleObservation needs to know the range of every number, and the "
            "observation at ['rest'][0] has no bounds: its spec is ArraySpec(shape=(), "
            "dtype=float32). Give it bounds with TransformObservation, leave it out "
            "with SelectObservation, or scale by what is observed, with "
            "NormalizeObservation."
        ) == message_of(ValueError, lambda: RescaleObservation(Drive(), -1, 1))

    @pytest.mark.parametrize(
        "bounds", [(-np.inf, 1.0), (0.0, [1.0, np.inf]), (-3e38, 3e38)], ids=str
    )
    def test_refuses_leaves_with_infinite_bounds(self, bounds, message_of):
        spec = BoundedArraySpec((2,), np.float32, *bounds)

        assert (
            "RescaleObservation needs to know the range of every number, and the "
            f"observation has infinite bounds: its spec is {spec!r}. Give it bounds "
            "with TransformObservation, leave it out with SelectObservation, or scale "
            "by what is observed, with NormalizeObservation."
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
        assert f"max_obs is {bound}; it must be finite." == message_of(
            ValueError, lambda: RescaleObservation(Catch(), 0, bound)
        )

    def test_refuses_bounds_that_are_no_numbers(self, message_of):
        assert (
            "min_obs is the string 'low'; it must be a number, or an array of numbers."
        ) == message_of(TypeError, lambda: RescaleObservation(Catch(), "low", 1))

    def test_refuses_bounds_that_do_not_broadcast(self, message_of):
        assert (
            "max_obs has the shape (3,), which does not broadcast to that of the "
            "observation at [0], (2,)."
        ) == message_of(
            ValueError,
            lambda: RescaleObservation(
                showing([np.zeros(2, np.float32)], [UNIT]), 0, [1, 2, 3]
            ),
        )

    def test_refuses_bounds_of_a_higher_rank(self, message_of):
        assert (
            "min_obs has the shape (1, 2), which does not broadcast to that of the "
            "observation, (2,)."
        ) == message_of(
            ValueError,
            lambda: RescaleObservation(
                showing(np.zeros(2, np.float32), UNIT), [[0, 0]], 1
            ),
        )

    def test_refuses_bounds_that_do_not_match_each_other(self, message_of):
        assert (
            "min_obs has the shape (2,) and max_obs (3,); both broadcast to the shape "
            "of every leaf of the observation."
        ) == message_of(
            ValueError, lambda: RescaleObservation(Catch(), [0, 0], [1, 2, 3])
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
    def test_what_it_shows_fits_its_spec(self, spec, dims, data):
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

    def test_refuses_a_dtype_that_cannot_hold_the_bounds(self, message_of):
        assert (
            "DtypeObservation cannot cast the observation at ['place'] to uint8, which "
            "cannot hold all that its spec allows: BoundedArraySpec(shape=(2,), "
            "dtype=float32, minimum=-10.0, maximum=[10.0, 20.0]). Choose another "
            "dtype, or bring the observation into a smaller range first, with "
            "RescaleObservation for instance."
        ) == message_of(ValueError, lambda: DtypeObservation(Drive(), np.uint8))

    @pytest.mark.parametrize("dtype", [None, "nonsense", 7])
    def test_refuses_what_is_no_dtype(self, dtype, message_of):
        assert (
            f"dtype is {dtype!r}, which NumPy does not know as a dtype. It must be one "
            "of numbers or booleans, such as np.float32."
        ) == message_of(TypeError, lambda: DtypeObservation(Catch(), dtype))

    def test_refuses_a_dtype_of_text(self, message_of):
        assert (
            "dtype is <U3; it must be one of numbers or booleans, such as np.float32."
        ) == message_of(ValueError, lambda: DtypeObservation(Catch(), "<U3"))


class TestReshapeObservation:
    def test_keeps_the_elements_in_order(self):
        env = ReshapeObservation(showing(np.arange(6)), (2, 3))

        assert [[0, 1, 2], [3, 4, 5]] == env.reset().observation.tolist()

    def test_reshapes_each_row_by_itself(self):
        env = ReshapeObservation(showing_rows(np.arange(4), 10 + np.arange(4)), (2, 2))

        assert [[[0, 1], [2, 3]], [[10, 11], [12, 13]]] == (
            env.reset().observation.tolist()
        )

    def test_bounds_follow(self):
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

    def test_refuses_a_shape_of_another_size(self, message_of):
        assert (
            "ReshapeObservation cannot give the observation at ['board'] the shape "
            "(3, 4): it has the shape (3, 3), which is 9 elements."
        ) == message_of(ValueError, lambda: ReshapeObservation(TicTacToe(), (3, 4)))

    def test_refuses_a_shape_that_cannot_be_completed(self, message_of):
        assert (
            "ReshapeObservation cannot give the observation the shape (7, -1): it has "
            "the shape (10, 5), which is 50 elements."
        ) == message_of(ValueError, lambda: ReshapeObservation(Catch(), (7, -1)))

    @pytest.mark.parametrize("shape", [(-2, 5), (-1, -1)])
    def test_refuses_negative_sizes(self, shape, message_of):
        assert (
            f"shape is {shape}; its sizes must be 0 or more, and one of them may be "
            "-1, which is what the others leave."
        ) == message_of(ValueError, lambda: ReshapeObservation(Catch(), shape))

    def test_refuses_a_number(self, message_of):
        assert (
            "shape is 50; it must be a tuple of integers such as (84, 84, 3). For a "
            "vector write (50,)."
        ) == message_of(TypeError, lambda: ReshapeObservation(Catch(), 50))

    def test_refuses_sizes_that_are_no_integers(self, message_of):
        assert (
            "shape is (2.0, 25); it must be a tuple of integers such as (84, 84, 3)."
        ) == message_of(TypeError, lambda: ReshapeObservation(Catch(), (2.0, 25)))
