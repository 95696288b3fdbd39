"""`RayBackend`: Ray places, starts and watches workers; rows bypass Ray.

```
 pool ── LinkedBackend ── RayLauncher ── Ray ─▶  actor EnvkitWorker, anywhere
            │                                      │ serve(address): a pending call
            │                                      ▼
            └───────────── link ───────────────  the process of the worker
```

An actor starts the worker's process and watches it, as `envkit worker` does. Its call
`serve` is pending as long as the worker lives, because Ray reports an actor's end only
to callers that wait for its answer. Ray restarts nothing: the pool's `RestartPolicy`
decides about restarts.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from envkit._shared.arguments import is_number
from envkit.distributed.cluster import await_cluster, known_cluster
from envkit.distributed.link import CUT_OFF
from envkit.distributed.links import LinkedBackend
from envkit.distributed.worker_host import run_worker
from envkit.errors import MissingDependencyError
from envkit.extend import describe
from envkit.parallel.messages import ExitReport, WorkerJob
from envkit.parallel.system.ctrl_c import uninterrupted

__all__ = ["EnvkitWorker", "RayBackend", "RayLauncher"]

_LOGGER = logging.getLogger(__name__)

# Seconds for which a worker may wait for a place before we log it.
_UNPLACED = 10.0
# Seconds for a killed actor to end.
_TO_END = 5.0
# How many bytes of a worker's standard error to keep.
_TAIL_BYTES = 1 << 15
# Resources for which Ray's actor options have names of their own.
_OPTIONS = {"GPU": "num_gpus", "memory": "memory"}
_BY_NAME = ("SPREAD", "DEFAULT")
_NO_CLIENT = (
    "A pool cannot use Ray by Ray Client (ray://...), because its workers have to "
    "reach it: run this program on a machine of the cluster, for example as a Ray job "
    "(ray job submit)."
)


class RayBackend(LinkedBackend):
    """Runs each worker beside a Ray actor, on whichever machine Ray has room.

    It uses the cluster to which this program is connected, or else a running one. If
    there is none, it starts one on this machine, which ends with the program. Each
    backend serves one pool; `backend="ray"` means `RayBackend()`.

    The same version of envkit must be installed on all machines of the cluster, or be
    sent there by `runtime_env`.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> backend = RayBackend(num_cpus_per_worker=0.5)  # doctest: +SKIP
        >>> env = ParallelPyEnvironment(  # doctest: +SKIP
        ...     ["CartPole"] * 64, backend=backend
        ... )
        >>> env.reset().observation.shape  # doctest: +SKIP
        (64, 4)
    """

    name: ClassVar[str] = "ray"

    def __init__(
        self,
        *,
        num_cpus_per_worker: float = 1.0,
        resources: Mapping[str, float] | None = None,
        placement: Any = "SPREAD",
        runtime_env: Mapping[str, Any] | None = None,
        host: str | None = None,
        port: int = 0,
        tls: ssl.SSLContext | bool | None = None,
    ) -> None:
        """Stores the arguments; does not start Ray yet.

        Args:
            num_cpus_per_worker: How many of the cluster's CPUs Ray reserves for each
                worker. With 0, there is room for any number of workers.
            resources: Other needs of a worker, such as `{"GPU": 0.25, "games": 1}`.
            placement: "SPREAD" over the machines, "DEFAULT" for Ray's own choice, one
                of Ray's scheduling strategies, or a placement group, whose bundles are
                the places of the workers, in order.
            runtime_env: Files, packages, environment variables and so on that Ray
                prepares for a worker.
            host: The address of this machine to listen on; `None` for the address that
                Ray uses.
            port: The port to listen on; 0 for any free port.
            tls: How links are encrypted, as for `linked`.

        Raises:
            MissingDependencyError: Ray is not installed.
        """
        launcher = RayLauncher(num_cpus_per_worker, resources, placement, runtime_env)
        super().__init__(launcher, host=host or "127.0.0.1", port=port, tls=tls)
        self._ray = launcher
        self._listens_for_ray = host is None

    def usual_workers(self) -> int:
        """Returns how many workers the cluster's CPUs would hold if all were free."""
        return self._ray.usual_workers()

    def connect(self, patience: float | None = None) -> None:
        """Connects to Ray, unless it is connected already.

        Args:
            patience: How many seconds to wait for a known cluster that does not answer;
                `None` for 30.

        Raises:
            WorkerTimeout: It does not answer in time.
        """
        self._ray.connect(patience)

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Connects to Ray, and begins to start workers."""
        self._ray.connect()
        if self._listens_for_ray:
            self._listener.move_to(self._ray.host())
        super().start(jobs)


class RayLauncher:
    """Starts each worker by its own actor.

    Attributes:
        places: How many workers it can start; `None` for any number.
    """

    def __init__(
        self,
        num_cpus: float,
        resources: Mapping[str, float] | None,
        placement: Any,
        runtime_env: Mapping[str, Any] | None,
    ) -> None:
        """Checks the options of actors.

        Raises:
            MissingDependencyError: Ray is not installed.
        """
        self._ray = _imported()
        self._options = _options(num_cpus, resources, runtime_env)
        self._placement = placement
        self.places: int | None = None
        # `ray.util.placement_group` is a function, which hides the module of its name.
        self._is_group = type(placement).__name__ == "PlacementGroup"
        if self._is_group:
            self.places = placement.bundle_count
        elif (
            placement not in _BY_NAME
            if isinstance(placement, str)
            else not type(placement).__module__.startswith("ray.")
        ):
            raise ValueError(
                f"placement must be {' or '.join(map(repr, _BY_NAME))}, a placement "
                "group of Ray, or one of its scheduling strategies, got "
                f"{describe(placement)}."
            )
        self._carriers: dict[int, _Carrier] = {}
        self._has_warned = False

    def connect(self, patience: float | None = None) -> None:
        """Connects to a Ray cluster, unless this program is connected already.

        Args:
            patience: How many seconds to wait for a known cluster that does not answer;
                `None` for 30.

        Raises:
            RuntimeError: This program would use the cluster through Ray Client.
            WorkerTimeout: The cluster does not answer.
        """
        ray = self._ray
        was_connected = ray.is_initialized()
        if not was_connected:
            # Check the address first: connecting to ray:// needs the client's own
            # packages and a running server, only to be refused.
            if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
                raise RuntimeError(_NO_CLIENT)
            cluster = known_cluster(ray)
            if cluster is not None:
                await_cluster(cluster, patience)
            try:
                ray.init(include_dashboard=False, logging_level=logging.ERROR)
            except BaseException:
                # Ray may have started processes.
                ray.shutdown()
                raise
        if ray.util.client.ray.is_connected():
            if not was_connected:
                ray.shutdown()
            raise RuntimeError(_NO_CLIENT)

    def host(self) -> str:
        """Returns the address at which workers find this machine."""
        address: str = self._ray.util.get_node_ip_address()
        return address

    def usual_workers(self) -> int:
        """Returns how many workers the cluster's CPUs would hold if all were free."""
        if self.places is not None:
            return self.places
        self.connect()
        cpus = self._ray.cluster_resources().get("CPU", 1.0)
        return max(1, int(cpus / (self._options["num_cpus"] or 1.0) + 1e-9))

    def start(self, worker: int, address: str) -> None:
        """Starts a worker, reusing an actor whose worker has ended."""
        ray = self._ray
        # Otherwise each call of Ray would start a cluster.
        if not ray.is_initialized():
            raise OSError("Ray was shut down (ray.shutdown()) while a pool used it.")
        before = self._carriers.pop(worker, None)
        if before is not None and before.is_idle():
            actor, placed = before.actor, before.placed
        else:
            if before is not None:
                self._end(before)
            options = {**self._options, "scheduling_strategy": self._strategy(worker)}
            actor = ray.remote(EnvkitWorker).options(**options).remote()
            placed = actor.pid.remote().future()
        ended = actor.serve.remote(address).future()
        self._carriers[worker] = _Carrier(actor, placed, ended)

    def _strategy(self, worker: int) -> Any:
        if not self._is_group:
            return self._placement
        return self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._placement, placement_group_bundle_index=worker
        )

    def ended(self, worker: int) -> bool:
        """Returns True if the process that carries a worker has ended."""
        carrier = self._carriers.get(worker)
        if carrier is None:
            return True
        now = time.monotonic()
        if now > carrier.look_at and not carrier.placed.done():
            carrier.look_at = now + _UNPLACED
            self._look_for_places(worker)
        return carrier.ended.done()

    def _look_for_places(self, worker: int) -> None:
        """Logs once that a worker has waited long for its resources, and why."""
        if self._has_warned:
            return
        needs = _needs(self._options)
        try:
            free = self._ray.available_resources()
        except Exception:  # Ray may be about to end.
            return
        lacking = [name for name in needs if free.get(name, 0.0) < needs[name]]
        if lacking:
            self._has_warned = True
            _LOGGER.warning(
                "Ray has no place for worker %d yet, which needs %s: free in the "
                "cluster are %s. Fewer workers (num_workers=) or less for each "
                "(RayBackend(num_cpus_per_worker=0.5)) may help.",
                worker,
                ", ".join(f"{amount:g} {name}" for name, amount in needs.items()),
                ", ".join(f"{free.get(name, 0.0):g} {name}" for name in lacking),
            )

    def report(self, worker: int) -> ExitReport:
        """Returns how the carrier ended, as far as is known."""
        carrier = self._carriers.get(worker)
        if carrier is None or not carrier.ended.done():
            return ExitReport(worker, 0)
        error = carrier.ended.exception()
        if error is not None:
            return self._report_of(worker, carrier, error)
        status, tail = carrier.ended.result()
        is_own = not carrier.is_killed and status != CUT_OFF
        return ExitReport.of_status(worker, 0, status if is_own else None, tail)

    def _report_of(
        self, worker: int, carrier: _Carrier, error: BaseException
    ) -> ExitReport:
        """Returns the report on a worker whose actor died or could not start."""
        if carrier.is_killed:
            return ExitReport(worker, 0)
        reason = str(error).strip()
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return ExitReport(worker, 0, exitcode=1, stderr_tail=reason)
        return ExitReport(
            worker,
            0,
            stderr_tail=reason,
            lost="lost its Ray actor",
            remedy="`ray status` says which nodes are there, and `ray list actors` "
            "what Ray knows of this actor, an EnvkitWorker.",
        )

    def kill(self, worker: int) -> None:
        """Kills the carrier of a worker, and returns when it has ended."""
        carrier = self._carriers.get(worker)
        if carrier is not None and not carrier.ended.done():
            carrier.is_killed = True
            self._end(carrier)

    def _end(self, carrier: _Carrier) -> None:
        """Ends an actor; its worker ends with it."""
        # After ray.shutdown() there are no actors, and any call would start a cluster.
        if not self._ray.is_initialized():
            return
        with contextlib.suppress(Exception):  # It may be dead.
            self._ray.kill(carrier.actor)
        concurrent.futures.wait([carrier.ended], _TO_END)

    def close(self) -> None:
        """Ends everything left."""
        with uninterrupted():
            for carrier in self._carriers.values():
                self._end(carrier)
            self._carriers.clear()

    def forget(self) -> None:
        """Does nothing: Ray must close its own connections in forks."""


class _Carrier:
    """An actor, and its current or last worker."""

    def __init__(
        self,
        actor: Any,
        placed: concurrent.futures.Future[int],
        ended: concurrent.futures.Future[tuple[int, str]],
    ) -> None:
        self.actor = actor
        self.placed = placed
        self.ended = ended
        # When to log why it has no place yet.
        self.look_at = time.monotonic() + _UNPLACED
        self.is_killed = False

    def is_idle(self) -> bool:
        """True if its worker has ended and the actor is still alive."""
        # An actor that is being killed may still report its worker's end.
        is_answered = self.ended.done() and self.ended.exception() is None
        return is_answered and not self.is_killed


class EnvkitWorker:
    """Starts the process of a worker, and watches it; the actor."""

    def pid(self) -> int:
        """Returns its process."""
        return os.getpid()

    def serve(self, address: str) -> tuple[int, str]:
        """Runs one worker for the pool at an address.

        Returns:
            The worker's exit status, and the last text of its standard error.
        """
        read, write = os.pipe()
        tail = bytearray()
        copying = threading.Thread(target=_copy, args=(read, tail), daemon=True)
        copying.start()
        try:
            status = run_worker(address, stderr=write)
        finally:
            os.close(write)
            # A remaining helper of the worker may hold the other end.
            copying.join(1.0)
        return status, tail.decode("utf-8", "replace")


def _copy(read: int, tail: bytearray) -> None:
    """Copies a pipe's bytes to standard error, and keeps the last of them."""
    with os.fdopen(read, "rb", buffering=0) as source:
        while data := source.read(1 << 16):
            with contextlib.suppress(OSError):
                os.write(2, data)
            tail += data
            del tail[:-_TAIL_BYTES]


def _imported() -> Any:
    """Returns Ray with the submodules used here."""
    try:
        # If this is interrupted, Ray cannot be imported in this process any more.
        with uninterrupted():
            import ray
            import ray.util.client
            import ray.util.scheduling_strategies
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "ray":
            raise
        raise MissingDependencyError.needed_by(
            'backend="ray"', package="ray", extra="ray"
        ) from error
    return ray


def _options(num_cpus: Any, resources: Any, runtime_env: Any) -> dict[str, Any]:
    """Returns the options of an actor, apart from its placement."""
    if not is_number(num_cpus) or num_cpus < 0:
        raise ValueError(
            "num_cpus_per_worker must be a number of at least 0, got "
            f"{describe(num_cpus)}."
        )
    if runtime_env is not None and not isinstance(runtime_env, Mapping):
        raise TypeError(
            "runtime_env must be a dictionary as Ray takes it, such as "
            f'{{"env_vars": {{"LEVEL": "3"}}}}, got {describe(runtime_env)}.'
        )
    # The pool does the restarts, so Ray must not.
    options: dict[str, Any] = {
        "num_cpus": num_cpus,
        "max_restarts": 0,
        "max_task_retries": 0,
        "resources": {},
    }
    if runtime_env is not None:
        options["runtime_env"] = dict(runtime_env)
    if not isinstance(resources, Mapping | None):
        raise TypeError(
            'resources must be a dictionary such as {"GPU": 0.25}, got '
            f"{describe(resources)}."
        )
    for name, amount in (resources or {}).items():
        if not isinstance(name, str) or not is_number(amount) or amount < 0:
            raise ValueError(
                'resources must map names to amounts, such as {"GPU": 0.25}, got '
                f"{name!r:.80}: {describe(amount)}."
            )
        if name == "CPU":
            raise ValueError(
                "num_cpus_per_worker is what says how many CPUs a worker needs, and "
                "resources must not."
            )
        if name in _OPTIONS:
            options[_OPTIONS[name]] = amount
        else:
            options["resources"][name] = amount
    return options


def _needs(options: Mapping[str, Any]) -> dict[str, float]:
    """Returns how much of each resource an actor needs, by Ray's names."""
    others = {name: options[key] for name, key in _OPTIONS.items() if key in options}
    return {"CPU": options["num_cpus"], **others, **options["resources"]}
