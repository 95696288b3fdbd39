"""Functions without a name stay where they are, and what they hold is saved."""

from __future__ import annotations

import collections
import functools
import math
import types

import pytest

from envkit.adapters.states.local_functions import (
    bring_back,
    held_by,
    local_functions,
)


def named():
    """Has a name that everybody finds."""


class Tool:
    """Holds something."""

    def __init__(self, part):
        self.part = part

    def use(self):
        """Is found by the name of its class."""


def layer(**attributes):
    return types.SimpleNamespace(**attributes)


def paths(*layers, kept=()):
    return set(local_functions(layers, kept))


def adder(by):
    def add(number):
        return number + by

    return add


def counter():
    count = 0

    def up():
        nonlocal count
        count += 1
        return count

    return up


def test_what_has_a_name_is_not_among_them():
    assert set() == paths(
        layer(own=named, python=len, kind=Tool, method=Tool(1).use, module=math)
    )


def test_a_lambda_and_a_function_within_a_function_are():
    assert {(0, ".double"), (0, ".add")} == paths(
        layer(double=lambda number: 2 * number, add=adder(1))
    )


def test_they_are_found_in_every_layer():
    assert {(0, ".add"), (1, ".add")} == paths(
        layer(add=adder(1), number=1), layer(add=adder(2))
    )


def test_they_are_found_in_what_containers_and_objects_hold():
    add = adder(1)

    for held, path in (
        ([0, add], (1,)),
        ((add,), (0,)),
        ({"key": {("a", 1): add}}, ("key", ("a", 1))),
        (Tool(Tool(add)), (".part", ".part")),
        (functools.partial(add, 1), ("func",)),
        (functools.partial(named, add), ("args", 0)),
        (functools.partial(named, key=add), ("keywords", "key")),
        (Tool(add).use, ("self", ".part")),
        (collections.Counter, None),
    ):
        expected = set() if path is None else {(0, ".held", *path)}
        assert expected == paths(layer(held=held)), held


def test_they_are_found_in_what_other_functions_hold():
    add = adder(1)

    def outer(number, way=lambda number: number, *, last=lambda: 0):
        return last(way(add(number)))

    outer.note = lambda: 1

    assert {
        (0, ".outer"),
        (0, ".outer", "variable 0"),
        (0, ".outer", "defaults", 0),
        (0, ".outer", "keyword defaults", "last"),
        (0, ".outer", ".note"),
    } == paths(layer(outer=outer))


def test_what_knows_itself_is_looked_at_once():
    one = layer(add=adder(1))
    one.itself, one.all = one, [one]

    assert {(0, ".add")} == paths(one)


def test_what_is_kept_is_not_looked_into():
    tool = Tool(adder(1))

    assert set() == paths(layer(tool=tool), kept=[tool])


def test_keys_that_are_objects_lead_nowhere():
    assert set() == paths(layer(held={Tool(1): adder(1)}))


def test_a_function_counts_on_from_where_it_was():
    up = counter()
    up()
    held = held_by(up)
    assert [2, 3] == [up(), up()]

    bring_back(up, held)

    assert [2, 3] == [up(), up()]


def test_defaults_and_attributes_come_back():
    def seen(one=1, *, other=2):
        return one, other

    seen.note = "before"
    held = held_by(seen)
    seen.__defaults__, seen.__kwdefaults__ = (3,), {"other": 4}
    seen.note, seen.more = "after", True

    bring_back(seen, held)

    assert (1, 2) == seen()
    assert {"note": "before"} == vars(seen)


def test_a_variable_without_a_value_is_without_one_again():
    def read():
        return later

    held = held_by(read)
    bring_back(read, held)
    later = 1
    assert 1 == read()

    bring_back(read, held)

    with pytest.raises(NameError):
        read()
