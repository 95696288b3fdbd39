"""Environments of the dm_control suite by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.dm_control_wrapper import DmControlWrapper
from envkit.py_environment import PyEnvironment

__all__ = ["load", "load_by_path"]


def load(
    domain_name: str,
    task_name: str,
    task_kwargs: Mapping[str, Any] | None = None,
    environment_kwargs: Mapping[str, Any] | None = None,
    visualize_reward: bool = False,
    render_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
) -> PyEnvironment:
    """Makes an environment of the dm_control suite, as an envkit environment.

    Args:
        domain_name: Whose body it is, such as `"cartpole"`.
        task_name: What it has to do, such as `"swingup"`.
        task_kwargs: For the task: `{"random": 7}` seeds it, `{"time_limit": 10}`
            truncates its episodes.
        environment_kwargs: For dm_control's environment: `{"flat_observation": True}`.
        visualize_reward: Whether colours in pictures show the reward.
        render_kwargs: For pictures: `{"height": 84, "width": 84, "camera_id": 0}`.
        env_wrappers: What to wrap the environment in, innermost first.
    """
    require(
        "dm_control",
        needed_by=f"The environment '{domain_name}/{task_name}'",
        extra="dm_control",
    )
    from dm_control import suite

    dm_env = suite.load(
        domain_name,
        task_name,
        task_kwargs=None if task_kwargs is None else dict(task_kwargs),
        environment_kwargs=(
            None if environment_kwargs is None else dict(environment_kwargs)
        ),
        visualize_reward=visualize_reward,
    )
    env: PyEnvironment = DmControlWrapper(dm_env, render_kwargs)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def load_by_path(path: str, **kwargs: Any) -> PyEnvironment:
    """Makes an environment of the dm_control suite from `"domain/task"`.

    `envkit.make("dm_control:cartpole/swingup")` calls this.

    Args:
        path: The domain and the task.
        **kwargs: What `load` takes besides.

    Raises:
        ValueError: The path has another form, or dm_control has no such task.
    """
    domain, _, task = path.partition("/")
    if not domain or not task or "/" in task:
        raise ValueError(
            f"{path!r} is not a task of dm_control: write 'domain/task', such as "
            "'cartpole/swingup'."
        )
    return load(domain, task, **kwargs)
