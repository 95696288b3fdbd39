"""`BackendTrial`: makes backends for the checks, and knows where their workers live."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cached_property

from envkit.parallel.backends.base import Backend
from envkit.parallel.slab_layout import RESET
from envkit.testing.contract.findings import Skipped
from tests.parallel.contract.crew import Crew

__all__ = ["BackendTrial"]


class BackendTrial:
    """One examination of a backend: everything the checks share.

    Starting workers takes longer than most checks, so those that leave a crew as it
    was have one in common. After a check that failed, there is another.

    Attributes:
        name: What the class of the backend is called.
    """

    def __init__(self, make_backend: Callable[[], Backend], patience: float) -> None:
        """Keeps what makes a backend, and how long to wait for what does not come."""
        self._make = make_backend
        self.name = getattr(make_backend, "__qualname__", None) or repr(make_backend)
        self.patience = patience
        self._shared: Crew | None = None
        self._own: list[Crew] = []

    def _make_backend(self) -> Backend:
        backend = self._make()
        self.name = type(backend).__name__
        return backend

    def new_crew(self) -> Crew:
        """Makes a crew for one check alone; nothing has been started."""
        crew = Crew(self._make_backend(), self.patience)
        self._own.append(crew)
        return crew

    def common_crew(self) -> Crew:
        """Returns the crew that checks have in common, as the check before left it.

        Its workers have rows 0 and 1, row 2, and row 3.
        """
        if self._shared is None:
            self._shared = Crew(self._make_backend(), self.patience)
            self._shared.start((2, 1, 1))
        return self._shared

    def last_crew(self) -> Crew:
        """Returns the common crew for a check after which it is of no use."""
        crew, self._shared = self.crew(), None
        self._own.append(crew)
        return crew

    def crew(self) -> Crew:
        """Returns the common crew; each of its rows has begun an episode."""
        crew = self.common_crew()
        rows = range(crew.rows)
        crew.send(rows, RESET)
        crew.await_rows(rows)
        return crew

    @cached_property
    def _place(self) -> tuple[int, int]:
        process, thread, _ = self.crew().where(0)
        return process, thread

    @property
    def is_apart(self) -> bool:
        """True if environments are in other processes."""
        return self._place[0] != os.getpid()

    @property
    def is_aside(self) -> bool:
        """True if environments run while the caller does something else."""
        return self._place != (os.getpid(), threading.get_ident())

    def need_aside(self) -> None:
        """Skips a check where no caller can look while an environment runs."""
        if not self.is_aside:
            raise Skipped("environments run in the caller's own thread")

    def need_apart(self) -> None:
        """Skips a check about processes."""
        if not self.is_apart:
            raise Skipped("environments are in the caller's own process")

    def end_check(self, *, failed: bool) -> None:
        """Ends the crews of one check, and after a failure the common one too."""
        crews, self._own = self._own, []
        if failed and self._shared is not None:
            crews.append(self._shared)
            self._shared = None
        for crew in crews:
            crew.clean_up()

    def close(self) -> None:
        """Ends everything."""
        self.end_check(failed=True)
