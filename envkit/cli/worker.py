"""`envkit worker ADDRESS`: runs one worker of a pool that may be elsewhere."""

from __future__ import annotations

import argparse

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = 'linked(["ssh box envkit worker {address}"])  # the backend of a pool'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\nIt ends with the worker, and with its exit status."
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="what the pool writes in place of {address}; it can be used once",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the worker until its pool lets it end."""
    from envkit.distributed.worker_host import host_worker

    return host_worker(arguments.address)
