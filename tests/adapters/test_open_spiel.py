"""Games of OpenSpiel, beside the same games asked without envkit."""

from __future__ import annotations

import random

import numpy as np
import pytest

import envkit
from envkit.adapters import open_spiel
from envkit.adapters.open_spiel import OpenSpielGame, names
from envkit.errors import MissingDependencyError
from envkit.testing import check_environment

pyspiel = pytest.importorskip("pyspiel", reason="open_spiel is not installed")

# Of boards, of cards and with dice; with four players, and with simultaneous moves.
GAMES = [
    "backgammon",
    "goofspiel",
    "hearts",
    "hex(board_size=4)",
    "kuhn_poker(players=3)",
    "leduc_poker",
    "tic_tac_toe",
]
SEATS = [0, 1, None]
STEPS = 60


def any_legal(state, rng):
    return rng.choice(state.legal_actions())


def last_legal(state, rng):
    return state.legal_actions()[-1]


def played_directly(name, player, opponent, tensor, seed, choices):
    """Yields what a player sees, gets and may do, by OpenSpiel alone."""
    game = pyspiel.load_game(name)
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(game)
    rng, count = random.Random(seed), game.num_players()
    tensor = tensor or (
        "information_state"
        if game.get_type().provides_information_state_tensor
        else "observation"
    )

    def until_turn(state, rewards):
        while not state.is_terminal() and (
            state.is_chance_node() or player not in (None, state.current_player())
        ):
            if state.is_chance_node():
                actions, weights = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(rng.choices(actions, weights)[0])
            else:
                state.apply_action(opponent(state, rng))
            rewards = [a + b for a, b in zip(rewards, state.rewards(), strict=True)]
        return rewards

    def seen(state):
        view = max(state.current_player(), 0) if player is None else player
        flat = getattr(state, f"{tensor}_tensor")(view)
        shape = getattr(game, f"{tensor}_tensor_shape")()
        return view, np.array(flat, np.float32).reshape(shape)

    while True:
        state = game.new_initial_state()
        until_turn(state, [0.0] * count)
        if state.is_terminal():
            continue
        yield *seen(state), np.zeros(count, np.float32), False, state.legal_actions()
        while not state.is_terminal():
            legal = state.legal_actions()
            state.apply_action(legal[next(choices) % len(legal)])
            rewards = until_turn(state, state.rewards())
            ended = state.is_terminal()
            legal = (
                range(game.num_distinct_actions()) if ended else state.legal_actions()
            )
            yield *seen(state), np.array(rewards, np.float32), ended, legal


def played_here(env, player, choices):
    """Yields the same of an environment."""
    time_step = env.reset()
    while True:
        legal = np.flatnonzero(env.get_info()["legal_actions"])
        observation, reward = time_step.observation, time_step.reward
        view = player if player is not None else int(observation["player"])
        tensor = observation if player is not None else observation["tensor"]
        yield view, tensor, reward, bool(time_step.is_last()), list(legal)
        action = 0 if time_step.is_last() else legal[next(choices) % len(legal)]
        time_step = env.step(action)


def choices(seed):
    rng = random.Random(seed)
    while True:
        yield rng.randrange(10**6)


@pytest.mark.parametrize("opponent", [any_legal, last_legal])
@pytest.mark.parametrize("player", SEATS)
@pytest.mark.parametrize("name", GAMES)
def test_time_steps_match_open_spiel_bit_for_bit(name, player, opponent):
    env = envkit.make(f"open_spiel:{name}", player=player, opponent=opponent)
    env.seed(7)
    ours = played_here(env, player, choices(3))
    theirs = played_directly(name, player, opponent, None, 7, choices(3))
    for step in range(STEPS):
        (view, tensor, reward, ended, legal), expected = next(ours), next(theirs)
        assert (view, ended, legal) == (expected[0], expected[3], list(expected[4])), (
            step
        )
        assert tensor.tobytes() == expected[1].tobytes(), step
        rewards = expected[2] if player is None else expected[2][player]
        assert reward.tobytes() == rewards.tobytes(), step


@pytest.mark.parametrize("tensor", ["information_state", "observation"])
def test_a_tensor_can_be_chosen(tensor):
    env = OpenSpielGame("leduc_poker", tensor=tensor)
    env.seed(1)
    theirs = played_directly("leduc_poker", 0, any_legal, tensor, 1, choices(0))
    assert env.reset().observation.tobytes() == next(theirs)[1].tobytes()


@pytest.mark.parametrize("player", SEATS)
@pytest.mark.parametrize("name", ["goofspiel", "kuhn_poker", "tic_tac_toe"])
def test_a_game_passes_check_environment(name, player):
    def make_env():
        return envkit.make(f"open_spiel:{name}", player=player)

    assert () == check_environment(make_env, require=["info", "seed", "state"]).failed


def test_observe_legal_actions_adds_the_mask_to_the_observation():
    env = envkit.make("open_spiel:tic_tac_toe", observe_legal_actions=True)
    env.reset()
    observation = env.step(4).observation
    assert 7 == observation["legal_actions"].sum()
    assert (3, 3, 3) == observation["observation"].shape


def test_keyword_arguments_equal_parameters_in_the_name():
    apart = envkit.make("open_spiel:hex", board_size=4)
    within = envkit.make("open_spiel:hex(board_size=4)")
    assert apart.observation_spec() == within.observation_spec()
    assert apart.action_spec().maximum == within.action_spec().maximum == 15


def test_rows_of_a_pool_match_single_environments():
    singles = [envkit.make("open_spiel:leduc_poker") for _ in range(3)]
    for seed, env in enumerate(singles):
        env.seed(seed)
    with envkit.make("open_spiel:leduc_poker", num_envs=3, num_workers=2) as pool:
        pool.seed([0, 1, 2])
        act = envkit.random_actions(pool, 5)
        time_step, expected = pool.reset(), [env.reset() for env in singles]
        for _ in range(20):
            action = act(time_step)
            for row, single in enumerate(expected):
                assert (
                    time_step.observation[row].tobytes() == single.observation.tobytes()
                )
                assert time_step.reward[row] == single.reward
            time_step = pool.step(action)
            expected = [env.step(one) for env, one in zip(singles, action, strict=True)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: envkit.make("open_spiel:tictactoe").reset(),
            "OpenSpiel has no game 'tictactoe'. Did you mean 'tic_tac_toe' or "
            "'ultimate_tic_tac_toe'? pyspiel.registered_names() lists them.",
        ),
        (
            lambda: envkit.make("open_spiel:kuhn_poker", player=2).reset(),
            "player must be None or a number below 2, the number of players of "
            "'kuhn_poker', got 2.",
        ),
        (
            lambda: envkit.make("open_spiel:chess", tensor="information_state").reset(),
            "The game 'chess' has no tensor 'information_state'; it has 'observation'.",
        ),
    ],
)
def test_games_that_cannot_be_made_are_explained(call, message, message_of):
    assert message in message_of(ValueError, call)


def test_an_illegal_action_is_refused(message_of):
    env = envkit.make("open_spiel:tic_tac_toe", player=None)
    env.reset()
    env.step(4)
    assert (
        "The action 4 is not legal in 'tic_tac_toe' now; legal are 0, 1, 2, 3, 5, 6, "
        "7, 8. The info has a mask, 'legal_actions'."
    ) == message_of(ValueError, lambda: env.step(4))


def test_without_pyspiel_the_error_says_what_to_install(monkeypatch, message_of):
    monkeypatch.setattr(type(open_spiel.SCHEME), "missing", missing)
    assert "The game 'chess' needs pyspiel" == message_of(
        MissingDependencyError, lambda: open_spiel.load("chess")
    )


def missing(scheme, subject):
    return MissingDependencyError(f"{subject} needs {scheme.package}")


@pytest.mark.heavy
@pytest.mark.parametrize("name", names())
def test_every_listed_game_is_playable(name):
    for player in (0, None):
        env = envkit.make(f"open_spiel:{name}", player=player)
        act = envkit.random_actions(env, 0)
        env.seed(0)
        time_step = env.reset()
        for _ in range(10):
            time_step = env.step(act(time_step))
