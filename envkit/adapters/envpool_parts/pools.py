"""Pools of EnvPool: recognised, described, and made of an id, once more if need be."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.dependencies import require
from envkit.errors import ConstructorError
from envkit.seeding import seed_per_row
from envkit.specs.validation import describe

__all__ = ["PoolRecipe", "as_pool", "check_seedable", "native_seeds", "spaces_of"]

# What EnvPool's seeds wrap around at.
_SEEDS = 2**32


@dataclasses.dataclass(frozen=True, slots=True)
class PoolRecipe:
    """How to make a pool, which EnvPool seeds only when it is made.

    Attributes:
        task_id: EnvPool's name of the environment.
        arguments: The keyword arguments of `envpool.make_gymnasium`, without seeds.
    """

    task_id: str
    arguments: Mapping[str, Any]

    def build(self, seeds: list[int]) -> Any:
        """Makes a pool whose rows have these seeds."""
        import envpool

        try:
            pool = envpool.make_gymnasium(self.task_id, seed=seeds, **self.arguments)
        except AssertionError as error:
            raise ConstructorError(
                f"EnvPool does not make {self.task_id!r}: {error}"
            ) from error
        spaces_of(pool)
        return pool


def as_pool(
    env: Any, arguments: dict[str, Any], *, adapter: str, spares: int = 0
) -> tuple[Any, PoolRecipe | None]:
    """Returns a pool, and how to make it again if that is known.

    Args:
        env: A pool with the Gymnasium interface, or EnvPool's name of an environment.
        arguments: With a name, the keyword arguments of `envpool.make_gymnasium`.
        adapter: What the pool is for.
        spares: With a name, how many environments to make besides the rows.
    """
    require("envpool", needed_by=adapter, extra="envpool")
    if not isinstance(env, str):
        _check_pool(env, arguments, adapter)
        return env, None
    _check_id(env)
    rows = int(arguments.get("num_envs", 1))
    if rows < 1:
        raise ValueError(f"num_envs is {rows}; a pool has at least one environment.")
    seed = _take_seed(arguments)
    recipe = PoolRecipe(env, {**arguments, "num_envs": rows + spares})
    return recipe.build(native_seeds(seed, rows, spares)), recipe


def check_seedable(recipe: PoolRecipe | None, name: str, adapter: str) -> None:
    """Refuses to seed a pool that nobody knows how to make again."""
    if recipe is None:
        raise NotImplementedError(
            f"{name} cannot be seeded: EnvPool takes seeds only when a pool is made, "
            f"and this one was made already. Make it with a seed, or give {adapter} "
            f"the name: {adapter}('CartPole-v1', num_envs=8)."
        )


def native_seeds(seed: Any, rows: int, spares: int = 0) -> list[int]:
    """Returns a seed for each environment of a pool, as EnvPool takes them: as int32.

    One integer gives each row a seed of its own, which does not depend on how many rows
    there are. `None` draws them.

    Example:
        >>> native_seeds([1, 2**32 - 1, -1], rows=3)
        [1, -1, -1]
    """
    if isinstance(seed, list | tuple | np.ndarray):
        # What is negative there is so here, too.
        seed = [own if own is None else int(own) % _SEEDS for own in seed]
    drawn = np.random.SeedSequence().generate_state(rows).tolist()
    seeds = [
        new if own is None else own
        for own, new in zip(seed_per_row(seed, rows), drawn, strict=True)
    ]
    half = _SEEDS // 2
    # Nobody sees what spare environments do.
    return [(own + half) % _SEEDS - half for own in seeds] + [0] * spares


def spaces_of(pool: Any) -> tuple[Any, Any]:
    """Returns the spaces of one row's observation and action.

    Gymnasium warns of their bounds, which EnvPool has in float64; of that nobody can
    make anything. It does so once, as the pool keeps its spaces.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pool.observation_space, pool.action_space


def _take_seed(arguments: dict[str, Any]) -> Any:
    """Takes the seed out of the arguments, under either of its names."""
    seed, by_row = arguments.pop("seed", None), arguments.pop("env_seed", None)
    if seed is not None and by_row is not None:
        raise ValueError("seed and env_seed are two names of one argument; pass one.")
    return by_row if seed is None else seed


def _check_pool(env: Any, arguments: dict[str, Any], adapter: str) -> None:
    needed = ("send", "recv", "step", "reset", "config", "spec")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{adapter} was given {what}, which is not a pool of EnvPool. "
            "envpool.make_gymnasium(...) makes one, and the name of an environment "
            f"will do, too: {adapter}('CartPole-v1', num_envs=8)."
        )
    # Of the class, as the pool makes its spaces when it is asked.
    if not hasattr(type(env), "observation_space"):
        raise TypeError(
            f"{adapter} was given a pool with the dm_env interface of EnvPool, where a "
            "truncation looks like a termination: both have a discount of 0. Make it "
            "with env_type='gymnasium'."
        )
    if arguments:
        raise TypeError(
            f"{adapter} was given a pool and {sorted(arguments)[0]!r}, which says how "
            "to make one. Such arguments go with the name of an environment."
        )


def _check_id(task_id: str) -> None:
    import envpool

    known = envpool.list_all_envs()
    if task_id in known:
        return
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(task_id.lower(), list(lowered), n=3, cutoff=0.6)
    names = " or ".join(repr(lowered[name]) for name in near)
    hint = f" Did you mean {names}?" if names else ""
    raise ValueError(
        f"EnvPool has no environment named {task_id!r}.{hint} envpool.list_all_envs() "
        f"names all {len(known)}."
    )
