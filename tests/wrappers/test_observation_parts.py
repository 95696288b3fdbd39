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
from envkit.wrappers.observation_parts import (
    FlattenObservationsWrapper,
    ObservationFilterWrapper,
    Packing,
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

    def test_bounds_follow_the_chosen_elements(self):
        spec = BoundedArraySpec((3,), np.int64, 0, [1, 2, 3], name="vector")
        env = ObservationFilterWrapper(showing(np.array([0, 0, 0]), spec), [2, 0])
        assert BoundedArraySpec((2,), np.int64, 0, [3, 1]) == env.observation_spec()
        assert "vector" == env.observation_spec().name

    def test_an_unbounded_spec_stays_unbounded(self):
        env = ObservationFilterWrapper(showing(np.zeros(3)), [2, 0])
        assert ArraySpec((2,), np.float64) == env.observation_spec()

    def test_takes_a_duck_typed_environment(self):
        env = ObservationFilterWrapper(mocked(), [0, 2])
        assert [3, 2] == env.reset().observation.tolist()
        assert [1, 3] == env.step(0).observation.tolist()
        assert (2,) == env.observation_spec().shape

    def test_copies_its_indices(self):
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
    def test_refuses_anything_but_a_vector(self, env, kind, message_of):
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
    def test_refuses_anything_but_a_list_of_indices(self, idx, got, message_of):
        assert (
            f"idx must be a list of at least one index, such as [0, 2], got {got}."
        ) == message_of(ValueError, lambda: ObservationFilterWrapper(CartPole(), idx))

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

    def test_bounds_are_joined_if_all_parts_have_them(self):
        spec = {
            "a": BoundedArraySpec((), np.int64, 0, 5),
            "b": BoundedArraySpec((2,), np.int64, [-1, -2], 9),
        }
        inner = showing({"a": np.array(0), "b": np.array([0, 0])}, spec)
        assert (
            BoundedArraySpec((3,), np.int64, [0, -1, -2], [5, 9, 9])
            == FlattenObservationsWrapper(inner).observation_spec()
        )

    def test_only_the_dtypes_of_allowed_parts_matter(self):
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
    def test_observations_fit_the_spec(self, spec, is_batch, data):
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

    @pytest.mark.parametrize(
        ("spec", "kind"),
        [
            ([ArraySpec((1,), np.int32)], "a list"),
            (ArraySpec((1,), np.int32), "an array of shape (1,)"),
        ],
        ids=["list", "array"],
    )
    def test_refuses_an_allowlist_without_a_dictionary(self, spec, kind, message_of):
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

    def test_takes_keys_of_every_kind_of_collection(self):
        keys = TicTacToe().observation_spec().keys() - {"mask"}
        env = FlattenObservationsWrapper(TicTacToe(), keys)
        assert (9,) == env.observation_spec().shape


class TestSelectObservation:
    def test_keeps_the_parts_in_the_order_asked_for(self):
        env = SelectObservation(Drive(), ["rest", "camera"])
        assert ["rest", "camera"] == list(env.observation_spec())
        assert ["rest", "camera"] == list(env.reset().observation)

    def test_keeps_a_list_of_one_part_a_dictionary(self):
        env = SelectObservation(TicTacToe(), ["mask"])
        assert ["mask"] == list(env.reset().observation)

    def test_a_string_selects_the_part_itself(self):
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

    @pytest.mark.parametrize(
        ("names", "text"),
        [
            (np.array(3), "array of shape (), dtype int64, values 3 … 3"),
            (b"x", "the string b'x'"),
        ],
    )
    def test_refuses_list_like_objects(self, names, text, message_of):
        assert (
            "names must be a list of keys of the observation, which are 'board', "
            f"'mask', got {text}."
        ) == message_of(TypeError, lambda: SelectObservation(TicTacToe(), names))


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

    def test_copies_its_names(self):
        names = {"board": "squares"}
        env = RenameObservation(TicTacToe(), names)
        names["board"] = "changed"
        env.names["board"] = "changed"
        assert {"board": "squares"} == env.names
        assert "squares" in env.reset().observation

    def test_shows_its_names(self):
        env = RenameObservation(TicTacToe(), {"board": "squares"})
        assert "RenameObservation(TicTacToe(), names={'board': 'squares'})" == repr(env)


# Packing leaves into one vector.


LEAVES = st.lists(strategies.specs("biuf", any_byte_order=True), min_size=1, max_size=3)


def common_dtype(specs):
    return np.result_type(*[spec.dtype for spec in specs])


@given(LEAVES, st.sampled_from([(), (1,), (3,)]), st.data())
def test_the_vector_has_all_elements_of_a_row_in_order(specs, dims, data):
    packing = Packing(specs, dims, common_dtype(specs))
    leaves = [data.draw(strategies.values(spec, dims)) for spec in specs]
    packed = packing.pack(leaves)
    for row in np.ndindex(dims):
        expected = np.concatenate([leaf[row].ravel() for leaf in leaves])
        assert np.array_equal(expected, packed[row])


@given(LEAVES, st.sampled_from([(), (3,)]), st.data())
def test_the_vector_fits_its_spec(specs, dims, data):
    packing = Packing(specs, dims, common_dtype(specs), "packed")
    leaves = [data.draw(strategies.values(spec, dims)) for spec in specs]
    assert "packed" == packing.spec.name
    assert check_arrays_nest(
        packing.pack(leaves), add_outer_dims_nest(packing.spec, dims)
    )


def test_bounds_are_joined_too():
    specs = [
        BoundedArraySpec((2,), np.float32, [-1.0, -2.0], 3.0),
        ArraySpec((), np.bool_),
    ]
    expected = BoundedArraySpec((3,), np.float32, [-1.0, -2.0, 0.0], [3.0, 3.0, 1.0])
    assert expected == Packing(specs, (), np.float32).spec


def test_one_unbounded_leaf_makes_the_vector_unbounded():
    specs = [BoundedArraySpec((2,), np.float32, -1.0, 3.0), ArraySpec((), np.float32)]
    assert ArraySpec((3,), np.float32) == Packing(specs, (), np.float32).spec


def test_an_infinite_bound_stays_infinite_in_another_dtype():
    specs = [BoundedArraySpec((), np.float32), BoundedArraySpec((), np.int32, 0, 1)]
    expected = BoundedArraySpec((2,), np.float64, [-np.inf, 0], [np.inf, 1])
    assert expected == Packing(specs, (), np.float64).spec


def test_booleans_alone_make_a_vector_of_booleans():
    packing = Packing([ArraySpec((2,), np.bool_)], (), np.bool_)
    assert ArraySpec((2,), np.bool_) == packing.spec


def test_the_vector_shares_no_memory_with_a_single_leaf():
    leaf = np.zeros(3)
    packed = Packing([ArraySpec((3,), np.float64)], (), np.float64).pack([leaf])
    assert not np.shares_memory(leaf, packed)


REFUSED = {
    "ObservationFilterWrapper: says how to write a single index": (
        ValueError,
        lambda: ObservationFilterWrapper(CartPole(), 2),
        "idx must be a list of at least one index, such as [0, 2], got 2 of "
        "type int. For one element write [2].",
    ),
    "ObservationFilterWrapper: says how to make indices of a mask": (
        ValueError,
        lambda: ObservationFilterWrapper(CartPole(), [True, False, False, True]),
        "idx must be a list of at least one index, such as [0, 2], got a list "
        "of 4 elements. np.flatnonzero(mask) turns a mask into indices.",
    ),
    "FlattenObservationsWrapper: several dtypes": (
        ValueError,
        lambda: FlattenObservationsWrapper(TicTacToe()),
        "FlattenObservationsWrapper joins parts that have the same dtype, and "
        "these have int32, bool. Choose some of them with observations_allowlist, "
        "or cast them with DtypeObservation first.",
    ),
    "FlattenObservationsWrapper: an observation without parts": (
        ValueError,
        lambda: FlattenObservationsWrapper(showing({}, {})),
        "FlattenObservationsWrapper joins parts that have the same dtype, and "
        "these have none: there are no parts. Choose some of them with "
        "observations_allowlist, or cast them with DtypeObservation first.",
    ),
    "FlattenObservationsWrapper: an empty allowlist": (
        ValueError,
        lambda: FlattenObservationsWrapper(TicTacToe(), []),
        "observations_allowlist must hold at least one key of the observation, got "
        "none. Its keys are 'board', 'mask'.",
    ),
    "FlattenObservationsWrapper: an array without dimensions": (
        TypeError,
        lambda: FlattenObservationsWrapper(TicTacToe(), np.array(3)),
        "observations_allowlist must be a list of keys of the observation, "
        "which are 'board', 'mask', got array of shape (), dtype int64, values "
        "3 … 3.",
    ),
    "FlattenObservationsWrapper: a dictionary": (
        TypeError,
        lambda: FlattenObservationsWrapper(TicTacToe(), {"board": "x"}),
        "observations_allowlist must be a list of keys of the observation, "
        "which are 'board', 'mask', got a dict of 1 element. RenameObservation "
        "takes a dictionary of new keys.",
    ),
    "FlattenObservationsWrapper: a key in place of a list": (
        TypeError,
        lambda: FlattenObservationsWrapper(TicTacToe(), "mask"),
        "observations_allowlist must be a list of keys of the observation, "
        "which are 'board', 'mask', got the string 'mask'.",
    ),
    "SelectObservation: what is no dictionary": (
        ValueError,
        lambda: SelectObservation(CartPole(), "position"),
        "SelectObservation takes names of observations that are a dictionary, and "
        "this one is an array of shape (4,).",
    ),
    "SelectObservation: no names at all": (
        ValueError,
        lambda: SelectObservation(TicTacToe(), []),
        "names must hold at least one key of the observation, got none. Its keys are "
        "'board', 'mask'.",
    ),
    "SelectObservation: a dictionary of names": (
        TypeError,
        lambda: SelectObservation(TicTacToe(), {"board": 1}),
        "names must be a list of keys of the observation, which are 'board', "
        "'mask', got a dict of 1 element. RenameObservation takes a dictionary "
        "of new keys.",
    ),
    "SelectObservation: what is no list of names": (
        TypeError,
        lambda: SelectObservation(TicTacToe(), 3),
        "names must be a list of keys of the observation, which are 'board', "
        "'mask', got 3 of type int.",
    ),
    "RenameObservation: a name that is taken": (
        ValueError,
        lambda: RenameObservation(TicTacToe(), {"board": "mask"}),
        "RenameObservation cannot rename 'board' to 'mask': 'mask' would have the same "
        "name.",
    ),
    "RenameObservation: one name for two parts": (
        ValueError,
        lambda: RenameObservation(TicTacToe(), {"board": "x", "mask": "x"}),
        "RenameObservation cannot rename 'board' to 'x': 'mask' would have the same "
        "name.",
    ),
    "RenameObservation: unknown names": (
        ValueError,
        lambda: RenameObservation(TicTacToe(), {"bord": "squares"}),
        "names has the key 'bord', which the observation does not have. Its keys "
        "are 'board', 'mask'.",
    ),
    "RenameObservation: no names at all": (
        ValueError,
        lambda: RenameObservation(TicTacToe(), {}),
        "names must hold at least one key of the observation, got none. Its keys are "
        "'board', 'mask'.",
    ),
    "RenameObservation: keys that cannot be sorted": (
        SpecError,
        lambda: RenameObservation(TicTacToe(), {"board": 1}),
        "The keys of the dictionary have no order: 1, 'mask'. Nests are flattened "
        "in the order of their keys: use keys of one type.",
    ),
    "RenameObservation: what is no dictionary of names": (
        TypeError,
        lambda: RenameObservation(TicTacToe(), ["board", "squares"]),
        "names must be a dictionary such as {'old': 'new'}, got a list of 2 elements.",
    ),
    "RenameObservation: what is no dictionary": (
        ValueError,
        lambda: RenameObservation(CountingEnv(), {"a": "b"}),
        "RenameObservation takes names of observations that are a dictionary, and "
        "this one is an array of shape ().",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_parts_that_cannot_be_chosen_joined_or_renamed_are_refused(
    error, call, message, message_of
):
    assert message == message_of(error, call)
