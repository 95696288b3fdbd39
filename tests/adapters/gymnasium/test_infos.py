"""Infos of rows are put together as Gymnasium does it, and nothing is lost."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given
from hypothesis import strategies as st

from envkit.adapters.gymnasium.infos import (
    ColumnInfos,
    DictInfos,
    InfosOfSome,
    block_infos,
    row_infos,
)

ROWS = 3
VALUES = {
    "int": st.integers(-9, 9),
    "float": st.floats(0.0, 1.0),
    "flag": st.booleans(),
    "text": st.sampled_from(["", "Ada", "Blaise"]),
    "none": st.none(),
    "list": st.lists(st.integers(), max_size=2),
    "float32": st.just(np.float32(0.5)),
    "array": st.just(np.arange(2, dtype=np.int16)),
}
infos_of_a_row = st.fixed_dictionaries(
    {}, optional={**VALUES, "deep": st.fixed_dictionaries({}, optional=VALUES)}
)
masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array)


def everyone():
    return np.ones(ROWS, bool)


def put_together_by_gymnasium(by_row, rows):
    vector_env = gymnasium.vector.VectorEnv()
    vector_env.num_envs = ROWS
    infos = {}
    for row, info in enumerate(by_row):
        if rows[row]:
            infos = vector_env._add_info(infos, info, row)
    return infos


@given(st.lists(infos_of_a_row, min_size=ROWS, max_size=ROWS), masks)
def test_dictionaries_are_combined_like_in_gymnasium(by_row, rows):
    expected = put_together_by_gymnasium(by_row, rows)
    infos = DictInfos(dict(enumerate(by_row)), ROWS).add_to({}, rows)
    assert data_equivalence(expected, infos, exact=True)


def test_a_float_after_an_integer_is_kept():
    by_row = {0: {"chance": 1}, 1: {"chance": 0.25}, 2: {"chance": True}}
    infos = DictInfos(by_row, ROWS).add_to({}, everyone())
    assert [1.0, 0.25, 1.0] == infos["chance"].tolist()


def test_values_of_mixed_types_become_objects():
    shapes = {0: {"x": np.zeros(2)}, 1: {"x": np.zeros(3)}, 2: {"x": "none"}}
    infos = DictInfos(shapes, ROWS).add_to({}, everyone())
    assert np.dtype(object) == infos["x"].dtype
    assert [(2,), (3,)] == [infos["x"][row].shape for row in (0, 1)]


def test_large_integers_become_objects():
    by_row = {0: {"seed": 2**127}, 1: {"seed": 3}, 2: {"seed": -1}}
    infos = DictInfos(by_row, ROWS).add_to({}, everyone())
    assert [2**127, 3, -1] == infos["seed"].tolist()


def test_later_infos_fill_their_own_rows():
    rows = np.array([True, False, False])
    infos = DictInfos({0: {"a": 1, "deep": {"b": 2}}}, ROWS).add_to({}, rows)
    infos = DictInfos({2: {"a": 0.5, "deep": {"b": 3}}}, ROWS).add_to(infos, ~rows)
    assert [1.0, 0.0, 0.5] == infos["a"].tolist()
    assert [True, False, True] == infos["_a"].tolist()
    assert [2, 0, 3] == infos["deep"]["b"].tolist()
    assert [True, False, True] == infos["deep"]["_b"].tolist()


def test_later_infos_of_another_type_turn_the_array_into_objects():
    rows = np.array([True, False, False])
    infos = DictInfos({0: {"a": 1}}, ROWS).add_to({}, rows)
    infos = DictInfos({1: {"a": "b"}}, ROWS).add_to(infos, ~rows)
    assert [1, "b"] == infos["a"].tolist()[:2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), "b"),
        ({"deep": 1}, 7),
        (7, {"deep": 1}),
    ],
)
def test_incompatible_values_replace_each_other(first, second):
    rows = np.array([True, False, False])
    infos = DictInfos({0: {"a": first}}, ROWS).add_to({}, rows)
    infos = DictInfos({1: {"a": second}}, ROWS).add_to(infos, ~rows)
    assert [True, True, False] == infos["_a"].tolist()
    np.testing.assert_equal(infos["a"][1], second)


@pytest.mark.parametrize("level", [3, np.array(3), np.float32(3.0)])
def test_a_scalar_applies_to_every_row(level):
    infos = ColumnInfos({"level": level}, ROWS).add_to({}, everyone())
    assert [3, 3, 3] == infos["level"].tolist()


@given(masks)
def test_columns_give_the_same_as_dictionaries_of_their_rows(rows):
    columns = {
        "steps": np.array([4, 5, 6]),
        "name": np.array(["Ada", "B", ""]),
        "deep": {"at": np.arange(6.0).reshape(3, 2)},
        "words": np.array([["a", "bc"], ["d", "e"], ["", "f"]]),
        "pair": [np.array([1, 2, 3]), np.array([True, False, True])],
    }
    by_row = {
        row: {
            "steps": columns["steps"][row],
            "name": str(columns["name"][row]),
            "deep": {"at": columns["deep"]["at"][row]},
            "words": columns["words"][row],
            "pair": [column[row] for column in columns["pair"]],
        }
        for row in range(ROWS)
    }

    infos = ColumnInfos(columns, ROWS).add_to({}, rows)

    assert data_equivalence(DictInfos(by_row, ROWS).add_to({}, rows), infos, exact=True)


def test_columns_extend_existing_infos():
    rows = np.array([True, False, False])
    infos = ColumnInfos({"a": np.array([1, 2, 3])}, ROWS).add_to({}, rows)
    infos = ColumnInfos({"a": np.array([7, 8, 9])}, ROWS).add_to(infos, ~rows)
    assert ([1, 8, 9], [True] * 3) == (infos["a"].tolist(), infos["_a"].tolist())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [0.5, 0.25, 0.125], [1, 0.25, 0.125]),
        (["a", "b", "c"], ["longer", "words", "here"], ["a", "words", "here"]),
        ([["a"]] * 3, [["longer"]] * 3, [["a"], ["longer"], ["longer"]]),
        ([[1], [2], [3]], [7, 8, 9], [[1], 8, 9]),
        ([1, 2, 3], [["a", "b"]] * 3, [1, ["a", "b"], ["a", "b"]]),
        ([1, 2, 3], {"deep": [4, 5, 6]}, [1, {"deep": 5}, {"deep": 6}]),
    ],
    ids=["fractions", "texts", "rows of texts", "less", "more", "nested"],
)
@pytest.mark.parametrize("is_by_row", [False, True])
def test_incompatible_columns_replace_each_other(is_by_row, first, second, expected):
    rows = np.array([True, False, False])
    before = ColumnInfos({"a": np.array(first)}, ROWS)
    if is_by_row:
        before = DictInfos({0: {"a": np.array(first)[0]}}, ROWS)
    after = (
        {key: np.array(value) for key, value in second.items()}
        if isinstance(second, dict)
        else np.array(second)
    )

    infos = before.add_to({}, rows)
    infos = ColumnInfos({"a": after}, ROWS).add_to(infos, ~rows)

    found = [one.tolist() if isinstance(one, np.ndarray) else one for one in infos["a"]]
    assert expected == found
    assert [True] * 3 == infos["_a"].tolist()


def test_flags_are_taken_out_of_columns():
    flags = {"terminated": np.array([1, 0, 0]) > 0, "truncated": np.zeros(3, bool)}
    infos = ColumnInfos({**flags, "a": np.arange(3)}, ROWS)

    taken = infos.take_flags()

    assert ([True] * 3, [True, False, False]) == (
        taken.given.tolist(),
        taken.terminated.tolist(),
    )
    assert {"a", "_a"} == infos.add_to({}, everyone()).keys()
    assert infos.take_flags() is None


def test_flags_are_taken_out_of_dictionaries_with_both():
    infos = DictInfos(
        {0: {"truncated": True}, 2: {"terminated": False, "truncated": True, "a": 1}},
        ROWS,
    )

    taken = infos.take_flags()
    assert [False, False, True] == taken.given.tolist() == taken.truncated.tolist()
    assert {"truncated", "_truncated", "a", "_a"} == infos.add_to({}, everyone()).keys()
    assert infos.take_flags() is None


def test_infos_of_some_rows_leave_other_rows_alone():
    column = InfosOfSome(
        ColumnInfos({"discount": np.array([0.5, 0.5, 1.0])}, ROWS),
        np.array([True, True, False]),
    )

    infos = column.add_to({}, np.array([True, False, True]))
    assert [0.5, 0.0, 0.0] == infos["discount"].tolist()
    assert [True, False, False] == infos["_discount"].tolist()
    assert column.take_flags() is None


def test_flags_of_other_rows_are_ignored():
    ended = np.array([True, False, True])
    infos = InfosOfSome(
        ColumnInfos({"terminated": ended, "truncated": ~ended}, ROWS), ended
    )
    taken = infos.take_flags()
    assert ended.tolist() == taken.given.tolist()
    assert {} == infos.add_to({}, everyone())


@pytest.mark.parametrize(
    ("given_infos", "expected"),
    [
        ({"a": np.array([1, 2, 3])}, [1, 2, 3]),
        ([{"a": 1}, {"a": 2}, {"a": 3}], [1, 2, 3]),
        (({"a": 1}, {}, {"a": 3}), [1, 0, 3]),
    ],
)
def test_infos_of_a_batch_may_have_several_forms(given_infos, expected):
    infos = row_infos(given_infos, ROWS).add_to({}, everyone())
    assert expected == infos["a"].tolist()


def test_infos_other_than_dictionaries_get_a_key():
    infos = row_infos(np.array([1, 2, 3]), ROWS).add_to({}, everyone())
    assert [1, 2, 3] == infos["info"].tolist()


@pytest.mark.parametrize(
    ("given_infos", "blocks"),
    [
        ([{"a": np.array([1, 2])}, {"a": np.array([3, 4])}], [range(2), range(2, 4)]),
        (
            [{"a": np.array([1, 2])}, {"a": 3}, {"a": 4}],
            [range(2), range(2, 3), range(3, 4)],
        ),
        (
            [{"a": np.array([1, 2])}, {"a": np.array([3, 4]), "b": np.zeros(2)}],
            [range(2), range(2, 4)],
        ),
        ([[{"a": 1}, {"a": 2}], [{"a": 3}, {"a": 4}]], [range(2), range(2, 4)]),
        ([{"a": np.array([1, 2])}, ({"a": 3}, {"a": 4})], [range(2), range(2, 4)]),
    ],
)
def test_environments_with_several_rows_have_an_info_for_each(given_infos, blocks):
    batched = [len(block) > 1 for block in blocks]
    infos = block_infos(given_infos, blocks, 4, batched).add_to({}, np.ones(4, bool))
    assert [1, 2, 3, 4] == infos["a"].tolist()


def test_batches_of_one_row_are_treated_as_batches():
    given_infos = [{"a": np.array([1, 2])}, {"a": np.array([3])}, [{"a": 4}]]
    blocks = [range(2), range(2, 3), range(3, 4)]
    infos = block_infos(given_infos, blocks, 4, [True] * 3)
    assert [1, 2, 3, 4] == infos.add_to({}, np.ones(4, bool))["a"].tolist()


def test_infos_of_some_blocks_fill_their_rows_only():
    infos = block_infos([{"a": np.array([3, 4])}], [range(2, 4)], 4, [True])
    added = infos.add_to({}, np.ones(4, bool))
    assert ([0, 0, 3, 4], [False, False, True, True]) == (
        added["a"].tolist(),
        added["_a"].tolist(),
    )
