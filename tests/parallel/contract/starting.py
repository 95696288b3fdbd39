"""Checks of how workers start, and of where their environments are built."""

from __future__ import annotations

import os

from envkit.parallel.backends.base import Backend, Started
from envkit.parallel.messages import Hello, RemoteFailure
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.testing.contract.findings import Broken, broken
from envkit.testing.envs import TracingEnv
from tests.parallel.contract.crew import Crew
from tests.parallel.contract.environments import ObedientEnv, raise_in_setup
from tests.parallel.contract.trial import BackendTrial

__all__ = ["built_apart", "failed_setup", "failed_start", "interface", "starts"]


def interface(trial: BackendTrial) -> None:
    """It has every method of `Backend`, and the attributes that say what it can do."""
    backend = trial.new_crew().backend
    missing = [
        name
        for name in vars(Backend)
        if not name.startswith("_") and not callable(getattr(backend, name, None))
    ]
    if missing:
        raise Broken(f"It has no method {missing[0]}(), which every backend has.")
    for attribute, kind in Backend.__annotations__.items():
        found = getattr(backend, attribute, None)
        if not isinstance(found, bool if attribute != "name" else str):
            raise broken(
                "It does not say what it is.",
                f"`{attribute}` must be a {kind}; it is an attribute of the class.",
                **{attribute: repr(found)},
            )


def starts(trial: BackendTrial) -> None:
    """Each worker says once that it has started, with the specs of what it built."""
    crew = trial.common_crew()
    crew.settle()
    told = [event.worker for event in crew.events if isinstance(event, Started)]
    if sorted(told) != [0, 1, 2]:
        raise broken(
            "Three workers were asked to start.",
            "Each says so once.",
            expected="Started of 0, 1 and 2",
            got=f"Started of {told}",
        )
    spec = EnvironmentSpec.of(TracingEnv())
    for job in crew.jobs:
        _compare_hello(crew, job.worker, crew.hello(job.worker), spec)


def _compare_hello(
    crew: Crew, worker: int, hello: Hello, spec: EnvironmentSpec
) -> None:
    size = len(crew.jobs[worker].constructors)
    due = ((spec,) * size, (None,) * size, crew.backend.pid(worker))
    got = (hello.specs, hello.batch_sizes, hello.pid)
    for what, wanted, found in zip(
        ("specs", "batch_sizes", "pid"), due, got, strict=True
    ):
        if wanted != found:
            raise broken(
                f"What worker {worker} said when it had started is wrong.",
                "A pool makes its slab from it.",
                part=what,
                expected=str(wanted),
                got=str(found),
            )


def failed_start(trial: BackendTrial) -> None:
    """A constructor that raises comes as `Started` with what it raised, alone."""
    crew = trial.new_crew()
    crew.begin_start((1, 2), lambda env: _refuse if env == 2 else crew.obedient(env))
    crew.await_starts([0, 1])
    crew.hello(0)
    _look_at_failure(crew, 1, "constructor", 2)


def failed_setup(trial: BackendTrial) -> None:
    """A setup that raises comes as `Started` with what it raised."""
    crew = trial.new_crew()
    crew.begin_start((1,), setup=raise_in_setup)
    crew.await_starts([0])
    _look_at_failure(crew, 0, "setup", -1)


def _refuse() -> ObedientEnv:
    raise RuntimeError("This constructor was told to raise.")


def _look_at_failure(crew: Crew, worker: int, kind: str, env: int) -> None:
    event = crew.started.get(worker)
    failure = None if event is None else event.hello
    if isinstance(failure, RemoteFailure) and (failure.kind, failure.env) == (
        kind,
        env,
    ):
        error = failure.original()
        if isinstance(error, RuntimeError) and "was told to raise" in str(error):
            return
    raise broken(
        f"The {kind} of worker {worker} raised a RuntimeError.",
        "A worker that cannot build its environments says why; the exception is in it.",
        expected=f"Started({worker}, RemoteFailure({kind!r}, env={env}, ...))",
        got=f"{event or crew.exits.get(worker)}"[:200],
    )


def built_apart(trial: BackendTrial) -> None:
    """Only the worker builds its environments, where workers are processes."""
    trial.need_apart()
    crew = trial.common_crew()
    names = [path.name for path in crew.folder.glob("built-*")]
    here = [name for name in names if name.startswith(f"built-{os.getpid()}-")]
    if here or len(names) != 4:
        raise broken(
            "Four environments are needed, in other processes.",
            "An environment is built once, in its worker: it may be large, or hold "
            "what cannot be shared.",
            **{"built": str(len(names)), "of these, here": str(len(here))},
        )
    pids = {crew.where(env)[0] for env in range(4)}
    if pids != {crew.backend.pid(worker) for worker in range(3)}:
        raise Broken("pid() returns other processes than those with the environments.")
