"""`AsyncCalls`: calls of a vector environment that begin now and are waited for later.

One goes on at a time. A wait that has timed out loses nothing: what was begun goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from envkit.adapters.gymnasium_vector.pending_calls import PendingCall, timeout_error
from envkit.adapters.gymnasium_vector.row_infos import Infos
from envkit.adapters.gymnasium_vector.vector_rows import Rows
from envkit.types import Array

__all__ = ["AsyncCalls"]


class AsyncCalls:
    """The part of a vector environment that begins calls and waits for them.

    Whoever has it makes the calls: `_reset` is given what `_as_resets` makes of the
    arguments, and `_step` what `_as_actions` makes of them.
    """

    closed: bool
    _name: str
    _rows: Rows
    _has_begun: bool
    # What has been begun and not waited for.
    _pending: PendingCall | None

    def _as_resets(self, seed: Any, options: Mapping[str, Any] | None) -> Any:
        raise NotImplementedError

    def _reset(self, *resets: Any) -> tuple[Any, Infos]:
        raise NotImplementedError

    def _as_actions(self, actions: Any) -> Any:
        raise NotImplementedError

    def _step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        raise NotImplementedError

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins to do what `reset` does; `reset_wait` returns the result."""
        late = self._let_go("reset_async", wait=False)
        arguments = self._as_resets(seed, options)

        def run() -> Any:
            if late is not None:
                late.wait()
            return self._reset(*arguments)

        self._pending = PendingCall("reset", run)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Waits for `reset_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet; `reset_wait` may be called again.
        """
        result: tuple[Any, Infos] = self._wait("reset", timeout)
        return result

    def step_async(self, actions: Any) -> None:
        """Begins to do what `step` does; `step_wait` returns the result."""
        if self._pending is not None or not self._has_begun or self.closed:
            self._refuse_step("step_async")
        own = self._as_actions(actions)
        if own is actions:
            own = actions.copy()
        self._pending = PendingCall("step", lambda: self._step(own))

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[Any, Array, Array, Array, Infos]:
        """Waits for `step_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet. `step_wait` may be called again, and
                `reset` lets go of the step.
        """
        result: tuple[Any, Array, Array, Array, Infos] = self._wait("step", timeout)
        return result

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begins to do what `call` does; `call_wait` returns the result."""
        self._check_idle("call_async")
        self._pending = PendingCall("call", lambda: self._rows.call(name, args, kwargs))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits for `call_async`.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TimeoutError: It is not over yet; `call_wait` may be called again.
        """
        result: tuple[Any, ...] = self._wait("call", timeout)
        return result

    def _wait(self, kind: str, timeout: float | None) -> Any:
        self._check_open(f"{kind}_wait")
        pending = self._pending
        if pending is None or pending.kind != kind:
            from gymnasium.error import NoAsyncCallError

            raise NoAsyncCallError(
                f"{kind}_wait() was called without a {kind}_async() before it.", kind
            )
        # Until it is over. Ctrl-C comes here, too.
        pending.is_late = True
        if not pending.wait(timeout):
            raise timeout_error()(
                f"{kind}_wait() has waited for {timeout:g} s in vain. What "
                f"{kind}_async() began goes on: call {kind}_wait() again, or reset(), "
                "which lets go of it."
            )
        self._pending = None
        return pending.result()

    def _let_go(self, call: str, *, wait: bool = True) -> PendingCall | None:
        """Lets go of what somebody has waited for in vain."""
        self._check_open(call)
        pending = self._pending
        if pending is not None:
            if not pending.is_late:
                self._check_idle(call)
            if wait:
                pending.wait()
            self._pending = None
        return pending

    def _check_idle(self, call: str) -> None:
        self._check_open(call)
        pending = self._pending
        if pending is not None:
            from gymnasium.error import AlreadyPendingCallError

            kind = pending.kind
            raise AlreadyPendingCallError(
                f"{call}() was called while {kind}_async() is under way. Call "
                f"{kind}_wait() first"
                f"{', or reset(), which lets go of it' if pending.is_late else ''}.",
                kind,
            )

    def _check_open(self, call: str) -> None:
        if self.closed:
            self._raise(
                "ClosedEnvironmentError",
                f"{call}() was called after close().",
            )

    def _refuse_step(self, call: str) -> NoReturn:
        self._check_idle(call)
        self._raise(
            "ResetNeeded",
            f"{call}() was called before the first reset(). Call it first.",
        )

    def _raise(self, name: str, message: str) -> NoReturn:
        """Raises one of Gymnasium's errors."""
        from gymnasium import error

        raise getattr(error, name)(f"{type(self).__name__}({self._name}): {message}")
