"""The conversation of dm_env_rpc, both ends, without gRPC.

A stream is a sequence of requests. Each has one answer: the message of the same name,
or an error, after which the stream continues. `ServerStream.receive` takes the bytes of
a request and returns an event if the owner must decide or step something;
`data_to_send` then returns the bytes of the answer. `ClientStream` has a method for
each request, which returns its bytes, and `receive`, which turns the answer into an
event. `REQUESTS` is the table of both ends: the states in which a request is served,
and the states that may follow.

```
          join_world          step: RUNNING
OUTSIDE ────────────▶ READY ─────────────────▶ PLAYING ──╮ step: RUNNING
   ▲                   ▲ ▲                       │  ▲    │
   ╰── leave_world ────╯ ╰── step: TERMINATED, ──╯  ╰────╯
                             INTERRUPTED; reset
```

Rules for editing this file:

1. No gRPC, sockets, threads, clocks or environments: the owner of the stream has them,
   and passes in bytes and decisions.
2. A request has a row in `REQUESTS`, and a method `_read_` with its name in each end.
   Only states in the table may follow.
3. A request that needs an environment, or another stream's world, becomes an event.
   Nothing is read until the owner has answered it: with the one method that the event
   names, or with `refuse`.
4. The streams of a server share one `Worlds`, which is called under a lock.
5. Any bytes in any state lead to one event or one answer, and at a client to an event
   or a `DmEnvRpcError`. tests/remote/test_dm_env_rpc_messages.py checks this.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envkit._shared.peer_errors import PeerError
from envkit.remote.dm_env_rpc_tensors import (
    INVALID,
    NOT_FOUND,
    ServedTensors,
    StatusError,
    TensorCodec,
    read_settings,
    settings_of,
)
from envkit.remote.losses import KINDS
from envkit.time_step import TimeStep

__all__ = [
    "NOT_NOW",
    "REQUESTS",
    "ApplyAction",
    "BeginEpisode",
    "ClientStream",
    "CreateWorld",
    "DestroyWorld",
    "DmEnvRpcError",
    "JoinWorld",
    "LeaveWorld",
    "ReceivedStep",
    "RequestEvent",
    "ResetWorld",
    "ServerStream",
    "World",
    "WorldState",
    "Worlds",
]

# More codes of google.rpc.
NOT_NOW, _LOST, _UNKNOWN = 9, 10, 12
# What `google.rpc.ErrorInfo` says about a lost environment, beside the kind.
_LOST_REASON, _DOMAIN = "ENVIRONMENT_LOST", "envkit"


class DmEnvRpcError(PeerError, RuntimeError):
    """A dm_env_rpc server cannot be reached, or has refused a request.

    Attributes:
        code: The `google.rpc` code of the server's answer; 0 if there was no answer.
        kind: The kind of the `Loss`, if the server has lost its environment.
    """

    code: int = 0
    kind: str = ""


class WorldState(enum.Enum):
    """The state of a stream."""

    OUTSIDE = "outside"  # it has joined no world
    READY = "ready"  # the next step begins an episode
    PLAYING = "playing"


_S = WorldState
_Row = dict[WorldState, tuple[WorldState, ...]]
_ANYWHERE: _Row = {state: (state,) for state in WorldState}
REQUESTS: dict[str, _Row] = {
    "create_world": _ANYWHERE,
    "join_world": {_S.OUTSIDE: (_S.READY,)},
    "step": {_S.READY: (_S.PLAYING,), _S.PLAYING: (_S.PLAYING, _S.READY)},
    "reset": {_S.READY: (_S.READY,), _S.PLAYING: (_S.READY,)},
    "reset_world": {**_ANYWHERE, _S.PLAYING: (_S.PLAYING, _S.READY)},
    "leave_world": dict.fromkeys(WorldState, (_S.OUTSIDE,)),
    "destroy_world": _ANYWHERE,
}


# A server's worlds.


@dataclasses.dataclass(slots=True, eq=False)
class World:
    """A named environment, and the state of its episode.

    Attributes:
        name: The name.
        codec: Converts its specs and values to the wire.
        env: The environment, in any form that the owner chooses.
        creator: The stream that created it, while that stream is open.
        player: The stream that has joined it.
        state: `READY` or `PLAYING`.
        seed: The seed of the next reset.
        options: The options of the next reset.
        has_failed: Whether the last step was an error, which has ended the episode, and
            no other has begun since.
    """

    name: str
    codec: TensorCodec
    env: Any
    creator: Any = None
    player: Any = None
    state: WorldState = WorldState.READY
    seed: int | None = None
    options: dict[str, Any] | None = None
    has_failed: bool = False

    def reset(self, settings: dict[str, Any]) -> None:
        """Makes the next step begin an episode.

        Raises:
            StatusError: The setting "seed" is no seed.
        """
        settings = dict(settings)
        seed = settings.pop("seed", None)
        if seed is not None:
            if not isinstance(seed, int) or seed < 0:
                raise StatusError(INVALID, "seed must be an integer of at least 0.")
            self.seed = seed
        self.options = settings or None
        self.state, self.has_failed = WorldState.READY, False


class Worlds:
    """A server's worlds by name; a stream can be any object.

    Example:
        >>> worlds = Worlds()
        >>> made = worlds.add("Catch", codec=None, env=None, creator="a client")
        >>> worlds.join("Catch-1", "another") is made, worlds.remove("Catch-1")
        Traceback (most recent call last):
        envkit.remote.dm_env_rpc_tensors.StatusError: The world 'Catch-1' has a \
player. LeaveWorld comes first.
    """

    def __init__(self) -> None:
        """Starts without worlds."""
        self._worlds: dict[str, World] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[World]:
        return iter(self._worlds.values())

    def add(self, name: str, *, codec: Any, env: Any, creator: object) -> World:
        """Creates a world; its name begins with `name`."""
        world = World(f"{name}-{next(self._numbers)}", codec, env, creator)
        self._worlds[world.name] = world
        return world

    def find(self, name: str) -> World:
        """Returns the world with a name."""
        if name not in self._worlds:
            raise StatusError(
                NOT_FOUND, f"There is no world {name[:80]!r}. CreateWorld makes one."
            )
        return self._worlds[name]

    def join(self, name: str, stream: object) -> World:
        """Makes a stream the player of a world; the next step begins an episode."""
        world = self.find(name)
        if world.player is not None:
            raise StatusError(
                NOT_NOW, f"The world {name!r} has been joined by another client."
            )
        world.player = stream
        world.reset({})
        return world

    def remove(self, name: str) -> World:
        """Removes and returns a world without a player."""
        world = self.find(name)
        if world.player is not None:
            raise StatusError(
                NOT_NOW,
                f"The world {name!r} has a player. LeaveWorld comes first.",
            )
        return self._worlds.pop(name)

    def forget(self, stream: object) -> None:
        """Removes an ended stream as the player and creator of worlds."""
        for world in self:
            world.player = None if world.player is stream else world.player
            world.creator = None if world.creator is stream else world.creator

    def abandoned(self) -> list[World]:
        """Lists the worlds without a creator and a player, the oldest first."""
        return [world for world in self if world.player is world.creator is None]


# The server's events.


class CreateWorld(NamedTuple):
    """A client wants a world: `created` is due."""

    settings: dict[str, Any]


class JoinWorld(NamedTuple):
    """A client wants to play in a world: `joined` is due."""

    name: str


class BeginEpisode(NamedTuple):
    """The environment must be reset: `stepped` is due."""

    world: World
    seed: int | None
    options: dict[str, Any] | None


class ApplyAction(NamedTuple):
    """The environment must be stepped: `stepped` is due."""

    world: World
    action: Any


class ResetWorld(NamedTuple):
    """A world must begin an episode, whoever is playing: `done` is due."""

    name: str
    settings: dict[str, Any]


class LeaveWorld(NamedTuple):
    """A client leaves a world: `done` is due."""

    world: World


class DestroyWorld(NamedTuple):
    """A world must be destroyed: `done` is due."""

    name: str


RequestEvent = (
    CreateWorld
    | JoinWorld
    | BeginEpisode
    | ApplyAction
    | ResetWorld
    | LeaveWorld
    | DestroyWorld
)


class ServerStream:
    """The server's end of a stream.

    Attributes:
        world: The world that the client has joined.

    Example:
        >>> from dm_env_rpc.v1 import dm_env_rpc_pb2
        >>> server, client = ServerStream(), ClientStream("The server")
        >>> event = server.receive(client.create({"level": 3}))
        >>> event
        CreateWorld(settings={'level': 3})
        >>> server.created("maze-1")
        >>> client.receive(server.data_to_send())
        'maze-1'
    """

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        """Starts outside any world.

        Args:
            hide: Removes secrets of the server from an error's text.
        """
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        self._messages = dm_env_rpc_pb2
        self._hide = hide
        self._asked: str | None = None  # the request that waits for the owner
        self._requested: Any = ()  # the observations that a step requests
        self._out = b""
        self.world: World | None = None

    @property
    def state(self) -> WorldState:
        """The client's state; inside a world, the world's state."""
        return WorldState.OUTSIDE if self.world is None else self.world.state

    def receive(self, data: bytes) -> RequestEvent | None:
        """Reads a request; returns an event if the owner must answer it."""
        # Hot: called once per step.
        from google.protobuf.message import DecodeError

        if self._asked is not None:
            raise RuntimeError(f"The answer to {self._asked} is due first.")
        try:
            request = self._messages.EnvironmentRequest.FromString(data)
            kind = request.WhichOneof("payload")
            row = REQUESTS.get(kind)
            if row is None:
                raise StatusError(_UNKNOWN, f"There is no request {kind!r} here.")
            if self.state not in row:
                raise StatusError(NOT_NOW, self._out_of_place(kind))
            event: RequestEvent | None = getattr(self, f"_read_{kind}")(
                getattr(request, kind)
            )
        except DecodeError as error:
            self._send_error(
                INVALID, f"A request must be an EnvironmentRequest: {error}"
            )
        except StatusError as error:
            self._send_error(error.code, error.message)
        else:
            self._asked = kind if event is not None else None
            return event
        return None

    def data_to_send(self) -> bytes:
        """Returns the answer to the last request; empty while the owner owes it."""
        data, self._out = self._out, b""
        return data

    def _out_of_place(self, kind: str) -> str:
        if self.world is not None:
            return (
                f"This client has joined {self.world.name!r}. LeaveWorld comes first."
            )
        return f"{kind.capitalize()} comes after JoinWorld."

    # The requests.

    def _read_create_world(self, request: Any) -> RequestEvent:
        return CreateWorld(read_settings(request.settings))

    def _read_join_world(self, request: Any) -> RequestEvent:
        settings = read_settings(request.settings)
        if settings:
            raise StatusError(
                INVALID, f"JoinWorld has no setting {next(iter(settings))!r:.80} here."
            )
        return JoinWorld(request.world_name)

    def _read_step(self, request: Any) -> RequestEvent:
        # Hot: called once per step.
        world = self._joined
        world.codec.check_requested(request.requested_observations)
        self._requested = request.requested_observations
        if world.has_failed and request.actions:
            # The client believes to be in the episode that has ended. The first step
            # of another one would look like the next step of that.
            raise StatusError(
                NOT_NOW,
                "The last step was an error, which has ended the episode. The next one "
                "begins with Reset, or with a Step without actions.",
            )
        if world.state is WorldState.PLAYING:
            return ApplyAction(world, world.codec.action(request.actions))
        event = BeginEpisode(world, world.seed, world.options)
        # Set before the environment answers, so that a ResetWorld meanwhile counts.
        world.seed = world.options = None
        world.state, world.has_failed = WorldState.PLAYING, False
        return event

    def _read_reset(self, request: Any) -> None:
        world = self._joined
        world.reset(read_settings(request.settings))
        self._send("reset", specs=world.codec.specs)

    def _read_reset_world(self, request: Any) -> RequestEvent:
        return ResetWorld(request.world_name, read_settings(request.settings))

    def _read_leave_world(self, request: Any) -> RequestEvent | None:
        if self.world is None:
            self._send("leave_world")
            return None
        event, self.world = LeaveWorld(self.world), None
        return event

    def _read_destroy_world(self, request: Any) -> RequestEvent:
        return DestroyWorld(request.world_name)

    @property
    def _joined(self) -> World:
        assert self.world is not None  # as the table says
        return self.world

    # The owner's decisions.

    def created(self, name: str) -> None:
        """Answers `CreateWorld` with the name of the world."""
        self._answer(("create_world",), world_name=name)

    def joined(self, world: World) -> None:
        """Answers `JoinWorld`."""
        self._answer(("join_world",), specs=world.codec.specs)
        self.world = world

    def stepped(self, time_step: TimeStep, *, truncated: bool = False) -> None:
        """Answers `BeginEpisode` and `ApplyAction`.

        Args:
            time_step: The environment's time step.
            truncated: Whether a `LAST` is a truncation.
        """
        # Hot: called once per step.
        states = self._messages
        world, state = self._joined, states.RUNNING
        if time_step.is_last():
            state = states.INTERRUPTED if truncated else states.TERMINATED
            world.state = WorldState.READY
        found = world.codec.observations(time_step, self._requested)
        self._answer(("step",), state=state, observations=found)

    def done(self) -> None:
        """Answers `ResetWorld`, `LeaveWorld` and `DestroyWorld`."""
        self._answer(("reset_world", "leave_world", "destroy_world"))

    def refuse(self, code: int, message: str, details: Sequence[Any] = ()) -> None:
        """Answers any event with an error; the current episode is over."""
        if self._asked is None:
            raise RuntimeError("No request waits for an answer.")
        if self._asked == "step":
            self._joined.state, self._joined.has_failed = WorldState.READY, True
        self._asked = None
        self._send_error(code, message, details)

    def lose(self, kind: str, message: str) -> None:
        """Answers `BeginEpisode` and `ApplyAction` if the environment is lost.

        Args:
            kind: The kind of the loss.
            message: The reason.
        """
        from google.protobuf.any_pb2 import Any as Packed
        from google.rpc.error_details_pb2 import ErrorInfo

        detail = Packed()
        detail.Pack(
            ErrorInfo(reason=_LOST_REASON, domain=_DOMAIN, metadata={"kind": kind})
        )
        self.refuse(_LOST, message, [detail])

    def _answer(self, kinds: tuple[str, ...], **fields: Any) -> None:
        kind = self._asked
        if kind is None or kind not in kinds:
            raise RuntimeError(f"{' or '.join(kinds)} must be due, and {kind} is.")
        self._send(kind, **fields)
        self._asked = None

    def _send(self, kind: str, **fields: Any) -> None:
        response = self._messages.EnvironmentResponse(**{kind: fields})
        self._out = response.SerializeToString()

    def _send_error(self, code: int, message: str, details: Sequence[Any] = ()) -> None:
        # The client's text may contain a lone surrogate.
        text = self._hide(message).encode("utf-8", "replace").decode("utf-8")
        self._send("error", code=code, message=text, details=details)


# The client's events.


class ReceivedStep(NamedTuple):
    """A time step. A reward or discount that the server did not send is `None`.

    Attributes:
        is_first: Whether it is the first of its episode.
        is_last: Whether it is the last.
        truncated: Whether it is the last one because the episode was interrupted.
    """

    is_first: bool
    is_last: bool
    truncated: bool
    observation: Any
    reward: Any
    discount: Any


class ClientStream:
    """The client's end of a stream.

    Attributes:
        state: The current state; errors do not change it.
        is_broken: Whether the server has sent a malformed answer.
    """

    def __init__(self, server: str, text_length: int | None = None) -> None:
        """Starts outside any world.

        Args:
            server: The server's name in messages.
            text_length: As in `ServedTensors`.
        """
        from dm_env_rpc.v1 import dm_env_rpc_pb2

        self._messages, self._server = dm_env_rpc_pb2, server
        self._text_length = text_length
        self._states = {
            dm_env_rpc_pb2.RUNNING: WorldState.PLAYING,
            dm_env_rpc_pb2.TERMINATED: WorldState.READY,
            dm_env_rpc_pb2.INTERRUPTED: WorldState.READY,
        }
        self._asked: str | None = None
        self._tensors: ServedTensors | None = None
        self.is_broken = False
        self.state = WorldState.OUTSIDE

    # Requests to send.

    def create(self, settings: Mapping[str, Any]) -> bytes:
        """Requests a new world; the event is its name."""
        return self._ask("create_world", settings=settings_of(settings))

    def join(self, name: str, settings: Mapping[str, Any]) -> bytes:
        """Requests to play in a world; the event is its `ServedTensors`."""
        return self._ask("join_world", world_name=name, settings=settings_of(settings))

    def step(self, action: Any = None) -> bytes:
        """Requests a time step, with an action unless that begins an episode.

        The event is a `ReceivedStep`.
        """
        # Hot: called once per step.
        tensors = self.served
        actions = {} if self.state is WorldState.READY else tensors.actions(action)
        return self._ask(
            "step", actions=actions, requested_observations=tensors.requested
        )

    def reset(self, settings: Mapping[str, Any]) -> bytes:
        """Requests that the next step begin an episode; the event is `None`."""
        return self._ask("reset", settings=settings_of(settings))

    def leave(self) -> bytes:
        """Leaves the world; the event is `None`."""
        return self._ask("leave_world")

    def destroy(self, name: str) -> bytes:
        """Requests the end of a world; the event is `None`."""
        return self._ask("destroy_world", world_name=name)

    def _ask(self, kind: str, **fields: Any) -> bytes:
        if self.is_broken or self._asked or self.state not in REQUESTS[kind]:
            place = f"after {self._asked}" if self._asked else self.state.value
            raise RuntimeError(f"{kind} must not be asked for {place}.")
        request = self._messages.EnvironmentRequest(**{kind: fields})
        data: bytes = request.SerializeToString()
        self._asked = kind
        return data

    # Answers.

    def receive(self, data: bytes) -> Any:
        """Reads the answer to the last request, and returns its event.

        Raises:
            DmEnvRpcError: It is an error, or malformed. After a malformed answer no
                more requests are possible.
        """
        # Hot: called once per step.
        from google.protobuf.message import DecodeError

        kind, self._asked = self._asked, None
        if kind is None:
            raise RuntimeError("No answer is due.")
        try:
            answer = self._messages.EnvironmentResponse.FromString(data)
            found = answer.WhichOneof("payload")
            if found == "error":
                raise self._refused(answer.error)
            if found != kind:
                raise StatusError(INVALID, f"it answers {found}, not {kind}.")
            return getattr(self, f"_read_{kind}")(getattr(answer, kind))
        except (DecodeError, StatusError) as error:
            self.is_broken = True
            raise DmEnvRpcError(
                f"{self._server} sent a malformed answer: {error!s:.300}"
            ) from error

    def _refused(self, status: Any) -> DmEnvRpcError:
        refused = DmEnvRpcError(f"{self._server} answered: {status.message}")
        refused.code = status.code
        refused.kind = _kind_in(status)
        return refused

    @property
    def served(self) -> ServedTensors:
        """The specs and values of the joined world."""
        if self._tensors is None:
            raise RuntimeError("No world is joined.")
        return self._tensors

    def _read_create_world(self, answer: Any) -> str:
        return str(answer.world_name)

    def _read_join_world(self, answer: Any) -> ServedTensors:
        self._tensors = ServedTensors(answer.specs, self._text_length)
        self.state = WorldState.READY
        return self._tensors

    def _read_step(self, answer: Any) -> ReceivedStep:
        # Hot: called once per step.
        now = self._states.get(answer.state)
        if now not in REQUESTS["step"][self.state]:
            raise StatusError(
                INVALID,
                f"the state {answer.state} must not follow while a stream is "
                f"{self.state.value}.",
            )
        values = self.served.values(answer.observations)
        before, self.state = self.state, self._states[answer.state]
        is_first, is_last = before is _S.READY, self.state is _S.READY
        truncated = answer.state == self._messages.INTERRUPTED
        return ReceivedStep(is_first, is_last, truncated, *values)

    def _read_reset(self, answer: Any) -> None:
        if answer.specs != self.served.specs:
            raise StatusError(INVALID, "a reset must not change the specs of a world.")
        self.state = WorldState.READY

    def _read_leave_world(self, answer: Any) -> None:
        self._tensors, self.state = None, WorldState.OUTSIDE

    def _read_destroy_world(self, answer: Any) -> None:
        """Reads an empty answer."""


def _kind_in(status: Any) -> str:
    """Returns the kind of a loss that a status reports; "" if it reports none."""
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import ErrorInfo

    for detail in status.details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            try:
                info = ErrorInfo.FromString(detail.value)
            except DecodeError:  # another program's data
                continue
            if (info.reason, info.domain) == (_LOST_REASON, _DOMAIN):
                kind = info.metadata.get("kind")
                return kind if kind in KINDS else "raised"
    return ""
