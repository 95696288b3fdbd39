from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings

from envkit import EnvironmentSpec
from envkit.errors import SpecError, SpecMismatchError
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import DeclaredInfo, common_info_spec, info_spec_of
from envkit.testing.envs import NestedCountingEnv
from tests import strategies
from tests.strategies import Pair

SCALAR = ArraySpec((), np.float32)
MOVE = BoundedArraySpec((), np.int64, 0, 5)
SPEC = EnvironmentSpec(SCALAR, MOVE, SCALAR, SCALAR)


def mismatch(*specs: EnvironmentSpec, makers: list[str] | None = None) -> str:
    """Returns the message with which the specs are refused."""
    with pytest.raises(SpecMismatchError) as caught:
        EnvironmentSpec.check_all_equal(specs, makers)
    return str(caught.value)


def test_the_four_specs_come_from_the_environment():
    env = NestedCountingEnv()
    assert EnvironmentSpec(
        env.observation_spec(),
        env.action_spec(),
        env.reward_spec(),
        env.discount_spec(),
    ) == EnvironmentSpec.of(env)


def test_environment_specs_pickle():
    assert SPEC == pickle.loads(pickle.dumps(SPEC))


@settings(max_examples=20)
@given(spec=strategies.spec_nests())
def test_equal_specs_have_no_difference(spec):
    first = SPEC._replace(observation=spec)
    second = SPEC._replace(observation=pickle.loads(pickle.dumps(spec)))
    assert first.difference(second) is None


@settings(max_examples=20)
@given(first=strategies.spec_nests(), second=strategies.spec_nests())
def test_differing_specs_have_a_difference_in_both_directions(first, second):
    assume(first != second)
    one, other = SPEC._replace(action=first), SPEC._replace(action=second)
    assert "action" == one.difference(other)[0]
    assert "action" == other.difference(one)[0]


def test_differing_names_are_no_difference():
    assert SPEC.difference(SPEC._replace(action=MOVE.replace(name="move"))) is None


@pytest.mark.parametrize("part", EnvironmentSpec._fields)
def test_the_differing_part_is_named(part):
    other = SPEC._replace(**{part: ArraySpec((7,), np.int8)})
    assert part == SPEC.difference(other)[0]


NAN = BoundedArraySpec((), np.float32, np.array(np.nan, np.float32), 1)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (MOVE, MOVE.replace(shape=(2,)), "The shape differs: () and (2,)."),
        (
            MOVE,
            BoundedArraySpec((), np.int32, 0, 5),
            "The dtype differs: int64 and int32.",
        ),
        (MOVE, MOVE.replace(minimum=1), "The minimum differs: 0 and 1."),
        (MOVE, MOVE.replace(maximum=17), "The maximum differs: 5 and 17."),
        (MOVE, MOVE.replace(minimum=1, maximum=17), "The minimum differs: 0 and 1."),
        (MOVE, ArraySpec((), np.int64), "Only one of the two is bounded."),
        (
            MOVE,
            None,
            "The spec differs: BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=5) and None.",
        ),
        (
            {"hand": [MOVE, SCALAR], "foot": SCALAR},
            {"hand": [MOVE, ArraySpec((2,), np.float32)], "foot": SCALAR},
            "The shape differs at ['hand'][1]: () and (2,).",
        ),
        (
            Pair({"hand": MOVE}, MOVE),
            Pair({"foot": MOVE}, MOVE),
            "The structure differs at second. Key 'hand' is missing; key 'foot' is not "
            "in the spec.",
        ),
        # Bounds that differ in some elements are shown whole.
        (
            BoundedArraySpec((2,), np.int64, 0, [5, 6]),
            BoundedArraySpec((2,), np.int64, 0, 7),
            "The maximum differs: [5, 6] and 7.",
        ),
        # Those of float32 are shown without the digits of float64.
        (
            BoundedArraySpec((2,), np.float32, [0.1, 0.7], 1),
            BoundedArraySpec((2,), np.float32, [0.2, 0.7], 1),
            "The minimum differs: [0.1, 0.7] and [0.2, 0.7].",
        ),
        # Two bounds that are NaN do not differ, nor do two of another form.
        (NAN, NAN.replace(maximum=2), "The maximum differs: 1.0 and 2.0."),
        (
            BoundedArraySpec((2, 2), np.int64, [0, 0], [5, 6]),
            BoundedArraySpec((2, 2), np.int64, [[0], [0]], [7, 7]),
            "The maximum differs: [5, 6] and 7.",
        ),
    ],
    ids=repr,
)
def test_a_difference_is_explained(first, second, text):
    first, second = SPEC._replace(action=first), SPEC._replace(action=second)
    assert ("action", text) == first.difference(second)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_equal_specs_pass(count):
    EnvironmentSpec.check_all_equal([SPEC] * count)


def test_disagreeing_environments_are_named_with_their_specs():
    other = SPEC._replace(action=MOVE.replace(maximum=17))

    assert (
        "env 0 and env 2 have different action specs, so they cannot form one batch.\n"
        "\n"
        "  env 0    BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=5)    "
        "my_game.envs:make, level=1\n"
        "  env 2    BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=17)    "
        "my_game.envs:make, level=9\n"
        "\n"
        "The maximum differs: 5 and 17. Observation, reward and discount specs agree."
    ) == mismatch(
        SPEC,
        SPEC,
        other,
        makers=[f"my_game.envs:make, level={level}" for level in (1, 1, 9)],
    )


def test_disagreeing_specs_are_shown_side_by_side():
    specs = [*[SPEC] * 10, SPEC._replace(reward=MOVE)]
    with pytest.raises(SpecMismatchError) as caught:
        EnvironmentSpec.check_all_equal(specs)
    assert [f"  env 0     {SPEC.reward}", f"  env 10    {MOVE}"] == (
        str(caught.value).splitlines()[2:4]
    )
    assert ((0, 10), "reward") == (caught.value.envs, caught.value.part)


@pytest.mark.parametrize(
    ("changes", "last_line"),
    [
        (
            {"action": SCALAR, "reward": MOVE},
            "The dtype differs: int64 and float32. Observation and discount specs "
            "agree.",
        ),
        (
            {"observation": MOVE, "reward": MOVE, "discount": MOVE},
            "The dtype differs: float32 and int64. Action spec agrees.",
        ),
        (
            {"observation": MOVE, "action": SCALAR, "reward": MOVE, "discount": MOVE},
            "The dtype differs: float32 and int64. No other spec agrees either.",
        ),
    ],
)
def test_agreeing_specs_are_named(changes, last_line):
    assert last_line == mismatch(SPEC, SPEC._replace(**changes)).splitlines()[-1]


def test_large_specs_are_shortened_to_one_line():
    large = {f"sensor {index}": SCALAR for index in range(200)}
    other = {**large, "sensor 7": MOVE}

    message = mismatch(
        SPEC._replace(observation=large), SPEC._replace(observation=other)
    )

    assert (
        "env 0 and env 1 have different observation specs, so they cannot form one "
        "batch."
    ) == message.splitlines()[0]
    assert (
        "The dtype differs at ['sensor 7']: float32 and int64. Action, reward and "
        "discount specs agree."
    ) == message.splitlines()[-1]
    assert max(map(len, message.splitlines())) < 220


FUEL = ArraySpec((2,), np.float32)
LAP = ArraySpec((), np.int32)
DECLARED = DeclaredInfo({"car": {"fuel": FUEL}, "lap": LAP})
INFO = {"car": {"fuel": np.array([0.5, 1.0], np.float32)}, "lap": 3}


class Declaring:
    def __init__(self, declared):
        self._declared = declared

    def info_spec(self):
        return self._declared


def test_an_environment_without_info_spec_declares_nothing():
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
def test_an_info_spec_other_than_a_dictionary_is_refused(declared, message):
    with pytest.raises(TypeError, match=message):
        info_spec_of(Declaring(declared))


def test_the_common_info_spec_has_what_all_declare_alike():
    first = {"car": {"fuel": FUEL, "oil": LAP}, "lap": LAP, "rain": LAP}
    second = {"car": {"fuel": FUEL, "oil": FUEL}, "lap": LAP}
    assert {"car": {"fuel": FUEL}, "lap": LAP} == common_info_spec([first, second])
    assert {} == common_info_spec([{"car": {"fuel": FUEL}}, {"car": FUEL}])
    assert {} == common_info_spec([])


def test_declared_values_have_the_order_of_leaves():
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
def test_missing_and_misfitting_infos_are_named(info, place):
    with pytest.raises(SpecError, match=rf"The info of env 4 does .* at {place}"):
        DECLARED.values(info, subject="The info of env 4")


def test_a_text_longer_than_declared_does_not_fit():
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


def test_a_batchs_info_is_arrays_or_a_list_by_row():
    stacked = {"car": {"fuel": np.ones((3, 2), np.float32)}, "lap": np.arange(3)}
    listed = [{**INFO, "lap": lap} for lap in range(3)]

    for info in (stacked, listed):
        fuel, lap = DECLARED.batch_values(info, 3)
        assert (3, 2) == fuel.shape
        assert [0, 1, 2] == lap.tolist()
    with pytest.raises(SpecError, match="info"):
        DECLARED.batch_values(stacked, 4)
