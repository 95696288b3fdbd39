"""Words of other libraries that envkit's classes lack, with what to use instead.

The tables here are all there is: `envkit._internal.missing_names` makes a class raise
their sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["WORDS"]

# A sentence without its subject, or a function that returns it for an object (`None`
# for a class).
Instead = str | Callable[[Any], str]


def _by_kind(*, pool: str, batch: str, single: str) -> Callable[[Any], str]:
    """Returns the sentence for a pool, another batch, or a single environment."""

    def instead(env: Any) -> str:
        if hasattr(type(env), "access"):
            return pool
        return batch if getattr(env, "batched", False) is True else single

    return instead


def _in_lockstep(lockstep_pool: str, asynchronous: str) -> Callable[[Any], str]:
    """Returns the sentence for the halves of a step or a reset."""

    def instead(env: Any) -> str:
        if hasattr(type(env), "recv"):
            return asynchronous
        if hasattr(type(env), "begin_step"):
            return lockstep_pool
        return (
            "step() and reset() return when all rows have moved, and "
            "AsyncParallelPyEnvironment has reset_async(), send() and recv()"
        )

    return instead


def _actions(env: Any) -> str:
    policy = "random_actions(env)"
    if hasattr(type(env), "recv"):
        policy = "RandomPolicy(env.action_spec(), batch_size=env.num_envs)"
    return (
        f"action_spec() describes an action, and {policy} is a policy that draws them"
    )


_OBSERVATIONS = "observation_spec() describes an observation"
_READ = _by_kind(
    pool="access(name) returns an attribute of each environment",
    batch="read the attribute from each environment in envs",
    single="read the attribute itself; a wrapper has those of its environment",
)
_CALL = _by_kind(
    pool="call(name, *args) calls a method of each environment",
    batch="call the method of each environment in envs",
    single="call the method itself; a wrapper has those of its environment",
)
_SET = (
    "assign to the attribute of the environment itself, which a wrapper has as "
    "`unwrapped`"
)
_BEGIN = (
    "begin_step(action) begins a step and returns a promise, which returns the time "
    "step when it is called; for rows at their own pace, there is "
    "AsyncParallelPyEnvironment"
)
_RESET = (
    "reset() returns the whole batch; AsyncParallelPyEnvironment has reset_async(), "
    "send() and recv()"
)
_INFO = "get_info() of the environment returns the info"

# What Gymnasium's Env and VectorEnv, Stable-Baselines3's VecEnv and EnvPool have.
ENVIRONMENT: dict[str, Instead] = {
    "action_space": _actions,
    "single_action_space": _actions,
    "observation_space": _OBSERVATIONS,
    "single_observation_space": _OBSERVATIONS,
    "reward_range": "reward_spec() describes the reward",
    "n_envs": "pools and batches have num_envs",
    "spec": "environment_spec() has its specs, and provenance() its id and arguments",
    "metadata": "render_modes lists the modes of an environment that has several, and "
    "PyToGymnasium(env) is an environment for code of Gymnasium",
    "render_mode": 'render(mode) takes the mode, "rgb_array" by default',
    "np_random": "an environment's random generator is its own; seed(seed) seeds it",
    "np_random_seed": 'provenance()["seed"] is the last seed',
    "is_vector_env": "batched says whether it is a batch",
    "get_wrapper_attr": "a wrapper has its environment's attributes: env.name",
    "has_wrapper_attr": "hasattr(env, name) looks into wrappers too",
    "set_wrapper_attr": _SET,
    "get_attr": _READ,
    "set_attr": _SET,
    "call": _CALL,
    "env_method": _CALL,
    "call_async": _CALL,
    "call_wait": _CALL,
    "step_async": _in_lockstep(_BEGIN, "send(actions) begins the step"),
    "step_wait": _in_lockstep(_BEGIN, "recv() waits for rows and returns them"),
    "reset_async": _in_lockstep(_RESET, "reset_async() begins episodes"),
    "reset_wait": _in_lockstep(_RESET, "recv() waits for rows and returns them"),
    "async_reset": _in_lockstep(_RESET, "reset_async() begins episodes"),
    "reset_infos": "get_info() returns the infos of the current time step",
    "buf_infos": "get_info() returns the infos of the current time step",
    "closed": "close() may be called again, and other calls then raise ClosedError",
    "close_extras": "close() frees everything, and is the method to override",
    "class_name": "use type(env).__name__",
    "wrapper_spec": 'provenance()["wrappers"] lists the wrappers with their arguments',
    "env": "it is no wrapper, but the environment itself",
    "get_images": "render() returns the pictures",
    "unwrapped": "it is no wrapper, but the environment itself",
}
_INSIDE = "wrapped_env() returns the environment inside"
WRAPPER: dict[str, Instead] = {"env": _INSIDE, "venv": _INSIDE}
# What an environment in lockstep has.
ASYNC_ENVIRONMENT: dict[str, Instead] = {
    "reset": "reset_async() begins episodes and recv() returns them; Blocking(env) is "
    "in lockstep",
    "step": "send(actions) begins steps and recv() returns them; Blocking(env) is in "
    "lockstep",
}
_OBSERVATION = "the field is observation"
TIME_STEP: dict[str, Instead] = {
    "done": "time_step.is_last() says whether the episode has ended, and discount is 0 "
    "if it was terminated",
    "terminal": "use time_step.is_last() & (time_step.discount == 0)",
    "terminated": "use time_step.is_last() & (time_step.discount == 0)",
    "truncated": "use time_step.is_last() & (time_step.discount > 0)",
    "first": "use is_first()",
    "mid": "use is_mid()",
    "last": "use is_last()",
    "obs": _OBSERVATION,
    "next_obs": _OBSERVATION,
    "next_observation": _OBSERVATION,
    "state": _OBSERVATION,
    "next_state": _OBSERVATION,
    "rewards": "the field is reward",
    "info": _INFO,
    "infos": _INFO,
    "shape": "its fields have, as observation.shape",
    "dtype": "its fields have, as observation.dtype",
}
SPEC: dict[str, Instead] = {
    "low": "use minimum, which broadcasts to the shape",
    "high": "use maximum, which broadcasts to the shape",
    "start": "use minimum",
    "nvec": "use num_values",
    "contains": "use check_array(value), which also compares the dtype",
    "seed": "it has no random generator; sample(rng) takes one, or a seed",
    "np_random": "it has no random generator; sample(rng) takes one, or a seed",
}
ASYNC_BATCH: dict[str, Instead] = {
    name: f"its time_step has: time_step.{field}"
    for name, field in {
        "observation": "observation",
        "obs": "observation",
        "reward": "reward",
        "discount": "discount",
        "step_type": "step_type",
        "is_last": "is_last()",
        "done": "is_last()",
    }.items()
}
# By the class that lacks them; those derived from it lack them too.
WORDS = {
    "ArraySpec": SPEC,
    "AsyncBatch": ASYNC_BATCH,
    "AsyncEnvironment": ASYNC_ENVIRONMENT,
    "PyEnvironmentBaseWrapper": WRAPPER,
    "Specified": ENVIRONMENT,
    "TimeStep": TIME_STEP,
}
