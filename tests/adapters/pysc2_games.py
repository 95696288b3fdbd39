"""PySC2's own mock of a game, and one that changes, for tests.

Nothing of PySC2 is imported before it is asked for, so workers can import this.
"""

from __future__ import annotations

import functools

import numpy as np

from envkit.adapters.pysc2 import load, prepare
from envkit.specs import sample_spec_nest

SCREEN = {"feature_screen": (32, 24), "feature_minimap": (16, 12)}
FORMATS = {
    "feature": {**SCREEN, "use_feature_units": True},
    "rgb": {"rgb_screen": (32, 24), "rgb_minimap": (16, 12)},
    "raw": {
        **SCREEN,
        "raw_resolution": 64,
        "use_camera_position": True,
        "use_raw_actions": True,
        "use_raw_units": True,
        "use_unit_counts": True,
    },
}


def mock(**kwargs):
    """Makes the mock of PySC2."""
    from pysc2.env.mock_sc2_env import SC2TestEnv

    return SC2TestEnv(**kwargs)


def make_mock(kind="feature", **kwargs):
    """Makes an environment of envkit of the mock."""
    kwargs.setdefault("illegal", "noop")
    return load(
        "MoveToBeacon",
        agent_interface_format=FORMATS[kind],
        env_class=mock,
        **kwargs,
    )


def make_all(*kinds, **kwargs):
    """Makes one for several agents, each with a format of its own."""
    return load(
        "Simple64",
        players=["terran"] * len(kinds),
        agent_interface_format=[FORMATS[kind] for kind in kinds],
        env_class=mock,
        **{"agents": "all", "illegal": "noop", **kwargs},
    )


def game(kind="feature", players=1, random_seed=0, **kwargs):
    """Makes an environment of PySC2 in which something happens."""
    prepare()
    from pysc2.env import sc2_env
    from pysc2.lib import features

    kinds = [kind] * players if isinstance(kind, str) else kind
    return game_class()(
        players=[sc2_env.Agent(sc2_env.Race.random) for _ in kinds],
        agent_interface_format=[
            features.parse_agent_interface_format(**FORMATS[each]) for each in kinds
        ],
        random_seed=random_seed,
        **kwargs,
    )


@functools.cache
def game_class():
    """Returns the class of games; it can only be written down with PySC2."""
    from pysc2.env.mock_sc2_env import SC2TestEnv
    from pysc2.lib import features, named_array

    class Game(SC2TestEnv):
        """Changes its observations in place, and remembers what it was told."""

        def __init__(self, *, random_seed=0, out_of_time=False, **kwargs):
            super().__init__(**kwargs)
            self.random_seed = random_seed
            self.episode_length = 5
            self.told = []
            self.step_muls = []
            self.closed = 0
            self._out_of_time = out_of_time
            self._random = np.random.default_rng(random_seed)

        def step(self, actions, step_mul=None):
            if self._episode_steps:
                self.told.append(actions)
                self.step_muls.append(step_mul)
            self.next_timestep = [
                each._replace(
                    reward=float(self._random.integers(9)),
                    observation=self._changed(each.observation),
                )
                for each in self.next_timestep
            ]
            time_steps = super().step(actions)
            if self._out_of_time and time_steps[0].last():
                return [each._replace(discount=1.0) for each in time_steps]
            return time_steps

        def close(self):
            self.closed += 1

        def _changed(self, observation):
            observation = named_array.NamedDict(observation)
            for name in ("feature_screen", "rgb_screen", "player", "game_loop"):
                if name in observation:
                    observation[name] += self._random.integers(3, dtype=np.int32)
            for name in ("feature_units", "raw_units"):
                if name in observation:
                    rows = self._random.integers(2**40, size=(self._count(), 46))
                    observation[name] = named_array.NamedNumpyArray(
                        rows, [None, features.FeatureUnit], dtype=np.int64
                    )
            if "available_actions" in observation:
                ids = self._random.permutation(573)[: 20 + self._count()]
                ids = np.union1d(ids, [0]).astype(np.int32)
                observation["available_actions"] = ids
            return observation

        def _count(self):
            return int(self._random.integers(5))

    return Game


def plain(theirs):
    """Returns an observation of PySC2's as arrays without names, and text."""
    return {
        name: value if isinstance(value, str) else np.array(value)
        for name, value in theirs.items()
    }


def legal_action(env, observation, rng):
    """Draws an action whose function can be called now."""
    action = sample_spec_nest(env.action_spec(), rng)
    mask = observation.get("action_mask", np.ones(len(env.functions)))
    action["function"] = np.array(rng.choice(np.flatnonzero(mask)), np.int32)
    return action
