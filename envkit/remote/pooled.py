"""`PooledRunner`: a runner whose rows are those of one pool of worker processes.

The client of a session sees single environments. On a server with `--num-workers` these
are rows of one pool, so that a crash ends an episode and not the server; questions
about some of them become questions about rows of the pool.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit.parallel.messages import Hello, RemoteFailure, Reply, Request, WorkerJob
from envkit.parallel.worker.runner import EnvRunner

__all__ = ["PooledRunner"]

# So many states of a pool are kept for a client; the oldest are dropped.
_MOST_STATES = 32


class PooledRunner(EnvRunner):
    """Runs the rows of a pool as if each were an environment of its own."""

    def __init__(
        self, job: WorkerJob, make_pool: Callable[[], Any], forked: Sequence[int] = ()
    ) -> None:
        """Takes a job, whose environments `make_pool` makes together."""
        self._count = len(job.constructors)
        seeds = (list(job.seeds),) if job.seeds else ()
        whole = job._replace(constructors=(make_pool,), seeds=seeds)
        super().__init__(whole, forked=forked)
        # They stay here: what is in them was pickled by workers of this server.
        self._states: OrderedDict[bytes, Any] = OrderedDict()
        self.dump_state = self._keep_state
        self.load_state = self._kept_state

    def build(self) -> Hello | RemoteFailure:
        """Builds the pool; returns the specs of its rows."""
        hello = super().build()
        if not isinstance(hello, Hello):
            return hello
        return hello._replace(
            specs=hello.specs * self._count,
            batch_sizes=(None,) * self._count,
            info_specs=hello.info_specs * self._count,
            continues=hello.continues * self._count,
        )

    def handle(self, request: Request) -> Reply:
        """Answers a question about some rows of the pool."""
        first = self._host.job.first_env
        rows = [env - first for env in request.envs]
        values, arguments = [None] * self._count, list(request.arguments)
        for row, argument in zip(rows, arguments, strict=True):
            values[row] = argument
        method = request.method
        match method:
            case "seed" | "seed_rows":
                by_row = [_as_seed(value, method) for value in values]
                return self._spread(request, "seed_rows", by_row)
            case "reset":
                options = [None if value is None else value[0] for value in values]
                mask = np.array([value is not None for value in values])
                asked = (options, None if mask.all() else mask)
                return self._spread(request, "reset", asked)
            case "get_state":
                return self._spread(request, "get_state", None)
            case "set_state":
                return self._spread(request, "set_state", self._whole_state(values))
            case "get_info":
                (found,) = self._ask(request, "get_info", None).results
                if isinstance(found, RemoteFailure):
                    return Reply(request.number, (found,) * len(rows))
                return Reply(request.number, tuple(_row_of(found, r) for r in rows))
        return Reply(request.number, self._of_pool(request, rows))

    def _ask(self, request: Request, method: str, argument: Any) -> Reply:
        first = self._host.job.first_env
        return super().handle(Request(request.number, method, (first,), (argument,)))

    def _spread(self, request: Request, method: str, argument: Any) -> Reply:
        reply = self._ask(request, method, argument)
        results = tuple(map(self._located, reply.results))
        return reply._replace(results=results * len(request.envs))

    def _located(self, result: Any) -> Any:
        """Names the row in a failure, which is the pool's otherwise."""
        if not isinstance(result, RemoteFailure) or result.inner_env < 0:
            return result
        return result._replace(env=self._host.job.first_env + result.inner_env)

    def _of_pool(self, request: Request, rows: list[int]) -> tuple[Any, ...]:
        """Answers what the pool itself is asked of some of its rows."""
        pool = self.environments()[0]
        try:
            match request.method:
                case "render":
                    modes = set(request.arguments)
                    if len(modes) > 1:
                        raise ValueError("All rows must be rendered in one mode.")
                    return tuple(pool.render(modes.pop(), env_ids=rows))
                case "call":
                    return tuple(
                        pool.call(name, *given, env_ids=[row], **named)[0]
                        for row, (name, given, named) in zip(
                            rows, request.arguments, strict=True
                        )
                    )
            raise NotImplementedError(
                f"{request.method}() does not go to the environments of a pool."
            )
        except Exception as error:
            failure = RemoteFailure.of(error, command=f"{request.method}()")
            failures = (failure._replace(env=env) for env in request.envs)
            return tuple(map(self._located, failures))

    def _keep_state(self, state: Any) -> bytes:
        name = secrets.token_bytes(16)
        self._states[name] = state
        while len(self._states) > _MOST_STATES:
            self._states.popitem(last=False)
        return name

    def _kept_state(self, name: bytes) -> Any:
        if name not in self._states:
            raise ValueError(
                f"the server keeps the last {_MOST_STATES} states of a session, and "
                "this is none of them"
            )
        return self._states[name]

    def _whole_state(self, values: list[Any]) -> tuple[bytes, list[bool]]:
        tokens = {value[0] for value in values if value is not None}
        if len(tokens) != 1 or None in values:
            raise ValueError("The rows of a pool are set to one state, all together.")
        return tokens.pop(), [bool(value[1][0]) for value in values]


def _as_seed(value: Any, method: str) -> Any:
    if method == "seed_rows" and isinstance(value, list):
        return value[0]
    return value


def _row_of(info: Any, row: int) -> Any:
    """Returns the info of one row, of those of a batch."""
    if isinstance(info, list):
        return info[row]
    if isinstance(info, Mapping):
        return {key: _row_of(value, row) for key, value in info.items()}
    return info[row] if np.ndim(info) else info
