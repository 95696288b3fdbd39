"""`Questions`: what environments are asked besides rows, and what they answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from envkit.errors import WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import Backend
from envkit.parallel.messages import RemoteFailure, Reply, Request
from envkit.parallel.row_book import RowMap
from envkit.parallel.workforce import Workforce

__all__ = ["Questions"]


class Questions:
    """Sends questions to idle workers and keeps the answers until they are taken.

    Each worker gets one question about all of its environments that are asked.
    """

    def __init__(self, backend: Backend, workforce: Workforce, row_map: RowMap) -> None:
        """Begins with no question open."""
        self._backend = backend
        self._workforce = workforce
        self._map = row_map
        self._numbers = itertools.count(1)
        self._replies: dict[int, Reply | WorkerError] = {}
        # For each question: the worker, and which of the caller's environments.
        self._asked: dict[int, tuple[int, tuple[int, ...]]] = {}

    def by_worker(self, envs: Sequence[int]) -> dict[int, list[int]]:
        """Returns, for each worker, which of the given environments it has."""
        by_worker: dict[int, list[int]] = {}
        for position, env in enumerate(envs):
            by_worker.setdefault(self._worker_of(env), []).append(position)
        return by_worker

    def _worker_of(self, env: int) -> int:
        return int(self._map.worker_of_row[self._map.rows_of_env[env].start])

    def send(
        self,
        method: str,
        envs: Sequence[int],
        arguments: Sequence[Any],
        by_worker: Mapping[int, Sequence[int]],
        text: str,
    ) -> list[int]:
        """Asks workers that are idle, and returns the numbers of the questions.

        Args:
            method: What every environment is asked.
            envs: Which environments.
            arguments: For each of them, what goes with the question.
            by_worker: What the method of this name returned for them.
            text: How to call the question while it is waited for.
        """
        numbers = []
        for worker, positions in by_worker.items():
            number = next(self._numbers)
            request = Request(
                number,
                method,
                tuple(envs[position] for position in positions),
                tuple(arguments[position] for position in positions),
            )
            numbers.append(number)
            self._asked[number] = (worker, tuple(positions))
            self._workforce.workers[worker].doing = text
            try:
                self._backend.request(worker, request)
            except BaseException:
                # Nobody knows whether it went out, and nobody will wait for it.
                self.forget(numbers)
                raise
        return numbers

    def forget(self, numbers: Sequence[int]) -> None:
        """Notes that nobody waits for the answers to these questions any more.

        One that is still out there is answered before whatever is asked later, since
        both take the same way, so its worker counts as idle.
        """
        for number in numbers:
            asked = self._asked.pop(number, None)
            if asked is not None:
                self._workforce.workers[asked[0]].doing = None
            self._replies.pop(number, None)

    def note_reply(self, worker: int, reply: Reply) -> None:
        """Takes in an answer."""
        if reply.number in self._asked:
            self._workforce.workers[worker].doing = None
            self._replies[reply.number] = reply

    def note_exit(self, worker: int, error: WorkerError) -> None:
        """Notes why a worker will not answer what it was asked."""
        for number in [n for n, (w, _) in self._asked.items() if w == worker]:
            self._replies[number] = error

    def are_answered(self, numbers: Sequence[int]) -> bool:
        """Says whether all of these questions have been answered."""
        return all(number in self._replies for number in numbers)

    def take(self, numbers: Sequence[int], count: int) -> list[Any]:
        """Returns what each of `count` environments answered, or raises."""
        results: list[Any] = [None] * count
        for number in numbers:
            reply = self._replies[number]
            _, positions = self._asked[number]
            if isinstance(reply, WorkerError):
                raise reply
            for position, result in zip(positions, reply.results, strict=True):
                results[position] = result
        return results

    def raise_failures(self, envs: Sequence[int], results: Sequence[Any]) -> None:
        """Raises what environments raised when they were asked something."""
        problems = [
            failures.raised(
                self._worker_of(env),
                result,
                self._workforce.maker(env),
                "",
                envs=(env,),
            )
            for env, result in zip(envs, results, strict=True)
            if isinstance(result, RemoteFailure)
        ]
        if problems:
            raise failures.joined(problems)
