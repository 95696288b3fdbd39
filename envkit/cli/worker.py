"""`envkit worker ADDRESS`: runs one worker of a pool, usually on another machine."""

from __future__ import annotations

import argparse

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = 'linked(["ssh box envkit worker {address}"])  # the backend of a pool'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\nIt exits when the worker does, with the same status."
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="the address that the pool puts in place of {address}; it works once",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the worker until its pool releases it."""
    from envkit.distributed.worker_host import host_worker

    return host_worker(arguments.address)
