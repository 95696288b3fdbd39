from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given

from envkit import EnvironmentSpec
from envkit.errors import SpecMismatchError
from envkit.specs import ArraySpec, BoundedArraySpec
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


def test_an_environment_is_asked_for_its_four_specs():
    env = NestedCountingEnv()

    assert EnvironmentSpec(
        env.observation_spec(),
        env.action_spec(),
        env.reward_spec(),
        env.discount_spec(),
    ) == EnvironmentSpec.of(env)


def test_specs_of_an_environment_can_be_pickled():
    assert SPEC == pickle.loads(pickle.dumps(SPEC))


@given(spec=strategies.spec_nests())
def test_equal_specs_have_no_difference(spec):
    first = SPEC._replace(observation=spec)
    second = SPEC._replace(observation=pickle.loads(pickle.dumps(spec)))

    assert first.difference(second) is None


@given(first=strategies.spec_nests(), second=strategies.spec_nests())
def test_specs_that_differ_have_a_difference_in_both_directions(first, second):
    assume(first != second)
    one, other = SPEC._replace(action=first), SPEC._replace(action=second)

    assert "action" == one.difference(other)[0]
    assert "action" == other.difference(one)[0]


def test_names_are_no_difference():
    assert SPEC.difference(SPEC._replace(action=MOVE.replace(name="move"))) is None


@pytest.mark.parametrize("part", EnvironmentSpec._fields)
def test_the_part_that_differs_is_named(part):
    other = SPEC._replace(**{part: ArraySpec((7,), np.int8)})

    assert part == SPEC.difference(other)[0]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (MOVE.replace(shape=(2,)), "The shape differs: () and (2,)."),
        (
            BoundedArraySpec((), np.int32, 0, 5),
            "The dtype differs: int64 and int32.",
        ),
        (MOVE.replace(minimum=1), "The minimum differs: 0 and 1."),
        (MOVE.replace(maximum=17), "The maximum differs: 5 and 17."),
        (MOVE.replace(minimum=1, maximum=17), "The minimum differs: 0 and 1."),
        (ArraySpec((), np.int64), "Only one of the two is bounded."),
        (
            None,
            "The spec differs: BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=5) and None.",
        ),
    ],
    ids=repr,
)
def test_a_difference_is_explained(other, text):
    assert ("action", text) == SPEC.difference(SPEC._replace(action=other))


def test_the_place_of_a_difference_is_named():
    first = {"hand": [MOVE, SCALAR], "foot": SCALAR}
    second = {"hand": [MOVE, ArraySpec((2,), np.float32)], "foot": SCALAR}

    assert ("action", "The shape differs at ['hand'][1]: () and (2,).") == (
        SPEC._replace(action=first).difference(SPEC._replace(action=second))
    )


def test_structures_that_differ_are_explained():
    first = Pair({"hand": MOVE}, MOVE)
    second = Pair({"foot": MOVE}, MOVE)

    assert (
        "action",
        "The structure differs at second. Key 'hand' is missing; key 'foot' is not in "
        "the spec.",
    ) == SPEC._replace(action=first).difference(SPEC._replace(action=second))


def test_bounds_that_differ_in_some_elements_are_shown_whole():
    first = BoundedArraySpec((2,), np.int64, 0, [5, 6])
    second = BoundedArraySpec((2,), np.int64, 0, 7)

    assert ("action", "The maximum differs: [5, 6] and 7.") == (
        SPEC._replace(action=first).difference(SPEC._replace(action=second))
    )


def test_bounds_of_float32_are_shown_without_the_digits_of_float64():
    first = BoundedArraySpec((2,), np.float32, [0.1, 0.7], 1)
    second = BoundedArraySpec((2,), np.float32, [0.2, 0.7], 1)

    assert ("action", "The minimum differs: [0.1, 0.7] and [0.2, 0.7].") == (
        SPEC._replace(action=first).difference(SPEC._replace(action=second))
    )


def test_a_bound_that_is_nan_is_no_difference():
    first = BoundedArraySpec((), np.float32, np.array(np.nan, np.float32), 1)
    second = first.replace(maximum=2)

    assert ("action", "The maximum differs: 1.0 and 2.0.") == (
        SPEC._replace(action=first).difference(SPEC._replace(action=second))
    )


def test_bounds_in_another_form_are_no_difference():
    first = BoundedArraySpec((2, 2), np.int64, [0, 0], [5, 6])
    second = BoundedArraySpec((2, 2), np.int64, [[0], [0]], [7, 7])

    assert ("action", "The maximum differs: [5, 6] and 7.") == (
        SPEC._replace(action=first).difference(SPEC._replace(action=second))
    )


@pytest.mark.parametrize("count", [0, 1, 5])
def test_equal_specs_pass(count):
    EnvironmentSpec.check_all_equal([SPEC] * count)


def test_environments_that_disagree_are_named_with_their_specs():
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


def test_a_disagreement_keeps_its_facts():
    with pytest.raises(SpecMismatchError) as caught:
        EnvironmentSpec.check_all_equal([SPEC, SPEC._replace(reward=MOVE)])

    assert ((0, 1), "reward") == (caught.value.envs, caught.value.part)


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
def test_the_specs_that_agree_are_named(changes, last_line):
    assert last_line == mismatch(SPEC, SPEC._replace(**changes)).splitlines()[-1]


def test_large_specs_are_cut_to_a_line():
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
