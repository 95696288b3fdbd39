"""Serves dm_env_rpc's protocol: `envkit serve TARGET --dm-env-rpc`.

`dm_env_rpc_messages` defines the conversation of a stream. This module listens, checks
the token, and runs the worlds' environments:

```
CreateWorld ──▶ the world's name     settings: constructor arguments, and "environment"
                                     if the server has several
JoinWorld ────▶ specs                each leaf has a number, and a name: its keys
                                     joined by dots
Step ─────────▶ RUNNING              any step of an episode but the last; the first
                                     step's actions are ignored
                TERMINATED           the last step of an episode, with discount 0
                INTERRUPTED          the last step of a truncated episode
Reset ────────▶ specs                settings: "seed", and the options of the reset
LeaveWorld, DestroyWorld
```

The reward is the observation "reward". The discount is an observation only if its spec
is unusual: clients' adaptors handle the usual one better, because they leave it out of
an episode's first step. Actions missing from a request have their minimum, or 0. An
impossible request is answered with an error, and the stream continues.

A step whose environment is lost is answered with the error ABORTED and the reason, and
never with a made-up last step. Then Reset, or a Step without actions, begins another
episode; a Step with actions is an error, because its client does not know yet.
"""

from __future__ import annotations

import contextlib
import hmac
import queue
import threading
import urllib.parse
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple, TypeVar

from envkit._shared.admission import Admission, WrongSecretError
from envkit._shared.closing import Closable
from envkit._shared.listening import listener, place_of
from envkit._shared.server_secret import Holder, ServerSecret
from envkit._shared.text import escaped
from envkit.adapters.foreign import require
from envkit.errors import EnvkitError
from envkit.remote.dm_env_rpc_messages import (
    NOT_NOW,
    ApplyAction,
    BeginEpisode,
    CreateWorld,
    DestroyWorld,
    JoinWorld,
    LeaveWorld,
    RequestEvent,
    ResetWorld,
    ServerStream,
    World,
    Worlds,
)
from envkit.remote.dm_env_rpc_tensors import INVALID, StatusError, TensorCodec
from envkit.remote.env_threads import (
    EnvThread,
    EnvThreads,
    FullError,
    SingleEnv,
    flags_of,
    specs_of,
)
from envkit.remote.losses import EnvironmentLostError
from envkit.remote.offers import (
    Menu,
    Refusal,
    ServeOptions,
    with_reachable_host,
)
from envkit.remote.plugins import DM_ENV_RPC_PORT
from envkit.time_step import TimeStep

__all__ = ["DmEnvRpcServer", "serve"]

Result = TypeVar("Result")

_GRACE = 5.0  # seconds that streams have to end when the server stops
# Room for streams of departed clients, because gRPC notices their end a little later.
_LEAVING = 8
# Room for refused streams and health checks.
_SPARE = 8
_POLL_INTERVAL = 0.5  # seconds between checks whether the server is stopping
_SERVICE = "dm_env_rpc.v1.Environment"
# The messages of gRPC's health service have one field each: a service's name, and a
# status: 1 for SERVING, 2 for NOT_SERVING.
_HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
# More codes of google.rpc.
_FULL, _INTERNAL = 8, 13


def serve(menu: Menu, options: ServeOptions) -> DmEnvRpcServer:
    """Serves the environments of a menu to clients of dm_env_rpc.

    Raises:
        SpecError: An environment has specs that the protocol cannot carry.
        MissingDependencyError: The extra `dm_env_rpc` is not installed.
    """
    return DmEnvRpcServer(menu, options)


class _WorldEnv(NamedTuple):
    """The environment of a world.

    Attributes:
        host: The object that made it.
        thread: Its thread.
        is_kept: Whether another world may use it later: it was made without arguments.
    """

    host: EnvThreads
    thread: EnvThread
    is_kept: bool


class DmEnvRpcServer(Closable):
    """A server for dm_env_rpc's clients, in its own threads.

    Attributes:
        line: The protocol and the address, for people.
        address: The address, as `"host:port"`.
        token: The token that clients need, drawn unless given; `None` if they need
            none.
        invitation: The metadata for clients that cannot find a drawn token.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes each environment once, for its specs, and starts listening."""
        require(
            "dm_env_rpc",
            needed_by="Serving by dm_env_rpc's protocol",
            extra="dm-env-rpc",
        )
        self._menu, self._options = menu, options
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        # Each wrong guess holds a stream's thread while it waits.
        self._admission = Admission("dm-env-rpc", most_late=_SPARE // 2)
        self._most_streams = 2 * options.max_sessions + _LEAVING
        self._hosts: dict[str, EnvThreads] = {}
        self._codecs: dict[str, TensorCodec] = {}
        self._worlds = Worlds()
        self._lock = threading.RLock()  # for the worlds, their timers and the streams
        self._timers: dict[str, threading.Timer] = {}
        self._streams: set[_AnsweredStream] = set()
        self._is_closed = False
        self._closing = threading.Event()
        try:
            for offer in menu.offers:
                host = EnvThreads(offer, most=options.max_sessions)
                self._hosts[offer.name] = host
                self._codecs[offer.name] = TensorCodec(host.env_spec)
            self._server, port = self._listening()
            self._secret.publish((options.host, port))
        except BaseException:
            self._close_hosts()
            raise
        self.address = place_of((options.host, port))
        self.line = f"dm_env_rpc: {self.address}"
        self.invitation = self._invitation()
        self._server.start()

    def _invitation(self) -> str:
        if not self._secret.is_drawn:
            return ""
        address = with_reachable_host(self.address, self._options.host)
        return (
            f"other users, machines and libraries connect with {address} and the "
            f"metadata [('authorization', 'Bearer {self._secret.text}')]"
        )

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of sessions."""
        return [{"address": self.address, "sessions": len(self._streams)}]

    def ended(self) -> str | None:
        """Returns `None`: it never stops before `close`."""
        return None

    def close(self, reason: str = "the server is stopping") -> None:
        """Sends clients the reason, closes their environments, and stops listening."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        self._secret.close()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.end(reason)
        # Returns as soon as all streams have ended.
        self._server.stop(_GRACE).wait(_GRACE + 5)
        self._close_hosts()

    def _close_hosts(self) -> None:
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
        for host in self._hosts.values():
            host.close()

    def _listening(self) -> tuple[Any, int]:
        import grpc

        options = self._options
        streams = self._most_streams + _SPARE
        largest = max(codec.largest_request for codec in self._codecs.values())
        server = grpc.server(
            ThreadPoolExecutor(streams, thread_name_prefix="envkit-dm-env-rpc"),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_send_message_length", -1),
            ],
            maximum_concurrent_rpcs=streams,
        )
        # Requests are parsed here, so that malformed ones are answered too.
        process = grpc.stream_stream_rpc_method_handler(self._process)
        check = grpc.unary_unary_rpc_method_handler(self._check)
        unknown = grpc.stream_stream_rpc_method_handler(self._refuse_unknown)

        class GrpcMethods(grpc.GenericRpcHandler):  # type: ignore[misc]  # without types
            def service(self, details: Any) -> Any:
                methods = {f"/{_SERVICE}/Process": process, f"/{_HEALTH}/Check": check}
                return methods.get(details.method, unknown)

        server.add_generic_rpc_handlers((GrpcMethods(),))
        port = DM_ENV_RPC_PORT if options.port is None else options.port
        address = place_of((options.host, port))
        try:
            if options.tls is None:
                return server, server.add_insecure_port(address)
            credentials = grpc.ssl_server_credentials([_key_and_cert(options)])
            return server, server.add_secure_port(address, credentials)
        except RuntimeError:
            listener(options.host, port).close()  # raises with the reason
            raise

    def _process(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answers the requests of one stream."""
        import grpc

        place = _place_of(context)
        try:
            client = self._holder_of(context).at(place)
        except WrongSecretError as error:
            with self._admission.refusing(place, error) as seconds:
                self._closing.wait(seconds)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, _WANTED)
        stream = _AnsweredStream(self, requests, client)
        with self._lock:
            is_full = len(self._streams) >= self._most_streams
            if not is_full:
                self._streams.add(stream)
        if is_full:
            told = f"The server has {self._most_streams} streams, as many as it allows."
            self._admission.refuse(place, told, client)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, told)
        self._admission.log(client, "has connected")
        try:
            reason = yield from stream.answers(self._options.idle_timeout)
        finally:
            with self._lock:
                self._streams.discard(stream)
                self._worlds.forget(stream)
                self._watch()
        if reason is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, reason)

    def _holder_of(self, context: Any) -> Holder:
        """Returns the holder of a stream's token.

        Raises:
            WrongSecretError: The token is missing or not valid.
        """
        given = dict(context.invocation_metadata()).get("authorization", "")
        given = (
            given if isinstance(given, bytes) else given.encode("latin-1", "replace")
        )

        def matches(token: bytes) -> bool:
            return hmac.compare_digest(given, b"Bearer " + token)

        return self._secret.holder_of(matches if given else None)

    def _check(self, request: bytes, context: Any) -> bytes:
        """Answers gRPC's health service, which needs no token."""
        import grpc

        name = _SERVICE.encode()
        if request not in (b"", b"\x0a" + bytes([len(name)]) + name):
            told = f"The service here is {_SERVICE!r}."
            self._admission.refuse(_place_of(context), told)
            context.abort(grpc.StatusCode.NOT_FOUND, told)
        return _NOT_SERVING if self._closing.is_set() else _SERVING

    def _refuse_unknown(self, _: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Refuses a stream for another service."""
        import grpc

        told = f"The service here is {_SERVICE!r}, with the method 'Process'."
        self._admission.refuse(_place_of(context), told)
        context.abort(grpc.StatusCode.UNIMPLEMENTED, told)
        yield b""

    def log_refusal(self, client: str, reason: str) -> None:
        """Logs that a client's request was refused."""
        self._admission.refuse(client, self.hide(reason))

    def hide(self, text: str) -> str:
        """Replaces the values of `--arg` in a message for a client."""
        return self._menu.hide(text)

    # Worlds.

    def create(self, stream: object, settings: dict[str, Any]) -> str:
        """Makes a world, and returns its name."""
        settings = dict(settings)
        offer = self._menu.find(str(settings.pop("environment", "")))
        seed = settings.pop("seed", None)
        allowed = self._options.allow_arg
        arguments = offer.check_arguments(settings, allowed)
        if seed is not None:
            with contextlib.suppress(Refusal):  # else an option of a reset
                arguments |= offer.check_arguments({"seed": seed}, allowed)
                seed = None
        host = self._hosts[offer.name]
        thread = self._entered(host, arguments)
        try:
            thread.made.result()
            codec = self._codecs[offer.name]
            if arguments:
                codec = TensorCodec(thread.ask(specs_of).result())
            env = _WorldEnv(host, thread, is_kept=not arguments)
            with self._lock:
                world = self._worlds.add(
                    offer.name, codec=codec, env=env, creator=stream
                )
                if seed is not None:
                    world.reset({"seed": seed})
        except BaseException:
            host.leave(thread, keep=False)
            raise
        return world.name

    def _entered(self, host: EnvThreads, arguments: dict[str, Any]) -> EnvThread:
        """Returns an environment; destroys an abandoned world if there is no room."""
        while True:
            try:
                return host.enter(**arguments)
            except FullError:
                with self._lock:
                    left = [w for w in self._worlds.abandoned() if w.env.host is host]
                    rooms = [self.destroy(world.name) for world in left[:1]]
                if not wait(rooms, _GRACE).done:
                    raise

    def join(self, stream: object, name: str) -> World:
        """Makes a stream the player of a world."""
        with self._lock:
            world = self._worlds.join(name, stream)
            self._watch()
            return world

    def leave(self, world: World) -> None:
        """Removes the player of a world."""
        with self._lock:
            world.player = None
            self._watch()

    def reset(self, name: str, settings: dict[str, Any]) -> None:
        """Makes the next step in a world begin an episode."""
        with self._lock:
            self._worlds.find(name).reset(settings)

    def destroy(self, name: str) -> Future[None]:
        """Destroys a world without a player; closes its environment.

        The future is done when there is room for another environment.
        """
        with self._lock:
            env: _WorldEnv = self._worlds.remove(name).env
            self._watch()
        return env.host.leave(env.thread, keep=env.is_kept)

    def _watch(self) -> None:
        """Schedules the end of abandoned worlds, unless a client joins them."""
        abandoned = {world.name for world in self._worlds.abandoned()}
        for name in self._timers.keys() - abandoned:
            self._timers.pop(name).cancel()
        if self._is_closed:
            return
        for name in abandoned - self._timers.keys():
            timer = threading.Timer(
                self._options.idle_timeout, self._destroy_abandoned, [name]
            )
            timer.daemon = True
            self._timers[name] = timer
            timer.start()

    def _destroy_abandoned(self, name: str) -> None:
        with self._lock:
            if any(world.name == name for world in self._worlds.abandoned()):
                self.destroy(name)


_END: Any = object()


class _AnsweredStream:
    """Reads and answers the requests of one client."""

    def __init__(
        self, server: DmEnvRpcServer, requests: Iterator[bytes], client: str
    ) -> None:
        self._server, self._client = server, client
        self._stream = ServerStream(server.hide)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_ended = False
        # A thread, because gRPC's iterator of requests has no timeout.
        threading.Thread(target=self._feed, args=(requests,), daemon=True).start()

    def _feed(self, requests: Iterator[bytes]) -> None:
        # If a stream is cut off, its requests end with an exception without a text.
        with contextlib.suppress(Exception):
            for request in requests:
                self._queue.put(request)
        self._queue.put(_END)

    def end(self, reason: str) -> None:
        """Ends the stream, immediately or after the current answer."""
        self._is_ended = True
        self._queue.put(reason)

    def answers(self, idle_timeout: float) -> Generator[bytes, None, str | None]:
        """Yields the answers; returns the reason if the server ends the stream."""
        while True:
            try:
                request = self._queue.get(timeout=idle_timeout)
            except queue.Empty:
                return f"There was no request for {idle_timeout:g} s."
            if request is _END:
                return None
            if isinstance(request, str):
                return f"The session has ended: {request}."
            yield self._answer(request)

    def _answer(self, data: bytes) -> bytes:
        stream = self._stream
        event = stream.receive(data)
        if event is None:
            return stream.data_to_send()
        try:
            self._handle(event)
        except StatusError as error:
            self._refuse(event, error.code, error.message)
        except Refusal as error:
            self._refuse(event, INVALID, str(error))
        except FullError as error:
            self._refuse(event, _FULL, str(error))
        except EnvironmentLostError as error:
            stream.lose(error.loss.kind, str(error))
        except BaseException as error:  # constructors may raise anything
            stream.refuse(_INTERNAL, f"{type(error).__name__}: {error}")
        return stream.data_to_send()

    def _refuse(self, event: RequestEvent, code: int, reason: str) -> None:
        """Refuses a request, and logs it if it was for a world."""
        self._stream.refuse(code, reason)
        if isinstance(event, CreateWorld | JoinWorld):
            self._server.log_refusal(self._client, reason)

    def _handle(self, event: RequestEvent) -> None:
        # Hot: called once per step.
        server, stream = self._server, self._stream
        match event:
            case ApplyAction(world, action):
                moved = world.env.thread.ask(lambda env: _moved(env, action))
                time_step, truncated = self._result(moved)
                stream.stepped(time_step, truncated=truncated)
            case BeginEpisode(world, seed, options):
                begun = world.env.thread.ask(lambda env: env.reset(seed, options))
                stream.stepped(self._result(begun))
            case CreateWorld(settings):
                stream.created(server.create(self, settings))
            case JoinWorld(name):
                stream.joined(server.join(self, name))
            case ResetWorld(name, settings):
                server.reset(name, settings)
                stream.done()
            case LeaveWorld(world):
                server.leave(world)
                stream.done()
            case DestroyWorld(name):
                server.destroy(name)
                stream.done()

    def _result(self, asked: Future[Result]) -> Result:
        """Waits for an environment while the server runs."""
        # Hot: called once per step.
        while True:
            try:
                return asked.result(_POLL_INTERVAL)
            except FutureTimeoutError:
                if asked.done():  # just done, or its own error
                    return asked.result()
                if self._is_ended:
                    raise StatusError(NOT_NOW, "The server is stopping.") from None


def _moved(env: SingleEnv, action: Any) -> tuple[TimeStep, bool]:
    """Steps an environment; returns the time step and whether it was truncated."""
    # Hot: called once per step.
    time_step = env.step(action)
    return time_step, time_step.is_last() and flags_of(time_step, env.info())[1]


_WANTED = "The metadata 'authorization' must be 'Bearer TOKEN', with the token."


def _place_of(context: Any) -> str:
    """Returns the address of a stream's client for the log."""
    kind, _, place = urllib.parse.unquote(context.peer()).partition(":")
    return escaped(place if kind in ("ipv4", "ipv6") else context.peer())


def _key_and_cert(options: ServeOptions) -> tuple[bytes, bytes]:
    """Returns the private key and the certificate for gRPC."""
    if options.cert is None:
        raise EnvkitError(
            "dm_env_rpc needs the certificate as a file: pass cert, and key if the "
            "private key is in a separate file."
        )
    with open(options.key or options.cert, "rb") as file:
        key = file.read()
    with open(options.cert, "rb") as file:
        return key, file.read()
