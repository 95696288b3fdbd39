"""Games of ViZDoom by the names of their scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.doom.doom_games import shipped_scenarios
from envkit.adapters.vizdoom_wrapper import VizDoomWrapper
from envkit.py_environment import PyEnvironment

__all__ = ["load", "scenarios"]


def scenarios() -> list[str]:
    """Returns the names of the scenarios that ViZDoom brings along, sorted."""
    require("vizdoom", needed_by="suite_vizdoom.scenarios()", extra="vizdoom")
    return shipped_scenarios()


def load(
    environment_name: str,
    *,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of ViZDoom, as an envkit environment.

    `envkit.make("vizdoom:basic", frame_skip=4)` calls this.

    Args:
        environment_name: The name of a scenario, such as `"basic"`, the path of a
            configuration, or an id of ViZDoom's Gymnasium environments, such as
            `"VizdoomBasic-v1"`: the same scenario, with the same actions.
        env_wrappers: What to wrap the environment in, innermost first.
        **kwargs: What `VizDoomWrapper` takes.

    Raises:
        ValueError: There is no such scenario or id.

    Example:
        >>> env = load("basic", screen_resolution=(160, 120))  # doctest: +SKIP
        >>> env.reset().observation["screen"].shape  # doctest: +SKIP
        (120, 160, 3)
    """
    needed_by = f"The environment {environment_name!r}"
    require("vizdoom", needed_by=needed_by, extra="vizdoom")
    scenario = environment_name
    found: dict[str, Any] = {}
    # No scenario is called so, and ids have their version behind a dash.
    if environment_name.startswith("Vizdoom"):
        scenario, found = _registered(environment_name)
    settings = {**found.pop("settings", {}), **(kwargs.pop("settings", None) or {})}
    options = {**found, **kwargs, "settings": settings}
    env: PyEnvironment = VizDoomWrapper(scenario, **options)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def _registered(name: str) -> tuple[str, dict[str, Any]]:
    """Returns what an id stands for: a scenario, and arguments of the wrapper."""
    require("gymnasium", needed_by=f"The id {name!r}", extra="gymnasium")
    import gymnasium
    import vizdoom.gymnasium_wrapper  # noqa: F401  # it registers the ids

    try:
        kwargs = dict(gymnasium.spec(name).kwargs)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"ViZDoom registers no environment {name!r} with Gymnasium: {error}"
        ) from error
    scenario = kwargs.pop("scenario_config_file")
    together = kwargs.pop("max_buttons_pressed", 0)
    # What is left, the map and the skill, are settings of the game.
    return scenario, {"actions": together or "buttons", "settings": kwargs}
