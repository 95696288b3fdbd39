from __future__ import annotations

import collections
import itertools
import pickle
import types
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import tree
import wrapt
from hypothesis import given
from hypothesis import strategies as st

from envkit import nest
from envkit.errors import SpecError
from tests import strategies
from tests.strategies import Empty, Pair, Pose


class Counted(NamedTuple):
    """A namedtuple that is made in a way of its own."""

    total: Any
    parts: Any

    @classmethod
    def of(cls, *parts: Any) -> Counted:
        return cls(len(parts), parts)


@attrs.define
class PoseInSpace(Pose):
    """A container with one field more than its base."""

    z: Any


def anatomy(value: Any) -> Any:
    """Takes a nest apart into types, keys and leaves, in the order they are stored."""
    if isinstance(value, collections.abc.Mapping):
        children = [(key, anatomy(value[key])) for key in value]
    elif isinstance(value, list | tuple):
        children = [anatomy(child) for child in value]
    elif isinstance(value, Pose):
        children = [anatomy(value.y), anatomy(value.x)]
    else:
        return value
    return type(value), children


def path_of(value: Any, steps: tuple[Any, ...]) -> str:
    """Spells the path that dm-tree gives as keys, indices and names."""
    path = ""
    for step in steps:
        if isinstance(value, collections.abc.Mapping) or isinstance(step, int):
            path, value = f"{path}[{step!r}]", value[step]
        else:
            path = f"{path}.{step}" if path else step
            value = getattr(value, step)
    return path


def refusal(template: Any, value: Any) -> str:
    """Returns the message with which the template's structure refuses a value."""
    with pytest.raises(SpecError) as caught:
        nest.Structure(template).flatten(value)
    return str(caught.value)


# A Structure and dm-tree, side by side.


@given(value=strategies.nests(plain=False))
def test_a_structure_flattens_and_rebuilds_like_dm_tree(value):
    structure = nest.Structure(value)
    leaves = [f"leaf {index}" for index in range(len(structure.leaves))]
    expected = tree.unflatten_as(value, leaves)
    assert tree.flatten(value) == structure.flatten(value)
    assert tree.flatten(value) == list(structure.leaves)
    assert anatomy(expected) == anatomy(structure.unflatten(leaves))
    tree.assert_same_structure(value, expected)
    assert leaves == structure.flatten(expected)


@given(value=strategies.nests(plain=False))
def test_a_structure_names_places_in_the_order_of_dm_tree(value):
    expected = [path_of(value, steps) for steps, _ in tree.flatten_with_path(value)]
    assert expected == list(nest.Structure(value).paths)
    assert expected == [path for path, _ in nest.flatten_with_paths(value)]


@given(data=st.data(), template=strategies.nests())
def test_a_structure_accepts_what_dm_tree_accepts(data, template):
    value = data.draw(strategies.broken_nests(template))
    try:
        expected = tree.flatten_up_to(template, value)
    except (TypeError, ValueError):
        expected = None
    try:
        accepted = nest.Structure(template).flatten(value)
    except SpecError:
        accepted = None
    assert expected == accepted


KINDS = [
    {"b": 1, "a": 2},
    {"b": 1, "c": 2},
    {0: 1, 1: 2},
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(int, b=1, a=2),
    types.MappingProxyType({"b": 1, "a": 2}),
    [1, 2],
    [1],
    (1, 2),
    collections.deque([1, 2]),
    Pair(1, 2),
    collections.namedtuple("Pair", ["second", "first"])(1, 2),
    collections.namedtuple("Pair", ["first", "second"])(1, 2),
    collections.namedtuple("Couple", ["second", "first"])(1, 2),
    Pose(1, 2),
    {},
    [],
    (),
    Empty(),
    3,
    None,
    "text",
]


def test_every_structure_lies_between_dm_trees_two_rules():
    """What has the same structure is accepted; what is accepted flattens up to it."""
    surprises = []
    for template, value in itertools.product(KINDS, KINDS):
        try:
            tree.assert_same_structure(template, value)
            same = True
        except (TypeError, ValueError):
            same = False
        try:
            flat = tree.flatten_up_to(template, value)
        except (TypeError, ValueError):
            flat = None
        try:
            accepted = nest.Structure(template).flatten(value)
        except SpecError:
            accepted = None
        if (same and accepted is None) or (accepted is not None and accepted != flat):
            surprises.append((template, value))

    assert [] == surprises


@pytest.mark.parametrize(
    "value",
    [
        *KINDS,
        {1: 2}.keys(),
        {1: 2}.values(),
        {1: 2}.items(),
        {1, 2},
        b"bytes",
        bytearray(b"bytes"),
        np.zeros(2),
        np.float32(1),
        np.str_("text"),
        range(2),
        3.0,
        1j,
        slice(2),
        Pose,
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_the_same_things_are_containers_as_in_dm_tree(value):
    assert tree.is_nested(value) is nest.is_nested(value)


# Structures, by example.


def test_leaves_are_sorted_by_key_and_rebuilt_in_the_templates_order():
    structure = nest.Structure({"b": 0, "a": 0, 3 * "c": [0]})
    assert [1, 2, 3] == structure.flatten({"ccc": [3], "a": 1, "b": 2})
    assert ["b", "a", "ccc"] == list(structure.unflatten([1, 2, 3]))


def test_a_leaf_alone_is_a_structure():
    structure = nest.Structure(7)
    assert ([["any", "thing"]], "x") == (
        structure.flatten(["any", "thing"]),
        structure.unflatten(["x"]),
    )
    assert ("",) == structure.paths


def test_a_structure_without_leaves_keeps_its_containers():
    template = {"a": {}, "b": [(), Empty()]}
    structure = nest.Structure(template)
    assert ([], template) == (structure.flatten(template), structure.unflatten([]))


def test_leaves_are_not_traversed():
    assert [[1, [2]]] == nest.Structure({"a": 0}).flatten({"a": [1, [2]]})


def test_a_namedtuple_with_a_constructor_of_its_own_is_rebuilt():
    structure = nest.Structure(Counted.of(0, 0))
    assert Counted(1, (2, 3)) == structure.unflatten([1, 2, 3])


def test_a_structure_takes_any_sequence_of_leaves():
    structure = nest.Structure({"a": 0, "b": 0})
    assert {"a": 1, "b": 2} == structure.unflatten((1, 2))
    assert {"a": 1, "b": 2} == structure.unflatten(np.array([1, 2]))


def test_rebuilt_structures_share_no_container_with_the_template():
    template = {"a": [0], "b": {}}
    rebuilt = nest.Structure(template).unflatten([1])
    rebuilt["a"].append(5)
    rebuilt["b"]["new"] = 5
    assert {"a": [0], "b": {}} == template


def test_proxies_are_flattened_and_rebuilt():
    template = {
        "list": strategies.ProxiedList([0, 0]),
        "tuple": strategies.ProxiedTuple((0,)),
        "dict": strategies.ProxiedDict({"b": 0, "a": 0}),
    }
    structure = nest.Structure(template)

    rebuilt = structure.unflatten([1, 2, 3, 4, 5])
    assert [1, 2, 3, 4, 5] == structure.flatten(rebuilt)
    assert {"list": [3, 4], "tuple": (5,), "dict": {"b": 2, "a": 1}} == rebuilt
    assert [type(part) for part in template.values()] == [
        type(part) for part in rebuilt.values()
    ]


@pytest.mark.parametrize(
    "value", [[1, 2], (1, 2), {"b": 2, "a": 1}, Pair(1, 2), Pose(1, 2)], ids=repr
)
def test_a_proxy_and_its_object_have_the_same_structure(value):
    class Proxy(wrapt.ObjectProxy):
        """One for each container: dm-tree cannot tell two kinds of one type apart."""

    proxy = Proxy(value)
    tree.assert_same_structure(value, proxy)
    assert [1, 2] == nest.Structure(value).flatten(proxy)
    assert [1, 2] == nest.Structure(proxy).flatten(value)
    assert [1, 2] == nest.Structure(proxy).flatten(proxy)
    assert value == nest.Structure(proxy).unflatten([1, 2])


def test_proxies_of_one_type_may_stand_for_different_containers():
    """dm-tree takes the second for what the first was."""
    proxies = [
        wrapt.ObjectProxy({"b": 2, "a": 1}),
        wrapt.ObjectProxy([3, 4]),
        wrapt.ObjectProxy((5,)),
    ]
    assert [[1, 2], [3, 4], [5]] == [nest.flatten(proxy) for proxy in proxies]
    assert [[2, 4], [6, 8], [10]] == [
        nest.flatten(nest.map_structure(lambda leaf: 2 * leaf, proxy))
        for proxy in proxies
    ]


def test_a_view_of_a_dictionary_is_rebuilt_as_a_list():
    structure = nest.Structure({"seen": {"b": 0, "a": [0]}.values()})
    assert {"seen": [1, [2]]} == structure.unflatten([1, 2])


def test_a_structure_can_be_pickled():
    structure = pickle.loads(pickle.dumps(nest.Structure({"a": 0, "b": (0, 0)})))
    assert [1, 2, 3] == structure.flatten({"a": 1, "b": (2, 3)})


def test_a_structure_shows_its_outline():
    assert "Structure({'b': *, 'a': (*,)})" == repr(nest.Structure({"b": 1, "a": (1,)}))


def test_map_applies_a_function_leaf_by_leaf():
    structure = nest.Structure({"a": 0, "b": (0, 0)})
    mapped = structure.map(
        lambda first, second: first - second,
        {"a": 10, "b": (20, 30)},
        {"a": 1, "b": (2, 3)},
    )
    assert {"a": 9, "b": (18, 27)} == mapped


# Structures that refuse.


@pytest.mark.parametrize(
    ("template", "value", "reason"),
    [
        ({"a": 0}, {}, "Key 'a' is missing."),
        ({}, {"a": 0}, "Key 'a' is not in the spec."),
        (
            {"camera": 0},
            {"cam": 0},
            "Key 'camera' is missing; key 'cam' is not in the spec.",
        ),
        (
            {"a": 0, "b": 0, "z": 0},
            {"c": 0, "d": 0, "z": 0},
            "Keys 'a', 'b' are missing; keys 'c', 'd' are not in the spec.",
        ),
        (
            dict.fromkeys(range(7)),
            {},
            "Keys 0, 1, 2, 3, 4 and 2 more are missing.",
        ),
        ({1: 0}, {"1": 0}, "Key 1 is missing; key '1' is not in the spec."),
        ([0, 0], [0], "The list has 1 element; 2 are expected."),
        ((0,), (0, 0), "The tuple has 2 elements; 1 is expected."),
        ([0], (0,), "The value is a tuple; a list is expected."),
        ((0,), [0], "The value is a list; a tuple is expected."),
        ([0], {0: 0}, "The value is a dictionary; a list is expected."),
        ({0: 0}, [0], "The value is a list; a dictionary is expected."),
        ((0, 0), Pair(0, 0), "The value is a namedtuple Pair; a tuple is expected."),
        (Pair(0, 0), (0, 0), "The value is a tuple; a namedtuple Pair is expected."),
        (
            Pair(0, 0),
            Counted(0, 0),
            "The value is a namedtuple Counted(total, parts); Pair(second, first) is "
            "expected.",
        ),
        (Pose(0, 0), (0, 0), "The value is a tuple; a Pose is expected."),
        (Pose(0, 0), {"y": 0}, "The value is a dictionary; a Pose is expected."),
        (
            Pose(0, 0),
            PoseInSpace(0, 0, 0),
            "The value is a PoseInSpace; a Pose is expected.",
        ),
        ([0], 3.0, "The value is a single float; a list is expected."),
        ([0], "text", "The value is a single str; a list is expected."),
        (
            {"a": 0},
            np.zeros(2),
            "The value is a single ndarray; a dictionary is expected.",
        ),
        (
            {"a": 0},
            None,
            "The value is None; a dictionary is expected. Did a return statement get "
            "lost?",
        ),
    ],
)
def test_the_last_line_says_how_the_structures_differ(template, value, reason):
    assert reason == refusal([template], [value]).splitlines()[-1]


def test_a_structure_error_keeps_its_facts():
    with pytest.raises(SpecError) as caught:
        nest.Structure({"a": (0, [0])}).flatten({"a": (1, [2, 3])})
    assert ("['a'][1]", "The list has 2 elements; 1 is expected.") == (
        caught.value.path,
        caught.value.reason,
    )
    assert (
        "The value does not fit its spec at ['a'][1].\n\n"
        "  expected   the structure [*]\n"
        "  got        [*, *]\n\n"
        "The list has 2 elements; 1 is expected."
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("template", "leaves", "message"),
    [
        (
            {"a": 0, "b": (0, 0)},
            [1],
            "1 leaf cannot be packed into the structure {'a': *, 'b': (*, *)}, which "
            "has 3.",
        ),
        (
            {"a": 0, "b": (0, 0)},
            [1, 2, 3, 4],
            "4 leaves cannot be packed into the structure {'a': *, 'b': (*, *)}, which "
            "has 3.",
        ),
        (
            Pose(0, [0]),
            [1, 2, 3],
            "3 leaves cannot be packed into the structure [*, [*]], which has 2.",
        ),
    ],
)
def test_a_wrong_number_of_leaves_is_refused(message_of, template, leaves, message):
    unflatten = nest.Structure(template).unflatten
    assert message == message_of(SpecError, lambda: unflatten(leaves))
    assert message == message_of(SpecError, lambda: nest.unflatten_as(template, leaves))


@pytest.mark.parametrize(
    ("template", "place"),
    [({"camera": {"left": 0, 1: 0}}, " at ['camera']"), ({"left": 0, 1: 0}, "")],
)
def test_keys_without_an_order_are_refused(message_of, template, place):
    assert (
        f"The keys of the dictionary{place} have no order: 'left', 1. Nests are "
        "flattened in the order of their keys: use keys of one type."
    ) == message_of(SpecError, lambda: nest.Structure(template))


# The functions.


@given(value=strategies.nests(plain=False))
def test_flatten_and_unflatten_as_are_inverse(value):
    assert anatomy(value) == anatomy(nest.unflatten_as(value, nest.flatten(value)))


@given(value=strategies.nests(plain=False))
def test_map_structure_keeps_the_structure(value):
    mapped = nest.map_structure(lambda first, second: (first, second), value, value)
    assert anatomy(tree.map_structure(lambda leaf: (leaf, leaf), value)) == (
        anatomy(mapped)
    )


@given(value=strategies.nests(st.integers(), plain=False))
def test_first_leaf_returns_the_first_leaf(value):
    leaves = tree.flatten(value)
    assert (leaves[0] if leaves else None) == nest.first_leaf(value)
    assert nest.first_leaf([[None], 3]) is None


def test_assert_same_structure_follows_dm_tree():
    nest.assert_same_structure({"a": [1]}, {"a": [2]})
    nest.assert_same_structure([1], (2,), check_types=False)
    with pytest.raises(TypeError, match="same nested structure"):
        nest.assert_same_structure([1], (2,))


def test_pair_up_compares_a_value_with_a_template():
    pairs = list(nest.pair_up({"a": 1, "b": [2, 3]}, {"a": 10, "b": [20]}, "action"))
    assert [
        nest.Pair("action['a']", 1, 10, ""),
        nest.Pair(
            "action['b']", [2, 3], [20], "The list has 1 element; 2 are expected."
        ),
    ] == pairs


@pytest.mark.parametrize(
    ("root", "path", "joined"),
    [
        ("", "", ""),
        ("action", "", "action"),
        ("", "['move']", "['move']"),
        ("action", "['move']", "action['move']"),
        ("action", "move", "action.move"),
        ("", "move", "move"),
    ],
)
def test_a_path_is_joined_to_its_root(root, path, joined):
    assert joined == nest.join(root, path)


@pytest.mark.parametrize(
    ("value", "outline"),
    [
        (3, "*"),
        ({"b": 1, "a": [2]}, "{'b': *, 'a': [*]}"),
        ((1,), "(*,)"),
        ((1, 2), "(*, *)"),
        ((), "()"),
        (Pair(1, {}), "Pair(second=*, first={})"),
        (Pose(1, 2), "[*, *]"),
        (list(range(99)), f"[{'*, ' * 38}*,..."),
    ],
)
def test_an_outline_shows_containers_without_their_values(value, outline):
    assert outline == nest.outline(value)
    assert len(nest.outline(value)) <= 120


def test_a_structure_may_be_deeper_than_a_compiled_expression():
    template, value = 0, 7
    for _ in range(250):
        template, value = [template], [value]
    structure = nest.Structure(template)
    assert [7] == structure.flatten(value)
    assert value == structure.unflatten([7])


def test_an_ordered_dict_equals_a_dict_with_its_keys():
    structure = nest.Structure({"b": 0, "a": 0})
    assert [1, 2] == structure.flatten(collections.OrderedDict(b=2, a=1))
    with pytest.raises(SpecError, match="Key 'a' is missing"):
        structure.flatten(collections.OrderedDict(b=2))


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ({"a": 1}, {"a": [1]}, r"at \['a'\]"),
        ({"a": 1}, {"b": 1}, "Key 'a' is missing"),
        ([1, 2], [1], "The list has 1 element; 2 are expected"),
    ],
)
def test_mapping_over_another_structure_is_refused(first, second, problem):
    with pytest.raises(SpecError, match=problem):
        nest.map_structure(max, first, second)


@pytest.mark.parametrize(
    "value",
    [collections.Counter(b=2, a=1), collections.ChainMap({"b": 2}, {"a": 1})],
    ids=["Counter", "ChainMap"],
)
def test_a_mapping_that_is_made_from_a_mapping_keeps_its_keys(value):
    rebuilt = nest.unflatten_as(value, [10, 11])
    assert {"a": 10, "b": 11} == dict(rebuilt)
    assert type(value) is type(rebuilt)
