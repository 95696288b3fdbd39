"""dm_control: wraps its environments, and makes those of its suite by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from envkit.adapters.dm_env import DmEnvWrapper
from envkit.adapters.foreign import require
from envkit.adapters.mujoco import check_can_draw, import_suite
from envkit.errors import MissingDependencyError
from envkit.py_environment import PyEnvironment

__all__ = [
    "DmControlWrapper",
    "is_available",
    "load",
    "load_by_path",
    "load_pixels",
    "names",
    "preload",
    "wrap_env",
]

_ALL = ("observation", "action", "reward", "discount")


class DmControlWrapper(DmEnvWrapper):
    """Wraps a dm_control environment, as TF-Agents' class of this name does.

    It is a `DmEnvWrapper` in which all float64 becomes float32.
    """

    _hint = " dm_control.suite.load(domain, task) makes one."

    def __init__(
        self,
        env: Any,
        render_kwargs: Mapping[str, Any] | None = None,
        *,
        as_float32: Collection[str] = _ALL,
    ) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: An environment of dm_control.
            render_kwargs: Keyword arguments for `physics.render`: `height`, `width`,
                `camera_id` and others.
            as_float32: The parts whose float64 becomes float32; `()` keeps every digit.
        """
        super().__init__(env, render_kwargs, as_float32=as_float32)


def is_available() -> bool:
    """Returns whether dm_control is installed."""
    try:
        _require("dm_control")
    except MissingDependencyError:
        return False
    return True


def load(
    domain_name: str,
    task_name: str,
    task_kwargs: Mapping[str, Any] | None = None,
    environment_kwargs: Mapping[str, Any] | None = None,
    visualize_reward: bool = False,
    render_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    as_float32: Collection[str] = _ALL,
) -> PyEnvironment:
    """Makes an environment of the dm_control suite.

    Args:
        domain_name: The name of the body, such as `"cartpole"`.
        task_name: The name of the task, such as `"swingup"`.
        task_kwargs: Arguments of the task: `{"random": 7}` seeds it, `{"time_limit":
            10}` truncates its episodes.
        environment_kwargs: Arguments of the environment: `{"flat_observation": True}`.
        visualize_reward: Whether colours in pictures show the reward.
        render_kwargs: For pictures: `{"height": 84, "width": 84, "camera_id": 0}`.
        env_wrappers: Wrappers for the environment, innermost first.
        as_float32: The parts whose float64 becomes float32; `()` keeps every digit.
    """
    dm_env = _load(
        domain_name, task_name, task_kwargs, environment_kwargs, visualize_reward
    )
    return wrap_env(dm_env, render_kwargs, env_wrappers, as_float32=as_float32)


def load_pixels(
    domain_name: str,
    task_name: str,
    observation_key: str = "pixels",
    pixels_only: bool = True,
    task_kwargs: Mapping[str, Any] | None = None,
    environment_kwargs: Mapping[str, Any] | None = None,
    visualize_reward: bool = False,
    render_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    env_state_wrappers: Sequence[Callable[[Any], Any]] = (),
    *,
    as_float32: Collection[str] = _ALL,
) -> PyEnvironment:
    """Makes an environment of the dm_control suite that observes pictures.

    MuJoCo must be able to draw, as for `render`: on a display, or with EGL or OSMesa.

    Args:
        domain_name: The name of the body, such as `"cartpole"`.
        task_name: The name of the task, such as `"swingup"`.
        observation_key: The key of the picture in the observation.
        pixels_only: Whether the picture replaces the other observations or joins them.
        task_kwargs: Arguments of the task.
        environment_kwargs: Arguments of the environment.
        visualize_reward: Whether colours in pictures show the reward.
        render_kwargs: For pictures: `{"height": 84, "width": 84, "camera_id": 0}`.
        env_wrappers: Wrappers for the environment, innermost first.
        env_state_wrappers: Wrappers for dm_control's environment without pictures,
            innermost first.
        as_float32: The parts whose float64 becomes float32; `()` keeps every digit.
    """
    dm_env = _load(
        domain_name, task_name, task_kwargs, environment_kwargs, visualize_reward
    )
    check_can_draw(f"The environment '{domain_name}/{task_name}'")
    from dm_control.suite.wrappers import pixels

    for wrap_state in env_state_wrappers:
        dm_env = wrap_state(dm_env)
    dm_env = pixels.Wrapper(
        dm_env,
        pixels_only=pixels_only,
        render_kwargs=_as_dict(render_kwargs),
        observation_key=observation_key,
    )
    return wrap_env(dm_env, render_kwargs, env_wrappers, as_float32=as_float32)


def load_by_path(path: str, **kwargs: Any) -> PyEnvironment:
    """Makes an environment of the dm_control suite from `"domain/task"`.

    `envkit.make("dm_control:cartpole/swingup")` calls this.

    Args:
        path: The domain and the task.
        **kwargs: The other arguments of `load`.

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


def names() -> list[str]:
    """Lists the tasks of the suite, as `load_by_path` takes them.

    Example:
        >>> "cartpole/swingup" in names()
        True
    """
    _require("suite_dm_control")
    return sorted(f"{domain}/{task}" for domain, task in import_suite().ALL_TASKS)


def preload(path: str) -> None:
    """Imports the suite, the slow part of making an environment."""
    import_suite()


def wrap_env(
    dm_env: Any,
    render_kwargs: Mapping[str, Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    as_float32: Collection[str] = _ALL,
) -> PyEnvironment:
    """Wraps a dm_control environment.

    Args:
        dm_env: The environment: from the suite, from composer, or your own.
        render_kwargs: For pictures: `{"height": 84, "width": 84, "camera_id": 0}`.
        env_wrappers: Wrappers for the environment, innermost first.
        as_float32: The parts whose float64 becomes float32; `()` keeps every digit.
    """
    env: PyEnvironment = DmControlWrapper(dm_env, render_kwargs, as_float32=as_float32)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def _load(
    domain_name: str,
    task_name: str,
    task_kwargs: Mapping[str, Any] | None,
    environment_kwargs: Mapping[str, Any] | None,
    visualize_reward: bool,
) -> Any:
    _require(f"The environment '{domain_name}/{task_name}'")
    return import_suite().load(
        domain_name,
        task_name,
        task_kwargs=_as_dict(task_kwargs),
        environment_kwargs=_as_dict(environment_kwargs),
        visualize_reward=visualize_reward,
    )


def _require(needed_by: str) -> None:
    require("dm_control", needed_by=needed_by, extra="dm-control")


def _as_dict(kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if kwargs is None else dict(kwargs)
