"""Batches compiled from rules: what they do is what the rules do in plain Python."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import random
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AutoReset,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    make,
)
from envkit.envs.compiled import CompiledEnvironment, Rng, Rules, check_rules
from envkit.envs.kernels import compiled as compiled_kernel
from envkit.envs.streams import RowStreams
from envkit.errors import CompileError, MissingDependencyError, RulesDiffer, SpecError
from envkit.testing import check_environment
from tests.comparing import bits

pytest.importorskip("numba", reason="numba is not installed")

HEIGHT, WIDTH = 3, 4
ROWS = 5


# A hunter walks over a board of treasures, tires, and is robbed at random.


def hide(board, rng, count):
    for _ in range(count):
        board[rng.integers(0, HEIGHT), rng.integers(0, WIDTH)] = 1


def begin_hunt(state, rng):
    hide(state.board, rng, 5)
    state.row = rng.integers(0, HEIGHT)
    state.strength = 3.0 + rng.normal()
    rng.shuffle(state.order)


def hunt(state, action, rng):
    if action < 2:
        state.row = min(max(state.row + 2 * action - 1, 0), HEIGHT - 1)
    else:
        state.column = (state.column + 1) % WIDTH
    found = state.board[state.row, state.column]
    state.board[state.row, state.column] = 0
    state.strength -= rng.uniform(0.0, 1.0)
    state.robbed = rng.random() < 0.1
    return found * 1.5, state.strength < 0.0, state.robbed and state.row == 0


def see_hunt(state, out):
    for row in range(HEIGHT):
        for column in range(WIDTH):
            out.board[row, column] = 100 * state.board[row, column]
    out.board[state.row, state.column] += 50
    out.strength[0] = state.strength
    out.order[:] = state.order


class Hunt(CompiledEnvironment):
    rules = Rules(
        state={
            "board": np.zeros((HEIGHT, WIDTH), np.int8),
            "row": 0,
            "column": 1,
            "strength": 0.0,
            "robbed": False,
            "order": np.arange(3),
        },
        observation_spec={
            "board": BoundedArraySpec((HEIGHT, WIDTH), np.uint8, 0, 150),
            "strength": ArraySpec((), np.float32),
            "order": BoundedArraySpec((3,), np.int16, 0, 2),
        },
        action_spec=BoundedArraySpec((), np.int32, 0, 2),
        reset=begin_hunt,
        step=hunt,
        observe=see_hunt,
        max_episode_steps=6,
        info=("row", "order"),
    )

    def _draw(self, row):
        board = np.array(self.state_of(row).board, np.uint8)
        return board[:, :, np.newaxis].repeat(3, axis=2) * np.uint8(255)


# A boat that is pushed to and fro.


def launch(state, rng):
    state.place = rng.uniform(-1.0, 1.0)


def push(state, action, rng):
    state.speed += 0.1 * action[0] - 0.1 * action[1]
    state.place += state.speed
    return -abs(state.place), abs(state.place) > 3.0, False


def see_boat(state, out):
    out[0] = state.place
    out[1] = state.speed


class Boat(CompiledEnvironment):
    rules = Rules(
        state={"place": 0.0, "speed": 0.0},
        observation_spec=ArraySpec((2,), np.float64),
        action_spec=BoundedArraySpec((2,), np.float32, 0.0, 1.0),
        reset=launch,
        step=push,
        observe=see_boat,
        max_episode_steps=20,
    )


CLASSES = [Hunt, Boat]
of_each_class = pytest.mark.parametrize("cls", CLASSES)


def actions_for(env, seed, count):
    rng = np.random.default_rng(seed)
    dims = () if env.batch_size is None else (env.batch_size,)
    spec = env.action_spec()
    shape = (*dims, *spec.shape)
    if spec.dtype.kind == "f":
        return [rng.random(shape).astype(np.float32) for _ in range(count)]
    return [rng.integers(0, 3, shape) for _ in range(count)]


def whole(env):
    return [env.current_time_step(), env.get_info(), env.get_state().environment]


masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)


@of_each_class
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from(AutoReset), data=st.data())
@settings(max_examples=6)
def test_compiled_rules_match_plain_python_bit_for_bit(cls, seed, order, data):
    plain, native, threaded = envs = (
        cls(ROWS, seed=seed, autoreset=order, compiled=False),
        cls(ROWS, seed=seed, autoreset=order),
        cls(ROWS, seed=seed, autoreset=order, num_threads=2),
    )
    for env in envs:
        env.reset()
    for action in actions_for(plain, seed, 25):
        call = data.draw(st.sampled_from(["step", "step", "step", "mask", "reset"]))
        mask = np.array(data.draw(masks)) if call != "step" else None
        ended = plain.current_time_step().is_last()
        if order is AutoReset.DISABLED and call != "reset" and ended.any():
            call, mask = "reset", ended
        for env in envs:
            if call == "reset":
                env.reset(mask)
            else:
                env.step(action, mask)
        assert bits(whole(plain)) == bits(whole(native))
        assert bits(whole(plain)) == bits(whole(threaded))
    threaded.close()


@of_each_class
def test_a_batch_matches_single_environments(cls):
    batch = cls(3, seed=7)
    singles = BatchedPyEnvironment([cls() for _ in range(3)], multithreading=False)
    singles.seed(7)
    assert bits(batch.reset()) == bits(singles.reset())
    for action in actions_for(batch, 1, 30):
        assert bits(batch.step(action)) == bits(singles.step(action))


@of_each_class
def test_a_state_of_plain_python_works_in_compiled_rows(cls):
    plain, native = cls(ROWS, seed=1, compiled=False), cls(ROWS, seed=2)
    plain.reset()
    actions = actions_for(plain, 3, 20)
    for action in actions[:4]:
        plain.step(action)
    native.set_state(pickle.loads(pickle.dumps(plain.get_state())))
    for action in actions:
        assert bits(plain.step(action)) == bits(native.step(action))


@of_each_class
@pytest.mark.parametrize("compiled", [True, False])
def test_copies_continue_alike_and_independently(cls, compiled):
    env = cls(ROWS, seed=1, compiled=compiled)
    env.reset()
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    actions = actions_for(env, 3, 12)
    expected = [env.step(action) for action in actions]
    for each in copies:
        assert compiled == each.compiled
        assert bits(expected) == bits([each.step(action) for action in actions])


@pytest.mark.slow
@of_each_class
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_compiled_batch_passes_check_environment(cls, batch_size):
    check_environment(functools.partial(cls, batch_size))


def test_worker_processes_return_the_same_streams():
    makers = [functools.partial(Hunt, 2)] * 2
    with ParallelPyEnvironment(makers, num_workers=2, start_method="fork") as pool:
        pool.seed([4, 5, 6, 7])
        here = Hunt(4, seed=[4, 5, 6, 7])
        assert bits(pool.reset()) == bits(here.reset())
        for action in actions_for(here, 1, 10):
            assert bits(pool.step(action)) == bits(here.step(action))


def test_make_accepts_the_class():
    env = make(Hunt, batch_size=3, seed=1, compiled=False)
    assert env.reset().observation["board"].shape == (3, HEIGHT, WIDTH)
    assert not env.compiled


def test_infos_states_and_pictures_are_available():
    env = Hunt(3, seed=1, compiled=False)
    env.reset()
    info, state = env.get_info(), env.state_of(1)
    assert {"terminated", "truncated", "episode_steps", "row", "order"} == set(info)
    assert state.row == info["row"][1]
    assert repr(state).startswith("State(row=")
    assert (3, HEIGHT, WIDTH, 3) == env.render().shape
    with pytest.raises(NotImplementedError, match="Boat does not render 'rgb_array'"):
        Boat(compiled=False).render()


def test_every_episode_begins_with_the_initial_state():
    env = Hunt(2, seed=1, compiled=False)
    env.reset()
    before = [sorted(env.state_of(row).order) for row in range(2)]
    for action in actions_for(env, 1, 20):
        env.step(action)
    env.reset()
    assert [[0, 1, 2]] * 2 == before
    assert [1, 1] == [env.state_of(row).column for row in range(2)]


def test_num_threads_threads_start_and_end():
    env = Boat(4, seed=1, num_threads=3)
    env.reset()
    assert 3 == env.num_threads
    env.close()
    env.reset()  # It can be used again.
    env.close()
    assert 1 == Boat(4).num_threads
    assert 4 == Boat(4, num_threads=9).num_threads


def test_actions_are_checked_before_anything_moves():
    hunt, boat, single = Hunt(3, compiled=False), Boat(2, seed=1), Boat(seed=1)
    for env in (hunt, boat, single):
        env.reset()
    with pytest.raises(SpecError, match="The action of row 2 is 5, above the maximum"):
        hunt.step([0, 1, 5])
    with pytest.raises(SpecError, match=r"Boat\.step\(\) was given an action"):
        boat.step([[0.0, 1.0]])
    with pytest.raises(SpecError, match="The environment has not moved"):
        single.step([0.0, 1.0, 2.0])


# What rules may not do.


def stray(state, action, rng):
    state.board[HEIGHT + action, 0] = 1
    return 0.0, False, False


class Stray(Hunt):
    rules = Rules(**{**vars(Hunt.rules), "step": stray})


@pytest.mark.parametrize("given", [{"compiled": False}, {"bounds_checked": True}])
def test_an_index_out_of_range_is_reported_with_its_row(given):
    env = Stray(3, seed=1, **given)
    env.reset()
    with pytest.raises(IndexError, match="Stray: the rules of row 0 raised IndexError"):
        env.step([1, 1, 1])
    # Some rows have moved: all begin anew.
    assert env.step([1, 1, 1]).is_first().all()


def unlike(state, rng):
    for index in range(len(state.values)):
        state.values[index] = rng.random()
    state.total = state.values.sum()


class Unlike(CompiledEnvironment):
    rules = Rules(
        state={"values": np.zeros(1000), "total": 0.0},
        observation_spec=ArraySpec((), np.float32),
        action_spec=BoundedArraySpec((), np.int64, 0, 1),
        reset=unlike,
        step=lambda state, action, rng: (0.0, False, False),
        observe=lambda state, out: None,
    )


@of_each_class
def test_rules_with_equal_results_pass_the_check(cls):
    check_rules(cls, steps=40)
    check_rules(cls.rules, steps=5, batch_size=1)


def test_rules_with_other_results_fail_the_check():
    # NumPy adds up in another order than a loop.
    with pytest.raises(
        RulesDiffer, match=r"Unlike computes state\.total as "
    ) as raised:
        check_rules(Unlike)
    assert (0, "state.total") == (raised.value.step, raised.value.where)


def wrong_field(state, action, rng):
    state.bord[0, 0] = 1
    return 0.0, False, False


def wrong_kind(state, action, rng):
    speed = "slow"
    if action > 1:
        speed = 3
    state.row = speed
    return 0.0, False, False


def wrong_method(state, action, rng):
    state.row = rng.randint(0, 3)
    return 0.0, False, False


SETTINGS = {"reward": 1.0}


def wrong_global(state, action, rng):
    return SETTINGS["reward"], False, False


def wrong_function(state, action, rng):
    state.row = np.interp(action, state.order, state.order, period=3)
    return 0.0, False, False


def wrong_name(state, action, rng):
    return treasure, False, False  # noqa: F821


UNCOMPILED = [
    (wrong_field, "The state has no field bord; its fields are board, row, column,"),
    (wrong_kind, "The name speed has values of two types: "),
    (wrong_method, "The random numbers have no randint(): they have random(), "),
    (wrong_global, "The name SETTINGS is not something that numba can compile"),
    (wrong_name, "The name treasure is not defined."),
]


def stand(state, rng):
    state.row = 0


def see_nothing(state, out):
    out.strength[0] = 0.0


@pytest.mark.parametrize(("rule", "advice"), UNCOMPILED)
def test_rules_that_cannot_be_compiled_get_a_remedy(rule, advice):
    # The other rules take as long to compile as they are long.
    others = {"reset": stand, "observe": see_nothing}

    class Wrong(Hunt):
        rules = Rules(**{**vars(Hunt.rules), **others, "step": rule})

    with pytest.raises(CompileError) as raised:
        Wrong(2)
    lines = str(raised.value).splitlines()
    first = rule.__code__.co_firstlineno
    assert lines[0].startswith("step() of Wrong cannot be compiled, line ")
    assert any(line.startswith(advice) for line in lines), str(raised.value)
    assert ("step", __file__) == (raised.value.rule, raised.value.file)
    assert first < raised.value.line < first + 6
    # In plain Python the class can be made.
    Wrong(2, compiled=False)


def test_without_numba_the_error_says_how_to_install_it(monkeypatch, message_of):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert (
        "Hunt(compiled=True) needs the package numba, which is not installed. "
        'pip install "numba>=0.61"'
    ) == message_of(MissingDependencyError, lambda: Hunt(2))
    Hunt(2, compiled=False).reset()


def changed(**changes):
    return lambda: Rules(**{**vars(Hunt.rules), **changes})


REFUSED = [
    (
        changed(step=lambda state, action: None),
        "Rules.step must take state, action, rng, in this order, got ",
    ),
    (
        changed(reset=functools.partial(begin_hunt)),
        "Rules.reset must be a plain function, made with def, got ",
    ),
    (changed(state={}), "Rules.state must be a dictionary with a value for each field"),
    (
        changed(state={"row": "text"}),
        "Rules.state['row'] must be a bool, an int, a float or a NumPy array, got ",
    ),
    (
        changed(state={"board": np.zeros(3, np.uint8)}),
        "Rules.state['board'] must be an array of one of int8, int16, int32, int64, ",
    ),
    (
        changed(state={"board": np.zeros(0)}),
        "Rules.state['board'] must be a number, or an array with elements, got ",
    ),
    (changed(state={"two words": 1}), "Rules.state must have field names that "),
    (changed(state={"_row": 1}), "Rules.state must have fields that begin with a let"),
    (changed(info=("speed",)), "Rules.info must name fields of the state, got 'speed'"),
    (changed(max_episode_steps=0), "Rules.max_episode_steps must be "),
    (
        changed(observation_spec=[Boat.rules.observation_spec]),
        "Rules.observation_spec must be a spec of numbers, or a dictionary of such ",
    ),
    (
        changed(observation_spec={"two words": Boat.rules.observation_spec}),
        "Rules.observation_spec must have keys that are valid Python attributes, ",
    ),
    (
        changed(action_spec={"left": Boat.rules.action_spec}),
        "Rules.action_spec must be one spec of integers or floats, got ",
    ),
]


def luck():
    return random.random()


OTHER_RANDOM_NUMBERS = {
    "np.random": lambda state, action, rng: (np.random.random(), False, False),  # noqa: NPY002
    "random": lambda state, action, rng: (random.random(), False, False),
    "a function's": lambda state, action, rng: (luck(), False, False),
}


@pytest.mark.parametrize("case", OTHER_RANDOM_NUMBERS)
def test_unseeded_random_numbers_are_refused(case):
    with pytest.raises(TypeError, match=r"^Rules.step must draw its random numbers f"):
        changed(step=OTHER_RANDOM_NUMBERS[case])()


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_invalid_rules_are_refused(call, message):
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    assert str(raised.value).startswith(message)


def test_a_class_without_rules_is_refused(message_of):
    class Bare(CompiledEnvironment):
        pass

    assert (
        "Bare.rules must be Rules, as in `rules = Rules(...)` in the class, got None."
    ) == message_of(TypeError, Bare)


def test_fields_keep_their_types_in_plain_python(message_of):
    env = Hunt(1, compiled=False)
    env.reset()
    state = env.state_of()
    state.strength, state.row = 2, True
    assert (2.0, 1) == (state.strength, state.row)
    for name, value in (("row", 0.5), ("robbed", 1), ("strength", "strong")):
        with pytest.raises(TypeError, match=f"state.{name} must be "):
            setattr(state, name, value)
    with pytest.raises(TypeError, match=r"write its elements, as in state.order\[:\]"):
        state.order = [1, 2, 3]
    with pytest.raises(AttributeError, match="speed"):
        state.speed = 3
    board = state.board
    board[0, 0] = 100
    assert 200 == board[0, 0] + board[0, 0]
    assert [100] == list(board[:1, 0])


# Random numbers.


def rng_of(seed):
    streams = RowStreams([seed])
    return Rng(streams.positions, streams.keys, 0)


def test_random_numbers_come_from_the_rows_streams():
    streams, rng = RowStreams([5]), rng_of(5)
    row = np.array([0])
    with np.errstate(over="ignore"):
        assert streams.uniform(row, 3)[:, 0].tolist() == [rng.random() for _ in "abc"]
        assert int(streams.integers(row, -2, 5)[0]) == rng.integers(-2, 5)


def test_normal_numbers_follow_box_muller():
    rng, same = rng_of(5), rng_of(5)
    with np.errstate(over="ignore"):
        for _ in range(3000):
            first, second = same.random(), same.random()
            expected = math.sqrt(-2 * math.log1p(-first)) * math.cos(
                2 * math.pi * second
            )
            assert math.isclose(expected, rng.normal(), rel_tol=1e-13, abs_tol=1e-14)


def test_shuffling_reaches_every_order():
    rng, seen = rng_of(5), set()
    with np.errstate(over="ignore"):
        for _ in range(200):
            cards = np.arange(3)
            rng.shuffle(cards)
            seen.add(tuple(cards.tolist()))
    assert 6 == len(seen)


def test_equal_rules_are_compiled_once():
    first, second = Hunt(2), Hunt(3)
    assert first._loop.function is second._loop.function
    assert compiled_kernel(hide) is compiled_kernel(hide)
