"""dm_env_rpc, as a client: a served environment as an envkit environment.

`dm_env_rpc_messages` defines the messages. This module connects, waits for answers up
to a time limit, and ends the episode if the server is gone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envkit._shared.listening import host_and_port, place_of
from envkit._shared.peer_errors import LostError
from envkit._shared.secret_files import find
from envkit.adapters.foreign import require
from envkit.adapters.values import Converter, Leaf, action_leaf, array_leaf, map_specs
from envkit.errors import SpecError
from envkit.extend import Result, describe
from envkit.remote.dm_env_rpc_messages import (
    ClientStream,
    DmEnvRpcError,
    ReceivedStep,
)
from envkit.remote.losses import REPLACED, LosingClient
from envkit.specs.arrays import ArraySpec
from envkit.types import Array, Seed

__all__ = ["DmEnvRpcError", "DmEnvRpcWrapper", "load"]

_LOGGER = logging.getLogger(__name__)

_METHOD = "/dm_env_rpc.v1.Environment/Process"
_SEEDS = 2**63  # the range of a setting


class DmEnvRpcWrapper(LosingClient):
    """Plays an environment of a dm_env_rpc server.

    | dm_env_rpc                                | time step                       |
    |-------------------------------------------|---------------------------------|
    | `RUNNING`, the first of an episode        | `FIRST`, reward 0, discount 1   |
    | `RUNNING`                                 | `MID`, discount 1               |
    | `TERMINATED`                              | `LAST`, discount 0              |
    | `INTERRUPTED`                             | `LAST`, truncated, discount 1   |
    | the connection is lost in a step          | the same, the observation again |
    | the server has lost the process           | the same                        |
    | any other error in a step                 | `DmEnvRpcError`; reset is next  |

    If the server sends an observation named `discount`, that is the discount. The info
    of a `LAST` has both flags. A reset sends the seed as the setting "seed", which
    envkit's servers understand.

    A `LAST` after something was lost is made up: `repaired` is set, `current_losses()`
    and `losses()` have the kind and the error, and the info has the reason as `lost`.
    The action may have reached the environment, and is not sent again. After a lost
    connection, the next reset connects again and makes a new world.
    """

    def __init__(
        self,
        address: str,
        settings: Mapping[str, Any] | None = None,
        *,
        join_settings: Mapping[str, Any] | None = None,
        world: str | None = None,
        text_length: int | None = None,
        token: str | None = None,
        cafile: str | None = None,
        tls: bool = False,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
    ) -> None:
        """Connects to a server, makes a world there, and joins it.

        Args:
            address: The host and the port, with a colon between them.
            settings: The settings of the new world.
            join_settings: The settings for joining it.
            world: The name of an existing world to join. By default a new one is made,
                and destroyed at the end.
            text_length: The maximum length of text, which then has a fixed width. By
                default, texts are objects of any length.
            token: The server's token, sent as `authorization: Bearer TOKEN`. The token
                of your own server on the same machine is found automatically.
            cafile: A file of trusted certificates, for TLS.
            tls: Whether to use TLS with the system's certificates, without a `cafile`.
            timeout: Seconds to wait for an answer.
            connect_timeout: Seconds to wait for a connection.

        Raises:
            DmEnvRpcError: The server cannot be reached, or refuses.
        """
        require("dm_env_rpc", needed_by="DmEnvRpcWrapper", extra="dm-env-rpc")
        super().__init__(handle_auto_reset=True)
        place = _checked_place(address)
        self._address = place_of(place)
        self._name = f"The dm_env_rpc server at {self._address}"
        self._connect = functools.partial(
            _connected,
            self._name,
            place,
            token=token,
            cafile=cafile,
            tls=tls,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )
        self._settings, self._join_settings = settings or {}, join_settings or {}
        self._world, self._made = world, ""
        self._text_length = text_length
        self._stream: _GrpcStream | None = None
        self._last_observation: Any = None
        self._must_begin = False
        self._join()
        try:
            self._convert()
        except BaseException:
            self.close()
            raise

    def _convert(self) -> None:
        """Makes the converters of values, from the server's specs."""
        served = self._conversation.served
        self._observation_spec = served.observation_spec
        self._action_spec = served.action_spec
        self._reward_spec = served.reward_spec
        self._discount_spec = served.discount_spec
        self._to_observation = Converter(
            self._observation_spec,
            map_specs(_observation_leaf, self._observation_spec),
            subject=f"{self._name} sent an observation that",
            root="observation",
        )
        self._to_action = Converter(
            self._action_spec,
            map_specs(action_leaf, self._action_spec),
            subject="DmEnvRpcWrapper.step() was given an action that",
            root="action",
        )
        self._prepare(copies_arrays=True)

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._address

    def seed(self, seed: Seed) -> None:
        """Seeds the environment at the next reset, with the setting "seed"."""
        super().seed(seed)
        if self._next_seed is not None:
            self._next_seed %= _SEEDS

    # Episodes.

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        settings = {} if seed is None else {"seed": np.int64(seed)}
        self._loss = None
        if self._stream is None or self._stream.is_lost:
            self._join()
        try:
            self._ask(self._conversation.reset, settings)
            first = self._ask(self._conversation.step)
        except LostError as error:
            raise DmEnvRpcError(
                f"{self._name} did not answer reset: {error}."
            ) from error
        self._last_observation, self._must_begin = first.observation, False
        return first.observation, {}

    def _move(self, action: Any) -> Result:
        # Hot: called once per step.
        if self._must_begin:
            raise DmEnvRpcError(
                f"{self._name} answered the last step with an error, which has ended "
                "the episode: reset() comes before step()."
            )
        try:
            step: ReceivedStep = self._ask(self._conversation.step, action)
        except LostError as error:
            lost = DmEnvRpcError(f"{self._name} did not answer step: {error}.")
            return self._cut_off("link_lost", lost, str(error))
        except DmEnvRpcError as error:
            # Servers may answer the next step with the first of another episode.
            self._must_begin = True
            if error.kind not in REPLACED:
                raise
            return self._cut_off(error.kind, error, str(error))
        self._last_observation = step.observation
        reward = 0.0 if step.reward is None else step.reward
        terminated = step.is_last and not step.truncated
        return Result(
            step.observation, reward, terminated, step.truncated, {}, step.discount
        )

    def _cut_off(self, kind: str, error: DmEnvRpcError, reason: str) -> Result:
        """Returns a made-up end of an episode whose environment is lost."""
        _LOGGER.warning("%s: %s; the episode is truncated", self._name, reason)
        self._lose(kind, error)
        spec = self._reward_spec
        reward = np.zeros(spec.shape, spec.dtype)
        info = {"lost": reason}
        return Result(self._last_observation, reward, truncated=True, info=info)

    def _to_reward(self, reward: Any) -> Any:
        return np.array(reward, self._reward_spec.dtype)

    def _get_state(self) -> Any:
        raise NotImplementedError(
            "dm_env_rpc's protocol cannot save the state of an environment."
        )

    def _draw(self, mode: str) -> Any:
        raise NotImplementedError("dm_env_rpc's protocol has no pictures.")

    # The stream.

    def _join(self) -> None:
        """Connects, creates a world unless one is named, and joins it."""
        self._close()
        self._stream = self._connect()
        self._conversation = ClientStream(self._name, self._text_length)
        try:
            world = self._world
            if world is None:
                self._made = world = self._ask(
                    self._conversation.create, self._settings
                )
            self._ask(self._conversation.join, world, self._join_settings)
        except BaseException as error:
            self._close()
            if not isinstance(error, LostError):
                raise
            raise DmEnvRpcError(
                f"{self._name} did not let us join a world: {error}."
            ) from error

    def _ask(self, request: Callable[..., bytes], *arguments: Any) -> Any:
        """Sends a request; returns the event of its answer."""
        # Hot: called once per step.
        if self._stream is None or self._stream.is_lost:
            raise LostError("the connection has ended")
        answer = self._stream.ask(request(*arguments))
        try:
            return self._conversation.receive(answer)
        finally:
            if self._conversation.is_broken:
                self._stream.close()

    def _close(self) -> None:
        """Leaves the world, destroys it if it was created here, and disconnects."""
        stream, made = self._stream, self._made
        if stream is None:
            return
        # A server may know no worlds that can be left or destroyed.
        with contextlib.suppress(DmEnvRpcError, LostError):
            self._ask(self._conversation.leave)
            if made:
                self._ask(self._conversation.destroy, made)
        self._stream, self._made = None, ""
        stream.close()


def _observation_leaf(spec: ArraySpec) -> Leaf:
    convert = array_leaf(spec)
    if spec.dtype.kind != "U":
        return convert

    def convert_text(value: Any) -> Array:
        try:
            text: Array = convert(value)
        except SpecError:
            raise SpecError(
                f"The observation {spec.name!r} has a text of "
                f"{max(map(len, value.flat))} characters, and text_length is "
                f"{spec.dtype.itemsize // 4}. Make it larger, or leave it out for "
                "texts of any length."
            ) from None
        return text

    return convert_text


def load(address: str, **kwargs: Any) -> DmEnvRpcWrapper:
    """Connects to an environment of a dm_env_rpc server.

    `envkit.make("dm_env_rpc:localhost:9000")` calls this.

    Args:
        address: The host and port.
        **kwargs: Keyword arguments of `DmEnvRpcWrapper`.
    """
    return DmEnvRpcWrapper(address, **kwargs)


def _connected(
    server: str,
    place: tuple[str, int],
    *,
    token: str | None,
    cafile: str | None,
    tls: bool,
    timeout: float,
    connect_timeout: float,
) -> _GrpcStream:
    """Returns a new stream to a server; errors call it `server`.

    Raises:
        DmEnvRpcError: The server cannot be reached.
    """
    import grpc

    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_retries", 0),  # a request must not be delivered twice
    ]
    if tls or cafile is not None:
        trusted = None if cafile is None else Path(cafile).read_bytes()
        credentials = grpc.ssl_channel_credentials(trusted)
        channel = grpc.secure_channel(place_of(place), credentials, options)
    else:
        channel = grpc.insecure_channel(place_of(place), options)
    try:
        grpc.channel_ready_future(channel).result(connect_timeout)
        if token is None:  # perhaps a server of the same user
            token = find("token", *place)
        metadata = None if token is None else [("authorization", f"Bearer {token}")]
        return _GrpcStream(channel, metadata, timeout)
    except BaseException as error:
        channel.close()
        if not isinstance(error, grpc.FutureTimeoutError):
            raise
        raise DmEnvRpcError(
            f"{server} could not be reached within {connect_timeout:g} s. Check the "
            "address, that the server runs, and whether it uses TLS."
        ) from error


class _GrpcStream:
    """A gRPC stream of requests, with a time limit for each answer."""

    def __init__(self, channel: Any, metadata: Any, timeout: float) -> None:
        self._channel, self._timeout = channel, timeout
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | LostError] = queue.SimpleQueue()
        self.is_lost = False
        process = channel.stream_stream(_METHOD)
        stream = process(iter(self._requests.get, None), metadata=metadata)
        # A thread, because gRPC's iterator of answers has no timeout.
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Any) -> None:
        import grpc

        reason = "the server has ended the connection"
        try:
            for answer in stream:
                self._answers.put(answer)
        except grpc.RpcError as error:
            ended: Any = error
            reason = f"{ended.code().name}: {ended.details()}"
        self._answers.put(LostError(reason))

    def ask(self, request: bytes) -> bytes:
        """Sends a request and returns its answer."""
        # Hot: called once per step.
        self._requests.put(request)
        try:
            answer = self._answers.get(timeout=self._timeout)
            if isinstance(answer, LostError):
                raise answer
        except BaseException as error:
            # A late answer, after Ctrl-C for example, would be taken for the answer to
            # the next request.
            self.close()
            if not isinstance(error, queue.Empty):
                raise
            raise LostError(f"there was no answer within {self._timeout:g} s") from None
        return answer

    def close(self) -> None:
        """Disconnects; calling it again does nothing."""
        self.is_lost = True
        self._requests.put(None)
        self._channel.close()


def _checked_place(address: str) -> tuple[str, int]:
    place = host_and_port(str(address).removeprefix("//"))
    if place is None:
        raise ValueError(
            "The address of a dm_env_rpc server must be a host and a port, such as "
            f"'localhost:9000', got {describe(address)}."
        )
    return place
