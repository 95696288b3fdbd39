"""`RowCalls`: calls something on every environment of a batch and collects failures."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from envkit.interruptible import wait_a_while
from envkit.wording import counted

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["RowCalls", "with_rows"]


class RowCalls:
    """Calls functions on environments one after the other, or each in a thread.

    Example:
        >>> calls = RowCalls(["a", "b"], multithreading=False)
        >>> calls.run("upper", lambda env, row: f"{row}{env.upper()}", [0, 1])
        ['0A', '1B']
    """

    def __init__(self, envs: Sequence[Any], *, multithreading: bool) -> None:
        """Remembers the environments; threads are started when first needed."""
        self._envs = envs
        self._multithreading = multithreading and len(envs) > 1
        self._executor: ThreadPoolExecutor | None = None

    def run(
        self, call: str, function: Callable[[Any, int], Any], rows: Sequence[int]
    ) -> list[Any]:
        """Calls `function(env, row)` for each row and returns the results in order.

        Every row is called even if another raises. Then the first exception is raised,
        with a note of which environments failed in `call`.
        """

        def attempt(row: int) -> tuple[Any, Exception | None]:
            try:
                return function(self._envs[row], row), None
            except Exception as error:
                return None, error

        if self._multithreading:
            outcomes = self._attempt_in_threads(attempt, rows)
        else:
            outcomes = [attempt(row) for row in rows]
        failures = [
            (row, error)
            for row, (_, error) in zip(rows, outcomes, strict=True)
            if error is not None
        ]
        if failures:
            raise with_rows(call, failures)
        return [result for result, _ in outcomes]

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads stay in their process; a copy starts its own.
        make = functools.partial(RowCalls, multithreading=self._multithreading)
        return make, (self._envs,)

    def close(self) -> None:
        """Ends the threads."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def _attempt_in_threads(
        self, attempt: Callable[[int], Any], rows: Sequence[int]
    ) -> list[Any]:
        from concurrent.futures import ThreadPoolExecutor

        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                len(self._envs), thread_name_prefix="envkit-row"
            )
        turnstile = _Turnstile()
        try:
            return list(self._executor.map(turnstile.guarding(attempt), rows))
        except BaseException:
            # Ctrl-C arrives here while environments are still in their steps. The next
            # call must not find one there. The executor cannot tell: a thread it was
            # just starting is not on its list yet.
            turnstile.close()
            raise


class _Turnstile:
    """Counts the calls inside, and after it was closed lets nobody in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def guarding(self, function: Callable[[int], Any]) -> Callable[[int], Any]:
        """Returns the function with the turnstile in front of it."""

        def guarded(row: int) -> Any:
            with self._changed:
                if self._closed:
                    return None
                self._inside += 1
            try:
                return function(row)
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

        return guarded

    def close(self) -> None:
        """Waits until everybody inside has left."""
        with self._changed:
            self._closed = True
            while self._inside:
                wait_a_while(self._changed)


def with_rows(call: str, failures: list[tuple[int, Exception]]) -> Exception:
    """Takes the first failure and notes on it which environments failed."""
    (row, error), *rest = failures
    text = f"Raised by env {row} of a BatchedPyEnvironment in {call}()."
    if rest:
        text += f" {counted(len(rest), 'other environment')} failed too:"
    for other, also in rest:
        text += f"\n  env {other} raised {type(also).__name__}: {also}"
    notes = getattr(error, "__notes__", [])
    if text not in notes:  # Some environments raise the same object each time.
        # Where Python has add_note (3.11) it does this; before, pytest and others
        # that know __notes__ show it. An exception that cannot take a note matters
        # more than the note.
        with contextlib.suppress(Exception):
            error.__notes__ = [*notes, text]  # type: ignore[attr-defined,unused-ignore]
    return error
