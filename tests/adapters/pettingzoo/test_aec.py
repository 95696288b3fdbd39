"""Games in which agents take turns: one decision per step, and no end is lost."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters import PettingZooAECWrapper
from envkit.errors import SpecError, SpecMismatchError
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import check_environment

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

from tests.adapters.pettingzoo_games import Auction, Meadow, SilentAuction, Taciturn

AGENTS = ["ann", "bob", "cid"]


def tictactoe():
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


def connect_four():
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    from pettingzoo.classic.connect_four.connect_four import env

    return env()


def rps():
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    from pettingzoo.classic.rps.rps import env

    return env(max_cycles=4)


def legal(time_step, rng):
    """Chooses among the legal actions."""
    mask = time_step.observation["action_mask"]
    rows = mask.reshape(-1, mask.shape[-1])
    choices = [rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in rows]
    return np.array(choices, np.int64).reshape(mask.shape[:-1])


def leaves(time_steps):
    return [(leaf.dtype, leaf.tobytes()) for leaf in nest.flatten(time_steps)]


def played_bare(game, rng, episodes):
    """Plays at random, as PettingZoo's documentation says to.

    Yields the agent, what it sees, its action, and all that it has earned up to then;
    an action of `None` is one for an agent that has ended.
    """
    for episode in range(episodes):
        game.reset(seed=5 if episode == 0 else None)
        for agent in game.agent_iter():
            observation, reward, terminated, truncated, _ = game.last()
            action = None
            if not (terminated or truncated):
                masked = isinstance(observation, dict)
                mask = observation["action_mask"] if masked else None
                count = game.action_space(agent).n
                legal = range(count) if mask is None else np.flatnonzero(mask)
                action = int(rng.choice(legal))
            yield agent, observation, action, reward, terminated
            game.step(action)


@pytest.mark.parametrize("make", [tictactoe, connect_four, rps, Auction])
def test_time_steps_match_the_bare_game(make):
    env = PettingZooAECWrapper(make, reward_dtype=np.float64)
    env.seed(5)
    agents = env.possible_agents
    time_step, earned, finals = env.reset(), np.zeros(len(agents)), {}

    for agent, observation, action, reward, terminated in played_bare(
        make(), np.random.default_rng(2), episodes=3
    ):
        place = agents.index(agent)
        plain = observation["observation"] if isinstance(observation, dict) else None
        expected = np.array(observation if plain is None else plain)
        if action is None:
            assert expected.tobytes() == finals.pop(agent).tobytes()
            assert (not terminated) == time_step.discount[place]
            assert not time_step.observation["alive"][place]
            # In some games an agent earns once more after its end.
            assert reward == earned[place]
            continue
        if time_step.is_last():
            time_step, earned, finals = env.step(0), np.zeros(len(agents)), {}
        assert place == time_step.observation["agent"]
        assert expected.tobytes() == time_step.observation["observation"].tobytes()
        assert expected.dtype == time_step.observation["observation"].dtype
        if plain is not None:
            mask = time_step.observation["action_mask"]
            np.testing.assert_array_equal(observation["action_mask"], mask)
        assert reward == earned[place]
        earned[place] = 0.0
        time_step = env.step(action)
        earned += time_step.reward
        for other, info in env.get_info().items():
            if "final_observation" in info:
                finals[other] = info["final_observation"]


def test_with_a_dictionary_all_agents_observations_are_shown():
    game = Auction()
    game.reset()
    env = PettingZooAECWrapper(Auction, agents="dict")
    time_step = env.reset()

    while not time_step.is_last():
        seen = time_step.observation["observation"]
        for agent in game.agents:
            np.testing.assert_array_equal(game.observe(agent), seen[agent])
        game.step(1)
        time_step = env.step(dict.fromkeys(AGENTS, 1))

    assert dict.fromkeys(AGENTS, 1.0) == time_step.discount
    assert 20 == time_step.observation["observation"]["bob"][1]


@pytest.mark.parametrize("agents", ["turn", "dict"])
def test_a_game_passes_check_environment(agents):
    check_environment(
        lambda: PettingZooAECWrapper(Auction, agents),
        steps=60,
        require=["episodes", "info", "seed", "state"],
    )


@pytest.mark.parametrize("make", [tictactoe, connect_four])
def test_games_of_the_library_pass_check_environment(make):
    make()
    check_environment(
        lambda: PettingZooAECWrapper(make),
        steps=25,
        require=["info", "seed", "state"],
        action_fn=legal,
    )


def test_a_batch_of_games_passes_check_environment():
    def make():
        envs = [PettingZooAECWrapper(Auction) for _ in range(2)]
        return BatchedPyEnvironment(envs, multithreading=False)

    check_environment(make, steps=30, require=["episodes", "held_rows", "state"])


@pytest.mark.slow
def test_worker_processes_return_the_same_stream():
    make = functools.partial(PettingZooAECWrapper, tictactoe)
    with ParallelPyEnvironment([make] * 2) as pool:
        batch = BatchedPyEnvironment([make(), make()])
        rng = np.random.default_rng(0)
        expected = batch.reset()
        pool.reset()

        for _ in range(25):
            action = legal(expected, rng)
            expected, got = batch.step(action), pool.step(action)
            assert leaves(expected) == leaves(got)


def test_specs_describe_the_agent_whose_turn_it_is():
    env = PettingZooAECWrapper(tictactoe)
    assert {
        "agent": BoundedArraySpec((), np.int64, 0, 1),
        "observation": BoundedArraySpec((3, 3, 2), np.int8, 0, 1),
        "alive": ArraySpec((2,), np.bool_),
        "action_mask": BoundedArraySpec((9,), np.int8, 0, 1),
    } == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 8) == env.action_spec()
    assert ArraySpec((2,), np.float32) == env.reward_spec()


def test_the_last_time_step_has_every_agents_reward():
    env = PettingZooAECWrapper(tictactoe)
    env.reset()

    last = [env.step(action) for action in (0, 3, 1, 4, 2)][-1]
    assert last.is_last()
    assert [1.0, -1.0] == last.reward.tolist()
    assert [0.0, 0.0] == last.discount.tolist()
    assert [False, False] == last.observation["alive"].tolist()
    assert env.step(0).is_first()


def test_an_agent_that_ends_out_of_turn_is_skipped():
    env = PettingZooAECWrapper(Auction)
    env.reset()

    time_step = env.step(2)

    assert 2 == time_step.observation["agent"]
    assert [True, False, True] == time_step.observation["alive"].tolist()
    assert [2.0, -1.0, 0.0] == time_step.reward.tolist()
    assert [1.0, 0.0, 1.0] == time_step.discount.tolist()
    info = env.get_info()["bob"]
    assert (True, False, 0) == (info["terminated"], info["truncated"], info["bids"])
    assert [1, 1] == info["final_observation"].tolist()


def test_an_illegal_move_loses_the_game():
    env = PettingZooAECWrapper(tictactoe)
    env.reset()
    env.step(4)
    last = env.step(4)
    assert last.is_last()
    assert [0.0, -1.0] == last.reward.tolist()


def test_agents_of_a_parallel_game_take_turns():
    env = PettingZooAECWrapper(Meadow)
    turns = [int(env.step(1).observation["agent"]) for _ in range(10)]
    assert [0, 1, 0, 1, 0, 1, 1, 1, 1, 0] == turns


@pytest.mark.parametrize("agents", ["turn", "dict"])
def test_a_state_restores_the_stream(agents):
    env, other = (PettingZooAECWrapper(Auction, agents) for _ in range(2))
    one = 1 if agents == "turn" else dict.fromkeys(AGENTS, 1)
    two = 2 if agents == "turn" else dict.fromkeys(AGENTS, 2)
    env.reset()
    env.step(one)
    env.step(two)
    other.set_state(pickle.loads(pickle.dumps(env.get_state())))

    expected = [env.step(one) for _ in range(25)]

    assert leaves(expected) == leaves([other.step(one) for _ in range(25)])


def test_differing_agents_need_a_dictionary(message_of):
    assert message_of(
        SpecMismatchError, lambda: PettingZooAECWrapper(Auction((3, 3, 5)))
    ) == (
        "auction_v1 has agents with different action spaces, so they have no common "
        "axis.\n\n"
        "  'ann'   Discrete(3)\n"
        "  'cid'   Discrete(5)\n\n"
        'PettingZooAECWrapper(env, agents="dict") keeps them apart, by name.'
    )
    env = PettingZooAECWrapper(Auction((3, 3, 5)), agents="dict")
    env.reset()
    env.step({"ann": 1, "bob": 99, "cid": 99})
    env.step({"ann": 99, "bob": 1, "cid": 99})
    assert 4.0 == env.step({"ann": 99, "bob": 99, "cid": 4}).reward["cid"]


def test_state_and_observe_are_forwarded():
    env = PettingZooAECWrapper(Auction)
    env.reset()
    env.step(1)
    assert [1] == env.state().tolist()
    assert [2, 1] == env.observe("cid").tolist()


def test_an_invalid_action_is_refused():
    env = PettingZooAECWrapper(Auction)
    env.reset()
    with pytest.raises(
        SpecError,
        match=r"^PettingZooAECWrapper.step\(\) was given an action of 'ann' that does",
    ):
        env.step(3)


class Undead(Auction):
    """Keeps who has ended in its list."""

    def _was_dead_step(self, action):
        pass


def test_a_game_that_keeps_ended_agents_is_refused(message_of):
    env = PettingZooAECWrapper(Undead)
    env.reset()
    assert message_of(SpecError, lambda: env.step(2)) == (
        "auction_v1.step(None) left 'bob' in its list `agents`, although the game has "
        "ended for it. Games call self._was_dead_step(action) for that."
    )


def test_an_unknown_layout_of_agents_is_refused():
    with pytest.raises(
        ValueError, match=r"^agents must be \"turn\" or \"dict\", got 'axis'\.$"
    ):
        PettingZooAECWrapper(Auction, agents="axis")


@pytest.mark.parametrize("by_agent", [False, True], ids=["no infos", "none of them"])
@pytest.mark.parametrize("agents", ["turn", "dict"])
def test_a_game_may_have_no_infos(agents, by_agent):
    env = PettingZooAECWrapper(
        functools.partial(SilentAuction, by_agent=by_agent), agents
    )
    silent = ({}, {"ann": {}, "bob": {}, "cid": {}})
    env.reset()
    assert env.get_info() in silent
    env.step(1 if agents == "turn" else dict.fromkeys(AGENTS, 1))
    assert env.get_info() in silent


@pytest.mark.filterwarnings("ignore:The `infos` dictionary:UserWarning")
@pytest.mark.parametrize("by_agent", [False, True], ids=["no infos", "none of them"])
def test_a_parallel_game_may_have_no_infos(by_agent):
    game = functools.partial(Taciturn, by_agent=by_agent)
    env = PettingZooAECWrapper(game)
    env.reset()
    env.step(1)
    assert {"cow": {}, "hen": {}} == env.get_info()


@pytest.mark.parametrize("agents", ["turn", "dict"])
def test_masks_are_declared_infos(agents):
    make = functools.partial(PettingZooAECWrapper, connect_four, agents)
    with ParallelPyEnvironment([make] * 2, backend="inline") as env:
        first = env.reset()
        declared = env.declared_info()
    masks = first.observation["action_mask"]
    of_first = masks["player_0"] if agents == "dict" else masks

    assert {"player_0", "player_1"} == declared.keys()
    assert np.array_equal(of_first, declared["player_0"]["action_mask"])
    # It is not its turn.
    assert not declared["player_1"]["action_mask"].any()
