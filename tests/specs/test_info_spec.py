"""What environments declare of their infos, and what is taken out of an info."""

from __future__ import annotations

import numpy as np
import pytest

from envkit.errors import SpecError
from envkit.specs import ArraySpec
from envkit.specs.info_spec import DeclaredInfo, common_info_spec, info_spec_of

FUEL = ArraySpec((2,), np.float32)
LAP = ArraySpec((), np.int32)
DECLARED = DeclaredInfo({"car": {"fuel": FUEL}, "lap": LAP})
INFO = {"car": {"fuel": np.array([0.5, 1.0], np.float32)}, "lap": 3}


class Declaring:
    def __init__(self, declared):
        self._declared = declared

    def info_spec(self):
        return self._declared


def test_an_environment_without_the_method_declares_nothing():
    assert {} == info_spec_of(object())


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            LAP,
            r"Declaring\.info_spec\(\) returned .*; it is a dictionary of",
        ),
        (None, "returned None; it is a dictionary"),
        ({"lap": 3}, r"has 3 of type int at \['lap'\], not an ArraySpec"),
        ({"car": {"fuel": [FUEL]}}, r"at \['car'\]\['fuel'\], not an ArraySpec"),
        ({3: LAP}, "has the key 3; its keys are text"),
    ],
)
def test_what_is_no_dictionary_of_specs_is_refused(declared, message):
    with pytest.raises(TypeError, match=message):
        info_spec_of(Declaring(declared))


def test_the_common_part_is_what_all_declare_alike():
    first = {"car": {"fuel": FUEL, "oil": LAP}, "lap": LAP, "rain": LAP}
    second = {"car": {"fuel": FUEL, "oil": FUEL}, "lap": LAP}

    assert {"car": {"fuel": FUEL}, "lap": LAP} == common_info_spec([first, second])
    assert {} == common_info_spec([{"car": {"fuel": FUEL}}, {"car": FUEL}])
    assert {} == common_info_spec([])


def test_values_come_in_the_order_of_leaves():
    fuel, lap = DECLARED.values({"more": "text", **INFO})

    np.testing.assert_array_equal([0.5, 1.0], fuel)
    assert 3 == lap


@pytest.mark.parametrize(
    ("info", "place"),
    [
        ({}, r"info\['car'\]\['fuel'\]"),
        (None, r"info\['car'\]\['fuel'\]"),
        ({"car": 1, "lap": 3}, r"info\['car'\]\['fuel'\]"),
        ({"car": INFO["car"]}, r"info\['lap'\]"),
        ({**INFO, "lap": [3]}, r"info\['lap'\]"),
        ({**INFO, "lap": 3.5}, r"info\['lap'\]"),
        ({**INFO, "lap": None}, r"info\['lap'\]"),
        ({"car": {"fuel": 0.5}, "lap": 3}, r"info\['car'\]\['fuel'\]"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(info, place):
    with pytest.raises(SpecError, match=rf"The info of env 4 does .* at {place}"):
        DECLARED.values(info, subject="The info of env 4")


def test_text_that_would_be_cut_off_does_not_fit():
    name = DeclaredInfo({"name": ArraySpec((), np.dtype("<U4"))})

    assert ["Ann"] == name.values({"name": "Ann"})
    with pytest.raises(SpecError, match=r"info\['name'\]"):
        name.values({"name": "Annabel"})


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (INFO, True),
        ({**INFO, "more": 1}, False),
        ({**INFO, "car": {**INFO["car"], "more": 1}}, False),
    ],
)
def test_an_info_may_have_more_than_is_declared(info, expected):
    assert expected == DECLARED.is_all_of(info)


def test_a_batch_gives_arrays_or_a_list_with_the_info_of_each_row():
    stacked = {"car": {"fuel": np.ones((3, 2), np.float32)}, "lap": np.arange(3)}
    listed = [{**INFO, "lap": lap} for lap in range(3)]

    for info in (stacked, listed):
        fuel, lap = DECLARED.batch_values(info, 3)
        assert (3, 2) == fuel.shape
        assert [0, 1, 2] == lap.tolist()
    with pytest.raises(SpecError, match="info"):
        DECLARED.batch_values(stacked, 4)
