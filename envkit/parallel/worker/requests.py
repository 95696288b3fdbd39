"""`RequestHandler`: answers requests other than rows' commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit.base_wrapper import rendered, rows_in_wrapper, set_attribute
from envkit.batches import hand_options
from envkit.parallel.messages import RemoteFailure, Reply, Request, question_text
from envkit.parallel.worker.env_row import EnvRow, SentOptions
from envkit.parallel.worker.env_rows import EnvRows
from envkit.parallel.worker.environments import end_fork
from envkit.types import Array

__all__ = ["RequestHandler"]

_LARGEST = 2**32 - 1


class RequestHandler:
    """Answers the requests to a worker's environments."""

    def __init__(
        self,
        env_rows: EnvRows,
        dump_state: Callable[[Any], bytes],
        load_state: Callable[[bytes], Any],
    ) -> None:
        """Takes the environments.

        Args:
            env_rows: The environments with their rows.
            dump_state: Converts the state of an environment into bytes.
            load_state: Converts these bytes back.
        """
        self._env_rows, self._host = env_rows, env_rows.host
        self._dump_state, self._load_state = dump_state, load_state
        self._sequence = env_rows.slab.words.numbers

    def handle(self, request: Request) -> Reply:
        """Answers a request for each of its environments."""
        first = self._host.job.first_env
        results = tuple(
            self._to_one(request.method, env - first, argument)
            for env, argument in zip(request.envs, request.arguments, strict=True)
        )
        return Reply(request.number, results)

    def _to_one(self, method: str, index: int, argument: Any) -> Any:
        try:
            result = self._answer(method, self._env_rows.all[index], argument)
            end_fork(self._host.forked)
        except BaseException as error:
            self._host.let_through(error)
            return RemoteFailure.of(
                error,
                env=self._host.job.first_env + index,
                command=question_text(method, [argument]),
                pid=os.getpid(),
            )
        return result

    def _answer(self, method: str, env_row: EnvRow, argument: Any) -> Any:
        index, env_rows, eager = env_row.index, self._env_rows, self._env_rows.eager
        # The info was kept, and a new state replaces everything.
        if eager.due and method not in ("get_info", "set_state"):
            env_rows.settle(env_row)
        env = env_row.env
        if method != "get_info":
            env_rows.infos.invalidate(index, env_row.block)
            if not env_row.is_batch:
                env_rows.direct.doubt(env_row.place)
        match method:
            case "call":
                name, args, kwargs = argument
                return getattr(env, name)(*args, **kwargs)
            case "access":
                return getattr(env, argument[0])
            case "set_attr":
                return set_attribute(env, *argument)
            case "env_is_wrapped":
                return rows_in_wrapper(env, *argument)
            case "render":
                return rendered(env, argument)
            case "seed":
                eager.mark_seeded(env_row.place)
                return self._host.seed(index, argument)
            case "seed_rows":
                eager.mark_seeded(env_row.place)
                return self._host.seed_rows(index, argument)
            case "reset":
                return self._hand_options(env_row, *argument)
            case "get_info":
                return env_rows.info(env_row)
            case "get_state":
                # As bytes, so that nothing can change it later, and only environments
                # must know its contents.
                state = eager.state_of(env_row.place, env.get_state(), self._dump_state)
                return self._dump_state(state)
            case "set_state":
                return self._set_state(env_row, *argument)
            case "save":
                state = eager.state_of(env_row.place, env.get_state(), _as_text)
                return self._saved(state, argument)
            case "assume_seed":
                return self._host.assume_seed(index, *argument)
        raise ValueError(f"The request {method!r} does not exist.")

    def _hand_options(self, env_row: EnvRow, options: Any, mask: Array | None) -> None:
        """Stores options for the next reset only."""
        env_row.options = None
        hand_options(env_row.env, options, mask)
        if options is None:
            return
        row = env_row.rows[0 if mask is None else int(np.argmax(mask))]
        number = (self._sequence[row] + 2) & _LARGEST
        env_row.options = SentOptions(env_row.env, row, number, options, mask)

    def _saved(self, state: Any, pickles: bool) -> bytes | str:
        """Returns a state for a checkpoint, or why a checkpoint cannot hold it."""
        from envkit.parallel.worker.plain_states import plain_state  # few ever save
        from envkit.provenance import PlainDataError

        try:
            return plain_state(state)
        except PlainDataError as error:
            return self._dump_state(state) if pickles else str(error)

    def _read_state(self, state: bytes) -> Any:
        from envkit.parallel.worker.plain_states import (
            is_plain_state,
            read_plain_state,
        )

        return (read_plain_state if is_plain_state(state) else self._load_state)(state)

    def _read_info(self, info: bytes | str) -> Any:
        from envkit.parallel.worker.plain_states import read_plain_state

        if isinstance(info, str):
            return read_plain_state(info.encode())
        return self._load_state(info)

    def _set_state(self, env_row: EnvRow, state: bytes, ended: Sequence[bool]) -> None:
        try:
            token = self._read_state(state)
        except Exception as error:  # Broken bytes may raise anything.
            raise ValueError(
                f"The state cannot be read: {type(error).__name__}: {error}"
            ) from error
        self._env_rows.set_state(env_row, token, ended, self._read_info)


def _as_text(info: Any) -> str:
    from envkit.parallel.worker.plain_states import plain_state

    return plain_state(info).decode()
