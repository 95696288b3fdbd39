"""What holds for every built-in environment, single or batched, beside the contract.

That they keep what environments promise is shown with `check_environment` itself.
"""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import BatchedPyEnvironment, StepType, envs, nest
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import CallOrderError, SpecError

# Episodes are short, so that a few dozen steps see several of them.
MAKERS = {
    "Bandit": functools.partial(Bandit, num_arms=3, episode_length=7),
    "CartPole": functools.partial(CartPole, max_episode_steps=15),
    "Catch": functools.partial(Catch, rows=5, columns=3),
    "GridWorld": functools.partial(GridWorld, size=3, max_episode_steps=6),
    "TicTacToe": TicTacToe,
}
SIZES = [None, 1, 4]

every_environment = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
every_size = pytest.mark.parametrize("batch_size", SIZES)


def random_actions(env, seed, steps):
    """Draws actions for every step of an environment or a batch."""
    dims = () if env.batch_size is None else (env.batch_size,)
    highest = int(env.action_spec().maximum)
    rng = np.random.default_rng(seed)
    return [rng.integers(0, highest, dims, endpoint=True) for _ in range(steps)]


def play(env, actions):
    """Returns the time steps that come of the actions."""
    return [env.step(action) for action in actions]


def leaves(value):
    return [np.asarray(leaf) for leaf in nest.flatten(value)]


def equal(first, second):
    """Returns true if two nests agree in every bit, dtype and shape."""
    ours, theirs = leaves(first), leaves(second)
    return len(ours) == len(theirs) and all(
        one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
        for one, other in zip(ours, theirs, strict=True)
    )


def test_every_environment_is_tested_here():
    # Choice plays others, and has tests of its own.
    assert sorted({*envs.__all__} - {"Choice"}) == sorted(MAKERS)


@every_environment
@given(
    seed=st.integers(0, 2**32 - 1), size=st.integers(1, 5), actions=st.integers(0, 99)
)
@settings(max_examples=6)
def test_a_batch_matches_single_environments_bit_for_bit(make, seed, size, actions):
    batch = make(batch_size=size)
    singles = BatchedPyEnvironment([make() for _ in range(size)], multithreading=False)
    for env in (batch, singles):
        env.seed(seed)
    assert equal(batch.reset(), singles.reset())
    for action in random_actions(batch, actions, 40):
        assert equal(batch.step(action), singles.step(action))
        assert_alike(batch.get_info(), singles.get_info())
    assert np.array_equal(batch.render(), singles.render())


def assert_alike(first, second):
    """Compares infos; a CartPole tells its state in full, whose last bit may differ."""
    for ours, theirs in zip(leaves(first), leaves(second), strict=True):
        assert ours.dtype == theirs.dtype
        assert np.allclose(ours, theirs, rtol=0.0, atol=1e-12)


@every_environment
@given(data=st.data(), steps=st.integers(0, 9))
@settings(max_examples=8)
def test_a_masked_reset_leaves_other_rows_alone(make, data, steps):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4)))
    touched, untouched = (make(batch_size=4, seed=3) for _ in range(2))
    for env in (touched, untouched):
        env.reset()
        play(env, random_actions(env, 8, steps))

    reset = touched.reset(mask)

    assert (reset.step_type[mask] == StepType.FIRST).all()
    assert (reset.reward[mask] == 0.0).all()
    assert (reset.discount[mask] == 1.0).all()
    before = untouched.current_time_step()
    for action in [None, *random_actions(touched, 9, 20)]:
        if action is not None:
            reset, before = touched.step(action), untouched.step(action)
        for ours, theirs in zip(leaves(reset), leaves(before), strict=True):
            assert np.array_equal(ours[~mask], theirs[~mask])


@every_environment
def test_a_single_environment_returns_the_step_types_themselves(make):
    env = make(seed=5)
    known = {id(StepType.FIRST), id(StepType.MID), id(StepType.LAST)}
    time_steps = [env.reset(), *play(env, random_actions(env, 1, 40))]
    assert known == {id(time_step.step_type) for time_step in time_steps}


@every_environment
@every_size
def test_a_copy_is_independent(make, batch_size):
    env = make(batch_size=batch_size, seed=5)
    env.reset()
    actions = random_actions(env, 1, 25)
    play(env, actions[:5])
    clones = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    expected = play(env, actions[5:])
    assert all(equal(expected, play(clone, actions[5:])) for clone in clones)


@every_environment
@every_size
def test_seed_gives_the_stream_of_the_constructors_seed(make, batch_size):
    given_there, seeded = make(batch_size=batch_size, seed=5), make(batch_size)
    actions = random_actions(seeded, 1, 30)
    play(seeded, actions)  # From another seed.
    seeded.seed(5)
    assert equal(given_there.reset(), seeded.reset())
    assert equal(play(given_there, actions), play(seeded, actions))


@every_environment
def test_without_a_seed_streams_differ(make):
    streams = []
    for _ in range(2):
        env = make(batch_size=50)
        env.reset()
        streams.append(play(env, [[0] * 50] * 10))
    assert not equal(*streams)


def read_only(action):
    action = action.copy()
    action.setflags(write=False)
    return action


FORMS = {
    "list": np.ndarray.tolist,
    "view": lambda action: np.repeat(action, 2)[::2],
    "read-only": read_only,
    **{
        dtype: functools.partial(np.ndarray.astype, dtype=dtype)
        for dtype in ("int8", "uint8", "int32", ">i8", "uint64")
    },
}


@every_environment
@pytest.mark.parametrize("form", FORMS)
def test_actions_of_every_form_are_accepted_and_unchanged(make, form):
    env, other = make(batch_size=4, seed=5), make(batch_size=4, seed=5)
    actions = random_actions(env, 1, 20)
    given = [FORMS[form](action) for action in actions]
    kept = copy.deepcopy(given)
    for each in (env, other):
        each.reset()
    assert equal(play(env, actions), play(other, given))
    assert equal(kept, given)


@every_environment
def test_after_the_last_step_a_single_environment_accepts_any_action(make):
    env = make(seed=5)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(0)
    assert env.step(None).step_type is StepType.FIRST


@every_environment
def test_rendering_as_text_gives_lines_for_each_row(make):
    single, batch = make(seed=5), make(batch_size=3, seed=5)
    for env in (single, batch):
        env.reset()
        play(env, random_actions(env, 1, 3))
    text, texts = single.render("ansi"), batch.render("ansi")
    assert ([str] * 3, 3) == ([type(row) for row in texts], len(texts))
    for one in (text, *texts):
        assert len(one.splitlines()) >= 3
        assert one.strip()


@every_environment
def test_an_unsupported_render_mode_is_refused_with_a_list(make, message_of):
    env = make()
    env.reset()
    assert (
        f"{type(env).__name__} does not render 'html'; its modes are: 'rgb_array', "
        "'human', 'ansi'."
    ) == message_of(NotImplementedError, lambda: env.render("html"))


def test_boards_are_rendered_as_text():
    catch, grid, game = Catch(rows=3, columns=3), GridWorld(size=2), TicTacToe()
    for env in (catch, grid, game):
        env.reset()
    ball, paddle = catch.step(0).observation.nonzero()[1].tolist()
    game.step(4)

    board = [["."] * 3 for _ in range(3)]
    board[1][ball], board[2][paddle] = "o", "="
    assert board == [list(line) for line in catch.render("ansi").splitlines()]
    assert {"A", "G", "."} == set(grid.render("ansi")) - {"\n"}
    assert ("X", "O") == (game.render("ansi")[5], *set(game.render("ansi")) & {"O"})


@pytest.mark.parametrize("call", ["render", "get_info"])
def test_rendering_before_the_first_reset_is_refused(call, message_of):
    assert (
        f"Catch.{call}() was called before the first episode. Call reset() first."
    ) == message_of(CallOrderError, getattr(Catch(), call))


SINGLE = "BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2)"
BATCH = "BoundedArraySpec(shape=(3,), dtype=int64, minimum=0, maximum=2)"
NO_ARRAY = "None is not an array. Did a return statement get lost?"
ONE_TOO_MANY = (
    "There is one dimension too many, of size 1: a batch where a single value belongs."
)
FLOATS = (
    "dtype is float32; the spec says int64. If that is meant, add .astype(np.int64)."
)
MISFITS = {
    "none": (None, None, "None", NO_ARRAY),
    "text": (None, "left", "the string 'left'", "A string is not an array."),
    "float": (
        None,
        0.5,
        "0.5 of type float",
        "A float becomes float64; the spec says int64: use np.array(..., np.int64).",
    ),
    "a batch": (
        None,
        [1],
        "array of shape (1,), dtype int64, values 1 … 1",
        ONE_TOO_MANY,
    ),
    "above": (
        None,
        np.int32(3),
        "array of shape (), dtype int32, values 3 … 3",
        "The action is 3, above the maximum 2.",
    ),
    "below": (
        None,
        -1,
        "array of shape (), dtype int64, values -1 … -1",
        "The action is -1, below the minimum 0.",
    ),
    "none for rows": (3, None, "None", NO_ARRAY),
    "one for all rows": (
        3,
        1,
        "1 of type int",
        "The value is a single number; an array of shape (3,) is expected.",
    ),
    "too few": (
        3,
        np.zeros(2, np.int8),
        "array of shape (2,), dtype int64, values 0 … 0",
        "Axis 0 has size 2 instead of 3.",
    ),
    "lists of different lengths": (
        3,
        [[0], [0, 1]],
        "a list of 2 elements",
        "The value is a list, not an array: use np.array(..., np.int64).",
    ),
    "floats": (
        3,
        np.zeros(3, np.float32),
        "array of shape (3,), dtype float32, values 0.0 … 0.0",
        FLOATS,
    ),
    "one row above": (
        3,
        [0, 1, 3],
        "array of shape (3,), dtype int64, values 0 … 3",
        "The action of row 2 is 3, above the maximum 2.",
    ),
    "far above": (
        3,
        np.array([2**64 - 1, 0, 0], np.uint64),
        "array of shape (3,), dtype uint64, values 0 … 18446744073709551615",
        "The action of row 0 is 18446744073709551615, above the maximum 2.",
    ),
    "several rows": (
        3,
        [-5, 1, 3],
        "array of shape (3,), dtype int64, values -5 … 3",
        "The action of row 0 is -5, below the minimum 0, and 1 more of 3 are out of "
        "range.",
    ),
}


@pytest.mark.parametrize(
    ("batch_size", "action", "got", "reason"), MISFITS.values(), ids=MISFITS.keys()
)
def test_an_invalid_action_is_refused_before_anything_moves(
    batch_size, action, got, reason
):
    env = Catch(batch_size, seed=1)
    env.reset()
    before = env.get_state()

    with pytest.raises(SpecError) as caught:
        env.step(action)

    unmoved = "None of the rows has moved."
    if batch_size is None:
        unmoved = "The environment has not moved."
    assert (
        "Catch.step() was given an action that does not fit its spec.\n\n"
        f"  expected   {SINGLE if batch_size is None else BATCH}\n"
        f"  got        {got}\n\n"
        f"{reason}\n"
        f"{unmoved}"
    ) == str(caught.value)
    assert equal(before, env.get_state())


WRONG_ARGUMENTS = {
    "no rows": (
        lambda: CartPole(0),
        "batch_size must be an integer of at least 1, or None for a single "
        "environment, got 0.",
    ),
    "rows that are no integer": (
        lambda: CartPole(2.5),
        "batch_size must be an integer of at least 1, or None for a single "
        "environment, got 2.5.",
    ),
    "a flag": (
        lambda: Catch(batch_size=True),
        "batch_size must be an integer of at least 1, or None for a single "
        "environment, got True.",
    ),
    "no steps": (
        lambda: CartPole(max_episode_steps=0),
        "max_episode_steps must be an integer of at least 1, or None for no limit, "
        "got 0.",
    ),
    "a board without room to fall": (
        lambda: Catch(rows=1),
        "rows must be an integer of at least 2, got 1.",
    ),
    "a board without columns": (
        lambda: Catch(columns=0),
        "columns must be an integer of at least 1, got 0.",
    ),
    "a grid without room for a goal": (
        lambda: GridWorld(size=1),
        "size must be an integer of at least 2, got 1.",
    ),
    "no arms": (
        lambda: Bandit(num_arms="10"),
        "num_arms must be an integer of at least 1, got '10'.",
    ),
    "an episode without steps": (
        lambda: Bandit(episode_length=None),
        "episode_length must be an integer of at least 1, got None.",
    ),
    "too few seeds": (
        lambda: CartPole(3, seed=[1, 2]),
        "2 seeds for 3 environments. Pass one seed for each environment, or one "
        "integer from which each gets its own.",
    ),
}


@pytest.mark.parametrize(
    ("make", "message"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS.keys()
)
def test_invalid_arguments_are_refused(make, message, message_of):
    assert message == message_of(ValueError, make)


def test_sizes_may_be_numpy_integers():
    assert 2 == CartPole(np.int64(2)).batch_size


# What is expected and got, of GridWorld as it is made without arguments.
FOREIGN_STATES = {
    "another batch size": (
        lambda: GridWorld(4),
        "GridWorld of batch_size 4, max_episode_steps 100, 4 actions and observations "
        "of shape (8, 8, 3)",
    ),
    "another board": (
        lambda: GridWorld(size=5),
        "GridWorld of batch_size None, max_episode_steps 100, 4 actions and "
        "observations of shape (5, 5, 3)",
    ),
    "another environment": (
        TicTacToe,
        "TicTacToe of batch_size None, max_episode_steps None, 9 actions and "
        "observations of shape {'board': (3, 3), 'mask': (9,)}",
    ),
    "another library": (None, "a list of 2 elements"),
}


@pytest.mark.parametrize(
    ("make", "got"), FOREIGN_STATES.values(), ids=FOREIGN_STATES.keys()
)
def test_the_state_of_another_environment_is_refused(make, got, message_of):
    env = GridWorld(seed=1)
    env.reset()
    before = env.get_state()
    if make is None:
        foreign = before._replace(environment=[1, 2])
    else:
        other = make()
        other.reset()
        foreign = other.get_state()

    assert (
        "GridWorld.set_state() was given the state of another environment.\n\n"
        "  expected   GridWorld of batch_size None, max_episode_steps 100, 4 actions "
        "and observations of shape (8, 8, 3)\n"
        f"  got        {got}\n\n"
        "A state fits environments that were made with the same arguments."
    ) == message_of(ValueError, lambda: env.set_state(foreign))
    assert equal(before, env.get_state())
