"""dm_env_rpc, as a server: `envkit serve TARGET --dm-env-rpc`.

A connection is a gRPC stream of requests, each of which has one answer. A world is an
environment, which one connection at a time joins:

```
CreateWorld ──▶ the world's name     settings: the arguments of the environment, and
                                     "environment" where the server has several
JoinWorld ────▶ specs                each leaf has a number, and a name: its keys with
                                     dots between them
Step ─────────▶ RUNNING              the first of an episode, whose actions are ignored,
                                     and all but the last
                TERMINATED           the last of an episode, with discount 0
                INTERRUPTED          the last of an episode that was truncated
Reset ────────▶ specs                settings: "seed", and what the environment is told
LeaveWorld, DestroyWorld
```

The reward is an observation, "reward". The discount is one only where its spec is
unusual, because a client's adaptor knows the usual one better: it has none for the
first step of an episode. Actions that a request leaves out have their minimum, or 0.
What cannot be done is answered by an error, after which the stream goes on.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib.util
import itertools
import queue
import threading
import urllib.parse
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import numpy as np

from envkit._shared.admission import Admission
from envkit._shared.listening import listener
from envkit._shared.server_secret import Holder, ServerSecret, WrongSecretError
from envkit._shared.text import escaped
from envkit.errors import EnvkitError, MissingDependencyError
from envkit.remote.dm_env_rpc_tensors import (
    INVALID,
    NOT_FOUND,
    RefusedError,
    TensorCodec,
)
from envkit.remote.env_threads import (
    EnvThread,
    EnvThreads,
    FullError,
    Single,
    flags_of,
    specs_of,
)
from envkit.remote.offers import (
    Menu,
    Refusal,
    ServeOptions,
    with_reachable_host,
)

__all__ = ["DmEnvRpcServer", "serve"]

Result = TypeVar("Result")

_PORT = 9000
_GRACE = 5.0  # seconds that streams have to end when the server does
# Streams of clients that have left, which gRPC notices a little later: who comes at
# once finds room.
_LEAVING = 8
_POLL_INTERVAL = 0.5  # seconds after which a wait looks whether the server is stopping
_SERVICE = "dm_env_rpc.v1.Environment"
# The messages of gRPC's health service have one field each: the name of a service, and
# a status, of which 1 is SERVING, and 2 is not.
_HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
# Further codes of google.rpc.
_FULL, _NOT_NOW, _UNKNOWN, _INTERNAL = 8, 9, 12, 13


def serve(menu: Menu, options: ServeOptions) -> DmEnvRpcServer:
    """Serves the environments of a menu to clients of dm_env_rpc.

    Raises:
        SpecError: An environment has specs that the protocol cannot carry.
        MissingDependencyError: The extra `dm_env_rpc` is not installed.
    """
    return DmEnvRpcServer(menu, options)


class _World:
    """An environment by a name, and where its episode stands.

    Attributes:
        has_arguments: Whether it was made for one client, with arguments.
        player: The stream that has joined it.
        creator: The stream that has made it, as long as that is open.
        orphaned: What destroys it when no stream has come for it for long.
    """

    def __init__(
        self, name: str, host: EnvThreads, hosted: EnvThread, wire: TensorCodec
    ) -> None:
        self.name, self.host, self.hosted, self.wire = name, host, hosted, wire
        self.has_arguments = False
        self.player: object = None
        self.creator: object = None
        self.orphaned: threading.Timer | None = None
        self._begins = True
        self._seed: int | None = None
        self._options: dict[str, Any] | None = None

    def reset(self, settings: dict[str, Any]) -> None:
        """Lets the next step begin an episode."""
        seed = settings.pop("seed", None)
        if seed is not None:
            if not isinstance(seed, int | np.integer) or seed < 0:
                raise RefusedError(INVALID, "seed must be an integer of at least 0.")
            self._seed = int(seed)
        self._options = settings or None
        self._begins = True

    def step(self, env: Single, request: Any) -> tuple[int, dict[int, Any]]:
        """Returns the state and the observations; the environment's thread calls it."""
        # Hot: called once per step.
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        self.wire.check_requested(request.requested_observations)
        states = dm_env_rpc_pb2.EnvironmentStateType
        if self._begins:
            seed, self._seed = self._seed, None
            options, self._options = self._options, None
            time_step = env.reset(seed, options)
            self._begins, state = False, states.RUNNING
        else:
            action = self.wire.action(request.actions)
            try:
                time_step = env.step(action)
            except BaseException:
                self._begins = True
                raise
            state = states.RUNNING
            if time_step.is_last():
                self._begins = True
                truncated = flags_of(time_step, env.info())[1]
                state = states.INTERRUPTED if truncated else states.TERMINATED
        return state, self.wire.observations(time_step, request.requested_observations)


class DmEnvRpcServer:
    """A server of environments for clients of dm_env_rpc, in threads of its own.

    Attributes:
        line: The protocol and the address, for people.
        address: The host and the port, with a colon between them.
        token: What clients must know, drawn unless given; `None` if they need not.
        invitation: The metadata for clients that do not find a drawn token.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes each environment once, for its specs, and listens."""
        _require()
        self._menu, self._options = menu, options
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        # Each wrong guess that waits holds one of the threads of streams.
        self._admission = Admission("dm-env-rpc", most_late=_LEAVING // 2)
        self._hosts: dict[str, EnvThreads] = {}
        self._wires: dict[str, TensorCodec] = {}
        self._worlds: dict[str, _World] = {}
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._streams: set[_Stream] = set()
        self._is_closed = False
        self._closing = threading.Event()
        try:
            for offer in menu.offers:
                host = EnvThreads(offer, most=options.max_sessions)
                self._hosts[offer.name] = host
                self._wires[offer.name] = TensorCodec(host.env_spec)
            self._server, port = self._listening()
            self._secret.publish((options.host, port))
        except BaseException:
            self._close_hosts()
            raise
        name = f"[{options.host}]" if ":" in options.host else options.host
        self.address = f"{name}:{port}"
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

    def ended(self) -> str | None:
        """Returns why it has ended; it ends only when it is closed."""
        return None

    def close(self, reason: str = "the server is stopping") -> None:
        """Tells clients the reason, closes their environments, and stops listening."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        self._secret.close()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.end(reason)
        # It returns as soon as all have ended.
        self._server.stop(_GRACE).wait(_GRACE + 5)
        self._close_hosts()

    def __enter__(self) -> DmEnvRpcServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _close_hosts(self) -> None:
        with self._lock:
            timers = [world.orphaned for world in self._worlds.values()]
        for timer in timers:
            if timer is not None:
                timer.cancel()
        for host in self._hosts.values():
            host.close()

    def _listening(self) -> tuple[Any, int]:
        import grpc

        options = self._options
        streams = 2 * options.max_sessions + _LEAVING
        largest = max(wire.largest_request for wire in self._wires.values())
        server = grpc.server(
            ThreadPoolExecutor(streams, thread_name_prefix="envkit-dm-env-rpc"),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_send_message_length", -1),
            ],
            maximum_concurrent_rpcs=streams,
        )
        # Requests are read here, so that one that is none is answered like others.
        process = grpc.stream_stream_rpc_method_handler(self._process)
        check = grpc.unary_unary_rpc_method_handler(self._check)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(_SERVICE, {"Process": process}),
                grpc.method_handlers_generic_handler(_HEALTH, {"Check": check}),
            )
        )
        port = _PORT if options.port is None else options.port
        address = f"{options.host}:{port}"
        if ":" in options.host and "[" not in options.host:
            address = f"[{options.host}]:{port}"
        try:
            if options.tls is None:
                return server, server.add_insecure_port(address)
            credentials = grpc.ssl_server_credentials([_key_and_cert(options)])
            return server, server.add_secure_port(address, credentials)
        except RuntimeError:
            listener(options.host, port).close()  # This says why it cannot listen.
            raise

    def _process(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answers the requests of one stream."""
        import grpc

        place = _place_of(context)
        try:
            client = self._holder_of(context).at(place)
        except WrongSecretError as error:
            self._admission.refuse(place, error.reason)
            if error.is_guess:
                host = place.rpartition(":")[0]
                with self._admission.guesses.late(host) as seconds:
                    self._closing.wait(seconds)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, _WANTED)
        self._admission.log(client, "has connected")
        stream = _Stream(self, requests, client)
        with self._lock:
            self._streams.add(stream)
        try:
            reason = yield from stream.answers(self._options.idle_timeout)
        finally:
            with self._lock:
                self._streams.discard(stream)
            self._forget(stream)
        if reason is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, reason)

    def _holder_of(self, context: Any) -> Holder:
        """Returns whose token a stream has.

        Raises:
            WrongSecretError: It has none that is valid.
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

    def hide(self, text: str) -> str:
        """Returns a message for a client without values that `--arg` has given."""
        return self._menu.hide(text)

    # Worlds.

    def create(self, stream: object, settings: dict[str, Any]) -> str:
        """Makes a world, and returns its name."""
        offer = self._menu.find(str(settings.pop("environment", "")))
        seed = settings.pop("seed", None)
        allowed = self._options.allow_arg
        arguments = offer.check_arguments(settings, allowed)
        if seed is not None:
            with contextlib.suppress(Refusal):  # Otherwise it is for the first reset.
                arguments |= offer.check_arguments({"seed": seed}, allowed)
                seed = None
        host = self._hosts[offer.name]
        hosted = self._entered(host, arguments)
        try:
            hosted.made.result()
            wire = self._wires[offer.name]
            if arguments:
                wire = TensorCodec(hosted.ask(specs_of).result())
        except BaseException:
            host.leave(hosted, keep=False)
            raise
        world = _World(f"{offer.name}-{next(self._numbers)}", host, hosted, wire)
        world.creator, world.has_arguments = stream, bool(arguments)
        if seed is not None:
            world.reset({"seed": seed})
        with self._lock:
            self._worlds[world.name] = world
        return world.name

    def _entered(self, host: EnvThreads, arguments: dict[str, Any]) -> EnvThread:
        """Returns an environment; where there is no room, one that is left goes."""
        while True:
            try:
                return host.enter(**arguments)
            except FullError:
                left = self._removed(host)
                if left is None or not left.ended.wait(_GRACE):
                    raise

    def _removed(self, host: EnvThreads) -> EnvThread | None:
        """Removes the oldest world that no stream has, if there is one."""
        with self._lock:
            for world in self._worlds.values():
                if world.host is host and world.player is world.creator is None:
                    self._remove(world)
                    return world.hosted
        return None

    def world(self, name: str) -> _World:
        """Returns the world of that name."""
        world = self._worlds.get(name)
        if world is None:
            raise RefusedError(
                NOT_FOUND, f"There is no world {name[:80]!r}. CreateWorld makes one."
            )
        return world

    def join(self, stream: object, name: str) -> _World:
        """Lets a stream play in a world."""
        with self._lock:
            world = self.world(name)
            if world.player is not None:
                raise RefusedError(
                    _NOT_NOW, f"The world {name!r} has been joined by another client."
                )
            world.player = stream
            if world.orphaned is not None:
                world.orphaned.cancel()
                world.orphaned = None
        world.reset({})
        return world

    def leave(self, world: _World) -> None:
        """Lets the stream that plays in a world leave it."""
        with self._lock:
            world.player = None
            self._watch(world)

    def destroy(self, name: str) -> None:
        """Closes the environment of a world in which no client plays."""
        with self._lock:
            world = self.world(name)
            if world.player is not None:
                raise RefusedError(
                    _NOT_NOW,
                    f"The world {name!r} is being played in. LeaveWorld comes first.",
                )
            self._remove(world)

    def _remove(self, world: _World) -> None:
        if self._worlds.pop(world.name, None) is not None:
            world.host.leave(world.hosted, keep=not world.has_arguments)

    def _forget(self, stream: object) -> None:
        """Lets the worlds of a stream that has ended go, unless another plays there."""
        with self._lock:
            for world in list(self._worlds.values()):
                if world.player is stream:
                    world.player = None
                if world.creator is stream:
                    world.creator = None
                self._watch(world)

    def _watch(self, world: _World) -> None:
        """Removes a world later that no stream has, unless one joins it until then."""
        if self._is_closed or world.player is not None or world.creator is not None:
            return

        def remove() -> None:
            with self._lock:
                if world.player is None:
                    self._remove(world)

        if world.orphaned is None:
            world.orphaned = threading.Timer(self._options.idle_timeout, remove)
            world.orphaned.daemon = True
            world.orphaned.start()


_END: Any = object()


class _Stream:
    """The requests of one client, and what they do."""

    def __init__(
        self, server: DmEnvRpcServer, requests: Iterator[bytes], client: str
    ) -> None:
        self._server, self._client = server, client
        self._world: _World | None = None
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_ended = False
        # Because waiting for gRPC's requests cannot end after a time.
        threading.Thread(target=self._feed, args=(requests,), daemon=True).start()

    def _feed(self, requests: Iterator[bytes]) -> None:
        # When a stream is cut off, its requests end with an exception that has no text.
        with contextlib.suppress(Exception):
            for request in requests:
                self._queue.put(request)
        self._queue.put(_END)

    def end(self, reason: str) -> None:
        """Ends the stream, at once or after the answer that it is making."""
        self._is_ended = True
        self._queue.put(reason)

    def answers(self, idle_timeout: float) -> Generator[bytes, None, str | None]:
        """Yields the answers; returns why there are no more, if it is the server's."""
        while True:
            try:
                request = self._queue.get(timeout=idle_timeout)
            except queue.Empty:
                return f"Nothing was asked for {idle_timeout:g} s."
            if request is _END:
                return None
            if isinstance(request, str):
                return f"The session has ended: {request}."
            yield self._answer(request)

    def _answer(self, data: bytes) -> bytes:
        from dm_env_rpc.v1 import dm_env_rpc_pb2
        from google.protobuf.message import DecodeError

        response = dm_env_rpc_pb2.EnvironmentResponse()
        try:
            request = dm_env_rpc_pb2.EnvironmentRequest.FromString(data)
            kind = request.WhichOneof("payload")
            act = _ACTS.get(kind)
            if act is None:
                raise RefusedError(_UNKNOWN, f"There is no request {kind!r} here.")
            getattr(response, kind).CopyFrom(act(self, getattr(request, kind)))
        except DecodeError as error:
            _refuse(
                response, INVALID, f"A request must be an EnvironmentRequest: {error}"
            )
        except RefusedError as error:
            _refuse(response, error.code, self._server.hide(error.message))
        except Refusal as error:
            _refuse(response, INVALID, self._server.hide(str(error)))
        except FullError as error:
            _refuse(response, _FULL, str(error))
        except BaseException as error:  # Code of an environment may raise anything.
            kind = type(error).__name__
            _refuse(response, _INTERNAL, self._server.hide(f"{kind}: {error}"))
        return response.SerializeToString()  # type: ignore[no-any-return]  # bytes

    # What each request does.

    def _create(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        name = self._server.create(self, _settings(request.settings))
        return dm_env_rpc_pb2.CreateWorldResponse(world_name=name)

    def _join(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        if self._world is not None:
            raise RefusedError(
                _NOT_NOW,
                f"This client has joined {self._world.name!r}. LeaveWorld comes first.",
            )
        settings = _settings(request.settings)
        if settings:
            raise RefusedError(
                INVALID, f"JoinWorld has no setting {next(iter(settings))!r:.80} here."
            )
        self._world = self._server.join(self, request.world_name)
        return dm_env_rpc_pb2.JoinWorldResponse(specs=self._world.wire.specs)

    def _step(self, request: Any) -> Any:
        # Hot: called once per step.
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        world = self._joined("Step")
        asked = world.hosted.ask(lambda env: world.step(env, request))
        state, observations = self._result(asked)
        return dm_env_rpc_pb2.StepResponse(state=state, observations=observations)

    def _result(self, asked: Future[Result]) -> Result:
        """Waits for an environment, as long as the server runs."""
        # Hot: called once per step.
        while True:
            try:
                return asked.result(_POLL_INTERVAL)
            except FutureTimeoutError:
                if asked.done():  # It has come by now, or the error is its own.
                    return asked.result()
                if self._is_ended:
                    raise RefusedError(_NOT_NOW, "The server is stopping.") from None

    def _reset(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        world = self._joined("Reset")
        world.reset(_settings(request.settings))
        return dm_env_rpc_pb2.ResetResponse(specs=world.wire.specs)

    def _reset_world(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        self._server.world(request.world_name).reset(_settings(request.settings))
        return dm_env_rpc_pb2.ResetWorldResponse()

    def _leave(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        world, self._world = self._world, None
        if world is not None:
            self._server.leave(world)
        return dm_env_rpc_pb2.LeaveWorldResponse()

    def _destroy(self, request: Any) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        self._server.destroy(request.world_name)
        return dm_env_rpc_pb2.DestroyWorldResponse()

    def _joined(self, request: str) -> _World:
        if self._world is None:
            raise RefusedError(_NOT_NOW, f"{request} comes after JoinWorld.")
        return self._world


_ACTS: dict[Any, Callable[[_Stream, Any], Any]] = {
    "create_world": _Stream._create,
    "join_world": _Stream._join,
    "step": _Stream._step,
    "reset": _Stream._reset,
    "reset_world": _Stream._reset_world,
    "leave_world": _Stream._leave,
    "destroy_world": _Stream._destroy,
}


_WANTED = "The metadata 'authorization' must be 'Bearer TOKEN', with the token."


def _place_of(context: Any) -> str:
    """Returns where a stream comes from, as the log has it."""
    kind, _, place = urllib.parse.unquote(context.peer()).partition(":")
    return escaped(place if kind in ("ipv4", "ipv6") else context.peer())


def _refuse(response: Any, code: int, message: str) -> None:
    response.error.code = code
    response.error.message = message


def _settings(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as Python's values: numbers, texts and lists."""
    from dm_env_rpc.v1 import tensor_utils

    settings: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if tensor.WhichOneof("payload") in (None, "protos"):
            raise RefusedError(
                INVALID, f"The setting {name[:80]!r} must be numbers or text."
            )
        values = tensor_utils.unpack_proto(tensor)
        shape = tuple(tensor.shape)
        try:
            plain = (values.reshape(shape) if shape else values[0]).tolist()
        except (ValueError, IndexError, AttributeError) as error:
            raise RefusedError(
                INVALID,
                f"The setting {name[:80]!r} has {len(values)} values, which do not fit "
                f"the shape {shape!s:.80}.",
            ) from error
        settings[name] = plain
    return settings


def _key_and_cert(options: ServeOptions) -> tuple[bytes, bytes]:
    """Returns the contents of the files that gRPC needs for TLS."""
    if options.cert is None:
        raise EnvkitError(
            "dm_env_rpc needs the files of the certificate: pass cert, and key if the "
            "private key is in a file of its own."
        )
    with open(options.key or options.cert, "rb") as file:
        key = file.read()
    with open(options.cert, "rb") as file:
        return key, file.read()


def _require() -> None:
    if importlib.util.find_spec("dm_env_rpc") is None:
        raise MissingDependencyError.needed_by(
            "Serving by dm_env_rpc's protocol", package="dm_env_rpc", extra="dm-env-rpc"
        )
