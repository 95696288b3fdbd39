"""What TF-Agents calls its configurables in gin files, and where envkit has the same.

Names of TF-Agents that are not here have no counterpart: its bandits, and suites of
libraries that envkit does not load.
"""

from __future__ import annotations

__all__ = ["HOMES", "LATER", "MODULES"]

_WRAPPERS = (
    "ActionClipWrapper",
    "ActionDiscretizeWrapper",
    "ActionRepeat",
    "ExtraDisabledActionsWrapper",
    "FixedLength",
    "FlattenActionWrapper",
    "FlattenObservationsWrapper",
    "HistoryWrapper",
    "ObservationFilterWrapper",
    "OneHotActionWrapper",
    "PerformanceProfiler",
    "RunStats",
    "TimeLimit",
)
_COUNTING = ("CountingEnv", "EpisodeCountingEnv", "NestedCountingEnv")

# By module of TF-Agents, and there by name: the module of envkit that has that name.
# Strings, because some stand on other floors and no adapter imports those.
HOMES: dict[str, dict[str, str]] = {
    "tf_agents.environments.atari_preprocessing": {
        "AtariPreprocessing": "envkit.wrappers",
    },
    "tf_agents.environments.batched_py_environment": {
        "BatchedPyEnvironment": "envkit.batched_py_environment",
    },
    "tf_agents.environments.parallel_py_environment": {
        "ParallelPyEnvironment": "envkit.parallel.parallel_py_environment",
    },
    "tf_agents.environments.suite_bsuite": {
        "load": "envkit.adapters.suite_bsuite",
    },
    "tf_agents.environments.suite_dm_control": {
        "load": "envkit.adapters.suite_dm_control",
        "load_pixels": "envkit.adapters.suite_dm_control",
    },
    "tf_agents.environments.suite_gym": {
        "load": "envkit.adapters.suite_gym",
        "wrap_env": "envkit.adapters.suite_gym",
    },
    "tf_agents.environments.suite_gymnasium": {
        "load": "envkit.adapters.suite_gymnasium",
        "wrap_env": "envkit.adapters.suite_gymnasium",
    },
    "tf_agents.environments.test_envs": dict.fromkeys(_COUNTING, "envkit.testing.envs"),
    "tf_agents.environments.tf_py_environment": {
        "TFPyEnvironment": "envkit.tf.tf_py_environment",
    },
    "tf_agents.environments.wrappers": dict.fromkeys(_WRAPPERS, "envkit.wrappers"),
    "tf_agents.specs.array_spec": {
        "ArraySpec": "envkit.specs.array_spec",
        "BoundedArraySpec": "envkit.specs.array_spec",
    },
}

# What files import before they use the names. Nothing has to be imported for that.
MODULES = frozenset({*HOMES, "tf_agents.environments", "tf_agents.specs"})

# This home imports TensorFlow, so it is left alone until somebody else imports it.
LATER = "envkit.tf.tf_py_environment"
