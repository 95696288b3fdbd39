"""Values of envkit as members of Gymnasium's spaces."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters import (
    GymnasiumWrapper,
    PaddedGraph,
    PaddedSequence,
    PaddedStack,
    PyToGymnasium,
    PyToGymnasiumVector,
    space_from_spec,
    spec_from_gym_space,
)
from envkit.adapters.gymnasium.conversion import (
    action_converter,
    from_member,
    from_members,
    to_member,
    to_members,
)
from envkit.adapters.gymnasium.spaces import (
    OneOf,
    batch_space_from_spec,
)
from envkit.adapters.quiet import prepare_module
from envkit.errors import SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs import ObjectSpec, check_fits, sample_spec_nest
from envkit.testing import check_environment
from tests import strategies
from tests.adapters.gym_spaces import Interval, gym_spaces, members, same
from tests.adapters.plain_numbers import Plain


def converted(space, value):
    return to_member(space, spec_from_gym_space(space))(value)


def converted_batch(space, value):
    return to_members(space, spec_from_gym_space(space))(value)


@given(data=st.data())
@settings(max_examples=25)
def test_a_member_survives_a_round_trip(data):
    space = data.draw(gym_spaces())
    spec = spec_from_gym_space(space)
    member = data.draw(members(space))

    value = from_member(space, spec, bounded=True)(member)
    check_fits(value, spec)
    back = converted(space, value)
    assert same(member, back)
    assert space.contains(back)
    assert same(member, converter(space)(value))


@given(data=st.data(), rows=st.integers(1, 3))
@settings(max_examples=25)
def test_a_batch_of_members_survives_a_round_trip(data, rows):
    space = data.draw(gym_spaces())
    spec = spec_from_gym_space(space)
    several = [data.draw(members(space)) for _ in range(rows)]
    batch = concatenate(space, several, create_empty_array(space, rows))

    value = from_members(space, spec, rows, bounded=True)(batch)
    check_fits(value, spec, outer_dims=(rows,))
    read_one = from_member(space, spec)
    for row, member in enumerate(several):
        pairs = zip(nest.flatten(read_one(member)), nest.flatten(value), strict=True)
        for expected, actual in pairs:
            assert same(expected[()], actual[row])
    back = converted_batch(space, value)
    assert same(batch, back)
    assert batch_space_from_spec(spec, rows).contains(back)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 1, (2,)), np.zeros(2, np.float32)),
        (spaces.Dict(a=spaces.Box(0, 1, (2,))), {"a": np.zeros(2, np.float32)}),
        (spaces.Tuple([spaces.MultiBinary(2)]), (np.zeros(2, np.int8),)),
    ],
    ids=str,
)
def test_a_member_is_passed_through(space, value):
    assert value is converted(space, value)


def test_batches_of_numbers_are_passed_through():
    value = {"a": np.array([1, 0]), "b": np.zeros((2, 3), np.float32)}
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (3,)))
    assert value is converted_batch(space, value)


@pytest.mark.parametrize(
    "value", [np.array(6), np.array(6, np.uint8), np.int64(6), np.int32(6), 6]
)
@pytest.mark.parametrize("count", [3, 10**6])
def test_a_discrete_member_is_a_numpy_integer(count, value):
    space = spaces.Discrete(count, start=5)
    for member in (converted(space, value), converter(space)(value)):
        assert same(np.int64(6), member)


def test_text_is_a_string_and_a_batch_of_it_a_tuple():
    space = spaces.Text(4)
    assert same("left", converted(space, np.array("left")))
    assert same(("left", "up"), converted_batch(space, np.array(["left", "up"])))


def test_lists_and_namedtuples_become_tuples():
    spec = [BoundedArraySpec((2,), np.float32, 0, 1)]
    value = [np.zeros(2, np.float32)]
    member = to_member(space_from_spec(spec), spec)(value)
    assert tuple is type(member)
    assert value[0] is member[0]


def test_a_union_is_a_pair_of_the_branch_and_its_member():
    space = spaces.OneOf([spaces.Text(3), spaces.Discrete(4)])
    value = OneOf(np.array(1), (np.array("abc"), np.array(2)))
    member = converted(space, value)
    assert (1, 2) == member
    assert (np.int64, np.int64) == tuple(map(type, member))


def test_an_object_is_passed_through():
    thing = [1, {"b": 2}]
    spec = ObjectSpec()
    space = space_from_spec(spec)
    assert thing is to_member(space, spec)(ObjectSpec.wrap(thing))


def test_a_batch_of_a_custom_space_is_a_tuple():
    spec = ArraySpec((2,), np.complex64)
    value = np.zeros((3, 2), np.complex64)
    batch = to_members(space_from_spec(spec), spec)(value)
    assert tuple is type(batch)
    assert batch_space_from_spec(spec, 3).contains(batch)
    back = from_members(space_from_spec(spec), spec, 3)(batch)
    np.testing.assert_array_equal(value, back)


def reader(space, **options):
    spec = spec_from_gym_space(space, name="observation")
    return from_member(space, spec, subject="It", root="observation", **options)


def refusal(space, member, **options) -> str:
    with pytest.raises(SpecError) as caught:
        reader(space, **options)(member)
    return str(caught.value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Box(0, 1, (2,), np.float64)]),
        spaces.Sequence(spaces.Box(0, 1, (2,), np.float64)),
    ],
    ids=["arrays", "objects"],
)
def test_reading_copies_the_member(space):
    member = (np.zeros(2),)
    read = reader(space)(member)
    member[0][:] = 1
    (value,) = read if isinstance(read, tuple) else read[()]
    np.testing.assert_array_equal(np.zeros(2), value)


def test_unused_branches_are_neutral_and_not_shared():
    space = spaces.OneOf([spaces.Discrete(4, start=5), spaces.Box(0, 1, (2,))])
    read = reader(space)

    first, second = read((0, 7)), read((1, [0.5, 1]))
    first.branches[1][:] = 9

    assert [0, 7, 1, 5] == [
        int(leaf)
        for leaf in (
            first.tag,
            first.branches[0],
            second.tag,
            second.branches[0],
        )
    ]
    np.testing.assert_array_equal(np.zeros(2, np.float32), read((0, 7)).branches[1])
    assert OneOf is type(first)


@pytest.mark.parametrize(
    "member",
    [(2, 0), (-1, 0), (0,), 0, ("0", 0), None],
    ids=["too large", "negative", "one", "number", "text", "None"],
)
def test_a_union_member_must_be_a_pair_of_branch_and_value(member):
    space = spaces.OneOf([spaces.Discrete(2), spaces.MultiBinary(2)])
    assert (
        "A pair of a branch and its value is expected."
        == refusal(spaces.Dict(a=space), {"a": member}).split("\n")[-1]
    )


def test_an_invalid_value_in_a_union_is_explained():
    space = spaces.Dict(a=spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]))
    assert (
        "It does not fit its spec at observation['a'][1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='observation/a/branch_1')\n"
        "  got        array of shape (3,), dtype float64, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2. dtype is float64; the spec says float32. "
        "NumPy makes float64 by default: add .astype(np.float32)."
    ) == refusal(space, {"a": (1, np.zeros(3))})


@pytest.mark.parametrize(
    ("space", "member", "expected", "got", "why"),
    [
        (
            spaces.Discrete(3),
            5,
            "BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, ",
            "array of shape (), dtype int64, values 5 … 5",
            "The value 5 is above the maximum 2.",
        ),
        (
            spaces.Box(0, 1, (2,)),
            np.float32([0, 2]),
            "BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, maximum=1.0, ",
            "array of shape (2,), dtype float32, values 0.0 … 2.0",
            "1 of 2 elements is above the maximum 1.0: 2.0 at index (1,).",
        ),
        (
            spaces.Text(3, charset="ab"),
            "c",
            "TextSpec(shape=(), dtype=<U3, min_length=1, max_length=3, letters='ab', ",
            "the string 'c'",
            "Other lengths or letters are expected.",
        ),
        (
            Interval(3),
            (0, 4),
            "ObjectSpec(shape=(), dtype=object, kind=Interval(3), ",
            "a tuple of 2 elements",
            "It is none of these values.",
        ),
    ],
    ids=["choice", "box", "text", "object"],
)
def test_bounds_are_checked_on_request(space, member, expected, got, why):
    reader(space)(member)
    assert (
        "It does not fit its spec.\n\n"
        f"  expected   {expected}name='observation')\n"
        f"  got        {got}\n\n"
        f"{why}"
    ) == refusal(space, member, bounded=True)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(2),
        Interval(3),
        spaces.OneOf([spaces.Discrete(2)]),
        spaces.Discrete(2),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [(), None, 3], ids=str)
def test_a_batch_of_another_length_is_refused(space, batch):
    read = from_members(space, spec_from_gym_space(space), 2, subject="It")
    with pytest.raises(SpecError, match=r"^It does not fit its spec"):
        read(batch)


def converter(space):
    spec = spec_from_gym_space(space, name="action")
    return action_converter(space, spec, subject="It", root="action")


def refused_action(space, value) -> str:
    with pytest.raises(SpecError) as caught:
        converter(space)(value)
    return str(caught.value)


@given(data=st.data())
@settings(max_examples=20)
def test_every_value_that_fits_the_spec_of_a_box_is_a_member(data):
    spec = data.draw(strategies.bounded_specs())
    space = spaces.Box(
        *(np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)),
        spec.shape,
        spec.dtype,
    )
    value = data.draw(strategies.values(spec))
    assert space.contains(converter(space)(value))


def test_an_action_is_a_copy_in_the_dtype_of_the_box():
    convert = converter(spaces.Box(-1, 1, (2,), np.float32))
    kept = np.zeros(2, np.float32)
    action = convert(kept)
    kept += 1
    np.testing.assert_array_equal(np.zeros(2, np.float32), action)
    assert np.float32 == convert(np.array([0.1, 1.0])).dtype


def test_a_numpy_boolean_is_a_discrete_action():
    to_action = converter(spaces.Discrete(2))
    assert (1, 1) == (to_action(True), to_action(np.True_))


@pytest.mark.parametrize("action", [4, 8, np.array(8), -(2**70), 6.0, np.array([6])])
def test_a_discrete_action_outside_the_space_is_refused(action):
    with pytest.raises(SpecError, match=r"^It does not fit its spec\."):
        converter(spaces.Discrete(3, start=5))(action)


def test_an_invalid_action_deep_in_a_nest_is_explained():
    space = spaces.Dict(
        arm=spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32))),
        word=spaces.Text(5),
    )

    with pytest.raises(SpecError) as caught:
        converter(space)({"arm": (0, np.float32([0, 2])), "word": "left"})

    assert (
        "It does not fit its spec at action['arm'][1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, "
        "maximum=1.0, name='action/arm/tuple_1')\n"
        "  got        array of shape (2,), dtype float32, values 0.0 … 2.0\n\n"
        "1 of 2 elements is above the maximum 1.0: 2.0 at index (1,). The other 2 "
        "leaves fit.\nActionClipWrapper(env) clips actions."
    ) == str(caught.value)
    assert "action['arm'][1]" == caught.value.path


def test_a_text_that_is_too_long_is_refused(message_of):
    space = spaces.Text(3)
    letters = repr("".join(space.character_list)[:12] + "…")
    assert (
        "It does not fit its spec.\n\n"
        "  expected   TextSpec(shape=(), dtype=<U3, min_length=1, max_length=3, "
        f"letters={letters}, name='action')\n"
        "  got        array of shape (), dtype <U4\n\n"
        "dtype is <U4; the spec says <U3."
    ) == message_of(SpecError, lambda: converter(space)("left"))


@pytest.mark.parametrize("text", ["", "abc"], ids=["too short", "other letters"])
def test_a_text_that_fits_the_spec_but_not_the_space_is_refused(text, message_of):
    space = spaces.Dict(word=spaces.Text(3, min_length=1, charset="ab"))
    assert (
        "It does not fit its spec at action['word'].\n\n"
        f"  expected   {space['word']!r}\n"
        f"  got        the string {text!r}\n\n"
        "The space excludes some lengths or letters that this text has."
    ) == message_of(SpecError, lambda: converter(space)({"word": text}))


@pytest.mark.parametrize("size", [3, 50], ids=["few", "many"])
@pytest.mark.parametrize("wrong", [1.5, -1.5, np.nan])
def test_a_single_element_out_of_bounds_is_refused(size, wrong):
    space = spaces.Box(-1, 1, (size,), np.float32)
    action = np.zeros(size, np.float32)
    converter(space)(action)
    action[-1] = wrong
    assert refused_action(space, action).startswith("It does not fit its spec.")


def test_bounds_apply_by_element():
    space = spaces.Box(np.float32([[0, -5], [2, 2]]), np.float32([[1, 0], [2, 3]]))
    np.testing.assert_array_equal(
        [[1, -5], [2, 3]], converter(space)(np.float32([[1, -5], [2, 3]]))
    )
    assert "is above the maximum 1.0: 2.0 at index (0, 0)." in refused_action(
        space, np.float32([[2, -5], [2, 3]])
    )


def test_an_object_is_copied_with_or_without_an_array_around_it():
    member = ([1, 2], [3])

    class Lists(Interval):
        def contains(self, x):
            return isinstance(x, tuple)

    convert = converter(Lists(2))

    for value in (member, ObjectSpec.wrap(member)):
        converted = convert(value)
        assert member == converted
        assert member[0] is not converted[0]


def test_an_object_outside_the_space_is_refused():
    space = spaces.Dict(a=Interval(4), b=spaces.Discrete(2))
    assert (
        "It does not fit its spec at action['a'].\n\n"
        "  expected   ObjectSpec(shape=(), dtype=object, kind=Interval(4), "
        "name='action/a')\n"
        "  got        a tuple of 2 elements\n\n"
        "It is none of these values."
    ) == refused_action(space, {"a": (3, 2), "b": 0})


UNION = spaces.OneOf([spaces.Discrete(4), spaces.Box(0, 1, (2,), np.float32)])


def test_only_the_chosen_branch_is_checked():
    value = OneOf(1, (99, np.float32([0.5, 1])))
    tag, member = converter(UNION)(value)
    assert (np.int64, 1) == (type(tag), tag)
    np.testing.assert_array_equal(np.float32([0.5, 1]), member)


def test_an_invalid_union_action_is_explained():
    space = spaces.Dict(union=UNION)
    assert (
        "It does not fit its spec at action['union'].branches[1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='action/union/branch_1')\n"
        "  got        array of shape (3,), dtype float32, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2."
    ) == refused_action(space, {"union": OneOf(1, (0, np.zeros(3, np.float32)))})


@pytest.mark.parametrize(
    "value",
    [OneOf(2, (0, np.zeros(2, np.float32))), (0,), 3, None],
    ids=["no branch", "no pair", "number", "None"],
)
def test_a_value_other_than_a_union_is_refused(value):
    assert refused_action(UNION, value).startswith("It does not fit its spec")


BOX, CHOICE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4, start=3)
SPACES = {
    "sequence": spaces.Sequence(CHOICE),
    "stack": spaces.Sequence(BOX, stack=True),
    "texts": spaces.Sequence(spaces.Text(4)),
    "records": spaces.Sequence(spaces.Dict(a=CHOICE, b=BOX)),
    "stacked records": spaces.Sequence(spaces.Dict(a=CHOICE, b=BOX), stack=True),
    "sequences": spaces.Sequence(spaces.Sequence(CHOICE)),
    "graph": spaces.Graph(BOX, CHOICE),
    "nodes": spaces.Graph(CHOICE, None),
    "graphs": spaces.Sequence(spaces.Graph(CHOICE, BOX)),
    "within": spaces.Dict(path=spaces.Sequence(BOX), map=spaces.Graph(BOX, BOX)),
    "one of": spaces.OneOf([spaces.Sequence(CHOICE), BOX]),
}


def same_padded(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same_padded(first[key], second[key]) for key in first
        )
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same_padded, first, second))
    return np.array_equal(first, second)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_padded_members_survive_a_round_trip(space):
    spec = spec_from_gym_space(space, max_lengths=120)
    read, write = from_member(space, spec, bounded=True), to_member(space, spec)
    check = action_converter(space, spec, subject="It", root="action")
    space.seed(7)
    for _ in range(10):
        member = space.sample()
        value = read(member)

        assert all(
            leaf.check_array(part)
            for leaf, part in zip(nest.flatten(spec), nest.flatten(value), strict=True)
        )
        assert same_padded(member, write(value))
        assert same_padded(member, check(value))
        assert space.contains(write(value))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_padded_spaces_survive_a_round_trip(space):
    spec = spec_from_gym_space(space, max_lengths=5)
    assert space == space_from_spec(spec)
    assert spec == pickle.loads(pickle.dumps(spec))
    assert not any(leaf.dtype.hasobject for leaf in nest.flatten(spec))


def test_padding_is_zero_or_the_nearest_valid_value():
    read = from_member(
        SPACES["sequence"], spec_from_gym_space(SPACES["sequence"], max_lengths=4)
    )
    value = read((6, 4))
    assert [6, 4, 3, 3] == value.values.tolist()
    assert (PaddedSequence, 2) == (type(value), int(value.length))


def test_a_graph_becomes_nodes_edges_and_links():
    space = SPACES["graph"]
    spec = spec_from_gym_space(space, max_lengths=(3, 2))
    graph = spaces.GraphInstance(
        np.ones((2, 2), np.float32), np.array([4]), np.array([[0, 1]], np.int32)
    )
    value = from_member(space, spec)(graph)
    bare = from_member(space, spec)(spaces.GraphInstance(graph.nodes, None, None))

    assert isinstance(value, PaddedGraph)
    assert isinstance(value.nodes, PaddedStack)
    assert [[1, 1], [1, 1], [0, 0]] == value.nodes.values.tolist()
    assert ([4, 3], 1) == (value.edges.values.tolist(), int(value.edges.length))
    assert [[0, 1], [0, 0]] == value.edge_links.tolist()
    assert 0 == int(bare.edges.length)


def test_sequences_without_a_maximum_stay_objects():
    spec = spec_from_gym_space(SPACES["within"], max_lengths={"map": (4, 5)})
    assert spec["path"].dtype.hasobject
    assert isinstance(spec["map"], PaddedGraph)


def test_elements_without_arrays_stay_objects():
    class Odd(spaces.Space):
        pass

    spec = spec_from_gym_space(spaces.Sequence(Odd()), max_lengths=3)

    assert spec.dtype.hasobject


@pytest.mark.parametrize("place", ["path", "['path']"])
def test_max_lengths_accepts_keys_and_paths(place):
    spec = spec_from_gym_space(SPACES["within"], name="seen", max_lengths={place: 3})
    assert (3, 2) == spec["path"].values.shape


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"way": 3},
            "max_lengths has 'way', where the spaces have no Sequence or Graph. A "
            "path must be written as in Python, such as \"['path']\", or be the key "
            "alone.",
        ),
        (
            0,
            "max_lengths has 0 of type int; it must be an integer of at least 1, or "
            "for a Graph a pair of them, for nodes and edges.",
        ),
        (
            {"path": (3, 4)},
            "max_lengths has the pair (3, 4) for a Sequence; it must be one integer.",
        ),
    ],
    ids=["place", "zero", "pair"],
)
def test_invalid_max_lengths_are_refused(given, text, message_of):
    assert text == message_of(
        ValueError, lambda: spec_from_gym_space(SPACES["within"], max_lengths=given)
    )


class Walk(gymnasium.Env):
    """Observes the path so far and the graph of it; an action is a list of moves."""

    observation_space = spaces.Dict(
        path=spaces.Sequence(spaces.Discrete(10)),
        map=spaces.Graph(spaces.Discrete(10), spaces.Box(0, 9, (1,), np.float32)),
    )
    action_space = spaces.Sequence(spaces.Discrete(10))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._path = [0]
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._path = [*self._path, len(action) % 10]
        return self._seen(), float(sum(action)), len(self._path) == 4, False, {}

    def _seen(self):
        nodes = np.array(self._path)
        edges = links = None
        if len(nodes) > 1:
            edges = nodes[1:, None].astype(np.float32)
            links = np.stack([np.arange(len(nodes) - 1), np.arange(1, len(nodes))], 1)
            links = links.astype(np.int32)
        return {
            "path": tuple(self._path),
            "map": spaces.GraphInstance(nodes, edges, links),
        }


make_walk = functools.partial(GymnasiumWrapper, max_lengths=6)


def walk():
    return make_walk(Walk())


def moves(*numbers):
    values = np.zeros(6, np.int64)
    values[: len(numbers)] = numbers
    return PaddedSequence(values, np.array(len(numbers)))


def test_an_environment_with_padded_spaces_passes_check_environment():
    check_environment(walk, steps=40, require=["state"])


def test_actions_are_padded():
    env = walk()
    env.reset()
    time_step = env.step(moves(3, 4))
    assert 7.0 == float(time_step.reward)
    assert [0, 2, 0, 0, 0, 0] == time_step.observation["path"].values.tolist()
    assert 2 == int(time_step.observation["path"].length)


@pytest.mark.parametrize("length", [7, -1, 1.5])
def test_a_length_out_of_bounds_is_refused(length):
    env = walk()
    env.reset()
    with pytest.raises(SpecError, match=r"action\.length"):
        env.step(PaddedSequence(np.zeros(6, np.int64), np.array(length)))


def test_a_longer_member_is_refused(message_of):
    env = GymnasiumWrapper(Walk(), max_lengths={"path": 2, "": 6})
    env.reset()
    env.step(moves(1))

    assert (
        "Walk returned an observation that does not fit its spec at "
        "observation['path'].\n\n"
        "  expected   up to 2 elements\n"
        "  got        a tuple of 3 elements\n\n"
        "There are 3 elements but room for 2: max_lengths sets the limit."
    ) == message_of(SpecError, lambda: env.step(moves(1)))


@pytest.mark.parametrize("pooled", [False, True], ids=["batch", "pool"])
def test_a_batch_has_arrays_of_all_rows(pooled):
    env = (
        ParallelPyEnvironment([walk] * 2, backend="inline")
        if pooled
        else BatchedPyEnvironment([walk(), walk()])
    )
    with env:
        rng = np.random.default_rng(1)
        first = env.reset()
        env.step(sample_spec_nest(env.action_spec(), rng, (2,)))

        assert (2, 6) == first.observation["path"].values.shape
        assert [1, 1] == first.observation["path"].length.tolist()
        assert not any(leaf.dtype.hasobject for leaf in nest.flatten(first))


def test_padding_is_removed_for_gymnasium():
    game = PyToGymnasium(walk())
    theirs = Walk()
    ours, _ = game.reset(seed=1)
    expected, _ = theirs.reset(seed=1)

    assert (game.observation_space, game.action_space) == (
        theirs.observation_space,
        theirs.action_space,
    )
    assert same_padded(expected, ours)
    assert same_padded(theirs.step((3, 4))[0], game.step((3, 4))[0])


def test_a_vector_environment_has_a_tuple_of_members():
    envs = PyToGymnasiumVector(BatchedPyEnvironment([walk(), walk()]))
    observations, _ = envs.reset(seed=1)
    observations, *_ = envs.step(((3, 4), (1,)))
    assert envs.observation_space.contains(observations)
    assert ((0, 2), (0, 1)) == observations["path"]
    envs.close()


# By where an environment's class is: the packages that it needs.
NEEDS = {
    "gymnasium.envs.classic_control": [],
    "gymnasium.envs.toy_text": [],
    "gymnasium.envs.box2d": ["Box2D", "pygame"],
    "gymnasium.envs.mujoco": ["mujoco"],
    "gymnasium.envs.phys2d": ["jax", "flax"],
    "gymnasium.envs.tabular": ["jax", "flax"],
}
# What is registered, but is in other packages by now, or needs an older MuJoCo.
ELSEWHERE = re.compile(r".*-v[23]|Pusher-v4|GymV2[16]Environment-v0")
# What is compiled, or draws pictures to look at.
SLOW = {"gymnasium.envs.box2d", "gymnasium.envs.phys2d", "gymnasium.envs.tabular"}
STEPS = 40


def home_of(spec):
    """Names the folder of Gymnasium that an environment's class is in."""
    return ".".join(str(spec.entry_point).partition(":")[0].split(".")[:3])


def is_elsewhere(spec):
    in_mujoco = home_of(spec) == "gymnasium.envs.mujoco"
    known = in_mujoco or home_of(spec) not in NEEDS
    return known and ELSEWHERE.fullmatch(spec.id) is not None


def own():
    """Lists what Gymnasium has registered itself, whether it runs here or not."""
    specs = gymnasium.registry.values()
    return [spec for spec in specs if str(spec.entry_point).startswith("gymnasium.")]


@functools.cache
def is_here(home):
    return all(map(importlib.util.find_spec, NEEDS[home]))


def newest():
    """Lists the ids that are the newest of their name."""
    versions = {}
    for spec in own():
        if not is_elsewhere(spec):
            name, version = spec.id.rsplit("-v", 1)
            versions[name] = max(versions.get(name, 0), int(version))
    return {f"{name}-v{version}" for name, version in versions.items()}


def shipped():
    """Yields the ids of all versions of what Gymnasium ships."""
    for spec in own():
        if is_elsewhere(spec):
            continue
        packages = " or ".join(NEEDS[home_of(spec)])
        missing = pytest.mark.skipif(
            not is_here(home_of(spec)), reason=f"{packages} is not installed"
        )
        is_slow = home_of(spec) in SLOW or spec.id not in newest()
        slow = [pytest.mark.slow] if is_slow else []
        yield pytest.param(spec.id, marks=[missing, *slow])


every_environment = pytest.mark.parametrize("name", list(shipped()))
pytestmark = [
    # Box2D crashes where the warnings are errors that it raises when it is imported.
    pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning"),
    # There are newer ones of some.
    pytest.mark.filterwarnings("ignore:.*is out of date"),
    pytest.mark.filterwarnings("ignore:.*are deprecated:DeprecationWarning"),
]


def make(name, **arguments):
    prepare_module(gymnasium.spec(name).entry_point)
    return gymnasium.make(name, max_episode_steps=15, **arguments)


def wrapped(name, **arguments):
    return GymnasiumWrapper(make(name, **arguments), reward_dtype=np.float64)


@pytest.mark.parametrize("spec", own(), ids=lambda spec: spec.id)
def test_every_registered_environment_is_tested_or_cannot_be_made(spec):
    if is_elsewhere(spec):
        with pytest.raises((ImportError, gymnasium.error.DependencyNotInstalled)):
            gymnasium.make(spec.id)
    else:
        assert home_of(spec) in NEEDS


@every_environment
def test_a_round_trip_matches_gymnasium(name):
    ours = PyToGymnasium(wrapped(name, disable_env_checker=True))
    check_environments_match(
        Plain(make(name, disable_env_checker=True)), ours, num_steps=STEPS, seed=3
    )


def steps_in_gymnasium(env, actions, read):
    """Yields what an environment says, as it has to come out of the wrapper."""
    observation, info = env.reset(seed=5)
    yield read(observation), 0.0, False, 1.0, info
    ended = False
    for action in actions:
        if ended:
            observation, info = env.reset()
            yield read(observation), 0.0, False, 1.0, info
            ended = False
            continue
        observation, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        if ended:
            info = {"terminated": terminated, "truncated": truncated, **info}
        discount = 0.0 if terminated else 1.0
        yield read(observation), float(reward), ended, discount, info


def steps_in_envkit(env, actions):
    """Yields what the wrapper says."""
    env.seed(5)
    time_steps = [env.reset]
    time_steps += [lambda action=action: env.step(action) for action in actions]
    for call in time_steps:
        time_step = call()
        yield (
            time_step.observation,
            float(time_step.reward),
            bool(time_step.is_last()),
            float(time_step.discount),
            env.get_info(),
        )


@every_environment
def test_steps_match_gymnasium(name):
    env, own = wrapped(name), make(name)
    for space in (own.observation_space, own.action_space):
        spec = spec_from_gym_space(space)
        assert space == space_from_spec(spec)
        space.seed(5)
        member = space.sample()
        assert same(member, to_member(space, spec)(from_member(space, spec)(member)))
    actions = [own.action_space.sample() for _ in range(STEPS)]
    read = from_member(own.observation_space, env.observation_spec())

    expected = list(steps_in_gymnasium(own, actions, read))
    actual = list(steps_in_envkit(env, actions))
    assert all(map(same, expected, actual))


@every_environment
def test_a_state_restores_the_stream(name):
    env = wrapped(name)
    env.seed(5)
    env.action_space.seed(5)
    for _ in range(STEPS // 2):
        env.step(env.action_space.sample())
    actions = [env.action_space.sample() for _ in range(STEPS)]
    if "box2d" in type(env.unwrapped).__module__:
        with pytest.raises(NotImplementedError, match="cannot pickle 'SwigPyObject'"):
            env.get_state()
        return
    state = pickle.loads(pickle.dumps(env.get_state()))
    other = wrapped(name)

    def future(env):
        return [(tuple(env.step(action)), env.get_info()) for action in actions]

    ahead = future(env)
    for restored in (env, other):
        restored.set_state(state)
        assert all(map(same, ahead, future(restored)))
