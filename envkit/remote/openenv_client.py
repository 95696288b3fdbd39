"""OpenEnv: the environment behind an address, as an envkit environment.

`OpenEnvWrapper` plays the environments of any OpenEnv server, `envkit serve TARGET
--openenv` included. It speaks the protocol itself, so OpenEnv's package is not needed.
`envkit._shared.json_schema` converts schemas to specs.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from envkit._shared.arguments import checked_seconds
from envkit._shared.json_schema import EXACT_SCHEMA, JsonForm, has_specs, spec_of
from envkit._shared.peer_errors import LostError
from envkit._shared.secret_files import find
from envkit.adapters.foreign import require
from envkit.adapters.values import Converter, action_leaf, map_specs
from envkit.errors import SpecError
from envkit.extend import Result
from envkit.remote.losses import REPLACED, LosingClient
from envkit.remote.openenv_messages import (
    ClientSession,
    OpenEnvError,
    SessionState,
)
from envkit.specs.arrays import ArraySpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC
from envkit.types import NestedArray, NestedSpec

__all__ = ["OpenEnvError", "OpenEnvWrapper", "load"]

_Reached = TypeVar("_Reached")

_LOGGER = logging.getLogger(__name__)

_LARGEST_MESSAGE = 100 << 20  # as in OpenEnv's own client
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
# The keys that become other parts of a time step.
_BESIDE = ("done", "reward", "metadata")
_PAUSE = 0.1  # seconds between attempts to connect, at first


class _DeniedError(OpenEnvError):
    """The server requires another token, or is not an OpenEnv server."""


class OpenEnvWrapper(LosingClient):
    """Plays an environment of an OpenEnv server.

    | OpenEnv                          | time step                                   |
    |----------------------------------|---------------------------------------------|
    | `reset`                          | `FIRST`, reward 0, discount 1               |
    | `step`, not done                 | `MID`                                       |
    | `step`, done                     | `LAST`, discount 0 or as the metadata say   |
    | the connection is lost in a step | `LAST`, truncated, the observation again    |
    | the server has lost the process  | the same                                    |
    | any other error in a step        | `OpenEnvError`                              |

    A `discount` in the metadata is the discount. If the metadata say `truncated`, the
    `LAST` has discount 1. `get_info()` returns the metadata.

    A `LAST` after something was lost is made up: `repaired` is set, `current_losses()`
    and `losses()` have the kind and the error, and the info has the reason as `lost`.
    The action may have reached the environment, and is not sent again; the next reset
    connects again if it must.

    Each `OpenEnvWrapper` has its own connection, and so its own environment in the
    server.
    """

    def __init__(
        self,
        url: str,
        *,
        observation_spec: NestedSpec | None = None,
        action_spec: NestedSpec | None = None,
        reset_options: Mapping[str, Any] | None = None,
        text_length: int | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        cafile: str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
    ) -> None:
        """Connects to a server, and asks it for its schemas.

        Args:
            url: The address, such as `"http://localhost:8000"`.
            observation_spec: The specs of observations. Keys of an observation that are
                missing in a dictionary of specs are left out. By default, the server's
                schema and its first observation decide.
            action_spec: The specs of actions. By default those of the server's schema,
                without fields that have a default there.
            reset_options: The options of every reset, such as a task.
            text_length: The maximum length of text, which then has a fixed width. By
                default, texts are objects of any length.
            token: The server's token, sent in the header `Authorization: Bearer TOKEN`.
                The token of your own server on the same machine is found automatically.
            headers: More headers for the server.
            cafile: A file of trusted certificates, for https; `None` for the system's.
            timeout: Seconds to wait for an answer.
            connect_timeout: Seconds to wait for a connection.

        Raises:
            OpenEnvError: The server cannot be reached.
        """
        require("websockets", needed_by="OpenEnvWrapper", extra="openenv")
        super().__init__(handle_auto_reset=True)
        self._url, login = _checked_url(url)
        self._name = f"The OpenEnv server at {self._url}"
        self._headers = {**(headers or {})}
        if login:
            self._headers.setdefault("Authorization", login)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        is_safe = self._url.startswith("https")
        self._ssl = ssl.create_default_context(cafile=cafile) if is_safe else None
        self._timeout = _limited_seconds("timeout", timeout)
        self._connect_timeout = _limited_seconds("connect_timeout", connect_timeout)
        self._settings = dict(reset_options or {})
        # The answer to a reset that came before the first request for a time step.
        self._unseen: Result | None = None
        self._last_observation: Any = None
        schemas = self._schemas()
        try:
            self._set_specs(schemas, observation_spec, action_spec, text_length)
        except BaseException:
            self.close()
            raise

    def _set_specs(
        self,
        schemas: Mapping[str, Any],
        observation_spec: NestedSpec | None,
        action_spec: NestedSpec | None,
        text_length: int | None,
    ) -> None:
        if action_spec is None:
            action_spec = spec_of(
                schemas["action"],
                root="action",
                leave_out=("metadata",),
                only_required=True,
                text_length=text_length,
            )
        schema = schemas["observation"]
        if observation_spec is None:
            if has_specs(schema):
                example = None
            else:
                self._unseen = self._reset_on_server(self._settings)
                example = self._unseen.observation
            observation_spec = spec_of(
                schema,
                example,
                root="observation",
                leave_out=_BESIDE,
                text_length=text_length,
            )
        self._observation_spec, self._action_spec = observation_spec, action_spec
        self._reward_spec, self._discount_spec = _specs_beside(schema)
        # Those that it has no keys for are left out.
        self._keys = (
            tuple(observation_spec) if isinstance(observation_spec, Mapping) else None
        )
        self._observation = JsonForm(
            observation_spec,
            subject=f"{self._name} sent an observation that",
            root="observation",
        )
        subject = "OpenEnvWrapper.step() was given an action that"
        self._action = JsonForm(action_spec, subject=subject, root="action")
        self._read_action = Converter(
            action_spec,
            map_specs(action_leaf, action_spec),
            subject=subject,
            root="action",
        )
        self._prepare()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._url

    def session_state(self) -> dict[str, Any]:
        """Returns the server's answer to `state`: the episode, and its steps."""
        self._check_open("session_state")
        return dict(self._ask("state"))

    # The protocol.

    def _schemas(self) -> Mapping[str, Any]:
        """Returns the server's JSON Schemas; the server may still be starting."""
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        # envkit's servers leave out the specs unless asked for them.
        accepted = {"Accept": f"{EXACT_SCHEMA}, application/json;q=0.9"}

        def read(headers: dict[str, str], seconds: float) -> bytes:
            request = Request(f"{self._url}/schema", headers={**accepted, **headers})
            try:
                with urlopen(request, timeout=seconds, context=self._ssl) as answer:
                    return answer.read(_LARGEST_MESSAGE)  # type: ignore[no-any-return]  # bytes
            except HTTPError as error:
                error.close()
                raise _DeniedError(
                    f"{self._url}/schema answered {error.code} {error.reason}, so it "
                    "is no OpenEnv server, or it needs a token."
                ) from None  # its text contains the server's

        try:
            schemas = json.loads(self._reach(read))
        except (ValueError, RecursionError):
            schemas = None
        parts = ("action", "observation")
        if not isinstance(schemas, dict) or not all(
            isinstance(schemas.get(part), dict) for part in parts
        ):
            raise OpenEnvError(
                f"{self._url}/schema must answer JSON with an action and an "
                "observation; this is no OpenEnv server."
            )
        return schemas

    def _connect(self) -> None:
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect

        scheme, _, place = self._url.partition("://")

        def enter(headers: dict[str, str], seconds: float) -> Any:
            try:
                # Closed in `_close`, or when it is lost.
                return connect(
                    f"{_SCHEMES[scheme]}://{place}/ws",
                    additional_headers=headers,
                    ssl=self._ssl,
                    compression=None,
                    max_size=_LARGEST_MESSAGE,
                    open_timeout=seconds,
                    close_timeout=1,
                ).__enter__()
            except InvalidHandshake as error:
                raise _DeniedError(str(self._unreachable(error))) from error

        self._foreign = self._reach(enter)
        self._session = ClientSession(self._name)

    def _reach(self, attempt: Callable[[dict[str, str], float], _Reached]) -> _Reached:
        """Calls a function with headers and seconds until it reaches the server."""
        deadline, pause = time.monotonic() + self._connect_timeout, _PAUSE
        while True:
            # Looked up each time, because a starting server draws its token.
            headers = self._all_headers()
            try:
                return attempt(headers, max(deadline - time.monotonic(), 0.001))
            except _DeniedError:
                if headers == self._all_headers():
                    raise
            except OSError as error:  # also TimeoutError
                reason = getattr(error, "reason", error)
                is_late = time.monotonic() + pause >= deadline
                if is_late or isinstance(reason, ssl.SSLError):
                    raise self._unreachable(reason) from error
                time.sleep(pause)
                pause *= 2

    def _all_headers(self) -> dict[str, str]:
        """Returns the headers, with a token found for this user's server."""
        place = urlsplit(self._url)
        has_secret = any(name.lower() == "authorization" for name in self._headers)
        if has_secret or not place.hostname:
            return self._headers
        port = place.port or (443 if place.scheme == "https" else 80)
        token = find("token", place.hostname, port)
        if token is None:
            return self._headers
        return {**self._headers, "Authorization": f"Bearer {token}"}

    def _unreachable(self, reason: object) -> OpenEnvError:
        return OpenEnvError(
            f"{self._name} could not be reached within {self._connect_timeout:g} s: "
            f"{reason!s:.300}. Check the address, and that the server runs."
        )

    def _ask(self, kind: str, data: Any = None) -> Any:
        """Sends a message and returns the content of its answer.

        Raises:
            OpenEnvError: The answer is an error.
            LostError: There is none.
        """
        # Hot: called once per step.
        from websockets.exceptions import ConnectionClosed

        if self._foreign is None:
            self._connect()
        connection, session = self._foreign, self._session
        try:
            text = session.ask(kind, data)
            with contextlib.suppress(ConnectionClosed):
                # A full server says so before it closes.
                connection.send(text)
            return session.receive(connection.recv(timeout=self._timeout))
        except ConnectionClosed as error:
            # Its text may contain the server's.
            raise LostError(f"the connection has ended: {error}") from None
        except TimeoutError as error:
            reason = f"there was no answer within {self._timeout:g} s"
            raise LostError(reason) from error
        except OpenEnvError as error:
            if error.code == "SESSION_ERROR":
                raise LostError(str(error)) from None
            raise
        finally:
            # A late answer, after Ctrl-C for example, would be taken for the answer to
            # the next message.
            if session.state is not SessionState.READY:
                self._drop()

    def _drop(self) -> None:
        """Closes the connection without waiting for the server."""
        connection, self._foreign = self._foreign, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _close(self) -> None:
        from websockets.exceptions import ConnectionClosed

        connection, self._foreign = self._foreign, None
        if connection is not None:
            with contextlib.suppress(ConnectionClosed, OSError):
                connection.send(self._session.ask("close"))
                # The server answers by closing, when its environment is closed.
                connection.recv(timeout=self._connect_timeout)
            connection.close()

    # Episodes.

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        data = {**self._settings, **(options or {})}
        if seed is not None:
            data["seed"] = seed
        first, self._unseen = self._unseen, None
        self._loss = None
        if first is None or seed is not None or options:
            first = self._reset_on_server(data)
        self._last_observation = first.observation
        return first.observation, first.info

    def _accepts_options(self) -> bool:
        return True

    def _reset_on_server(self, data: dict[str, Any]) -> Result:
        """Requests an episode; reconnects if the connection has ended meanwhile."""
        if self._foreign is not None:
            try:
                return self._ask("reset", data)  # type: ignore[no-any-return]  # the answer
            except LostError as error:
                _LOGGER.warning("%s: %s; connecting again", self._name, error)
        try:
            return self._ask("reset", data)  # type: ignore[no-any-return]  # likewise
        except LostError as error:
            raise OpenEnvError(
                f"{self._name} did not answer reset: {error}."
            ) from error

    def _to_action(self, action: NestedArray) -> Any:
        return self._action.write(self._read_action(action))

    def _move(self, action: Any) -> Result:
        # Hot: called once per step.
        try:
            if self._foreign is None:
                raise LostError("the connection has ended")
            result: Result = self._ask("step", action)
        except LostError as error:
            lost = OpenEnvError(f"{self._name} did not answer step: {error}.")
            return self._cut_off("link_lost", lost, str(error))
        except OpenEnvError as error:
            if error.kind not in REPLACED:
                raise
            return self._cut_off(error.kind, error, str(error))
        self._last_observation = result.observation
        return result

    def _cut_off(self, kind: str, error: OpenEnvError, reason: str) -> Result:
        """Returns a made-up end of an episode whose environment is lost."""
        _LOGGER.warning("%s: %s; the episode is truncated", self._name, reason)
        self._lose(kind, error)
        info = {"terminated": False, "truncated": True, "lost": reason}
        return Result(self._last_observation, 0.0, truncated=True, info=info)

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        self._info = info  # the server sends how an episode ended

    def _to_observation(self, observation: Any) -> NestedArray:
        if self._keys is not None and isinstance(observation, Mapping):
            observation = {
                key: observation[key] for key in self._keys if key in observation
            }
        return self._observation.read(observation)

    def _get_state(self) -> Any:
        raise NotImplementedError(
            "OpenEnv's protocol cannot save the state of an environment."
        )

    def _draw(self, mode: str) -> Any:
        raise NotImplementedError("OpenEnv's protocol has no pictures.")


def load(address: str, **kwargs: Any) -> OpenEnvWrapper:
    """Connects to an environment of an OpenEnv server.

    `envkit.make("openenv:http://localhost:8000")` calls this.

    Args:
        address: The address.
        **kwargs: Keyword arguments of `OpenEnvWrapper`.
    """
    return OpenEnvWrapper(address, **kwargs)


def _checked_url(url: str) -> tuple[str, str]:
    """Returns an address with http or https, and the header for its name and password.

    The address has neither a slash at its end nor a password, because messages show it.
    """
    whole = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise ValueError(
            f"The address of an OpenEnv server must be like 'http://localhost:8000', "
            f"got {url!r}."
        )
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    login = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = f"Basic {base64.b64encode(pair.encode()).decode()}"
    place = parts.netloc.rpartition("@")[2]
    address = f"{scheme}://{place}{parts.path}".rstrip("/").removesuffix("/ws")
    return address, login


def _limited_seconds(name: str, value: Any) -> float:
    """Returns seconds as sockets take them; infinity means no limit."""
    most = 1e6
    seconds = most if value == math.inf else value
    return min(most, checked_seconds(name, seconds, above_zero=True))


def _specs_beside(schema: Mapping[str, Any]) -> tuple[ArraySpec, ArraySpec]:
    """Returns the specs of rewards and discounts, if the server has sent them."""
    if not has_specs(schema):
        return REWARD_SPEC, DISCOUNT_SPEC
    found: Any = spec_of(schema["properties"]["metadata"], root="discount")
    (reward,) = (part for part in schema["properties"]["reward"]["anyOf"][:1])
    whole: Any = spec_of({"properties": {"reward": reward}}, root="reward")
    specs = whole["reward"], found["discount"]
    if not all(isinstance(one, ArraySpec) and one.shape == () for one in specs):
        raise SpecError("The server's reward and discount must be numbers.")
    return specs
