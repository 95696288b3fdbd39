"""Where every row stands in memory, and which store says that it is complete."""

from __future__ import annotations

import functools
import itertools
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import StepType, nest
from envkit.parallel import slab as slab_module
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import (
    ARRAYS,
    DISABLED_ORDER,
    IDLE,
    NEXT_STEP_ORDER,
    RAISED,
    REBUILD,
    RESET,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
    SlabLayout,
    is_private,
    slot_of,
)
from envkit.parallel.system.shared_memory import KEEPS_ORDER
from envkit.specs import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from tests import strategies

ROOT = Path(__file__).parents[2]

NUMBER = ArraySpec((), np.float32)
ACTION = ArraySpec((), np.int64)
PAIR = ArraySpec((2,), np.int16)
LAST_NUMBERS = [2**32 - 2, 2**32 - 4, 2**32 - 6, 0, 2]


def time_step_of(slab, row, slot):
    leaves = [leaf[0, ...] for leaf in slab.read(np.array([row]), np.array([slot]))]
    return slab.layout.time_step.unflatten(leaves)


def layout_of(rows=3, observation=PAIR, *, reward=NUMBER, workers=1):
    """Lays out rows, all of one worker or dealt to several."""
    spec = EnvironmentSpec(observation, ACTION, reward, NUMBER)
    stops = [rows * (worker + 1) // workers for worker in range(workers)]
    return SlabLayout(spec, tuple(zip([0, *stops], stops, strict=False)))


def slab_at(number, rows=3, **options):
    """Makes a slab whose rows have all answered a request of the given number."""
    slab = Slab(layout_of(rows, **options))
    slab._sequence[:] = number
    slab._answered[:] = number
    return slab


EVEN = st.sampled_from(LAST_NUMBERS) | st.integers(0, 2**31 - 1).map(lambda x: 2 * x)


def has_answered(slab):
    """Returns which rows have answered or raised."""
    return [mark <= RAISED for mark in slab.numbers ^ slab.answers]


def some(*rows):
    return np.array(rows, np.intp)


def fill(slab, value=0):
    """Gives each row of each slot its own recognisable content."""
    for array in slab._steps:
        places = np.arange(array[..., :1].size if array.ndim > 2 else array.size)
        filled = (places + value).reshape(array.shape[:2] + (-1,)[: array.ndim - 2])
        array[...] = filled if array.ndim <= 2 else filled.reshape(*array.shape[:2], 1)


# Layout.


def test_the_docs_show_the_slabs_table():
    """`docs/how_it_works.md` has these lines, which are made of the table."""
    lines = []
    for array in ARRAYS:
        leaf = () if array.dtype else ("*leaf",)
        shape = ", ".join(map(str, (*array.shape, *leaf)))
        writer = array.writer.split()[-1]
        lines.append(
            f"{array.name:<14}{array.dtype:<8}{f'[{shape}]':<15}{writer:<8}{array.purpose}"
        )
    page = (ROOT / "docs" / "how_it_works.md").read_text("utf-8")
    assert "```text\n" + "\n".join(lines) + "\n```" in page


def spans(layout):
    """Lists where each shared array begins and ends, for a buffer of exact size."""
    buffer = bytearray(max(layout.size, 1))
    base = np.frombuffer(buffer, np.uint8).ctypes.data
    found = []
    for array in (one for laid in layout.arrays(buffer).values() for one in laid):
        if array.size and not is_private(array.dtype):
            start = array.__array_interface__["data"][0] - base
            found.append((start, start + array.nbytes))
    return found


def test_no_other_module_of_envkit_touches_the_arrays():
    names = "|".join(array.name for array in ARRAYS)
    touching = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "envkit").rglob("*.py"))
        if path.name != "slab.py"
        and re.search(rf"slab\._?({names})\b(?!\()", path.read_text("utf-8"))
    ]
    assert [] == touching


@settings(max_examples=25)
@given(layout=strategies.slab_layouts())
def test_arrays_start_on_their_own_cache_line_without_overlap(layout):
    """So parent and workers write to different lines."""
    found = spans(layout)
    arrived = pickle.loads(pickle.dumps(layout))

    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(found))
    assert all(0 <= start < stop <= layout.size for start, stop in found)
    assert {0} == {offset % 64 for offset in layout.offsets}
    assert sorted(layout.offsets) == list(layout.offsets)
    assert 0 == Slab(layout).counters(0).nbytes % 64
    # Also where it has travelled to.
    assert layout == arrived
    assert (layout.offsets, layout.size) == (arrived.offsets, arrived.size)


@settings(max_examples=15)
@given(layout=strategies.slab_layouts())
def test_each_leaf_has_one_array_with_a_row_per_environment(layout):
    slab = Slab(layout)

    assert [(layout.rows, *spec.shape) for spec in layout.action.leaves] == [
        array.shape for array in slab.action_columns()
    ]
    assert [(3, layout.rows, *spec.shape) for spec in layout.time_step.leaves] == [
        array.shape for array in slab._steps
    ]
    assert [spec.dtype for spec in layout.time_step.leaves] == [
        array.dtype for array in slab._steps
    ]


@settings(max_examples=15)
@given(layout=strategies.slab_layouts(), seed=st.integers(0, 2**32 - 1))
def test_what_one_side_writes_the_other_reads(layout, seed):
    buffer = bytearray(max(layout.size, 1))
    here, there = Slab(layout, buffer), Slab(layout, buffer)
    values = [
        [strategies.any_array(spec, seed + slot) for spec in layout.time_step.leaves]
        for slot in range(3)
    ]

    for slot, leaves in enumerate(values):
        for array, value in zip(here._steps, leaves, strict=True):
            array[slot, :] = value
    here.request_all(STEP)

    for slot, leaves in enumerate(values):
        for array, value in zip(there._steps, leaves, strict=True):
            for row in range(layout.rows):
                assert value.tobytes() == array[slot, row : row + 1].tobytes()
    assert here.numbers.tobytes() == there.numbers.tobytes()


@pytest.mark.parametrize(
    ("reward", "discounts"),
    [(NUMBER, [2]), ({"a": NUMBER, "b": NUMBER}, [3]), ((), [1])],
    ids=["one", "several", "none"],
)
def test_the_leaves_of_reward_and_discount_are_known(reward, discounts):
    layout = layout_of(reward=reward)
    assert list(range(1, discounts[0])) == list(layout.reward_leaves)
    assert discounts == list(layout.discount_leaves)


@pytest.mark.parametrize(
    ("dtype", "private"),
    [
        ("O", True),
        ("<U", True),
        ("S", True),
        ("<U1", False),
        ("V8", False),
        ("f4", False),
        ([("number", int), ("note", object)], True),
    ],
    ids=str,
)
def test_only_leaves_without_shared_memory_are_private(dtype, private):
    assert private == is_private(np.dtype(dtype))


def test_private_leaves_take_no_shared_memory_and_are_each_sides_own():
    shared = layout_of(observation={"x": NUMBER})
    mixed = layout_of(observation={"x": NUMBER, "y": ArraySpec((2,), object)})
    buffer = bytearray(mixed.size)
    here, there = Slab(mixed, buffer), Slab(mixed, buffer)
    here._steps[4][0, 1, 0] = "mine"
    here._steps[3][0, 1] = 7

    assert (4,) == mixed.private_steps
    assert () == mixed.private_actions
    assert shared.size == mixed.size
    assert None is there._steps[4][0, 1, 0]
    assert 7 == there._steps[3][0, 1]


def test_a_slab_begins_with_rows_that_owe_nothing():
    slab = Slab(layout_of())
    assert slab.all_answered()
    assert [True] * 3 == has_answered(slab)
    assert [] == slab.pending(0, 3)
    assert [IDLE] * 3 == slab.requested.tolist()


# Requests and answers.


@given(
    number=EVEN,
    asked=st.sets(st.integers(0, 4)),
    raised=st.sets(st.integers(0, 4)),
)
def test_every_row_ends_with_the_answer_to_its_own_request(number, asked, raised):
    slab = slab_at(number, rows=5)
    rows = np.arange(5)
    slab.request(some(*asked), STEP)
    after = [(number + 2 * (row in asked)) % 2**32 for row in range(5)]

    assert after == slab.numbers.tolist()
    assert sorted(asked) == slab.pending(0, 5)
    assert [row for row in sorted(asked) if row in (2, 3)] == slab.pending(2, 4)
    assert [row not in asked for row in range(5)] == has_answered(slab)
    assert len(asked) == slab.count_owing()

    for row in slab.pending(0, 5):
        (slab.fail if row in raised else slab.commit)(row)

    failed = asked & raised
    assert [
        number | RAISED if row in failed else number for row, number in enumerate(after)
    ] == slab.answers.tolist()
    assert sorted(failed) == slab.raised_rows(rows).tolist()
    assert [row for row in (1, 3) if row in failed] == slab.raised_rows(
        some(1, 3)
    ).tolist()
    assert (not failed) == slab.all_answered()
    assert ([], [True] * 5) == (slab.pending(0, 5), has_answered(slab))
    # The other slot than before, where they were asked.
    assert [slot_of(number) ^ (row in asked) for row in range(5)] == slab.slots(
        rows
    ).tolist()

    # What raised may be asked again.
    slab.request_all(RESET)
    assert [0, 1, 2, 3, 4] == slab.pending(0, 5)
    slab.commit(rows)
    assert slab.all_answered()


@pytest.mark.skipif(not KEEPS_ORDER, reason="elsewhere all answers are awaited")
def test_answers_are_awaited_once_few_enough_rows_are_pending():
    slab = Slab(layout_of(rows=4))
    never_waited = slab.is_awaited()
    seen = {}
    for owing in (-1, 0, 2, 9):
        slab.request_all(STEP)
        slab.wait_for(owing)
        seen[owing] = [slab.is_awaited()]
        for row in range(4):
            slab.commit(row)
            seen[owing].append(slab.is_awaited())

    assert never_waited
    assert {
        -1: [True, True, True, True, True],
        0: [False, False, False, False, True],
        2: [False, False, True, True, True],
        9: [True, True, True, True, True],
    } == seen


def test_answers_of_very_many_rows_are_all_awaited():
    slab = Slab(layout_of(rows=5000))
    slab.request_all(STEP)
    slab.wait_for(1)
    assert slab.is_awaited()
    slab.wait_for(0)
    assert KEEPS_ORDER != slab.is_awaited()  # To see if all have answered costs little.


@pytest.mark.parametrize("number", LAST_NUMBERS)
def test_all_rows_are_requested_and_answer_in_turn(number):
    slab = slab_at(number)
    slab.request_all(STEP)
    asked = slab.pending(0, 3)
    seen = []
    for row in asked:
        seen.append((slab.all_answered(), has_answered(slab)))
        slab.commit(row)

    assert [0, 1, 2] == asked
    assert [
        (False, [False, False, False]),
        (False, [True, False, False]),
        (False, [True, True, False]),
    ] == seen
    assert slab.all_answered()
    assert [(number + 2) % 2**32] * 3 == slab.numbers.tolist()
    assert [STEP] * 3 == slab.requested.tolist()


class ReadLater:
    """An array each reading of which comes after something else has been done."""

    def __init__(self, array, before):
        self._array, self._before = array, iter(before)

    def __getitem__(self, index):
        next(self._before)()
        return self._array[index]


@pytest.mark.parametrize("number", LAST_NUMBERS)
@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_row_is_pending_only_after_a_request(number, is_taken_back):
    """A worker may look while the parent lets a row stand, and then asks it."""
    then = (number + (-2 if is_taken_back else 2)) % 2**32
    writes = [
        ("command", IDLE),
        ("sequence", then),
        ("answered", then),
        ("command", REBUILD),
        ("sequence", (then + 2) % 2**32),
    ]
    for moments in itertools.combinations_with_replacement(range(6), 4):
        slab = slab_at(number, rows=1)
        slab._answered[:] |= RAISED if is_taken_back else 0
        slab._command[:] = STEP
        arrays = {name: getattr(slab, f"_{name}") for name in dict(writes)}
        done = 0

        def write_until(moment, arrays=arrays):
            nonlocal done
            for name, value in writes[done:moment]:
                arrays[name][0] = value
            done = max(done, moment)

        reads = ("sequence", "command", "answered", "sequence")
        looks = [functools.partial(write_until, moment) for moment in moments]
        for name in arrays:
            mine = [look for at, look in zip(reads, looks, strict=True) if at == name]
            setattr(slab, f"_{name}", ReadLater(arrays[name], mine))
        rows = slab.pending(0, 1)

        # A worker that has looked too early looks again when the row is announced.
        assert rows in ([[0]] if moments[0] == 5 else [[], [0]]), moments
        assert rows == [] or moments[-1] == 5, moments


@pytest.mark.parametrize("number", LAST_NUMBERS)
def test_a_row_with_several_requests_is_pending(number):
    """A fork that uses the pool writes to the same memory before it is refused."""
    slab = slab_at(number)
    slab.request_all(STEP)
    slab.request(some(1), RESET)
    assert [0, 1, 2] == slab.pending(0, 3)


def test_stand_at_sets_rows_to_numbers_that_were_never_requested():
    slab = slab_at(4)
    slab.request_all(STEP)
    for row in range(3):
        slab.commit(row)
    slab.stand_at(some(0, 2), np.array([8, 8], np.uint32))

    assert [8, 6, 8] == slab.numbers.tolist() == slab.answers.tolist()
    assert [IDLE, STEP, IDLE] == slab.requested.tolist()
    slab.request_all(STEP)
    assert [STEP] * 3 == slab.requested.tolist()


def test_both_sides_see_the_number_of_requests():
    layout = layout_of(3)
    memory = bytearray(layout.size)
    parent, worker = Slab(layout, memory), Slab(layout, memory)
    before = worker.announcements[0]
    parent.request_all(STEP)
    parent.request(some(0, 2), RESET)
    assert before + 2 == worker.announcements[0]


def test_an_incomplete_request_is_not_visible():
    layout = layout_of(3)
    memory = bytearray(layout.size)
    parent, worker = Slab(layout, memory), Slab(layout, memory)
    parent.asking[0] += 1
    parent._command[:] = STEP
    parent._sequence[0] += 2
    half = worker.pending_as_asked(0, 3)
    parent._sequence[1:] += 2
    parent.announcements[0] += 1

    assert half is None
    assert [0, 1, 2] == worker.pending_as_asked(0, 3)


@pytest.mark.parametrize("ask", ["request_all", "request"])
def test_an_interrupted_request_blocks_no_worker(ask, monkeypatch):
    class Interrupted(BaseException):
        pass

    calls = []

    def interrupt():
        calls.append(None)
        # It stands between the numbers, and once more on the way out.
        if len(calls) == 1:
            raise Interrupted

    slab = Slab(layout_of(3))
    arguments = {"request_all": (STEP,), "request": (some(0, 2), STEP)}[ask]
    monkeypatch.setattr(slab_module, "fence", interrupt)
    with pytest.raises(Interrupted):
        getattr(slab, ask)(*arguments)

    assert [] == slab.pending_as_asked(0, 3)
    getattr(slab, ask)(*arguments)
    assert slab.pending_as_asked(0, 3)


def test_rows_can_get_different_requests():
    slab = Slab(layout_of(3))
    slab.request(some(0, 2), np.array([RESET, REBUILD], np.uint8))
    assert [RESET, IDLE, REBUILD] == slab.requested.tolist()


# What becomes of a row whose environment is gone.


@pytest.mark.parametrize("number", LAST_NUMBERS)
@pytest.mark.parametrize("was_raised", [False, True])
def test_a_withdrawn_request_keeps_the_previous_answer(number, was_raised):
    slab = slab_at(number)
    slab._answered[1] |= int(was_raised)
    fill(slab)
    before = time_step_of(slab, 1, slot_of(number))
    slab.request(some(0, 1), STEP)
    slab.commit(0)
    slab.withdraw(some(1))

    assert all(has_answered(slab))
    assert [number, number] == [slab.numbers[1], slab.answers[1]]
    assert [slot_of(number)] == slab.slots(some(1)).tolist()
    assert_equal(before, time_step_of(slab, 1, slot_of(number)))
    assert [(number + 2) % 2**32, number] == slab.numbers[[0, 2]].tolist()


def assert_equal(expected, actual):
    """Compares nests of arrays, dtypes included."""
    pairs = zip(nest.flatten(expected), nest.flatten(actual), strict=True)
    for wanted, got in pairs:
        np.testing.assert_array_equal(wanted, got, strict=True)


@pytest.mark.parametrize("number", LAST_NUMBERS)
def test_a_cut_row_ends_without_reward_and_keeps_its_observation(number):
    slab = slab_at(number)
    fill(slab, 3)
    slab._steps[2][:] = 0
    observation = slab._steps[3][slot_of(number), 1].copy()
    slab.write_cut(1)
    after = (number + 2) % 2**32
    cut = time_step_of(slab, 1, slot_of(after))

    assert [after, after] == [slab.numbers[1], slab.answers[1]]
    assert [number, number] == slab.numbers[[0, 2]].tolist()
    assert [StepType.LAST, 0.0, 1.0] == [cut.step_type, cut.reward, cut.discount]
    assert observation.tolist() == cut.observation.tolist()


def test_a_cut_of_several_rewards_is_zero_in_each():
    reward = {"a": ArraySpec((2,), np.float32), "b": ArraySpec((), np.int8)}
    slab = slab_at(4, reward=reward)
    fill(slab, 5)
    slab.write_cut(0)
    cut = time_step_of(slab, 0, slot_of(6))

    assert_equal({"a": np.zeros(2, np.float32), "b": np.zeros((), np.int8)}, cut.reward)
    assert 1.0 == cut.discount


def test_a_cut_touches_no_other_row_and_no_other_slot():
    slab = slab_at(4)
    fill(slab)
    before = [array.copy() for array in slab._steps]
    slab.write_cut(1)
    for array, old in zip(slab._steps, before, strict=True):
        array[1, 1] = old[1, 1]

    assert [old.tobytes() for old in before] == [
        array.tobytes() for array in slab._steps
    ]


def test_a_first_moves_behind_an_inserted_end():
    slab = slab_at(6)
    fill(slab)
    slab.columns(SAME_STEP_SLOT)[3][1] = [70, 71]
    first = time_step_of(slab, 1, slot_of(6))
    slab.cut_before_first(1)
    cut = time_step_of(slab, 1, slot_of(6))

    assert [StepType.LAST, 0.0, 1.0] == [cut.step_type, cut.reward, cut.discount]
    assert [70, 71] == cut.observation.tolist()
    assert_equal(first, time_step_of(slab, 1, SAME_STEP_SLOT))
    assert [6, 6] == [slab.numbers[1], slab.answers[1]]


@pytest.mark.parametrize(
    "kept", [[1, 2], {"a": 1}, [[1], [2, 3]], "text", None], ids=str
)
def test_objects_survive_a_cut(kept):
    slab = slab_at(6, observation=ArraySpec((), object))
    other = ["where the episode stood"]
    slab.columns(1)[3][0] = kept
    slab.columns(SAME_STEP_SLOT)[3][0] = other
    slab.cut_before_first(0)

    assert other is slab.columns(1)[3][0]
    assert kept is slab.columns(SAME_STEP_SLOT)[3][0]
    assert kept is time_step_of(slab, 0, SAME_STEP_SLOT).observation[()]


def test_reading_a_row_returns_a_copy():
    slab = slab_at(4)
    fill(slab)
    time_step = time_step_of(slab, 2, 0)
    kept = nest.map_structure(np.copy, time_step)
    for array in slab._steps:
        array[...] = 0

    assert_equal(kept, time_step)


@given(
    numbers=st.lists(EVEN, min_size=1, max_size=6),
    data=st.data(),
)
def test_aligning_moves_all_rows_to_one_slot_unchanged(numbers, data):
    slab = slab_at(0, rows=len(numbers))
    slab.stand_at(slice(None), numbers)
    fill(slab)
    rows = np.arange(len(numbers))
    slot = data.draw(st.sampled_from([0, 1]))
    moved = data.draw(st.sampled_from([[], np.flatnonzero(slab.slots(rows) == slot)]))
    before = [time_step_of(slab, row, slab.slots(rows)[row]) for row in rows]
    slab.align(some(*moved))
    after = slab.slots(rows)

    assert slab.all_answered()
    for row, number in enumerate(numbers):
        # Rows that have moved do not move again.
        steps = 2 * bool(len(moved) and slot_of(number) != slot)
        assert (number + steps) % 2**32 == slab.numbers[row]
        assert_equal(before[row], time_step_of(slab, row, after[row]))


@pytest.mark.parametrize("order", [NEXT_STEP_ORDER, SAME_STEP_ORDER, DISABLED_ORDER])
def test_a_row_has_ended_at_a_last(order):
    slab = slab_at(4, rows=4)
    slab.autoreset = order
    slab._sequence[3] = slab._answered[3] = 6
    first, mid, last = StepType.FIRST, StepType.MID, StepType.LAST
    # By slot: 0 is where rows 0 to 2 stand, 1 where row 3 does.
    slab._steps[0][0] = [first, mid, last, last]
    slab._steps[0][1] = [last, last, mid, last]
    # Where the next episode has begun already, if it begins in the same step.
    slab._steps[0][SAME_STEP_SLOT] = [first, first, first, last]
    begun = order == SAME_STEP_ORDER

    assert [False, False, not begun, True] == slab.ended(np.arange(4)).tolist()
    assert [True, False] == slab.ended(some(3, 1)).tolist()
