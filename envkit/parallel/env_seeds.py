"""`EnvSeeds`: the seed of each environment of a pool, kept only here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envkit.parallel.messages import RemoteFailure, Request
from envkit.parallel.worker.environments import with_seeds
from envkit.seeding import derived_seed

__all__ = ["EnvSeed", "EnvSeeds"]


class EnvSeed(NamedTuple):
    """The seeds of one environment.

    Attributes:
        given: The last seed that it was given; later workers derive theirs from it.
        seed: The seed of the current environment.
        rebuilds: How many times the environment was rebuilt since.
    """

    given: Any = None
    seed: Any = None
    rebuilds: int = 0

    @property
    def in_use(self) -> Any:
        """The seed of the current environment, derived again after each rebuild."""
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
        """Appends environments without seeds, or drops the last ones."""
        self._seeds = [*self._seeds, *[EnvSeed()] * envs][:envs]

    def change(self, request: Request, is_batch: Sequence[bool]) -> dict[int, EnvSeed]:
        """Records the seeds that a request is about to give.

        Returns:
            The seeds before that.
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
        """Restores the seeds of environments that were not seeded in the end.

        Args:
            changed: The result of `change`.
            results: The environments' answers; `None` if the worker has ended.
        """
        for index, (env, before) in enumerate(changed.items()):
            if results is None or isinstance(results[index], RemoteFailure):
                self._seeds[env] = before

    def count_rebuild(self, env: int) -> None:
        """Derives the next seed of an environment that its worker rebuilds."""
        seed = self._seeds[env]
        self._seeds[env] = seed._replace(rebuilds=seed.rebuilds + 1)

    def derived(self, env: int, restarts: int) -> Any:
        """Returns an environment's seed after `restarts` restarts of its worker."""
        return derived_seed(self._seeds[env].given, restarts)

    def set_derived(self, env: int, restarts: int) -> None:
        """Records that a worker's new environment has started with the derived seed."""
        seed = self.derived(env, restarts)
        self._seeds[env] = EnvSeed(self._seeds[env].given, seed)

    @property
    def given(self) -> list[Any] | None:
        """The last seed given to each environment; `None` if there was none."""
        given = [seed.given for seed in self._seeds]
        return None if all(seed is None for seed in given) else given

    @given.setter
    def given(self, seeds: list[Any] | None) -> None:
        seeds = seeds or [None] * len(self._seeds)
        self._seeds = [
            seed._replace(given=one)
            for seed, one in zip(self._seeds, seeds, strict=True)
        ]
