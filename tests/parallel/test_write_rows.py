"""Time steps arrive in their rows bit for bit, or not at all."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import StepType, TimeStep, nest, restart, transition
from envkit.parallel.slab import Slab, SlabLayout
from envkit.parallel.worker.write_rows import MisfitError, RowWriter
from envkit.specs import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from tests import strategies

NUMBER = ArraySpec((), np.float32)
PAIR = ArraySpec((2,), np.int32)
ROWS = 3


def slab_of(observation=PAIR, *, reward=NUMBER, rows=ROWS):
    spec = EnvironmentSpec(observation, NUMBER, reward, NUMBER)
    return Slab(SlabLayout(spec, ((0, rows),)))


def bits(slab):
    """Copies every time step of a slab as bytes, by slot, row and leaf."""
    return {
        (slot, row, leaf): array[slot, row : row + 1].tobytes()
        for leaf, array in enumerate(slab._steps)
        for slot in range(3)
        for row in range(array.shape[1])
    }


def first_of(layout, observation):
    """Makes a FIRST with an observation, and zeros where specs ask for numbers."""
    spec = layout.spec
    zeros = [
        strategies.mapped(part, lambda leaf: np.zeros(leaf.shape, leaf.dtype))
        for part in (spec.reward, spec.discount)
    ]
    return TimeStep(StepType.FIRST, *zeros, observation)


def misfit(call):
    """Returns the message of the misfit that a call must raise."""
    with pytest.raises(MisfitError) as caught:
        call()
    return str(caught.value.__cause__)


@settings(max_examples=20)
@given(layout=strategies.slab_layouts(max_workers=1), data=st.data())
def test_what_fits_arrives_bit_for_bit_and_nowhere_else(layout, data):
    slab = Slab(layout)
    writer = RowWriter(slab)
    row = data.draw(st.integers(0, layout.rows - 1))
    slot = data.draw(st.integers(0, 2))
    observation = data.draw(strategies.values_of(layout.spec.observation))
    time_step = first_of(layout, observation)
    before = bits(slab)
    leaves = nest.flatten(time_step)
    expected = {(slot, row, leaf): value.tobytes() for leaf, value in enumerate(leaves)}

    writer.check(range(row, row + 1), time_step)
    writer.write(row, slot, time_step)

    assert before | expected == bits(slab)


@settings(max_examples=20)
@given(
    layout=strategies.slab_layouts(max_workers=1),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_the_wanted_rows_of_a_batch_arrive_and_no_others(layout, seed, data):
    slab = Slab(layout)
    flags = st.lists(st.booleans(), min_size=layout.rows, max_size=layout.rows)
    wanted = np.array(data.draw(flags))
    slots = np.array(data.draw(flags)).astype(np.intp)
    leaves = [
        strategies.any_array(spec.replace(shape=(layout.rows, *spec.shape)), seed)
        for spec in layout.time_step.leaves
    ]
    before = bits(slab)
    expected = {
        (int(slots[row]), row, index): leaf[row : row + 1].tobytes()
        for index, leaf in enumerate(leaves)
        for row in np.flatnonzero(wanted).tolist()
    }

    block = slice(0, layout.rows)
    RowWriter(slab).write_batch(
        block, layout.time_step.unflatten(leaves), slots, wanted
    )

    assert before | expected == bits(slab)


@pytest.mark.parametrize("observation", [PAIR, {"pair": PAIR}], ids=["plain", "nest"])
@pytest.mark.parametrize(
    "shape", [(), (1,), (3,), (1, 2), (2, 1), (2, 2), (0,)], ids=str
)
def test_another_shape_never_broadcasts_into_a_row(observation, shape):
    slab = slab_of(observation)
    before = bits(slab)
    row_itself = {(0, 1, leaf) for leaf in range(3)}  # no side reads it yet
    wrong = np.ones(shape, np.int32)
    value = {"pair": wrong} if isinstance(observation, dict) else wrong
    place = "observation['pair']" if isinstance(observation, dict) else "observation"
    message = misfit(lambda: RowWriter(slab).write(1, 0, restart(value)))

    assert message.startswith(
        f"env 1 returned a time step that does not fit its spec at {place}.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
        f"  got        array of shape {shape}, dtype int32"
    )
    assert before.items() <= bits(slab).items() | {
        (key, before[key]) for key in row_itself
    }


CAMERA = {"camera": {"left": ArraySpec((2, 2, 3), np.uint8)}, "speed": NUMBER}
OCCASION = "This was the first observation after reset() of my_game.envs.ArenaEnv."
MISFITS = {
    "a shape": (
        PAIR,
        lambda writer: writer.write(2, 0, restart(np.zeros((2, 2), np.int32))),
        "env 2 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
        "  got        array of shape (2, 2), dtype int32, values 0 … 0\n\n"
        "There is one dimension too many, of size 2: a batch where a single value "
        "belongs. The other 3 leaves fit.",
    ),
    "a structure": (
        {"camera": PAIR},
        lambda writer: writer.write(0, 0, restart({"cam": np.zeros(2, np.int32)})),
        "env 0 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   the structure {'camera': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'camera' is missing; key 'cam' is not in the spec. The other 3 leaves "
        "fit.",
    ),
    "a check": (
        CAMERA,
        lambda writer: writer.check(
            range(2, 3),
            restart(
                {
                    "camera": {"left": np.full((2, 2, 4), 255, np.uint8)},
                    "speed": np.float32(1).reshape(()),
                }
            ),
            OCCASION,
        ),
        "env 2 returned a time step that does not fit its spec at "
        "observation['camera']['left'].\n\n"
        "  expected   ArraySpec(shape=(2, 2, 3), dtype=uint8)\n"
        "  got        array of shape (2, 2, 4), dtype uint8, values 255 … 255\n\n"
        f"Axis 2 has size 4 instead of 3. The other 4 leaves fit.\n{OCCASION}",
    ),
}


@pytest.mark.parametrize(("spec", "call", "message"), MISFITS.values(), ids=MISFITS)
def test_a_misfit_says_path_expectation_value_and_reason(spec, call, message):
    assert message == misfit(lambda: call(RowWriter(slab_of(spec))))


def test_environments_may_have_other_names_than_their_rows():
    writer = RowWriter(slab_of(), name_of=lambda row: f"env {10 * row}")
    assert misfit(lambda: writer.check(range(2, 3), restart(3))).startswith(
        "env 20 returned"
    )
    assert misfit(
        lambda: writer.check(range(1, 3), restart(3, batch_size=2), is_batch=True)
    ).startswith("env 10 (rows 1 to 2) returned")


@pytest.mark.parametrize("observation", [PAIR, (PAIR,)], ids=["plain", "nest"])
@pytest.mark.parametrize(
    "written",
    [np.array([7, 8]), np.array([7.0, 8.0]), [7, 8], (7, 8), np.array([7, 8], ">i2")],
    ids=repr,
)
def test_values_are_converted_as_an_assignment_converts(observation, written):
    slab = slab_of(observation)
    if isinstance(observation, tuple):
        written = (written if isinstance(written, np.ndarray) else np.array(written),)
    RowWriter(slab).write(0, 1, restart(np.zeros(2))._replace(observation=written))
    assert [7, 8] == slab.columns(1)[3][0].tolist()


@pytest.mark.parametrize("observation", [PAIR, {"pair": PAIR}], ids=["plain", "nest"])
@pytest.mark.parametrize("kind", [float, np.float64, np.float16, int, np.asarray])
def test_rewards_may_be_numbers_of_any_kind(observation, kind):
    slab = slab_of(observation)
    pair = np.array([7, 8], np.int32)
    value = {"pair": pair} if isinstance(observation, dict) else pair
    time_step = transition(value, 0.0)._replace(reward=kind(3), discount=kind(1))
    RowWriter(slab).write(0, 0, time_step)
    assert [1, 3.0, 1.0] == [array[0, 0] for array in slab._steps[:3]]


@pytest.mark.parametrize("part", TimeStep._fields)
@pytest.mark.parametrize("observation", [PAIR, (PAIR,), NUMBER], ids=str)
def test_a_forgotten_value_is_a_misfit_and_no_nan(part, observation):
    pair = np.zeros(2, np.int32)
    value = {str(PAIR): pair, str((PAIR,)): (pair,)}.get(str(observation), np.zeros(()))
    time_step = restart(value)._replace(**{part: None})
    assert misfit(
        lambda: RowWriter(slab_of(observation)).write(0, 0, time_step)
    ).startswith(f"env 0 returned a time step that does not fit its spec at {part}")


@pytest.mark.parametrize(
    "value", [None, 5, (1, 2), [1, 2, 3, 4], {"step_type": 1}], ids=repr
)
def test_what_is_no_time_step_at_all_is_a_misfit(value):
    message = misfit(lambda: RowWriter(slab_of()).write(0, 0, value))
    assert message.startswith("env 0 returned a time step that does not fit its spec")


def test_time_steps_of_other_libraries_will_do():
    fields = ["step_type", "reward", "discount", "observation"]
    theirs = collections.namedtuple("TimeStep", fields)
    slab = slab_of()
    ours = transition(np.array([1, 2], np.int32), 0.5)
    RowWriter(slab).write(1, 0, theirs(*ours))
    assert [1, 0.5, 1.0] == [array[0, 1] for array in slab._steps[:3]]


@pytest.mark.parametrize(
    "note",
    ["text", ["a", "list"], {"a": 1}, None, [[1], [2, 3]], np.arange(3)],
    ids=repr,
)
def test_objects_are_sent_apart_and_arrive_as_what_they_are(note):
    slab = slab_of({"note": ArraySpec((), object), "pair": PAIR})
    sent = []
    writer = RowWriter(
        slab, lambda row, slot, objects: sent.append((row, slot, objects))
    )
    writer.write(1, 2, restart({"note": note, "pair": np.zeros(2, np.int32)}))
    ((row, slot, objects),) = sent

    assert (1, 2, [3]) == (row, slot, list(objects))
    assert note is objects[3][()]
    assert note is slab.columns(2)[3][1]


def test_arrays_of_objects_are_sent_whole():
    slab = slab_of(ArraySpec((2,), object))
    sent = []
    writer = RowWriter(slab, lambda row, slot, objects: sent.append(objects))
    words = np.array(["one", ["two"]], object)
    writer.write(0, 0, restart(words))
    assert ["one", ["two"]] == sent[0][3].tolist()
    assert ["one", ["two"]] == slab.columns(0)[3][0].tolist()


def test_objects_of_a_batch_are_sent_row_by_row():
    slab = slab_of(ArraySpec((), object))
    sent = []
    writer = RowWriter(
        slab, lambda row, slot, objects: sent.append((row, slot, objects))
    )
    words = np.array(["a", "b"], object)
    writer.write_batch(
        slice(1, 3), restart(words, batch_size=2), np.array([0, 1]), np.ones(2, bool)
    )

    assert [(1, 0, {3: "a"}), (2, 1, {3: "b"})] == sent
    assert ["a", "b"] == [slab.columns(0)[3][1], slab.columns(1)[3][2]]


@pytest.mark.parametrize("observation", [PAIR, {"pair": PAIR}], ids=["plain", "nest"])
def test_nothing_is_written_that_may_not_be(observation):
    def refuse():
        raise KeyboardInterrupt

    slab = slab_of(observation)
    before = bits(slab)
    writer = RowWriter(slab, may_write=refuse)
    pair = np.ones(2, np.int32)
    value = {"pair": pair} if isinstance(observation, dict) else pair
    batch = restart(nest.map_structure(lambda leaf: leaf[None], value), batch_size=1)

    with pytest.raises(KeyboardInterrupt):
        writer.write(0, 0, restart(value))
    with pytest.raises(KeyboardInterrupt):
        writer.write_batch(slice(0, 1), batch, 0)
    assert before == bits(slab)


def test_it_is_asked_before_each_row_and_may_write():
    asked = []
    slab = slab_of()
    writer = RowWriter(slab, may_write=lambda: asked.append(slab._steps[3].sum()))
    writer.write(0, 0, restart(np.ones(2, np.int32)))
    writer.write(1, 0, restart(np.ones(2, np.int32)))
    assert [0, 2] == asked
    assert 4 == slab._steps[3].sum()


@pytest.mark.parametrize("size", [1, 3], ids=["shorter", "longer"])
def test_a_batch_of_another_length_is_refused(size):
    slab = slab_of()
    before = bits(slab)
    batch = restart(np.ones((size, 2), np.int32), batch_size=size)

    def call():
        RowWriter(slab).write_batch(slice(0, 2), batch, 0)

    assert misfit(call).startswith(
        "env 0 (rows 0 to 1) returned a time step that does not fit its spec at "
        "step_type.\n\n  expected   "
    )
    assert before == bits(slab)


@pytest.mark.parametrize("observation", [PAIR, (PAIR,)], ids=["plain", "nest"])
def test_a_batch_of_another_structure_is_refused(observation):
    batch = restart({"pair": np.ones((2, 2), np.int32)}, batch_size=2)

    def call():
        writer = RowWriter(slab_of(observation))
        writer.write_batch(slice(0, 2), batch, 0)

    assert misfit(call).startswith("env 0 (rows 0 to 1) returned a time step that ")


@pytest.mark.parametrize(
    ("observation", "reward", "plain"),
    [
        (PAIR, NUMBER, True),
        (NUMBER, NUMBER, False),
        ({"pair": PAIR}, NUMBER, False),
        (PAIR, PAIR, False),
        (PAIR, {"a": NUMBER}, False),
        (ArraySpec((2,), object), NUMBER, False),
    ],
    ids=["one array", "number", "nest", "reward array", "reward nest", "objects"],
)
def test_only_three_numbers_and_an_array_may_be_written_the_quick_way(
    observation, reward, plain
):
    writer = RowWriter(slab_of(observation, reward=reward))
    assert plain == (writer.plain_views(0, range(1, 3)) is not None)


def test_the_quick_way_is_closed_to_a_writer_that_has_to_ask():
    writer = RowWriter(slab_of(), may_write=lambda: None)
    assert None is writer.plain_views(0, range(ROWS))


def test_the_quick_way_leads_to_the_same_rows():
    slab = slab_of()
    views = RowWriter(slab).plain_views(1, range(1, 3))
    views.step_types[1], views.rewards[1], views.discounts[1] = 2, 3, 4
    views.observations[0][...] = [5, 6]
    assert [2, 3.0, 4.0] == [array[1, 1] for array in slab._steps[:3]]
    assert [5, 6] == slab.columns(1)[3][1].tolist()
    assert (2,) == views.shape


@pytest.mark.parametrize(
    "reward", [PAIR, {"a": NUMBER, "b": PAIR}], ids=["array", "nest"]
)
def test_rewards_may_have_a_structure(reward):
    slab = slab_of(reward=reward)
    value = np.array([1, 2], np.int32)
    given_reward = (
        {"a": np.float32(5), "b": value} if isinstance(reward, dict) else value
    )
    time_step = restart(np.zeros(2, np.int32))._replace(reward=given_reward)
    RowWriter(slab).write(0, 0, time_step)

    assert [1, 2] == slab._steps[1 + isinstance(reward, dict)][0, 0].tolist()
