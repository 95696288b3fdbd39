"""Wrappers that choose, rename or join the parts of observations."""

from __future__ import annotations

import collections
import types
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    RandomPyEnvironment,
    StepType,
    TimeStep,
    nest,
)
from envkit.envs import CartPole, Catch, TicTacToe
from envkit.errors import SpecError
from envkit.specs import add_outer_dims_nest, check_arrays_nest
from envkit.testing import CountingEnv
from envkit.wrappers.observations.parts import (
    FlattenObservationsWrapper,
    ObservationFilterWrapper,
    RenameObservation,
    SelectObservation,
)
from tests import strategies
from tests.wrappers.environments import Drive
from tests.wrappers.showing import showing, showing_rows

INTEGER = BoundedArraySpec((), np.int32, -10, 10)
THREE = {
    "obs1": ArraySpec((1,), np.int32),
    "obs2": ArraySpec((2,), np.int32),
    "obs3": ArraySpec((3,), np.int32),
}


def mocked():
    """Makes what TF-Agents' tests wrap; it says its observation spec three times."""
    env = mock.MagicMock()
    env.observation_spec.side_effect = [BoundedArraySpec((3,), np.int32, -10, 10)] * 3
    env.reset.side_effect = [TimeStep(StepType.MID, 5, 1, [3, 5, 2])]
    env.step.side_effect = [TimeStep(StepType.MID, 5, 1, [1, 2, 3])]
    return env


class TestObservationFilterWrapper:
    def test_shows_the_elements_in_the_order_asked_for(self):
        env = ObservationFilterWrapper(showing(np.array([1, 2, 3])), [2, 0, 2])

        assert [3, 1, 3] == env.reset().observation.tolist()

    def test_counts_negative_indices_from_the_end(self):
        env = ObservationFilterWrapper(showing(np.array([1, 2, 3])), np.array([-1, -3]))

        assert [3, 1] == env.reset().observation.tolist()

    def test_filters_each_row_of_a_batch(self):
        inner = showing_rows(np.array([1, 2, 3]), np.array([4, 5, 6]))

        assert [[3, 1], [6, 4]] == (
            ObservationFilterWrapper(inner, [2, 0]).reset().observation.tolist()
        )

    def test_bounds_are_those_of_the_elements(self):
        spec = BoundedArraySpec((3,), np.int64, 0, [1, 2, 3], name="vector")
        env = ObservationFilterWrapper(showing(np.array([0, 0, 0]), spec), [2, 0])

        assert BoundedArraySpec((2,), np.int64, 0, [3, 1]) == env.observation_spec()
        assert "vector" == env.observation_spec().name

    def test_a_spec_without_bounds_stays_one(self):
        env = ObservationFilterWrapper(showing(np.zeros(3)), [2, 0])

        assert ArraySpec((2,), np.float64) == env.observation_spec()

    def test_takes_what_merely_looks_like_an_environment(self):
        env = ObservationFilterWrapper(mocked(), [0, 2])

        assert [3, 2] == env.reset().observation.tolist()
        assert [1, 3] == env.step(0).observation.tolist()
        assert (2,) == env.observation_spec().shape

    def test_keeps_indices_of_its_own(self):
        indices = np.array([0, 1])
        env = ObservationFilterWrapper(showing(np.array([1, 2, 3])), indices)
        indices[:] = 2

        assert [1, 2] == env.reset().observation.tolist()

    def test_shows_its_indices(self):
        env = ObservationFilterWrapper(CartPole(), np.array([2, 0]))

        assert "ObservationFilterWrapper(CartPole(), idx=[2, 0])" == repr(env)

    @pytest.mark.parametrize(
        ("env", "kind"),
        [(TicTacToe(), "a dictionary"), (Catch(), "an array of shape (10, 5)")],
        ids=["nested", "of rank 2"],
    )
    def test_refuses_what_is_no_vector(self, env, kind, message_of):
        assert (
            "ObservationFilterWrapper filters observations that are a single vector, "
            f"and this one is {kind}. To choose among the parts of a dictionary use "
            "SelectObservation; to make a vector of other observations, "
            "FlattenObservationsWrapper."
        ) == message_of(ValueError, lambda: ObservationFilterWrapper(env, [0]))

    @pytest.mark.parametrize(
        ("idx", "got"),
        [
            ([[0]], "a list of 1 element"),
            ([], "a list of 0 elements"),
            ([[0], [1, 2]], "a list of 2 elements"),
            ([0.0], "a list of 1 element"),
            ("0", "the string '0'"),
        ],
        ids=str,
    )
    def test_refuses_what_is_no_list_of_indices(self, idx, got, message_of):
        assert (
            f"idx is {got}; it must be a list of at least one index, such as [0, 2]."
        ) == message_of(ValueError, lambda: ObservationFilterWrapper(CartPole(), idx))

    def test_says_how_to_write_a_single_index(self, message_of):
        assert (
            "idx is 2 of type int; it must be a list of at least one index, such as "
            "[0, 2]. For one element write [2]."
        ) == message_of(ValueError, lambda: ObservationFilterWrapper(CartPole(), 2))

    def test_says_how_to_make_indices_of_a_mask(self, message_of):
        assert (
            "idx is a list of 4 elements; it must be a list of at least one index, "
            "such as [0, 2]. Of a mask make indices with np.flatnonzero(mask)."
        ) == message_of(
            ValueError,
            lambda: ObservationFilterWrapper(CartPole(), [True, False, False, True]),
        )

    @pytest.mark.parametrize("index", [4, -5, 2**63])
    def test_refuses_an_index_out_of_bounds(self, index, message_of):
        assert (
            f"idx has the index {index}, which is out of bounds: the observation has 4 "
            "elements, from 0 to 3."
        ) == message_of(
            ValueError,
            lambda: ObservationFilterWrapper(CartPole(), np.array([index])),
        )


class TestFlattenObservationsWrapper:
    @pytest.mark.parametrize(
        ("shapes", "dtype", "size"),
        [
            ([(4,), (5,)], np.int32, 9),
            ([(1,), (1,), (4,)], np.float32, 6),
            ([(5, 2), (3, 3)], np.float32, 19),
            ([(), (2,)], np.float32, 3),
        ],
        ids=str,
    )
    def test_joins_all_parts(self, shapes, dtype, size):
        spec = collections.OrderedDict(
            (f"obs{index}", ArraySpec(shape, dtype))
            for index, shape in enumerate(shapes)
        )
        env = FlattenObservationsWrapper(RandomPyEnvironment(spec, INTEGER))
        expected = ArraySpec((size,), dtype, "packed_observations")

        assert (size,) == env.reset().observation.shape
        assert (size,) == env.step(np.int32(3)).observation.shape
        assert expected == env.observation_spec()
        assert "packed_observations" == env.observation_spec().name

    @pytest.mark.parametrize(
        ("allowed", "size"),
        [(["obs1"], 1), (np.array(["obs1", "obs3"]), 4), (("obs3", "obs3"), 3)],
        ids=str,
    )
    def test_joins_the_allowed_parts(self, allowed, size):
        env = FlattenObservationsWrapper(RandomPyEnvironment(THREE, INTEGER), allowed)

        assert (size,) == env.step(np.int32(3)).observation.shape
        assert ArraySpec((size,), np.int32) == env.observation_spec()

    def test_orders_the_parts_by_their_sorted_keys(self):
        inner = showing({"b": np.array([3, 4]), "a": np.array([[1], [2]])})

        assert [1, 2, 3, 4] == (
            FlattenObservationsWrapper(inner).reset().observation.tolist()
        )

    def test_the_order_of_the_allowlist_does_not_matter(self):
        inner = showing({"a": np.array([1]), "b": np.array([2]), "c": np.array([3])})
        env = FlattenObservationsWrapper(inner, ["c", "a"])

        assert [1, 3] == env.reset().observation.tolist()

    def test_makes_a_vector_for_each_row(self):
        env = FlattenObservationsWrapper(
            RandomPyEnvironment(THREE, INTEGER, batch_size=4), ["obs3", "obs1"]
        )

        assert (4, 4) == env.step(np.zeros(4, np.int32)).observation.shape
        assert ArraySpec((4,), np.int32) == env.observation_spec()

    def test_changes_neither_the_environment_s_spec_nor_its_observation(self):
        inner = RandomPyEnvironment(THREE, INTEGER)

        FlattenObservationsWrapper(inner, ["obs1"]).reset()

        assert ["obs1", "obs2", "obs3"] == list(inner.observation_spec())
        assert ["obs1", "obs2", "obs3"] == list(inner.current_time_step().observation)

    def test_bounds_are_joined_if_all_parts_have_some(self):
        spec = {
            "a": BoundedArraySpec((), np.int64, 0, 5),
            "b": BoundedArraySpec((2,), np.int64, [-1, -2], 9),
        }
        inner = showing({"a": np.array(0), "b": np.array([0, 0])}, spec)

        assert (
            BoundedArraySpec((3,), np.int64, [0, -1, -2], [5, 9, 9])
            == FlattenObservationsWrapper(inner).observation_spec()
        )

    def test_dtypes_matter_of_allowed_parts_only(self):
        env = FlattenObservationsWrapper(TicTacToe(), ["mask"])

        assert ArraySpec((9,), np.bool_) == env.observation_spec()

    def test_a_single_array_becomes_a_vector(self):
        env = FlattenObservationsWrapper(Catch(batch_size=2))

        assert (2, 50) == env.reset().observation.shape

    @given(
        strategies.spec_nests(strategies.specs("f", any_byte_order=True), max_depth=2),
        st.booleans(),
        st.data(),
    )
    def test_what_it_shows_fits_its_spec(self, spec, is_batch, data):
        rows = [data.draw(strategies.values(spec)) for _ in range(2)]
        inner = showing_rows(*rows, spec=spec) if is_batch else showing(rows[0], spec)
        if len({leaf.dtype for leaf in nest.flatten(spec)}) != 1:
            with pytest.raises(ValueError, match="joins parts that have the same"):
                FlattenObservationsWrapper(inner)
            return
        env = FlattenObservationsWrapper(inner)
        expected = add_outer_dims_nest(env.observation_spec(), (2,) if is_batch else ())

        assert check_arrays_nest(env.reset().observation, expected)

    def test_shows_its_allowlist(self):
        env = FlattenObservationsWrapper(TicTacToe(), ("mask",))

        assert (
            "FlattenObservationsWrapper(TicTacToe(), observations_allowlist=['mask'])"
        ) == repr(env)

    def test_has_no_allowlist_unless_it_is_given(self):
        assert FlattenObservationsWrapper(Catch()).observations_allowlist is None

    def test_refuses_several_dtypes(self, message_of):
        assert (
            "FlattenObservationsWrapper joins parts that have the same dtype, and "
            "these have int32, bool. Choose some of them with observations_allowlist, "
            "or cast them with DtypeObservation first."
        ) == message_of(ValueError, lambda: FlattenObservationsWrapper(TicTacToe()))

    def test_refuses_an_observation_without_parts(self, message_of):
        assert (
            "FlattenObservationsWrapper joins parts that have the same dtype, and "
            "these have none, for there are no parts. Choose some of them with "
            "observations_allowlist, or cast them with DtypeObservation first."
        ) == message_of(ValueError, lambda: FlattenObservationsWrapper(showing({}, {})))

    @pytest.mark.parametrize(
        ("spec", "kind"),
        [
            ([ArraySpec((1,), np.int32)], "a list"),
            (ArraySpec((1,), np.int32), "an array of shape (1,)"),
        ],
        ids=["list", "array"],
    )
    def test_refuses_an_allowlist_for_what_is_no_dictionary(
        self, spec, kind, message_of
    ):
        inner = RandomPyEnvironment(spec, INTEGER)

        assert (
            "FlattenObservationsWrapper takes observations_allowlist of observations "
            f"that are a dictionary, and this one is {kind}."
        ) == message_of(ValueError, lambda: FlattenObservationsWrapper(inner, ["obs1"]))

    def test_refuses_unknown_keys(self, message_of):
        inner = RandomPyEnvironment(THREE, INTEGER)

        assert (
            "observations_allowlist has the key 'obs4', which the observation does not "
            "have. Its keys are 'obs1', 'obs2', 'obs3'."
        ) == message_of(
            ValueError, lambda: FlattenObservationsWrapper(inner, ["obs1", "obs4"])
        )

    def test_refuses_an_empty_allowlist(self, message_of):
        assert (
            "observations_allowlist is empty; it must hold at least one key of the "
            "observation, of which there are 'board', 'mask'."
        ) == message_of(ValueError, lambda: FlattenObservationsWrapper(TicTacToe(), []))

    def test_refuses_an_array_without_dimensions(self, message_of):
        assert (
            "observations_allowlist is array of shape (), dtype int64, values 3 … 3; "
            "it must be a list of keys of the observation, which are 'board', 'mask'."
        ) == message_of(
            TypeError, lambda: FlattenObservationsWrapper(TicTacToe(), np.array(3))
        )

    def test_refuses_a_dictionary(self, message_of):
        assert (
            "observations_allowlist is a dict of 1 element; it must be a list "
            "of keys of the observation, which are 'board', 'mask'. "
            "RenameObservation takes a dictionary of new keys."
        ) == message_of(
            TypeError, lambda: FlattenObservationsWrapper(TicTacToe(), {"board": "x"})
        )

    def test_takes_keys_of_every_kind_of_collection(self):
        keys = TicTacToe().observation_spec().keys() - {"mask"}

        env = FlattenObservationsWrapper(TicTacToe(), keys)

        assert (9,) == env.observation_spec().shape

    def test_refuses_a_key_in_place_of_a_list(self, message_of):
        assert (
            "observations_allowlist is the string 'mask'; it must be a list of keys of "
            "the observation, which are 'board', 'mask'."
        ) == message_of(
            TypeError, lambda: FlattenObservationsWrapper(TicTacToe(), "mask")
        )


class TestSelectObservation:
    def test_keeps_the_parts_in_the_order_asked_for(self):
        env = SelectObservation(Drive(), ["rest", "camera"])

        assert ["rest", "camera"] == list(env.observation_spec())
        assert ["rest", "camera"] == list(env.reset().observation)

    def test_keeps_a_list_of_one_part_a_dictionary(self):
        env = SelectObservation(TicTacToe(), ["mask"])

        assert ["mask"] == list(env.reset().observation)

    def test_unpacks_the_part_that_a_string_names(self):
        env = SelectObservation(TicTacToe(batch_size=2), "mask")

        assert ArraySpec((9,), np.bool_) == env.observation_spec()
        assert (2, 9) == env.reset().observation.shape

    def test_a_part_may_be_a_nest(self):
        env = SelectObservation(Drive(), "rest")

        assert isinstance(env.reset().observation, tuple)
        assert 2 == len(env.observation_spec())

    def test_takes_mappings_of_every_kind(self):
        spec = types.MappingProxyType({"a": ArraySpec((), np.int64)})
        inner = showing(types.MappingProxyType({"a": np.array(7)}), spec)

        assert 7 == SelectObservation(inner, "a").reset().observation

    def test_changes_neither_the_environment_s_spec_nor_its_observation(self):
        inner = TicTacToe()
        SelectObservation(inner, ["mask"]).reset()

        assert ["board", "mask"] == sorted(inner.observation_spec())
        assert ["board", "mask"] == sorted(inner.current_time_step().observation)

    def test_shows_its_names(self):
        one = SelectObservation(TicTacToe(), "mask")
        more = SelectObservation(TicTacToe(), ("mask", "board"))

        assert "SelectObservation(TicTacToe(), names='mask')" == repr(one)
        assert "SelectObservation(TicTacToe(), names=['mask', 'board'])" == repr(more)

    def test_refuses_what_is_no_dictionary(self, message_of):
        assert (
            "SelectObservation takes names of observations that are a dictionary, and "
            "this one is an array of shape (4,)."
        ) == message_of(ValueError, lambda: SelectObservation(CartPole(), "position"))

    @pytest.mark.parametrize(
        ("names", "text"),
        [
            ("cam", "the key 'cam'"),
            (["cam", "rest", "lidar"], "the keys 'cam', 'lidar'"),
            ([["rest"]], "the key ['rest']"),
        ],
        ids=str,
    )
    def test_refuses_unknown_names(self, names, text, message_of):
        assert (
            f"names has {text}, which the observation does not have. Its keys are "
            "'camera', 'place', 'rest'."
        ) == message_of(ValueError, lambda: SelectObservation(Drive(), names))

    def test_refuses_no_names_at_all(self, message_of):
        assert (
            "names is empty; it must hold at least one key of the observation, of "
            "which there are 'board', 'mask'."
        ) == message_of(ValueError, lambda: SelectObservation(TicTacToe(), []))

    @pytest.mark.parametrize(
        ("names", "text"),
        [
            (np.array(3), "array of shape (), dtype int64, values 3 … 3"),
            (b"x", "the string b'x'"),
        ],
    )
    def test_refuses_what_only_looks_like_a_list(self, names, text, message_of):
        assert (
            f"names is {text}; it must be a list of keys of the observation, which are "
            "'board', 'mask'."
        ) == message_of(TypeError, lambda: SelectObservation(TicTacToe(), names))

    def test_refuses_a_dictionary_of_names(self, message_of):
        assert (
            "names is a dict of 1 element; it must be a list of keys of the "
            "observation, which are 'board', 'mask'. RenameObservation takes a "
            "dictionary of new keys."
        ) == message_of(TypeError, lambda: SelectObservation(TicTacToe(), {"board": 1}))

    def test_refuses_what_is_no_list_of_names(self, message_of):
        assert (
            "names is 3 of type int; it must be a list of keys of the observation, "
            "which are 'board', 'mask'."
        ) == message_of(TypeError, lambda: SelectObservation(TicTacToe(), 3))


class TestRenameObservation:
    def test_gives_parts_other_keys_and_keeps_their_order(self):
        env = RenameObservation(Drive(), {"place": "position"})

        assert ["camera", "position", "rest"] == list(env.observation_spec())
        assert ["camera", "position", "rest"] == list(env.reset().observation)

    def test_two_parts_can_swap_their_keys(self):
        inner = showing({"a": np.array(1), "b": np.array(2)})
        env = RenameObservation(inner, {"a": "b", "b": "a"})

        assert {"b": 1, "a": 2} == env.reset().observation

    def test_a_part_can_keep_its_key(self):
        env = RenameObservation(TicTacToe(), {"board": "board"})

        assert ["board", "mask"] == sorted(env.reset().observation)

    def test_keeps_names_of_its_own(self):
        names = {"board": "squares"}
        env = RenameObservation(TicTacToe(), names)
        names["board"] = "changed"
        env.names["board"] = "changed"

        assert {"board": "squares"} == env.names
        assert "squares" in env.reset().observation

    def test_shows_its_names(self):
        env = RenameObservation(TicTacToe(), {"board": "squares"})

        assert "RenameObservation(TicTacToe(), names={'board': 'squares'})" == repr(env)

    def test_refuses_a_name_that_is_taken(self, message_of):
        assert (
            "RenameObservation was asked to call 'board' 'mask', and 'mask' would have "
            "that name, too. Every part needs a name of its own."
        ) == message_of(
            ValueError, lambda: RenameObservation(TicTacToe(), {"board": "mask"})
        )

    def test_refuses_one_name_for_two_parts(self, message_of):
        assert (
            "RenameObservation was asked to call 'board' 'x', and 'mask' would have "
            "that name, too. Every part needs a name of its own."
        ) == message_of(
            ValueError,
            lambda: RenameObservation(TicTacToe(), {"board": "x", "mask": "x"}),
        )

    def test_refuses_unknown_names(self, message_of):
        assert (
            "names has the key 'bord', which the observation does not have. Its keys "
            "are 'board', 'mask'."
        ) == message_of(
            ValueError, lambda: RenameObservation(TicTacToe(), {"bord": "squares"})
        )

    def test_refuses_no_names_at_all(self, message_of):
        assert (
            "names is empty; it must hold at least one key of the observation, of "
            "which there are 'board', 'mask'."
        ) == message_of(ValueError, lambda: RenameObservation(TicTacToe(), {}))

    def test_refuses_keys_that_cannot_be_sorted(self, message_of):
        assert (
            "The keys of the dictionary have no order: 1, 'mask'. Nests are flattened "
            "in the order of their keys: use keys of one type."
        ) == message_of(SpecError, lambda: RenameObservation(TicTacToe(), {"board": 1}))

    def test_refuses_what_is_no_dictionary_of_names(self, message_of):
        assert (
            "names is a list of 2 elements; it must be a dictionary such as "
            "{'old': 'new'}."
        ) == message_of(
            TypeError, lambda: RenameObservation(TicTacToe(), ["board", "squares"])
        )

    def test_refuses_what_is_no_dictionary(self, message_of):
        assert (
            "RenameObservation takes names of observations that are a dictionary, and "
            "this one is an array of shape ()."
        ) == message_of(
            ValueError, lambda: RenameObservation(CountingEnv(), {"a": "b"})
        )
