"""`EnvSeeds`: what each environment of a pool was seeded with; nobody else keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envkit.parallel.messages import RemoteFailure, Request
from envkit.parallel.worker.environments import with_seeds
from envkit.seeding import derived_seed

__all__ = ["EnvSeed", "EnvSeeds"]


class EnvSeed(NamedTuple):
    """What one environment is seeded with.

    Attributes:
        given: The seed that it was given last; those of later workers derive from it.
        seed: What the environment was seeded with that is there now.
        rebuilds: How often that was rebuilt since.
    """

    given: Any = None
    seed: Any = None
    rebuilds: int = 0

    @property
    def in_use(self) -> Any:
        """The seed of the environment that is there, after its rebuilds."""
        return derived_seed(self.seed, self.rebuilds)


class EnvSeeds:
    """The seeds of the environments, by their index."""

    def __init__(self, envs: int) -> None:
        """Begins with environments that have no seeds."""
        self._seeds = [EnvSeed()] * envs

    def __getitem__(self, env: int) -> EnvSeed:
        return self._seeds[env]

    def __iter__(self) -> Iterator[EnvSeed]:
        return iter(self._seeds)

    def resize(self, envs: int) -> None:
        """Adds environments without seeds behind the others, or forgets the last."""
        self._seeds = [*self._seeds, *[EnvSeed()] * envs][:envs]

    def change(self, request: Request, is_batch: Sequence[bool]) -> dict[int, EnvSeed]:
        """Changes the seeds of environments that a request is about to seed.

        Returns:
            What their seeds were before.
        """
        changed: dict[int, EnvSeed] = {}
        for env, argument in zip(request.envs, request.arguments, strict=True):
            before = after = self._seeds[env]
            match request.method:
                case "seed":
                    after = EnvSeed(argument, argument)
                case "seed_rows" if None in argument:
                    given = with_seeds(before.given, argument, True)
                    seed = with_seeds(before.seed, argument, True)
                    after = EnvSeed(given, seed, before.rebuilds)
                case "seed_rows":
                    seed = argument if is_batch[env] else argument[0]
                    after = EnvSeed(seed, seed)
                case "assume_seed":
                    after = EnvSeed(before.given, *argument)
                case _:
                    return {}
            changed[env], self._seeds[env] = before, after
        return changed

    def restore(
        self, changed: Mapping[int, EnvSeed], results: Sequence[Any] | None = None
    ) -> None:
        """Restores the seeds of environments that were not seeded after all.

        Args:
            changed: What `change` has returned.
            results: What the environments answered; `None` if the worker has ended.
        """
        for index, (env, before) in enumerate(changed.items()):
            if results is None or isinstance(results[index], RemoteFailure):
                self._seeds[env] = before

    def count_rebuild(self, env: int) -> None:
        """Derives the next seed of an environment that its worker rebuilds."""
        seed = self._seeds[env]
        self._seeds[env] = seed._replace(rebuilds=seed.rebuilds + 1)

    def derived(self, env: int, restarts: int) -> Any:
        """Returns the seed of an environment whose worker was restarted so often."""
        return derived_seed(self._seeds[env].given, restarts)

    def set_derived(self, env: int, restarts: int) -> None:
        """Gives that seed to an environment whose new worker has started with it."""
        seed = self.derived(env, restarts)
        self._seeds[env] = EnvSeed(self._seeds[env].given, seed)

    @property
    def given(self) -> list[Any] | None:
        """What the environments were given; `None` if none of them was."""
        given = [seed.given for seed in self._seeds]
        return None if all(seed is None for seed in given) else given

    @given.setter
    def given(self, seeds: list[Any] | None) -> None:
        seeds = seeds or [None] * len(self._seeds)
        self._seeds = [
            seed._replace(given=one)
            for seed, one in zip(self._seeds, seeds, strict=True)
        ]
