"""Packs and unpacks the messages between a pool and worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.errors import ConstructorError
from envkit.parallel import serialize
from envkit.parallel.messages import (
    Bind,
    Hello,
    ObjectActions,
    ObjectRow,
    Packed,
    PackedJob,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout

__all__ = [
    "not_started",
    "pack_actions",
    "pack_bind",
    "pack_job",
    "pack_request",
    "unpacked_hello",
    "unpacked_leaves",
    "unpacked_reply",
]


def pack_job(job: WorkerJob, *, inherits: bool = False) -> PackedJob:
    """Pickles the constructors of a job, unless the worker inherits them.

    Raises:
        ConstructorError: They cannot be pickled; or this worker is making workers,
            because it imports a program that does.
    """
    serialize.refuse_while_importing("A pool of worker processes")
    bare = job._replace(constructors=(), setup=None)
    if inherits:
        return PackedJob(bare, ())
    return PackedJob(
        bare,
        tuple(
            serialize.dump_constructor(constructor, job.first_env + index)
            for index, constructor in enumerate(job.constructors)
        ),
        serialize.dump_setup(job.setup),
    )


def pack_bind(bind: Bind, *, inherits: bool = False) -> Packed:
    """Pickles a layout, with the specs in it."""
    return Packed(serialize.dump_value(bind, "The specs", to_fork=inherits))


def pack_request(request: Request, *, inherits: bool = False) -> Request:
    """Pickles the arguments of a request."""
    payload = serialize.dump_value(request.arguments, "An argument", to_fork=inherits)
    return request._replace(arguments=payload)


def pack_actions(
    slab: Slab, rows: Sequence[int], first: int = 0, *, inherits: bool = False
) -> ObjectActions:
    """Pickles the leaves of actions that shared memory cannot hold.

    Args:
        slab: The pool's slab.
        rows: The rows of one worker.
        first: The row that is row 0 to the worker.
        inherits: Whether the worker is a fork of this process.
    """
    message = ObjectActions({}, {})
    for row in rows:
        leaves = slab.action_objects(row)
        packed = serialize.dump_value(leaves, "An action", to_fork=inherits)
        message.numbers[row - first] = int(slab.numbers[row])
        message.leaves[row - first] = packed
    return message


def unpacked_hello(message: Packed) -> Hello | RemoteFailure:
    """Unpickles a worker's specs; returns a failure if that is impossible here."""
    try:
        return serialize.load_value(message.payload)  # type: ignore[no-any-return]
    except Exception as error:
        return RemoteFailure.of(
            ConstructorError(
                "The specs of an environment, which its worker has sent, cannot be "
                f"loaded in this process: {type(error).__name__}: {error}. Their "
                "classes must be importable here, too, or be defined in the main "
                "script."
            ),
            kind="constructor",
            command="construct",
        )


def unpacked_reply(reply: Reply) -> Reply:
    """Unpickles the values of a reply; a value that cannot be loaded is a failure."""
    results: list[Any] = []
    for result in reply.results:
        if isinstance(result, RemoteFailure):
            results.append(result)
            continue
        try:
            results.append(serialize.load_value(result))
        except Exception as error:
            results.append(RemoteFailure.of(error, command="answer"))
    return Reply(reply.number, tuple(results))


def unpacked_leaves(message: ObjectRow, layout: SlabLayout) -> dict[int, Any]:
    """Unpickles the leaves of a time step that shared memory cannot hold."""
    try:
        return serialize.load_value(message.leaves)  # type: ignore[no-any-return]
    except Exception as error:
        # Perhaps only the worker knows its class. The caller gets the exception in
        # place of the object.
        values = np.empty((), object)
        values[()] = error
        return dict.fromkeys(layout.private_steps, values)


def not_started(error: OSError) -> RemoteFailure:
    """Returns the failure of a worker that could not be restarted."""
    return RemoteFailure.of(error, kind="start", command="start")
