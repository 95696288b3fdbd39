"""Arguments that a function lacks, and what envkit calls them.

Only an argument that was refused loads this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["instead_of_argument"]

_MAKE = {
    "asynchronous": "num_envs=8 makes a pool, whose rows run in worker processes, and "
    "AsyncParallelPyEnvironment also answers row by row.",
    "autoreset_mode": "In envkit it is autoreset=, an option of pools (num_envs=).",
    "batch_size": "This environment makes no batches itself: write num_envs={value}, "
    "which makes a pool.",
    "context": "In envkit it is start_method=, an option of pools (num_envs=).",
    "env_kwargs": "Write the environment's arguments into the call of make itself.",
    "gym_kwargs": "Write the environment's arguments into the call of make itself.",
    "max_episode_steps": "TimeLimit(env, {value}) ends episodes after that many steps.",
    "monitor_dir": "LogEpisodes(env, {value}) writes the episodes into a folder.",
    "n_jobs": "In envkit it is num_workers=, an option of pools (num_envs=).",
    "n_procs": "In envkit it is num_workers=, an option of pools (num_envs=).",
    "num_processes": "In envkit it is num_workers=, an option of pools (num_envs=).",
    "render": "This environment needs no such argument: call env.render().",
    "render_mode": "This environment needs none: call env.render({value}).",
    "shared_memory": "The environments of a pool always write into shared memory.",
    "time_limit": "TimeLimit(env, {value}) ends episodes after that many steps.",
    "vec_env_cls": "num_envs=8 makes a pool, and its option backend= is 'process', "
    "'thread' or 'inline'.",
    "vector_kwargs": "Write the options of the pool into the call of make itself.",
    "vectorization_mode": "num_envs=8 makes a pool, and its option backend= is "
    "'process', 'thread' or 'inline'.",
    "wrapper": "wrap(env, ...) wraps an environment.",
    "wrapper_class": "wrap(env, ...) wraps an environment.",
    "wrappers": "wrap(env, ...) wraps an environment.",
}
_POOL = {
    "autoreset_mode": "Did you mean autoreset?",
    "batch_size": "Each step moves all rows, one for each constructor; "
    "AsyncParallelPyEnvironment returns rows as they get ready: recv({value}).",
    "context": "Did you mean start_method?",
    "copy": "zero_copy=True returns the time steps without copying them.",
    "env_fns": "The constructors come first, without a name.",
    "n_jobs": "Did you mean num_workers?",
    "num_envs": "It takes a list with a constructor for each environment, such as "
    "[make_env] * 8; make(target, num_envs=8) makes the list.",
    "num_processes": "Did you mean num_workers?",
    "seed": "Write seed({value}) or reset(seed={value}) of the pool, or "
    "make(target, num_envs=8, seed={value}).",
    "shared_memory": "The environments of a pool always write into shared memory.",
}
# Of a library's object, which `make` wraps.
_OBJECT = {
    **_MAKE,
    "render_mode": "Pass it where the object is made: gymnasium.make(..., "
    "render_mode={value}).",
}
_VECTORIZE = {
    "num_envs": "It takes a list with a function for each environment, such as "
    "[make_env] * 8.",
}
_FUNCTIONS = {
    "make": _MAKE,
    "as_environment": _OBJECT,
    "AsyncParallelPyEnvironment": _POOL,
    "ParallelPyEnvironment": _POOL,
    "vectorize": _VECTORIZE,
}
# Of Gymnasium's `register`.
_REGISTER = {
    "additional_wrappers",
    "disable_env_checker",
    "entry_point",
    "id",
    "kwargs",
    "max_episode_steps",
    "nondeterministic",
    "order_enforce",
    "reward_threshold",
    "vector_entry_point",
}


def instead_of_argument(
    function: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Returns what to write instead of an argument that a function lacks, or "".

    Args:
        function: The function's name.
        name: The argument's name.
        args: The arguments by position.
        kwargs: The arguments by name.

    Example:
        >>> instead_of_argument("ParallelPyEnvironment", "context", (), {})
        'Did you mean start_method?'
    """
    if function == "register" and name in _REGISTER:
        return _registration(args, kwargs)
    text = _FUNCTIONS.get(function, {}).get(name, "")
    return text.format(value=repr(kwargs.get(name)))


def _registration(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Returns the call that registers what a call of Gymnasium's `register` would.

    Example:
        >>> _registration(("Maze-v0",), {"entry_point": "mazes:Maze"})
        "Write register('Maze-v0', 'mazes:Maze')."
    """
    name = args[0] if args else kwargs.get("id", kwargs.get("name", "Maze-v0"))
    target = args[1] if len(args) > 1 else kwargs.get("entry_point", "mazes:Maze")
    shown = getattr(target, "__qualname__", repr(target))
    text = f"Write register({name!r}, {shown})."
    rest = ", ".join(sorted(kwargs.keys() & _REGISTER - {"id", "entry_point"}))
    if not rest:
        return text
    limit = kwargs.get("max_episode_steps") or 200
    return (
        f"{text} For {rest}, the target may be a function that makes the environment, "
        f"passes arguments and adds wrappers, such as TimeLimit(env, {limit})."
    )
