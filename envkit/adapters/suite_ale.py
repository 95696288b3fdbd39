"""Games of the Arcade Learning Environment by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters import suite_gymnasium
from envkit.adapters.ale_parts.saved_games import saves_all
from envkit.adapters.atari_vector_wrapper import AtariVectorWrapper
from envkit.adapters.dependencies import require
from envkit.autoreset import AutoReset
from envkit.py_environment import PyEnvironment

__all__ = ["load", "load_vector", "names"]

# What is meant where no version is named.
_NEWEST = "v5"


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    vectorization: str | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of ale-py, or a batch of one.

    `envkit.make("ale:Pong")` calls this, and so does
    `envkit.make("ale:Pong", num_envs=64, vectorization="native")`.

    Args:
        environment_name: The game: `"Pong"` or `"pong"` for its newest version,
            `"Pong-v5"` or `"ALE/Pong-v5"` for that one, `"PongNoFrameskip-v4"` for one
            of the older ones.
        discount: What later rewards are worth.
        max_episode_steps: After how many steps an episode is truncated, besides the
            number of frames that the game is registered with.
        gym_env_wrappers: What to wrap ale-py's environment in, innermost first.
        env_wrappers: What to wrap envkit's environment in, innermost first.
        gym_kwargs: Keyword arguments for the game.
        render_kwargs: More of them, for those that concern pictures.
        vectorization: `None` for a single game, `"native"` for ale-py's own vector
            environment; then `load_vector` says which arguments there are.
        **kwargs: Still more of them: `frameskip`, `repeat_action_probability` (sticky
            actions), `full_action_space`, `obs_type`, `mode`, `difficulty`,
            `render_mode`, `max_num_frames_per_episode`.

    Example:
        >>> env = load("Pong", obs_type="ram", frameskip=4)
        >>> env.reset().observation.shape, env.action_spec().maximum
        ((128,), array(5))
        >>> env.close()
    """
    if vectorization == "native":
        _refuse_single(max_episode_steps, gym_env_wrappers)
        options = {**(gym_kwargs or {}), **(render_kwargs or {}), **kwargs}
        return load_vector(
            environment_name, discount=discount, env_wrappers=env_wrappers, **options
        )
    if vectorization is not None:
        raise ValueError(
            f"vectorization is {vectorization!r}; it is None for a single game, or "
            "'native' for ale-py's own vector environment."
        )
    return suite_gymnasium.load(
        _id_of(environment_name),
        discount,
        max_episode_steps,
        [saves_all, *gym_env_wrappers],
        env_wrappers,
        gym_kwargs,
        render_kwargs,
        **kwargs,
    )


def load_vector(
    environment_name: str,
    num_envs: int = 1,
    discount: float = 1.0,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a batch of a game, as ale-py itself steps and preprocesses it.

    Args:
        environment_name: The game, as for `load`. Its version says how likely an action
            is to stick, and how many frames it lasts.
        num_envs: How many rows the batch has.
        discount: What later rewards are worth.
        env_wrappers: What to wrap the batch in, innermost first.
        autoreset: When the episode after a `LAST` begins.
        **kwargs: What `ale_py.vector_env.AtariVectorEnv` takes: `num_threads`,
            `img_height`, `img_width`, `grayscale`, `stack_num`, `frameskip`, `maxpool`,
            `noop_max`, `episodic_life`, `reward_clipping`, `use_fire_reset`,
            `repeat_action_probability`.

    Example:
        >>> env = load_vector("Pong", num_envs=2, img_height=42, img_width=42)
        >>> env.reset().observation.shape
        (2, 4, 42, 42)
        >>> env.close()
    """
    name = _id_of(environment_name)
    import gymnasium
    from ale_py.vector_env import AtariVectorEnv

    order = AutoReset.of(autoreset)
    is_same = order is AutoReset.SAME_STEP
    options = {**gymnasium.spec(name).kwargs, **kwargs}
    options["autoreset_mode"] = "SameStep" if is_same else "NextStep"
    env: PyEnvironment = AtariVectorWrapper(
        AtariVectorEnv(num_envs=num_envs, **options),
        discount,
        auto_reset=order is not AutoReset.DISABLED,
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists the versions of all games, as `load` takes them.

    Example:
        >>> {"Pong-v5", "PongNoFrameskip-v4"} <= set(names())
        True
    """
    return sorted(key.removeprefix("ALE/") for key in _registered())


def _registered() -> set[str]:
    require("ale_py", needed_by="suite_ale", extra="atari")
    require("gymnasium", needed_by="suite_ale", extra="atari")
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return {
        key
        for key, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py.")
    }


def _id_of(name: str) -> str:
    """Returns the id that a game is registered with."""
    known = _registered()
    # ale-py's own names of games are in lower case, with underscores.
    title = name if name != name.lower() else name.title().replace("_", "")
    for candidate in (name, f"ALE/{title}", f"ALE/{title}-{_NEWEST}"):
        if candidate in known:
            return candidate
    near = difflib.get_close_matches(title, sorted(known), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        f"ale-py has no game named {name!r}.{hint} A name is 'Pong', 'Pong-v5' or "
        "'PongNoFrameskip-v4'; ale_py.roms.get_all_rom_ids() names all games."
    )


def _refuse_single(max_episode_steps: Any, wrappers: Sequence[Any]) -> None:
    if max_episode_steps is not None or wrappers:
        raise ValueError(
            "max_episode_steps and gym_env_wrappers are for single games. With "
            "vectorization='native', max_num_frames_per_episode limits episodes, and "
            "env_wrappers wraps the batch."
        )
