"""An environment of envkit is a game of PettingZoo, by PettingZoo's own measure."""

from __future__ import annotations

import logging
import pickle
import sys

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    PyEnvironment,
    StepType,
    TimeStep,
)
from envkit.adapters import PettingZooAECWrapper, PettingZooWrapper, to_pettingzoo
from envkit.envs import CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import CallOrderError, MissingDependencyError, SpecError
from envkit.testing import CountingEnv, NestedCountingEnv
from envkit.wrappers import TimeLimit

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

from tests.adapters.pettingzoo_games import (
    Auction,
    Meadow,
    Stay,
    late,
    library_tests,
    rps,
    speakers,
    walkers,
    zombies,
)


def masked():
    return Meadow(mask="observation")


def told():
    return Meadow(mask="info")


def there_and_back(make, **options):
    return to_pettingzoo(PettingZooWrapper(make, reward_dtype=np.float64, **options))


def play(game, seed, episodes=2):
    """Plays at random; returns all that the game said, in bytes where it can be."""
    rng = np.random.default_rng(3)
    said = []
    for episode in range(episodes):
        said.append(game.reset(seed=seed if episode == 0 else None))
        said[-1] = pickled(said[-1])
        while game.agents:
            actions = {
                agent: choose(game.action_space(agent), rng) for agent in game.agents
            }
            said.append((list(game.agents), *map(pickled, game.step(actions))))
    return said


def pickled(value):
    if isinstance(value, dict):
        return {key: pickled(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [pickled(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).dtype, np.shape(value), value.tobytes()
    return value


def choose(space, rng):
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    return rng.uniform(space.low, space.high).astype(space.dtype)


def plain(said):
    """Leaves out of which type a number is: games have rewards of several."""
    if isinstance(said, dict):
        return {key: plain(value) for key, value in said.items()}
    if isinstance(said, list | tuple):
        if len(said) == 3 and isinstance(said[0], np.dtype) and said[1] == ():
            return float(np.frombuffer(said[2], said[0])[0])
        return [plain(value) for value in said]
    return float(said) if isinstance(said, int | float) else said


@pytest.mark.parametrize("agents", ["axis", "dict"])
@pytest.mark.parametrize("make", [rps, walkers, zombies, Meadow, late, masked])
def test_a_round_trip_keeps_the_stream(make, agents):
    expected = play(make(), seed=7)
    assert plain(expected) == plain(play(there_and_back(make, agents=agents), seed=7))


def test_a_round_trip_keeps_the_streams_of_differing_agents():
    expected = play(speakers(), seed=7)
    assert plain(expected) == plain(play(there_and_back(speakers, agents="dict"), 7))


@pytest.mark.parametrize("agents", ["axis", "dict"])
def test_a_round_trip_keeps_masks_in_infos(agents):
    game = there_and_back(told, action_mask="info", agents=agents)
    assert plain(play(told(), seed=7)) == plain(play(game, seed=7))


@pytest.mark.parametrize("make", [rps, walkers, speakers, Meadow, late, masked])
def test_a_round_trip_keeps_the_spaces(make):
    bare, game = make(), there_and_back(make, agents="dict")
    for agent in bare.possible_agents:
        assert bare.observation_space(agent) == game.observation_space(agent)
        assert bare.action_space(agent) == game.action_space(agent)


def test_spaces_along_an_axis_are_the_agents_own():
    bare, game = masked(), there_and_back(masked)
    assert bare.observation_space("hen") == game.observation_space("hen")
    assert bare.action_space("hen") == game.action_space("hen")


MAKERS = [
    CountingEnv,
    NestedCountingEnv,
    CartPole,
    Catch,
    GridWorld,
    TicTacToe,
    lambda: PettingZooWrapper(Meadow),
    lambda: PettingZooWrapper(Meadow, agents="dict"),
    lambda: PettingZooWrapper(late),
    lambda: PettingZooWrapper(masked),
    lambda: TimeLimit(PettingZooWrapper(Meadow), 4),
    lambda: PettingZooWrapper(rps),
]


@pytest.mark.parametrize("make", MAKERS)
def test_pettingzoos_api_test_passes(make, capsys):
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    library_tests().parallel_api_test(to_pettingzoo(make()), num_cycles=50)
    assert "Passed Parallel API test" in capsys.readouterr().out


@pytest.mark.parametrize("make", MAKERS)
def test_pettingzoos_seed_test_passes(make):
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    library_tests().parallel_seed_test(lambda: to_pettingzoo(make()), num_cycles=30)


def test_to_pettingzoo_returns_a_parallel_env():
    import pettingzoo

    game = to_pettingzoo(Catch())
    assert isinstance(game, pettingzoo.ParallelEnv)
    assert (1, "Catch", []) == (game.max_num_agents, str(game), game.agents)


def test_terminations_and_truncations_are_distinguished():
    game = to_pettingzoo(PettingZooWrapper(Meadow))
    game.reset()

    steps = [game.step(dict.fromkeys(game.agents, 0)) for _ in range(5)]

    _, _, terminations, truncations, infos = steps[2]
    assert {"cow": True, "hen": False} == terminations
    assert {"cow": False, "hen": False} == truncations
    assert {"cow": {"steps": 3}, "hen": {"steps": 3}} == infos
    assert ({"hen": False}, {"hen": True}) == steps[4][2:4]
    assert [] == game.agents


def test_both_flags_of_an_agent_are_returned():
    game = to_pettingzoo(PettingZooWrapper(lambda: Meadow({"cow": Stay(0, 1, "both")})))
    game.reset()
    _, _, terminations, truncations, _ = game.step({"cow": 0})
    assert (True, True) == (terminations["cow"], truncations["cow"])


def test_a_time_limit_truncates_the_remaining_agents():
    game = to_pettingzoo(TimeLimit(PettingZooWrapper(Meadow), 2))
    game.reset()
    game.step({"cow": 0, "hen": 0})
    _, _, terminations, truncations, _ = game.step({"cow": 0, "hen": 0})
    assert {"cow": False, "hen": False} == terminations
    assert {"cow": True, "hen": True} == truncations


class Shares(PyEnvironment):
    """Three agents along an axis who share one discount, neither 0 nor 1."""

    def observation_spec(self):
        return ArraySpec((3, 2), np.float32)

    def action_spec(self):
        return ArraySpec((3,), np.float32)

    def reward_spec(self):
        return ArraySpec((3,), np.float32)

    def _made(self, step_type, reward, discount):
        seen = np.arange(6, dtype=np.float32).reshape(3, 2)
        return TimeStep(step_type, reward, np.float32(discount), seen)

    def _reset(self):
        return self._made(StepType.FIRST, np.zeros(3, np.float32), 1.0)

    def _step(self, action):
        return self._made(StepType.MID, np.asarray(action, np.float32), 0.9)


def test_agents_along_an_axis_can_be_named():
    game = to_pettingzoo(Shares(), agents=["a", "b", "c"])
    observations, infos = game.reset()

    _, rewards, terminations, _, infos = game.step({"a": 1.0, "b": 2.0, "c": 3.0})
    assert [4.0, 5.0] == observations["c"].tolist()
    assert {"a": 1.0, "b": 2.0, "c": 3.0} == rewards
    assert not any(terminations.values())
    # What neither flag says.
    assert np.float32(0.9) == infos["b"]["discount"]


def test_the_number_of_names_must_match_the_agents(message_of):
    assert message_of(
        ValueError, lambda: to_pettingzoo(PettingZooWrapper(Meadow), agents=["one"])
    ) == ("to_pettingzoo was given 1 names, and PettingZooWrapper has 2 agents.")


def test_a_step_after_the_end_returns_empty_dictionaries():
    game = to_pettingzoo(CountingEnv())
    game.reset()
    while game.agents:
        game.step({"agent_0": 0})
    assert ({}, {}, {}, {}, {}) == game.step({})


def test_a_step_before_the_first_reset_is_an_error(message_of):
    assert message_of(
        CallOrderError, lambda: to_pettingzoo(CountingEnv()).step({"agent_0": 0})
    ) == (
        "to_pettingzoo(CountingEnv).step() was called before reset(). Call reset() "
        "first."
    )


def test_a_missing_action_is_an_error(message_of):
    game = to_pettingzoo(PettingZooWrapper(Meadow))
    game.reset()
    assert message_of(CallOrderError, lambda: game.step({"hen": 0})) == (
        "step() was given no action of 'cow', which is one of the agents: each of "
        "['cow', 'hen'] has to act."
    )


def test_an_action_out_of_bounds_is_an_error():
    game = to_pettingzoo(PettingZooWrapper(Meadow))
    game.reset()
    with pytest.raises(
        SpecError, match=r"^step\(\) was given an action of 'hen' that "
    ):
        game.step({"cow": 0, "hen": 3})


def test_action_mask_in_chooses_the_place_of_masks():
    game = to_pettingzoo(PettingZooWrapper(masked), action_mask_in="info")
    observations, infos = game.reset()
    assert (3,) == observations["hen"].shape
    assert [1, 0, 1] == infos["hen"]["action_mask"].tolist()


def test_an_unknown_place_for_masks_is_refused():
    with pytest.raises(ValueError, match=r"^action_mask_in must be .*, got 'sky'\."):
        to_pettingzoo(PettingZooWrapper(masked), action_mask_in="sky")


def test_options_reach_the_game():
    game = there_and_back(Meadow)
    game.reset(options={"level": 3})
    assert [{"level": 3}] == game.wrapped_env().game.options


def test_an_environment_without_seeds_logs_that_it_was_not_seeded(caplog):
    game = to_pettingzoo(Shares(), agents=["a", "b", "c"])
    with caplog.at_level(logging.WARNING):
        game.reset(seed=3)
    assert [
        "reset(seed=...) has not seeded Shares: Shares cannot be seeded: override "
        "seed(seed), or give _reset() an argument seed."
    ] == caplog.messages


def test_render_and_state_come_from_the_environment():
    game = there_and_back(lambda: Meadow(render_mode="rgb_array"))
    game.reset()
    assert "rgb_array" == game.render_mode
    assert (2, 2, 3) == game.render().shape
    assert [0] == game.state().tolist()


def test_missing_methods_raise_pettingzoos_errors(message_of):
    game = to_pettingzoo(CountingEnv())

    with pytest.raises(
        NotImplementedError, match=r"state\(\) method has not been impl"
    ):
        game.state()
    assert message_of(NotImplementedError, game.render) == (
        "to_pettingzoo(CountingEnv) was made without a render_mode, so it does not "
        'render. Make it with render_mode="rgb_array".'
    )


def test_methods_of_envkit_are_not_forwarded():
    game = to_pettingzoo(CountingEnv())
    with pytest.raises(AttributeError, match="has no attribute 'seed'; wrapped_env"):
        _ = game.seed


def test_closing_closes_the_environment():
    game = there_and_back(Meadow)
    game.close()
    assert 1 == game.wrapped_env().game.closed


def test_a_game_pickles():
    game = to_pettingzoo(Catch())
    expected = play(game, seed=3)
    assert expected == play(pickle.loads(pickle.dumps(game)), seed=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BatchedPyEnvironment([CountingEnv()]),
            "to_pettingzoo was given BatchedPyEnvironment, which is a batch; it takes "
            "a single environment.",
        ),
        (
            lambda: PettingZooAECWrapper(Auction),
            "to_pettingzoo was given PettingZooAECWrapper, which observes ['agent'] "
            "beside what its agents see. Its agents take turns: only "
            'PettingZooWrapper(env, agents="axis") and similar environments have a '
            "part for each agent in every step.",
        ),
    ],
)
def test_environments_without_simultaneous_agents_are_refused(
    make, message, message_of
):
    assert message == message_of(ValueError, lambda: to_pettingzoo(make()))


def test_without_pettingzoo_the_error_says_what_to_install(monkeypatch, message_of):
    from envkit.adapters import foreign

    foreign._completed.cache_clear()
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert message_of(MissingDependencyError, lambda: to_pettingzoo(CountingEnv())) == (
        "to_pettingzoo needs the package pettingzoo, which is not installed. pip "
        'install "pettingzoo>=1.24" "gymnasium>=1.0"'
    )


class Silent(CountingEnv):
    """Its info is `None`, or that of its agent is."""

    def __init__(self, info):
        super().__init__()
        self._info = info

    def get_info(self):
        return self._info


@pytest.mark.parametrize("info", [None, {"agent_0": None}], ids=str)
def test_an_environment_may_have_no_info(info):
    game = to_pettingzoo(Silent(info))
    _, first = game.reset()
    *_, later = game.step({"agent_0": 0})
    assert {"agent_0": {}} == first == later


def test_declared_masks_appear_in_the_observation_only():
    game = there_and_back(masked)
    observations, infos = game.reset(seed=1)
    assert "action_mask" in observations["cow"]
    assert {"steps": 0} == infos["cow"]
