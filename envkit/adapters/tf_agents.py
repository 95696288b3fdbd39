"""To TF-Agents and back: environments repacked in the classes of that library.

Agents, networks, drivers and replay buffers of TF-Agents take a `TFPyEnvironment` of
envkit as it is. What asks for Python environments, or for specs of its own classes,
gets them from `to_tf_agents`; `from_tf_agents` makes an envkit environment of one that
was written for that library, and needs nothing of it.
"""

from __future__ import annotations

from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.of_tf_agents.tf_agents_environments import (
    as_py_environment,
    as_tf_environment,
)
from envkit.adapters.of_tf_agents.tf_agents_order import check_autoreset
from envkit.adapters.of_tf_agents.tf_agents_wrapper import TFAgentsWrapper
from envkit.errors import MissingDependencyError
from envkit.py_environment import PyEnvironment
from envkit.specs.validation import describe

__all__ = ["from_tf_agents", "to_tf_agents"]


def to_tf_agents(env: Any) -> Any:
    """Makes an environment of TF-Agents of one of envkit's.

    A `PyEnvironment`, batched or not, becomes a `PyEnvironment` of TF-Agents, which its
    `TFPyEnvironment` takes; a `TFEnvironment` becomes a `TFEnvironment` of TF-Agents.
    What is TF-Agents' already comes back as it is. Specs and time steps are of
    TF-Agents' classes; public attributes that those environments do not have are
    envkit's.

    TF-Agents 0.19 runs on Python 3.11 and older. It needs Keras 2: with TensorFlow 2.16
    and newer, that is `tf-keras` with `TF_USE_LEGACY_KERAS=1` in the environment.

    Args:
        env: The environment; closing the result closes it.

    Raises:
        MissingDependencyError: TF-Agents is not installed.
        ValueError: It is a pool that does not begin the next episode in the step after
            a `LAST`, which is the order that TF-Agents knows.
    """
    if _is_of_tf_agents(env):
        return env
    takes_tensors = _takes_tensors(env)
    if not takes_tensors and not isinstance(env, PyEnvironment):
        raise TypeError(
            f"to_tf_agents() was given {_shown(env)}; it takes an environment: a "
            "PyEnvironment or TFEnvironment of envkit."
        )
    check_autoreset(env)
    _require_tf_agents()
    return as_tf_environment(env) if takes_tensors else as_py_environment(env)


def from_tf_agents(env: Any) -> PyEnvironment:
    """Makes an envkit environment of one that was written for TF-Agents.

    Anything that has the methods of TF-Agents' `PyEnvironment` will do; the library
    itself is not needed. An environment of envkit comes back as it is.

    Args:
        env: A Python environment, batched or not; closing the result closes it.
    """
    if isinstance(env, PyEnvironment):
        return env
    needed = ("reset", "step", "observation_spec", "action_spec", "time_step_spec")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        raise TypeError(
            f"from_tf_agents() was given {_shown(env)}; it takes an environment "
            "written for TF-Agents: one that has the methods of its PyEnvironment."
        )
    if _takes_tensors(env):
        raise TypeError(
            f"from_tf_agents() was given {_shown(env)}, which takes and returns "
            "tensors; it takes a Python environment. That within a TFPyEnvironment is "
            "its `pyenv`."
        )
    return TFAgentsWrapper(env)


def _is_of_tf_agents(env: Any) -> bool:
    """Says whether an environment is of TF-Agents' classes, without loading them."""
    return any(
        kind.__name__ in {"PyEnvironment", "TFEnvironment"}
        and kind.__module__.partition(".")[0] == "tf_agents"
        for kind in type(env).__mro__
    )


def _takes_tensors(env: Any) -> bool:
    """Says whether the specs of what may be an environment are TensorFlow's."""
    if isinstance(env, type) or not callable(getattr(env, "time_step_spec", None)):
        return False
    step_type = getattr(env.time_step_spec(), "step_type", None)
    return hasattr(step_type, "is_compatible_with")


def _require_tf_agents() -> None:
    try:
        require("tf_agents", needed_by="to_tf_agents()", extra="tf_agents")
    except MissingDependencyError:
        # No extra has it, as its requirements leave out the TensorFlow of today.
        error = MissingDependencyError(
            "to_tf_agents() needs the package tf-agents, which is not installed. It "
            "runs on Python 3.11 and older, with Keras 2, and its own list of "
            "requirements stops at TensorFlow 2.15:\n\n"
            '  pip install "envkit[tf]" tf-keras tensorflow-probability tensorboard '
            "gin-config gym==0.23.1\n"
            "  pip install --no-deps tf-agents==0.19.0\n"
            "  export TF_USE_LEGACY_KERAS=1"
        )
        error.package = "tf-agents"
        raise error from None


def _shown(env: Any) -> str:
    return f"the class {env.__name__}" if isinstance(env, type) else describe(env)
