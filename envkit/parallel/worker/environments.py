"""Builds, rebuilds, seeds and closes the environments of a worker."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from envkit._internal.first_look import leave_unseen
from envkit._internal.objects import as_environment, is_environment
from envkit._internal.text import counted, first_line
from envkit.errors import ConstructorError
from envkit.parallel.constructor_texts import describe_constructor
from envkit.parallel.messages import Hello, RemoteFailure, WorkerJob
from envkit.registry import module_named
from envkit.seeding import derived_seed
from envkit.specs.environment_spec import EnvironmentSpec, info_spec_of
from envkit.types import EnvConstructor

__all__ = [
    "EnvironmentHost",
    "end_fork",
    "lines_at_close",
    "log_at_close",
    "resident_bytes",
    "run_setup",
    "with_seeds",
]

# Packages that make a worker large; a pool logs once which of them its workers load.
HEAVY_MODULES = ("tensorflow", "torch", "jax")
_LACKS_ARGUMENTS = re.compile(r"missing \d+ required")


class EnvironmentHost:
    """Holds the environments of one worker, and remembers how each was made."""

    def __init__(
        self,
        job: WorkerJob,
        passes: tuple[type[BaseException], ...] = (),
        made: dict[int, Any] | None = None,
        forked: Sequence[int] = (),
    ) -> None:
        """Takes a job; `build` carries it out.

        Args:
            job: The job.
            passes: Exceptions that belong to the carrier and not to environments.
            made: What the constructors of all workers in this process have returned, by
                its id: they must not share environments. Threads change it at once.
            forked: Is not empty in a process that an environment has forked.
        """
        self.job = job
        self._passes = passes
        self.forked = forked
        self._made = {} if made is None else made
        self.envs: list[Any] = []
        # By the environment's id, that of what its constructor returned.
        self._id_of_made: dict[int, int] = {}
        # The spec to which observations are padded, if they are.
        self._spec: EnvironmentSpec | None = None
        self._seeds = list(job.seeds)
        # How many times each was rebuilt: a rebuilt environment must not repeat its
        # predecessor's episodes.
        self._rebuilds = [0] * len(job.constructors)

    def built(self) -> list[Any]:
        """Returns the environments as their constructors made them."""
        return self.envs if self._spec is None else [e.wrapped_env() for e in self.envs]

    def let_through(self, error: BaseException) -> None:
        """Re-raises exceptions that belong to the worker, such as KeyboardInterrupt."""
        end_fork(self.forked)
        if isinstance(error, self._passes):
            raise error

    def build(self) -> Hello | RemoteFailure:
        """Builds every environment; returns a description of them, or the failure."""
        try:
            run_setup(self.job.setup)
        except BaseException as error:
            self.let_through(error)
            return RemoteFailure.of(
                error, kind="setup", command="setup", pid=os.getpid()
            )
        for index in range(len(self.job.constructors)):
            try:
                env = self._single(index)
                self.envs.append(self._seeded(index, env))
            except BaseException as error:
                self.let_through(error)
                self.close()
                return RemoteFailure.of(
                    error,
                    kind="constructor",
                    env=self.job.first_env + index,
                    command="construct",
                    pid=os.getpid(),
                )
        try:
            return self._hello()
        except BaseException as error:  # its specs are no specs
            self.let_through(error)
            self.close()
            return RemoteFailure.of(
                error, kind="constructor", command="construct", pid=os.getpid()
            )

    def _hello(self) -> Hello:
        return Hello(
            pid=os.getpid(),
            specs=tuple(EnvironmentSpec.of(env) for env in self.envs),
            batch_sizes=tuple(
                env.batch_size if env.batched else None for env in self.envs
            ),
            resident=resident_bytes(os.getpid()),
            heavy_modules=tuple(name for name in HEAVY_MODULES if name in sys.modules),
            info_specs=tuple(info_spec_of(env) for env in self.envs),
            continues=tuple(
                getattr(env, "continues_after_last", False) is True for env in self.envs
            ),
        )

    def pad(self, spec: EnvironmentSpec) -> None:
        """Pads observations to the spec of the batch, if the job asks for that."""
        if self.job.options.specs == "pad" and self._spec is None:
            self._spec = spec
            self.envs = [self._padded(env) for env in self.envs]

    def _padded(self, env: Any) -> Any:
        from envkit.batched_py_environment import PaddedRows

        assert self._spec is not None  # `pad` was given it
        return PaddedRows(env, self._spec)

    def rebuild(self, index: int) -> Any:
        """Rebuilds an environment, and seeds the new one if the old one was seeded."""
        self._rebuilds[index] += 1
        env = self._seeded(index, self._replaced(index, self.built()[index]))
        self.envs[index] = env if self._spec is None else self._padded(env)
        return self.envs[index]

    def _replaced(self, index: int, old: Any) -> Any:
        """Closes an environment, and builds a new one in its place."""
        # The old one may be broken in any way, so ignore exceptions of its close().
        try:
            old.close()
        except BaseException as error:
            self.let_through(error)
            print(*lines_at_close([error]), file=sys.stderr)
        env = self._single(index)
        self._forget(old)
        return env

    def _seeded(self, index: int, env: Any) -> Any:
        """Seeds a new environment, if there is a seed for it."""
        if index < len(self._seeds) and self._seeds[index] is not None:
            env.seed(derived_seed(self._seeds[index], self._rebuilds[index]))
        return env

    def seed(self, index: int, seed: Any) -> Any:
        """Seeds one environment, and keeps the seed for rebuilding it."""
        result = self.envs[index].seed(seed)
        if not self._seeds:
            self._seeds = [None] * len(self.envs)
        self._seeds[index] = seed
        self._rebuilds[index] = 0
        return result

    def assume_seed(self, index: int, seed: Any, rebuilds: int) -> None:
        """Records the seed of an environment that replaces a lost one.

        Args:
            index: The environment.
            seed: The lost environment's seed, if any.
            rebuilds: How often that one had been rebuilt since.
        """
        self._seeds = self._seeds or [None] * len(self.envs)
        self._seeds[index], self._rebuilds[index] = seed, rebuilds

    def seed_rows(self, index: int, seeds: list[int | None]) -> None:
        """Seeds the rows of an environment that have a seed; `None` means no seed."""
        env = self.envs[index]
        if not env.batched or None not in seeds:
            self.seed(index, seeds if env.batched else seeds[0])
            return
        env._envkit.seed_rows(env, seeds)
        known = self._seeds[index] if self._seeds else None
        self._seeds = self._seeds or [None] * len(self.envs)
        self._seeds[index] = with_seeds(known, seeds, True)

    def keep(self, count: int) -> list[BaseException]:
        """Closes all but the first environments; returns the exceptions raised."""
        for env in self.built()[count:]:
            self._forget(env)
        gone = self.envs[count:]
        # Keep the list object, because others hold it too.
        del self.envs[count:], self._seeds[count:], self._rebuilds[count:]
        return self._closed(gone)

    def _closed(self, envs: Iterable[Any]) -> list[BaseException]:
        errors: list[BaseException] = []
        for env in envs:
            try:
                env.close()
            except BaseException as error:
                self.let_through(error)
                errors.append(error)
        return errors

    def close(self) -> list[BaseException]:
        """Closes every environment; returns the exceptions raised."""
        errors = self._closed(self.envs)
        self.envs = []
        for made in self._id_of_made.values():
            self._made.pop(made, None)
        self._id_of_made.clear()
        return errors

    def _single(self, index: int) -> Any:
        """Calls a constructor; raises if a pool cannot use the result."""
        constructor: EnvConstructor = self.job.constructors[index]
        made = _made_by(constructor)
        end_fork(self.forked)
        env = as_environment(made)
        if not is_environment(env):
            raise ConstructorError.no_environment(
                f"env_constructors[{self.job.first_env + index}] "
                f"({describe_constructor(constructor)})",
                made,
            )
        leave_unseen(env)  # The worker checks its results.
        order = getattr(getattr(env, "autoreset", None), "value", "next_step")
        if order != "next_step":
            env.close()
            raise ConstructorError(
                f"env_constructors[{self.job.first_env + index}] returned a "
                f"{type(env).__name__} whose order is AutoReset.{order.upper()}. In a "
                "pool an environment begins the next episode with the step after a "
                "LAST: make it with NEXT_STEP, and give the order to the pool."
            )
        # Whoever enters it first has it; an entry keeps it, so its id stays its own.
        entry = (made,)
        if self._made.setdefault(id(made), entry) is not entry:
            raise ConstructorError(
                f"env_constructors[{self.job.first_env + index}] returned an "
                "environment that another constructor has returned already. Each row "
                "needs an environment of its own: build it inside the constructor."
            )
        self._forget(env)  # An id may be that of an earlier one, which is gone.
        self._id_of_made[id(env)] = id(made)
        return env

    def _forget(self, env: Any) -> None:
        self._made.pop(self._id_of_made.pop(id(env), 0), None)


def end_fork(forked: Sequence[int]) -> None:
    """Ends this process, with a message, if it is a fork made by an environment.

    Args:
        forked: The worker that was forked; empty in the worker itself.
    """
    if forked:
        text = (
            f"envkit: process {os.getpid()}, which an environment has forked, came "
            f"back into worker process {forked[-1]} and ends here. A fork must call "
            "os._exit() or run another program, also where that fails; subprocess and "
            "multiprocessing do so.\n"
        )
        os.write(2, text.encode())
        os._exit(1)


def run_setup(setup: str | Callable[[], Any] | None) -> None:
    """Runs the `worker_setup`, before anything else."""
    if isinstance(setup, str):
        module, _, attribute = setup.partition(":")
        getattr(module_named(module), attribute)()
    elif setup is not None:
        setup()


def with_seeds(before: Any, seeds: list[int | None], is_batch: bool) -> Any:
    """Returns an environment's seed, after some of its rows were seeded again."""
    if not is_batch:
        return before if seeds[0] is None else seeds[0]
    old = before or [None] * len(seeds)
    return [
        known if new is None else new for known, new in zip(old, seeds, strict=True)
    ]


def resident_bytes(pid: int) -> int:
    """Returns the memory of a process in bytes; 0 if that is unknown."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def lines_at_close(errors: Iterable[BaseException]) -> list[str]:
    """Returns one line for each different exception from closing environments.

    Example:
        >>> lines_at_close([ValueError("stuck"), ValueError("stuck")])
        ['close() of 2 environments raised ValueError: stuck']
    """
    lines = Counter(f"{_first_line(error)}{_place_of(error)}" for error in errors)
    return [
        f"close() of {counted(count, 'environment')} raised {line}"
        if count > 1
        else f"close() of an environment raised {line}"
        for line, count in lines.items()
    ]


def log_at_close(logger: logging.Logger, errors: Iterable[BaseException]) -> None:
    """Logs the exceptions from closing environments."""
    for line in lines_at_close(errors):
        logger.warning("%s", line)


def _made_by(constructor: EnvConstructor) -> Any:
    """Calls a constructor; explains that it is called without arguments."""
    try:
        return constructor()
    except TypeError as error:
        # Calls inside the constructor have frames of their own.
        place = error.__traceback__
        if place is None or place.tb_next or not _LACKS_ARGUMENTS.search(str(error)):
            raise
        raise TypeError(
            f"{error}. A constructor gets no arguments: write "
            "functools.partial(make_env, ...)."
        ) from None


def _first_line(error: BaseException) -> str:
    text = first_line(str(error).strip())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f" ({os.path.basename(last.filename)}, line {last.lineno}, in {last.name})"
