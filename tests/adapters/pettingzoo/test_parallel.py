"""Games in which all act at once: the same numbers as bare, and no end is lost."""

from __future__ import annotations

import functools
import pickle
import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters import PettingZooWrapper
from envkit.errors import ClosedError, SpecError, SpecMismatchError
from envkit.parallel import ParallelPyEnvironment
from envkit.seeding import seed_per_row
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

from pettingzoo.utils import BaseParallelWrapper

from tests.adapters.pettingzoo_games import (
    Auction,
    Meadow,
    Stay,
    Taciturn,
    Uneven,
    late,
    rps,
    speakers,
    walkers,
    zombies,
)

GAMES = [rps, zombies, walkers, Meadow, late]


def meadow(*agents, **options):
    own = ("discount", "action_mask", "reset_options", "reward_dtype")
    chosen = {name: options.pop(name) for name in own if name in options}
    return PettingZooWrapper(Meadow(*agents, **options), **chosen)


def leaves(time_steps):
    return [(leaf.dtype, leaf.tobytes()) for leaf in nest.flatten(time_steps)]


def played_bare(game, seed, rng, episodes):
    """Plays at random; yields the actions with all that comes of them."""
    for episode in range(episodes):
        observations, _ = game.reset(seed=seed if episode == 0 else None)
        yield None, observations, {}, {}, {}
        while game.agents:
            actions = {
                agent: choose(game.action_space(agent), rng) for agent in game.agents
            }
            yield actions, *game.step(actions)[:4]


def choose(space, rng):
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    return rng.uniform(space.low, space.high).astype(space.dtype)


def filled(env, actions):
    """Makes an action of the whole axis; who takes no part gets nonsense."""
    spec = env.action_spec()
    whole = np.full(spec.shape, 99, spec.dtype)
    for agent, action in actions.items():
        whole[env.possible_agents.index(agent)] = action
    return whole


@pytest.mark.parametrize("make", GAMES)
def test_with_an_axis_time_steps_match_the_bare_game(make):
    env = PettingZooWrapper(make, reward_dtype=np.float64, discount=0.5)
    env.seed(7)
    agents = env.possible_agents
    seed = seed_per_row([7], 1)[0]
    known = {}

    for step in played_bare(make(), seed, np.random.default_rng(3), episodes=2):
        actions, observations, rewards, terminations, truncations = step
        time_step = env.step(filled(env, actions or {}))
        if actions is None:
            known = {}
        alive = time_step.observation["alive"]
        for place, agent in enumerate(agents):
            over = terminations.get(agent) or truncations.get(agent)
            assert (agent in observations and not over) == alive[place]
            if agent in observations:
                known[agent] = np.array(observations[agent])
                discount = 0.0 if terminations.get(agent) else 0.5
                expected = discount if actions is not None else 1.0
                assert expected == time_step.discount[place]
            if agent in known:
                seen = time_step.observation["observation"][place]
                assert known[agent].tobytes() == seen.tobytes()
            assert rewards.get(agent, 0) == time_step.reward[place]
        assert (actions is None) == time_step.is_first()
        assert (not alive.any()) == time_step.is_last()


@pytest.mark.parametrize("make", [*GAMES, speakers])
def test_with_a_dictionary_time_steps_match_the_bare_game(make):
    env = PettingZooWrapper(make, agents="dict", reward_dtype=np.float64)
    env.seed(7)
    neutral = {
        agent: np.zeros(spec.shape, spec.dtype)
        for agent, spec in env.action_spec().items()
    }

    for step in played_bare(make(), 7, np.random.default_rng(3), episodes=2):
        actions, observations, rewards, terminations, _ = step
        time_step = env.step({**neutral, **(actions or {})})
        for agent, observation in observations.items():
            seen = time_step.observation["observation"][agent]
            assert np.array(observation).tobytes() == seen.tobytes()
            assert rewards.get(agent, 0) == time_step.reward[agent]
            assert (not terminations.get(agent)) == time_step.discount[agent]


@pytest.mark.parametrize(
    ("make", "agents"),
    [
        (Meadow, "axis"),
        (Meadow, "dict"),
        (late, "axis"),
        (functools.partial(Meadow, mask="observation"), "dict"),
        (Uneven, "dict"),
    ],
    ids=["early", "early by name", "late", "masked by name", "different by name"],
)
def test_a_game_passes_check_environment(make, agents):
    check_environment(
        lambda: PettingZooWrapper(make, agents),
        steps=60,
        require=["episodes", "info", "seed", "state"],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "agents"), [(rps, "axis"), (walkers, "axis"), (speakers, "dict")]
)
def test_games_of_the_library_pass_check_environment(make, agents):
    make()
    check_environment(
        lambda: PettingZooWrapper(make, agents), steps=90, require=["episodes", "seed"]
    )


@pytest.mark.slow
def test_a_game_with_early_deaths_passes_check_environment():
    zombies()
    # The bare game, too, goes on after reset(seed) as if it remembered the one before.
    check_environment(
        lambda: PettingZooWrapper(zombies),
        steps=20,
        skip=["reseeding"],
    )


def test_a_batch_of_games_passes_check_environment():
    def make():
        envs = [PettingZooWrapper(late, "dict") for _ in range(2)]
        return BatchedPyEnvironment(envs, multithreading=False)

    check_environment(make, steps=40, require=["episodes", "held_rows", "state"])


@pytest.mark.slow
@pytest.mark.parametrize("agents", ["axis", "dict"])
def test_worker_processes_return_the_same_stream(agents):
    make = functools.partial(PettingZooWrapper, Meadow, agents)
    with ParallelPyEnvironment([make] * 2) as pool:
        batch = BatchedPyEnvironment([make(), make()])
        one = np.ones(2, np.int64)
        action = np.stack([one, one]) if agents == "axis" else {"cow": one, "hen": one}
        for env in (pool, batch):
            env.seed(7)

        for _ in range(12):
            expected, got = batch.step(action), pool.step(action)
            assert leaves(expected) == leaves(got)


def test_specs_have_a_dimension_of_agents():
    env = meadow(mask="observation")
    assert {
        "observation": BoundedArraySpec((2, 3), np.float32, -1, 9),
        "action_mask": BoundedArraySpec((2, 3), np.int8, 0, 1),
        "alive": ArraySpec((2,), np.bool_),
    } == env.observation_spec()
    assert BoundedArraySpec((2,), np.int64, 0, 2) == env.action_spec()
    assert ArraySpec((2,), np.float32) == env.reward_spec()
    assert BoundedArraySpec((2,), np.float32, 0, 1) == env.discount_spec()


def test_specs_by_name_are_the_agents_own():
    env = PettingZooWrapper(speakers, agents="dict")
    spec = env.observation_spec()["observation"]
    assert {"speaker_0": (3,), "listener_0": (11,)} == {
        agent: leaf.shape for agent, leaf in spec.items()
    }
    assert {"speaker_0": 3, "listener_0": 5} == {
        agent: leaf.num_values for agent, leaf in env.action_spec().items()
    }


def test_an_ended_agent_repeats_its_final_observation_without_reward():
    env = meadow()
    env.seed(0)
    env.reset()
    *_, third, fourth = [env.step([1, 2]) for _ in range(4)]

    assert [False, True] == third.observation["alive"].tolist()
    assert [0.0, 1.0] == third.discount.tolist()
    np.testing.assert_array_equal(
        third.observation["observation"][0], fourth.observation["observation"][0]
    )
    assert [0.0, np.float32(0.4 + 2)] == fourth.reward.tolist()
    assert [0.0, 1.0] == fourth.discount.tolist()
    assert fourth.is_mid()


def test_the_last_discounts_tell_terminated_from_truncated_agents():
    env = meadow()
    env.reset()
    last = [env.step([0, 0]) for _ in range(5)][-1]
    assert last.is_last()
    assert [0.0, 1.0] == last.discount.tolist()
    assert [False, False] == last.observation["alive"].tolist()


def test_an_agent_before_its_beginning_observes_zeros():
    env = PettingZooWrapper(late)

    first, second = env.reset(), env.step([0, 0, 0])
    assert [True, False, False] == first.observation["alive"].tolist()
    np.testing.assert_array_equal(
        np.zeros((2, 3), np.float32), first.observation["observation"][1:]
    )
    assert [True, True, False] == second.observation["alive"].tolist()
    assert second.observation["observation"][1].any()


def test_a_truncated_episode_keeps_the_discount_of_all_agents():
    env = meadow(limit=1, discount=0.5)
    env.reset()
    last = env.step([0, 0])
    assert last.is_last()
    assert [0.5, 0.5] == last.discount.tolist()


def test_infos_are_by_agent_with_the_flags_of_ended_agents():
    env = PettingZooWrapper(late)
    assert {} == env.get_info()
    env.reset()
    assert {"ant": {"steps": 0}} == env.get_info()
    for _ in range(5):
        env.step([0, 0, 0])
    assert {
        "cat": {"steps": 5, "terminated": True, "truncated": True}
    } == env.get_info()


@pytest.mark.parametrize("by_agent", [False, True], ids=["no infos", "none of them"])
def test_a_game_may_have_no_infos(by_agent):
    env = PettingZooWrapper(Taciturn(by_agent=by_agent))
    env.reset()
    assert env.get_info() in ({}, {"cow": {}, "hen": {}})
    while not env.step([0, 0]).is_last():
        pass
    assert {"terminated": False, "truncated": True} == env.get_info()["hen"]


@pytest.mark.parametrize(
    ("place", "agents"), [("observation", "axis"), ("info", "dict")]
)
def test_masks_are_declared_infos(place, agents):
    make = functools.partial(
        PettingZooWrapper,
        functools.partial(Meadow, mask=place),
        agents,
        action_mask="info" if place == "info" else "auto",
    )
    with ParallelPyEnvironment([make] * 2, backend="inline") as env:
        env.reset()
        masks = env.reset().observation["action_mask"]
        declared = env.declared_info()
    if agents == "axis":
        masks = {"cow": masks[:, 0], "hen": masks[:, 1]}
    for agent in ("cow", "hen"):
        assert np.array_equal(masks[agent], declared[agent]["action_mask"])
    check_environment(make, steps=30)


def test_without_masks_no_info_is_declared():
    assert (
        {}
        == meadow().info_spec()
        == meadow(mask="info", action_mask="none").info_spec()
    )


@pytest.mark.parametrize(
    ("place", "options"), [("observation", {}), ("info", {"action_mask": "info"})]
)
def test_masks_are_found_in_the_observation_or_the_info(place, options):
    env = meadow(mask=place, **options)
    assert [[0, 1, 1], [1, 0, 1]] == env.reset().observation["action_mask"].tolist()
    assert place == env.action_mask_in
    assert meadow(action_mask="info").reset().observation["action_mask"].all()


@pytest.mark.parametrize("place", ["observation", "info"])
def test_masks_can_be_left_in_place(place):
    env = meadow(mask=place, action_mask="none")
    observation = env.reset().observation
    assert {"observation", "alive"} == observation.keys()
    assert env.action_mask_in is None


class Odd(Meadow):
    """Says what is legal in some agents' observations alone."""

    def observation_space(self, agent):
        return Meadow(mask="observation" if agent == "hen" else None)._seen(agent)


def test_a_mask_of_only_some_agents_is_left_in_place():
    env = PettingZooWrapper(Odd, agents="dict")
    assert {"observation", "alive"} == env.observation_spec().keys()
    assert "action_mask" in env.observation_spec()["observation"]["hen"]


class Wide(Meadow):
    """Says more than there are actions, and rewards with more than a number."""

    def legal(self, agent):
        return np.ones(4)

    def step(self, actions):
        observations, rewards, *others = super().step(actions)
        return observations, {agent: [1, 2] for agent in rewards}, *others


def test_a_seed_takes_effect_at_the_next_reset():
    env, other = meadow(), meadow()
    other.reset()
    first, second = (each.seed(7) or each.reset().observation for each in (env, other))
    np.testing.assert_array_equal(first["observation"], second["observation"])
    kept = first["observation"].copy()
    env.step([0, 0])
    np.testing.assert_array_equal(kept, first["observation"])
    seen = []
    for _ in range(2):
        env.seed(None)
        seen.append(env.reset().observation["observation"].tolist())
    assert seen[0] != seen[1]


def test_reset_options_reach_the_game():
    env = meadow(reset_options={"level": 1})
    env.reset()
    env.set_reset_options({"level": 2})
    env.reset()
    env.reset(options={"level": 4})
    env.reset()
    env.set_reset_options({"level": 3}, always=True)
    env.reset()
    env.reset()
    assert [1, 2, 4, 1, 3, 3] == [options["level"] for options in env.options]


def test_a_state_restores_the_stream():
    env = PettingZooWrapper(late)
    env.seed(1)
    env.reset()
    env.step([1, 0, 0])
    state = pickle.loads(pickle.dumps(env.get_state()))
    expected = [env.step([1, 2, 0]) for _ in range(8)]
    other = PettingZooWrapper(late)

    other.set_state(state)

    assert leaves(expected) == leaves([other.step([1, 2, 0]) for _ in range(8)])
    assert env.get_info() == other.get_info()


def test_a_game_with_pymunk_physics_has_no_state(message_of):
    pytest.importorskip("pymunk", reason="pymunk is not installed")
    from pettingzoo.butterfly.pistonball.pistonball import parallel_env

    env = PettingZooWrapper(parallel_env(n_pistons=2))
    env.reset()
    assert message_of(NotImplementedError, env.get_state) == (
        "pistonball_v6 cannot save its state: a pickle of pymunk's physics lacks the "
        "contacts between bodies."
    )


def test_render_uses_the_games_render_mode(message_of):
    env = meadow(render_mode="rgb_array")
    env.reset()
    assert (2, 2, 3) == env.render().shape
    assert message_of(NotImplementedError, lambda: env.render("human")) == (
        "meadow_v1 cannot render 'human': the render_mode of a PettingZoo environment "
        "is chosen when it is made, and this one was made with "
        "render_mode='rgb_array'. Make it with render_mode='human'."
    )


def test_the_global_state_and_other_attributes_are_reachable():
    env = meadow()
    env.reset()
    assert [0] == env.state().tolist()
    assert ["cow", "hen"] == env.agents
    with pytest.raises(AttributeError, match="'PettingZooWrapper' object has no attri"):
        _ = env.pigs


def test_closing_twice_closes_the_game_once():
    env = meadow()
    env.close()
    env.close()
    assert 1 == env.game.closed
    with pytest.raises(ClosedError):
        env.reset()


def test_turn_based_games_with_simultaneous_moves_are_converted():
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    from pettingzoo.classic.rps.rps import env

    wrapped = PettingZooWrapper(env(max_cycles=2))
    wrapped.reset()
    assert [-1.0, 1.0] == wrapped.step([0, 1]).reward.tolist()


class Nameless(Meadow):
    """Does not say who may take part."""

    def __init__(self):
        super().__init__()
        del self.possible_agents


def test_possible_agents_names_the_agents_of_a_game_without_names():
    env = PettingZooWrapper(Nameless, possible_agents=["hen", "cow"])
    assert ["hen", "cow"] == env.possible_agents
    assert env.reset().observation["alive"].all()


class Seeded(Meadow):
    """Takes no options."""

    def reset(self, seed=None):
        return super().reset(seed)


class PassesAnything(BaseParallelWrapper):
    def reset(self, *args, **kwargs):
        return self.env.reset(*args, **kwargs)


def test_reset_passes_the_arguments_that_the_innermost_reset_takes(message_of):
    env = PettingZooWrapper(PassesAnything(Seeded()))
    env.seed(3)
    first = env.reset().observation["observation"]
    env.seed(3)
    np.testing.assert_array_equal(first, env.reset().observation["observation"])
    assert (
        "meadow_v1 takes no reset options, and was given 'level': its reset() has no "
        "argument `options`."
    ) == message_of(NotImplementedError, lambda: env.reset(options={"level": 3}))


class Empty(Meadow):
    """Begins without agents."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents = []
        return {}, {}


class Blind(Meadow):
    """Forgets to say what an agent sees."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        del observations["hen"]
        return observations, infos


class Old(Meadow):
    """Returns what games returned before there were two flags."""

    def reset(self, seed=None, options=None):
        return super().reset(seed, options)[0]


def unpicklable():
    env = meadow()
    env.game.lock = threading.Lock()
    return env.get_state()


def stepped(action, game=Meadow, agents="axis"):
    env = PettingZooWrapper(game, agents)
    env.reset()
    return env.step(action)


# "..." stands for anything.
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: PettingZooWrapper(Uneven),
            SpecMismatchError,
            "meadow_v1 has agents with different action spaces, so they have no common "
            "axis.\n\n"
            "  'cow'   Discrete(3)\n"
            "  'hen'   Discrete(5, start=2)\n\n"
            'PettingZooWrapper(env, agents="dict") keeps them apart, by name.',
        ),
        (
            lambda: meadow(mask="info").reset(),
            SpecError,
            "meadow_v1 says in its infos which actions are legal. Pass "
            'action_mask="info" to have that in the observation, or '
            'action_mask="none" to leave it to get_info().',
        ),
        (
            lambda: PettingZooWrapper(Wide(mask="info"), action_mask="info").reset(),
            SpecError,
            "meadow_v1 returned a mask of 'cow' that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(3,), dtype=int8, minimum=0, "
            "maximum=1, name='action_mask')\n"
            "  got        array of shape (4,), dtype float64, values 1.0 … 1.0\n\n"
            "A mask has a 1 for each action that is legal, and a 0 for each other.",
        ),
        (
            lambda: PettingZooWrapper(walkers, action_mask="info"),
            ValueError,
            "multiwalker_v9 cannot read masks from infos: the actions of "
            "'walker_0' are Box(-1.0, 1.0, (4,), float32), and only actions of a "
            "Discrete space can be counted.",
        ),
        (
            lambda: meadow(action_mask="sky"),
            ValueError,
            "action_mask must be one of 'auto', 'info', 'none', got 'sky'.",
        ),
        (
            lambda: PettingZooWrapper(Meadow, possible_agents=["cow", "cow"]),
            ValueError,
            "possible_agents names an agent twice: ['cow', 'cow'].",
        ),
        (
            lambda: meadow(discount=2),
            ValueError,
            "discount must be between 0 and 1, got 2.",
        ),
        (
            lambda: PettingZooWrapper(Meadow, agents="both"),
            ValueError,
            'agents must be "axis" or "dict", got \'both\'.',
        ),
        (
            lambda: meadow(reset_options=3),
            TypeError,
            "The options of a reset are a dictionary such...",
        ),
        (
            lambda: stepped([0, 0], game=Wide),
            SpecError,
            "meadow_v1 returned a reward of 'cow' that does...",
        ),
        (
            lambda: stepped([0, 3]),
            SpecError,
            "PettingZooWrapper.step() was given an action of 'hen' that does not fit "
            "its spec.\n\n  expected   BoundedArraySpec(shape=(), dtype=int64, "
            "minimum=0, maximum=2, name='action')\n  got        ...",
        ),
        (
            lambda: stepped([0, 1, 2]),
            SpecError,
            "PettingZooWrapper.step() was given an action that...",
        ),
        (lambda: stepped({"cow": 1}, agents="dict"), SpecError, "...hen..."),
        (
            unpicklable,
            NotImplementedError,
            "meadow_v1 cannot save its state. ...",
        ),
        (
            lambda: PettingZooWrapper(Auction()),
            TypeError,
            "PettingZooWrapper was given auction_v1, whose agents take turns: its "
            "metadata does not say that it is_parallelizable. PettingZooAECWrapper "
            "takes it unchanged.",
        ),
        (
            lambda: PettingZooWrapper(Nameless),
            ValueError,
            "PettingZooWrapper was given meadow_v1, which has no possible_agents. Name "
            "all agents that may ever take part: PettingZooWrapper(env, "
            'possible_agents=["agent_0", "agent_1"]).',
        ),
        (
            lambda: PettingZooWrapper(Nameless, possible_agents=["hen"]).reset(),
            SpecError,
            "meadow_v1 has an agent 'cow', which is not o...",
        ),
        (
            lambda: PettingZooWrapper(Empty).reset(),
            SpecError,
            "meadow_v1.reset() began an episode in which no agent acts: its list "
            "`agents` is empty, or the game has ended for all of them.",
        ),
        (
            lambda: PettingZooWrapper(Blind).reset(),
            SpecError,
            "meadow_v1 returned no observation of 'hen', ...",
        ),
        (
            lambda: PettingZooWrapper(Old).reset(),
            SpecError,
            "meadow_v1.reset() returned a dict of 2 elements; in PettingZoo it returns "
            "the tuple (observations, infos). Older versions of PettingZoo returned "
            "other ones.",
        ),
        *(
            (
                lambda thing=thing: PettingZooWrapper(thing),
                TypeError,
                "...which is not an environment of PettingZoo....",
            )
            for thing in (7, object(), dict)
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    if error is ValueError and "walker" in text:
        walkers()  # Skips where the game is missing.
    parts = [re.escape(part) for part in text.split("...")]
    assert re.fullmatch(".*".join(parts), message_of(error, call), re.DOTALL)


def test_wrappers_accept_vector_rewards_and_discounts():
    env = TimeLimit(meadow(), 2)
    env.reset()
    env.step([0, 0])
    last = env.step([0, 0])
    assert last.is_last()
    assert [1.0, 1.0] == last.discount.tolist()
    assert [True, True] == last.observation["alive"].tolist()


stays = st.builds(
    lambda begin, length, how: Stay(begin, begin + length, how),
    st.integers(0, 4),
    st.integers(1, 5),
    st.sampled_from(["terminated", "truncated", "both"]),
)


@settings(max_examples=20, deadline=None)
@given(first=stays, others=st.lists(stays, max_size=3))
def test_the_stream_fits_its_specs_whenever_agents_come_and_go(first, others):
    script = dict(enumerate([first._replace(begin=0), *others]))
    env = PettingZooWrapper(
        Meadow({f"a{place}": stay for place, stay in script.items()})
    )
    spec = env.time_step_spec()
    action = np.zeros(len(script), np.int64)

    time_steps = [env.reset()]
    while not time_steps[-1].is_last():
        time_steps.append(env.step(action))

    for time_step in time_steps:
        assert spec.reward.check_array(time_step.reward)
        assert spec.discount.check_array(time_step.discount)
        seen = time_step.observation["observation"]
        assert spec.observation["observation"].check_array(seen)
        assert time_step.observation["alive"].any() != time_step.is_last()
