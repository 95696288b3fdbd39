"""Each agent's own stream: its own beginning, its own end, its final observation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    termination,
    transition,
)
from envkit.adapters import AgentTimeSteps, PettingZooAECWrapper, PettingZooWrapper
from envkit.envs import Catch
from envkit.errors import CallOrderError
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

from tests.adapters.pettingzoo_games import Auction, Meadow, Stay


class Relay(PyEnvironment):
    """Two agents along an axis who all take part to the end; nobody says so."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)

    def observation_spec(self):
        return {"place": BoundedArraySpec((2, 1), np.int32, [[0], [1]], [[9], [8]])}

    def action_spec(self):
        return BoundedArraySpec((2,), np.int64, 0, 1)

    def reward_spec(self):
        return ArraySpec((2,), np.float32)

    def _reset(self):
        self._place = np.array([[0], [1]], np.int32)
        return restart({"place": self._place.copy()}, reward_spec=self.reward_spec())

    def _step(self, action):
        self._place += action[:, None].astype(np.int32)
        reward = np.array(action, np.float32)
        make = termination if self._place.max() > 3 else transition
        return make({"place": self._place.copy()}, reward, outer_dims=())


def kinds(time_steps):
    return {agent: int(step.step_type) for agent, step in time_steps.items()}


def test_an_environment_without_agents_has_one():
    env = AgentTimeSteps(CountingEnv())
    assert ["agent_0"] == env.possible_agents
    assert {"agent_0": 0} == kinds(env.reset())
    assert {"agent_0": 1} == kinds(env.step({"agent_0": 0}))


def test_agents_along_an_axis_can_be_named_and_all_play_to_the_end():
    env = AgentTimeSteps(Relay(), agents=["ada", "bea"])

    assert {"ada": 0, "bea": 0} == kinds(env.reset())
    steps = [env.step({"ada": 0, "bea": 1}) for _ in range(3)]

    assert [{"ada": 1, "bea": 1}] * 2 + [{"ada": 2, "bea": 2}] == list(
        map(kinds, steps)
    )
    assert [0.0, 1.0] == [float(steps[0][agent].reward) for agent in ("ada", "bea")]
    # A discount for all is everyone's.
    assert [0.0, 0.0] == [float(steps[2][agent].discount) for agent in ("ada", "bea")]
    assert [] == env.agents
    assert {"ada": 0, "bea": 0} == kinds(env.step({}))
    assert ["ada", "bea"] == env.agents


def test_specs_are_given_by_agent():
    env = AgentTimeSteps(Relay(), agents=["ada", "bea"])
    assert {"place": BoundedArraySpec((1,), np.int32, 1, 8)} == env.observation_spec(
        "bea"
    )
    assert BoundedArraySpec((), np.int64, 0, 1) == env.action_spec("ada")
    assert ArraySpec((), np.float32) == env.time_step_spec("ada").reward


def test_other_methods_of_the_environment_are_forwarded():
    env = AgentTimeSteps(Catch(rows=4))
    env.reset()
    assert (3, "episode_steps" in env.get_info()) == (env.render().ndim, True)
    assert isinstance(env.wrapped_env(), Catch)


def test_a_missing_action_is_an_error(message_of):
    env = AgentTimeSteps(Relay(), agents=["ada", "bea"])
    env.reset()
    assert message_of(CallOrderError, lambda: env.step({"ada": 0})) == (
        "AgentTimeSteps.step() was given no action of 'bea', which takes part: each of "
        "['ada', 'bea'] has to act."
    )


def test_an_unknown_agent_is_an_error(message_of):
    env = AgentTimeSteps(Relay(), agents=["ada", "bea"])
    assert message_of(CallOrderError, lambda: env.action_spec("cia")) == (
        "AgentTimeSteps has no agent 'cia'; the agents are ['ada', 'bea']."
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BatchedPyEnvironment([CountingEnv()]),
            "AgentTimeSteps was given BatchedPyEnvironment, which is a batch; it takes "
            "a single environment.",
        ),
        (
            lambda: CountingEnv,
            "AgentTimeSteps was given the class CountingEnv, not an environment. Did "
            "you mean CountingEnv()?",
        ),
        (
            lambda: 7,
            "AgentTimeSteps was given 7 of type int, not an environment.",
        ),
    ],
)
def test_environments_without_separate_agents_are_refused(make, message, message_of):
    assert message == message_of(
        (TypeError, ValueError), lambda: AgentTimeSteps(make())
    )


def test_arrays_without_an_agent_dimension_are_refused(message_of):
    assert message_of(
        ValueError, lambda: AgentTimeSteps(Relay(), agents=["ada", "bea", "cia"])
    ) == (
        "AgentTimeSteps was given Relay, whose observation_spec() has "
        "BoundedArraySpec(shape=(2, 1), dtype=int32, minimum=[[0], [1]], "
        "maximum=[[9], [8]]) at observation['place']: it does not begin with a "
        "dimension of 3 agents."
    )


stays = st.builds(
    lambda begin, length, how: Stay(begin, begin + length, how),
    st.integers(0, 4),
    st.integers(1, 5),
    st.sampled_from(["terminated", "truncated", "both"]),
)


@settings(max_examples=30, deadline=None)
@given(
    first=stays,
    others=st.lists(stays, max_size=3),
    layout=st.sampled_from(["axis", "dict"]),
)
def test_every_agents_stream_runs_from_first_to_last(first, others, layout):
    """FIRST (MID)* LAST for each, and the numbers of the bare game."""
    script = [first._replace(begin=0), *others]
    script = {f"agent {place}": stay for place, stay in enumerate(script)}
    game = Meadow(script)
    env = AgentTimeSteps(PettingZooWrapper(lambda: Meadow(script), layout))
    env.seed(4)
    observations, _ = game.reset(seed=4)
    streams = {agent: [] for agent in script}

    steps = env.reset()
    while True:
        assert set(observations) == set(steps)
        for agent, step in steps.items():
            assert observations[agent].tobytes() == step.observation.tobytes()
            streams[agent].append(step)
        if not game.agents:
            break
        assert sorted(game.agents) == env.agents
        actions = dict.fromkeys(game.agents, 1)
        observations, *_ = game.step(actions)
        steps = env.step(actions)

    assert [] == env.agents
    for agent, stream in streams.items():
        stay = script[agent]
        types = [int(step.step_type) for step in stream]
        # The game may be over before an agent comes.
        if types:
            assert [0] + [1] * (stay.end - stay.begin - 1) + [2] == types
            assert (0.0, 1.0) == (stream[0].reward, stream[0].discount)
            assert (stay.how == "truncated") == stream[-1].discount


def test_a_time_limit_truncates_the_remaining_agents():
    env = AgentTimeSteps(TimeLimit(PettingZooWrapper(Meadow), 4))
    env.reset()
    *_, third, fourth = [env.step({"cow": 0, "hen": 0}) for _ in range(4)]
    assert {"cow": 2, "hen": 1} == kinds(third)
    assert {"hen": 2} == kinds(fourth)
    assert [0.0, 1.0] == [float(third["cow"].discount), float(fourth["hen"].discount)]


def test_masks_stand_beside_an_agents_observation():
    env = AgentTimeSteps(PettingZooWrapper(lambda: Meadow(mask="observation")))
    observation = env.reset()["hen"].observation
    assert [1, 0, 1] == observation["action_mask"].tolist()
    assert {"observation", "action_mask"} == env.observation_spec("hen").keys()


def test_a_state_of_the_environment_is_enough():
    env = AgentTimeSteps(PettingZooWrapper(Meadow))
    env.reset()
    state = env.get_state()
    actions = {"cow": 1, "hen": 1}
    expected = [kinds(env.step(actions)) for _ in range(8)]
    env.set_state(state)
    assert expected == [kinds(env.step(actions)) for _ in range(8)]


def test_turn_based_agents_are_refused(message_of):
    assert message_of(
        ValueError, lambda: AgentTimeSteps(PettingZooAECWrapper(Auction))
    ) == (
        "AgentTimeSteps was given PettingZooAECWrapper, which observes ['agent'] "
        "beside what its agents see. Its agents take turns: only "
        'PettingZooWrapper(env, agents="axis") and similar environments have a part '
        "for each agent in every step."
    )


def test_time_steps_have_the_usual_class_and_specs():
    env = AgentTimeSteps(PettingZooWrapper(Meadow))
    step = env.reset()["cow"]
    assert isinstance(step, TimeStep)
    assert env.time_step_spec("cow").observation.check_array(step.observation)
