"""Sessions for NeMo Gym: `to_nemo` makes a server of resources that its agent plays.

```
gymnasium_agent                                  the application
  POST /reset {row}                          ──▶  {observation, info}, and a cookie
  POST /step {row, response}                 ──▶  {observation, reward, terminated,
       with "_ng_step_request_id"                  truncated, info}
  POST /close                                ──▶  {}
  POST /aggregate_metrics {verify_responses} ──▶  {agent_metrics, ...}
```

A lost environment is an error with `failure_kind` and `mask_sample`, whose status is
500: the agent raises, so its rollout is a failure and never a sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from envkit._shared.http_tokens import token_in
from envkit._shared.secret_files import check_token
from envkit._shared.web_pages import is_json, web_page_refusal
from envkit.errors import MissingDependencyError, WorkerError
from envkit.extend import describe
from envkit.sessions.leases import LeaseTimeout
from envkit.sessions.replies import Replies
from envkit.sessions.rewards import check_rewards
from envkit.sessions.session import (
    Session,
    SessionEnded,
    SessionLost,
    Turn,
    unless_lost,
)
from envkit.sessions.sessions import Sessions
from envkit.sessions.tools import call_text
from envkit.types import EnvConstructor

__all__ = ["to_nemo"]

_COOKIE = "envkit_session"
_LARGEST = 64 << 20  # bytes of a request
_LONGEST_ID = 128
_MOST_KEPT = 16  # answers of a session that a repeated request gets again
_TASK = "_ng_task_index"


def to_nemo(
    target: str | EnvConstructor,
    size: int,
    *,
    token: str | None,
    host: str = "127.0.0.1",
    lease_timeout: float = 600.0,
    idle_timeout: float = 3600.0,
    **kwargs: Any,
) -> Any:
    """Returns a Starlette application that NeMo Gym 0.7 plays with `gymnasium_agent`.

    ```
    # wordle_server.py
    import os

    from envkit.sessions import to_nemo

    app = to_nemo("textarena:Wordle-v0", size=64, token=os.environ["TOKEN"])
    ```

    ```console
    $ uvicorn wordle_server:app --host 127.0.0.1 --port 8000
    ```

    A row's "seed" and "options" are those of the reset. The model's text is the action,
    or its function calls are, where the environment declares tools.

    Args:
        target: The environments, as `Sessions` takes them.
        size: How many there are.
        token: The secret of the clients, whose address is `token:SECRET@HOST`, or whose
            requests have the header `Authorization: Bearer SECRET`; `None` opens the
            application to every account of the machine, though not to web pages.
        host: The address at which you serve it; without a token, other names in a
            request are refused.
        lease_timeout: Seconds that a reset waits for a free environment.
        idle_timeout: Seconds after which a session that nobody calls has ended.
        **kwargs: Further arguments of `Sessions`, and of the environments.

    Raises:
        MissingDependencyError: Starlette is not installed.
        ValueError: The token can be guessed.
    """
    if token is not None:
        check_token(token.encode())
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise MissingDependencyError.needed_by(
            "to_nemo", package="starlette", extra="openenv"
        ) from error
    sessions = Sessions(target, size, idle_timeout=idle_timeout, **kwargs)
    server = _Server(sessions, lease_timeout, idle_timeout)

    def route(name: str) -> Any:
        async def answer(request: Request) -> Response:
            try:
                _check_access(request.headers, token, host)
                data = await _body_of(request)
                told = await server.answer(name, data, request.cookies.get(_COOKIE))
            except _Refusal as refusal:
                told = _Answer(refusal.content, refusal.status)
            # In ASCII: UTF-8 has no form for half a pair, which models write, too.
            body = json.dumps(told.content, allow_nan=False)
            response = Response(body, told.status, media_type="application/json")
            if told.cookie:
                response.set_cookie(
                    _COOKIE, told.cookie, httponly=True, samesite="strict"
                )
            return response

        return Route(f"/{name}", answer, methods=["POST"])

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with sessions:
            check_rewards(sessions)
            yield

    names = ("reset", "step", "close", "aggregate_metrics")
    return Starlette(routes=[route(name) for name in names], lifespan=lifespan)


class _Answer(NamedTuple):
    content: Mapping[str, Any]
    status: int = 200
    cookie: str = ""


class _Refusal(Exception):
    """A request gets an error; with a `failure_kind`, its rollout is no sample."""

    def __init__(self, status: int, reason: str, failure_kind: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.content: dict[str, Any] = {"detail": reason}
        if failure_kind:
            self.content |= {
                "mask_sample": True,
                "failure_kind": failure_kind,
                "failure_reason": reason,
            }


def _check_access(headers: Any, token: str | None, host: str) -> None:
    if token is not None:
        given = token_in(headers)
        if given is None or not hmac.compare_digest(given, token.encode()):
            what = "The header 'Authorization: Bearer TOKEN' must have the token."
            raise _Refusal(401, what)
    elif reason := web_page_refusal(headers.items(), host):
        raise _Refusal(403, reason)
    kind = headers.get("content-type", "")
    if not is_json(kind):
        what = f"The header Content-Type must be application/json, got {kind[:80]!r}."
        raise _Refusal(415, what)


async def _body_of(request: Any) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise _Refusal(413, f"The body must have at most {_LARGEST} bytes.")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refusal(422, f"The body must be JSON: {error!s:.120}.") from error
    if not isinstance(data, dict):
        raise _Refusal(422, "The body must be an object.")
    return data


class _Episode:
    """A client's session, and its answers to steps that may be asked for again."""

    def __init__(self, session: Session, now: float) -> None:
        self.session, self.used = session, now
        self.steps: dict[str, asyncio.Task[_Answer]] = {}
        self.lock = asyncio.Lock()


class _Server:
    """Answers the requests of all clients."""

    def __init__(
        self, sessions: Sessions, lease_timeout: float, idle_timeout: float
    ) -> None:
        self._sessions = sessions
        self._lease_timeout, self._idle_timeout = lease_timeout, idle_timeout
        self._episodes: dict[str, _Episode] = {}
        # A step goes on if its client leaves.
        self._running: set[asyncio.Task[_Answer]] = set()

    async def answer(
        self, name: str, data: dict[str, Any], cookie: str | None
    ) -> _Answer:
        """Answers a request."""
        if name == "aggregate_metrics":
            return _Answer(_aggregated(data.get("verify_responses")))
        known = cookie if cookie in self._episodes else None
        if name == "close":
            self._forget(known)
            return _Answer({})
        if name == "reset":
            return await self._reset(data, known)
        return await self._step(data, known)

    def _forget(self, cookie: str | None) -> None:
        episode = self._episodes.pop(cookie, None) if cookie else None
        if episode is not None:
            episode.session.release()

    async def _reset(self, row: dict[str, Any], cookie: str | None) -> _Answer:
        seed, options = row.get("seed"), row.get("options")
        is_number = isinstance(seed, int) and not isinstance(seed, bool)
        if seed is not None and not (is_number and seed >= 0):
            raise _Refusal(422, "The row's seed must be an integer, 0 or more.")
        if not isinstance(options, dict | None):
            raise _Refusal(422, "The row's options must be an object.")
        self._forget(cookie)
        self._forget_old()
        try:
            session = await self._sessions.lease(timeout=self._lease_timeout)
        except (LeaseTimeout, WorkerError) as error:
            raise _Refusal(503, str(error), "provider_unavailable") from error
        try:
            with _failures():
                turn = unless_lost(await session.reset(seed=seed, options=options))
        except BaseException:
            session.release()
            raise
        cookie = secrets.token_urlsafe(24)
        self._episodes[cookie] = _Episode(session, self._now())
        text = "\n\n".join(filter(None, [turn.text, self._replies().instructions]))
        info = {"supports_explicit_close": True, "supports_step_idempotency": True}
        return _Answer({"observation": text, "info": info}, cookie=cookie)

    def _replies(self) -> Replies:
        # Function calls need no instructions; a row declares the tools to its model.
        return Replies(self._sessions.action_spec())

    def _forget_old(self) -> None:
        oldest = self._now() - self._idle_timeout
        for cookie, episode in list(self._episodes.items()):
            if episode.used < oldest and not episode.lock.locked():
                self._forget(cookie)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _step(self, data: dict[str, Any], cookie: str | None) -> _Answer:
        number = data.get("_ng_step_request_id", "")
        is_right = isinstance(number, str) and len(number) <= _LONGEST_ID
        if not is_right or (not number and "_ng_step_request_id" in data):
            what = f"_ng_step_request_id must be text of 1 to {_LONGEST_ID} characters."
            raise _Refusal(422, what)
        if cookie is None:
            what = "There is no session of this cookie: begin with /reset."
            raise _Refusal(404, what, "session_lost")
        episode = self._episodes[cookie]
        episode.used = self._now()
        task = episode.steps.get(number)
        if task is None:
            task = asyncio.ensure_future(self._stepped(episode, data.get("response")))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            if number:
                episode.steps[number] = task
                if len(episode.steps) > _MOST_KEPT:
                    del episode.steps[next(iter(episode.steps))]
        return await asyncio.shield(task)

    async def _stepped(self, episode: _Episode, response: Any) -> _Answer:
        """Makes the steps of a response; a failure is an answer, to be given again."""
        session = episode.session
        async with episode.lock:
            try:
                with _failures():
                    if unless_lost(session.turn).end is not None:
                        what = "The episode has ended: begin another with /reset."
                        raise _Refusal(409, what)
                    return _Answer(await _played(session, self._replies(), response))
            except _Refusal as refusal:
                return _Answer(refusal.content, refusal.status)
            finally:
                if session.turn.end is not None:
                    session.release()


@contextlib.contextmanager
def _failures() -> Any:
    """Turns what ends a session into refusals."""
    try:
        yield
    except SessionLost as error:
        raise _Refusal(500, str(error), "session_lost") from error
    except SessionEnded as error:
        is_idle = error.reason == "idle"
        kind = "session_expired" if is_idle else "session_lost"
        raise _Refusal(500, str(error), kind) from error
    except NotImplementedError as error:  # it takes no seed, or no options
        raise _Refusal(422, str(error)) from error
    except WorkerError as error:  # as when its seed() raises
        raise _Refusal(500, str(error), "session_lost") from error


async def _played(session: Session, replies: Replies, response: Any) -> dict[str, Any]:
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list):
        raise _Refusal(422, "The response must be an object with a list 'output'.")
    items = [item for item in output if isinstance(item, dict)]
    calls = [item for item in items if item.get("type") == "function_call"]
    if calls and session.tools:
        return await _called(session, calls)
    try:
        action = replies.action(_text_of(items))
    except ValueError as error:  # no step is made
        return _told(session.turn, f"Error: {error}", 0.0)
    turn = unless_lost(await session.step(action))
    return _told(turn, turn.text, turn.reward)


async def _called(
    session: Session, calls: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Makes a step of each function call, until the episode ends."""
    outputs, reward = [], 0.0
    for call in calls:
        if session.turn.end is None:
            text, gained = await _call(session, call)
            reward += gained
        else:
            text = "Error: The episode has ended."
        outputs.append({"call_id": call.get("call_id"), "output": text})
    return _told(session.turn, None, reward, {"tool_outputs": outputs})


async def _call(session: Session, call: Mapping[str, Any]) -> tuple[str, Any]:
    try:
        arguments = json.loads(call.get("arguments") or "{}")
        if not isinstance(arguments, dict):
            raise TypeError(f"got {describe(arguments)}")
    except (TypeError, ValueError, RecursionError) as error:
        return f"Error: The arguments must be a JSON object: {error!s:.120}.", 0.0
    try:
        action = call_text(session.tools, str(call.get("name")), arguments)
    except (LookupError, TypeError) as error:
        return f"Error: {error.args[0]}", 0.0
    turn = unless_lost(await session.step(action))
    return turn.text, turn.reward


def _told(
    turn: Turn, observation: str | None, reward: Any, info: Mapping[str, Any] = {}
) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": turn.end == "terminated",
        "truncated": turn.end == "truncated",
        "info": {"steps": turn.steps, **info},
    }


def _text_of(items: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for item in items:
        if item.get("type") == "message":
            content = item.get("content")
            if isinstance(content, str):
                parts.append(content)
            elif isinstance(content, list):
                parts += [
                    str(part.get("text", ""))
                    for part in content
                    if isinstance(part, dict) and part.get("type") == "output_text"
                ]
    return "".join(parts)


def _aggregated(responses: Any) -> dict[str, Any]:
    """Returns the metrics of rollouts, without those that are no samples."""
    if not isinstance(responses, list):
        raise _Refusal(422, "The body must have the list 'verify_responses'.")
    try:
        scored = [
            (one.get(_TASK, 0), float(one["reward"]))
            for one in responses
            if not one.get("mask_sample")
        ]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = "Each of 'verify_responses' must have a number 'reward'."
        raise _Refusal(422, what) from error
    by_task: dict[Any, list[float]] = {}
    for task, reward in scored:
        by_task.setdefault(task, []).append(reward)
    overall = _figures([reward for _, reward in scored])
    masked = len(responses) - len(scored)
    if masked:
        overall["coverage/measured_rollouts"] = len(scored)
        overall["coverage/masked_rollouts"] = masked
    return {
        "group_level_metrics": [
            {_TASK: task, **_figures(rewards)} for task, rewards in by_task.items()
        ],
        "agent_metrics": overall,
        "key_metrics": overall,
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


def _figures(rewards: Sequence[float]) -> dict[str, Any]:
    if not rewards:
        return {}
    return {
        "mean/reward": statistics.fmean(rewards),
        "min/reward": min(rewards),
        "max/reward": max(rewards),
        "median/reward": statistics.median(rewards),
    }
