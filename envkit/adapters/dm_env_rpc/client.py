"""dm_env_rpc: the environment behind an address, as an envkit environment.

The protocol's own adaptor makes a `dm_env.Environment` of a connection, and
`DmEnvWrapper` an envkit environment of that. What is here connects, makes a world and
joins it, seeds episodes, and ends an episode whose server has gone.

Names with dots in them are nested dictionaries. A single observation that is called
"observation", and a single action that is called "action", stand alone, as
`envkit serve TARGET --dm-env-rpc` means them.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit._shared.secret_files import find
from envkit._shared.text import escaped
from envkit.adapters.dm_env import DmEnvWrapper, ones_of, zeros_of
from envkit.adapters.foreign import require
from envkit.adapters.values import map_specs
from envkit.errors import EnvkitError
from envkit.extend import Result, describe
from envkit.types import Seed

__all__ = ["DmEnvRpcError", "DmEnvRpcWrapper", "load"]

_LOGGER = logging.getLogger(__name__)

_END: Any = object()
_SEEDS = 2**63  # A setting takes no larger seed.


class DmEnvRpcError(EnvkitError, RuntimeError):
    """A server of dm_env_rpc cannot be reached, or has refused what it was asked.

    Attributes:
        code: The code of the server's answer, of `google.rpc`; 0 where there was none.
    """

    code: int = 0

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


class _LostError(Exception):
    """The connection has ended, or nothing has come for too long."""

    def __init__(self, message: str) -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


class DmEnvRpcWrapper(DmEnvWrapper):
    """Plays the environment that a server of dm_env_rpc serves.

    | dm_env_rpc                                | time step                       |
    |-------------------------------------------|---------------------------------|
    | `RUNNING`, the first of an episode        | `FIRST`, reward 0, discount 1   |
    | `RUNNING`                                 | `MID`, discount 1               |
    | `TERMINATED`                              | `LAST`, discount 0              |
    | `INTERRUPTED`                             | `LAST`, truncated, discount 1   |
    | the connection is lost in a step          | the same, the observation again |

    A server may have the discount as an observation, which it then is. `seed` reaches
    the server as the setting "seed" of a reset, which servers of envkit know. After a
    connection is lost, the next reset connects again, and makes a new world.
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
        """Connects with a server, makes a world there, and joins it.

        Args:
            address: The host and the port, with a colon between them.
            settings: What the world is made with.
            join_settings: What it is joined with.
            world: The name of a world that exists, which is joined; `None` to make one,
                which is destroyed at the end.
            text_length: The maximal length of texts. They are then arrays of a fixed
                width; otherwise they are objects of any length.
            token: What the metadata `authorization` has after `Bearer`. The token that
                a server of the same user on the same machine has drawn is found.
            cafile: A file with the certificates that are trusted, for TLS.
            tls: Whether to use TLS with the system's certificates, without a `cafile`.
            timeout: Seconds that an answer may take.
            connect_timeout: Seconds that connecting may take.

        Raises:
            DmEnvRpcError: The server cannot be reached, or has refused.
        """
        require("dm_env_rpc", needed_by="DmEnvRpcWrapper", extra="dm-env-rpc")
        self._door = _Door(
            _checked_address(address),
            dict(settings or {}),
            dict(join_settings or {}),
            world,
            token=token,
            cafile=cafile,
            tls=tls or cafile is not None,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )
        # Until it is made, so that an error that comes then finds something to close.
        self._last_observation: Any = None
        env = self._door.joined()
        try:
            super().__init__(env, text_length=text_length)
        except BaseException:
            self._door.close()
            raise
        self._name = f"The dm_env_rpc server at {self._door.address}"

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._door.address

    def seed(self, seed: Seed) -> None:
        """Seeds the environment at the next reset, by a setting of it."""
        super().seed(seed)
        if self._next_seed is not None:
            self._next_seed %= _SEEDS

    def get_info(self) -> dict[str, Any]:
        """Returns how a lost episode ended, `terminated` and `truncated`, else `{}`."""
        return dict(self._info)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if self._foreign.is_lost:
            self._foreign = self._door.joined()
        self._foreign.seed(seed)
        try:
            begun = super()._begin(None, options)
        except _LostError as error:
            raise DmEnvRpcError(
                f"{self._name} did not answer reset: {error}."
            ) from error
        self._last_observation = begun[0]
        return begun

    def _move(self, action: Any) -> Any:
        # Hot: called once per step.
        try:
            result = super()._move(action)
        except _LostError as error:
            return self._cut_off(error)
        self._last_observation = result[0]
        return result

    def _cut_off(self, reason: Exception) -> Result:
        """Returns the end of an episode whose server has gone."""
        _LOGGER.warning("%s: %s; the episode is truncated", self._name, reason)
        return Result(
            self._last_observation,
            map_specs(zeros_of, self._reward_spec),
            truncated=True,
            info={"terminated": False, "truncated": True, "lost": str(reason)},
            discount=map_specs(ones_of, self._discount_spec),
        )

    def _close(self) -> None:
        self._door.close()

    def _get_state(self) -> Any:
        raise NotImplementedError(
            "The protocol of dm_env_rpc has no way to save the state of an environment."
        )

    def _draw(self, mode: str) -> Any:
        raise NotImplementedError("The protocol of dm_env_rpc has no pictures.")


def load(address: str, **kwargs: Any) -> DmEnvRpcWrapper:
    """Makes the environment that a server of dm_env_rpc serves.

    `envkit.make("dm_env_rpc:localhost:9000")` calls this.

    Args:
        address: The host and the port.
        **kwargs: Keyword arguments of `DmEnvRpcWrapper`.
    """
    return DmEnvRpcWrapper(address, **kwargs)


class _Door:
    """The way to a server: connects, makes a world, and joins it."""

    def __init__(
        self,
        address: str,
        settings: dict[str, Any],
        join_settings: dict[str, Any],
        world: str | None,
        *,
        token: str | None,
        cafile: str | None,
        tls: bool,
        timeout: float,
        connect_timeout: float,
    ) -> None:
        self.address = address
        self._settings, self._join_settings = settings, join_settings
        self._world = world
        self._token, self._cafile, self._tls = token, cafile, tls
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._connection: _Connection | None = None
        self._env: Any = None
        self._made: str | None = None

    def joined(self) -> Any:
        """Connects, and returns the `dm_env.Environment` of a world."""
        from dm_env_rpc.v1 import dm_env_adaptor
        from dm_env_rpc.v1.error import DmEnvRpcError as TheirError

        self.close()
        self._connection = connection = self._connected()
        try:
            world = self._world
            if world is None:
                world = dm_env_adaptor.create_world(connection, self._settings)
                self._made = world
            self._env = dm_env_adaptor.join_world(
                connection, world, self._join_settings
            )
        except TheirError as error:
            self.close()
            raise _refused(self.address, error) from error
        except _LostError as error:
            self.close()
            raise DmEnvRpcError(
                f"The dm_env_rpc server at {self.address} let no world be joined: "
                f"{error}."
            ) from error
        except BaseException:
            self.close()
            raise
        return _Played(self._env, connection)

    def _connected(self) -> _Connection:
        import grpc

        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ]
        if self._tls:
            trusted = None
            if self._cafile is not None:
                with open(self._cafile, "rb") as file:
                    trusted = file.read()
            credentials = grpc.ssl_channel_credentials(trusted)
            channel = grpc.secure_channel(self.address, credentials, options)
        else:
            channel = grpc.insecure_channel(self.address, options)
        try:
            grpc.channel_ready_future(channel).result(self._connect_timeout)
        except grpc.FutureTimeoutError as error:
            channel.close()
            raise DmEnvRpcError(
                f"The dm_env_rpc server at {self.address} could not be reached within "
                f"{self._connect_timeout:g} s. Check that it runs, the address, and "
                "whether it uses TLS."
            ) from error
        metadata = None
        token = self._token
        if token is None:  # That of a server of the same user.
            host, _, port = self.address.rpartition(":")
            try:
                token = find("token", host, int(port))
            except BaseException:
                channel.close()
                raise
        if token is not None:
            metadata = (("authorization", f"Bearer {token}"),)
        return _Connection(channel, metadata, self._timeout)

    def close(self) -> None:
        """Leaves the world, destroys it if it was made here, and disconnects."""
        from dm_env_rpc.v1 import dm_env_rpc_pb2
        from dm_env_rpc.v1.error import DmEnvRpcError as TheirError

        connection, self._connection = self._connection, None
        made, self._made, self._env = self._made, None, None
        if connection is None:
            return
        if not connection.is_lost:
            # A server may know no worlds that can be left or destroyed.
            with contextlib.suppress(TheirError, _LostError):
                connection.send(dm_env_rpc_pb2.LeaveWorldRequest())
                if made is not None:
                    connection.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=made))
        connection.close()


class _Connection:
    """A stream of requests to a server, whose answers are waited for with a limit."""

    def __init__(self, channel: Any, metadata: Any, timeout: float) -> None:
        from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc

        self._channel, self._timeout = channel, timeout
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_lost = False
        stub = dm_env_rpc_pb2_grpc.EnvironmentStub(channel)
        stream = stub.Process(iter(self._requests.get, None), metadata=metadata)
        # Because waiting for gRPC's answers cannot end after a time.
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Any) -> None:
        import grpc

        reason = "the server has ended the connection"
        try:
            for answer in stream:
                self._answers.put(answer)
        except grpc.RpcError as error:
            told: Any = error
            reason = f"{told.code().name}: {told.details()}"
        self._answers.put(_LostError(reason))

    def send(self, request: Any) -> Any:
        """Sends a request and returns its answer."""
        # Hot: called once per step.
        from dm_env_rpc.v1 import message_utils

        if self.is_lost:
            raise _LostError("the connection has ended")
        packed, field = message_utils.pack_environment_request(request)
        self._requests.put(packed)
        try:
            answer = self._answers.get(timeout=self._timeout)
        except queue.Empty:
            # An answer that comes now would be taken for that to the next request.
            self.close()
            raise _LostError(
                f"there was no answer within {self._timeout:g} s"
            ) from None
        except BaseException:  # Ctrl-C, for example: likewise.
            self.close()
            raise
        if isinstance(answer, _LostError):
            self.close()
            raise answer
        return message_utils.unpack_environment_response(answer, field)

    def close(self) -> None:
        """Disconnects; calling it again does nothing."""
        self.is_lost = True
        self._requests.put(None)
        self._channel.close()


class _Played:
    """The adaptor's environment, with seeds, and single arrays that stand alone."""

    def __init__(self, env: Any, connection: _Connection) -> None:
        self._env, self._connection = env, connection
        self._next_seed: int | None = None
        self._observes_one = set(env.observation_spec()) == {"observation"}
        self._acts_by_one = set(env.action_spec()) == {"action"}

    @property
    def is_lost(self) -> bool:
        return self._connection.is_lost

    def observation_spec(self) -> Any:
        spec = self._env.observation_spec()
        return spec["observation"] if self._observes_one else spec

    def action_spec(self) -> Any:
        spec = self._env.action_spec()
        return spec["action"] if self._acts_by_one else spec

    def reward_spec(self) -> Any:
        return self._env.reward_spec()

    def discount_spec(self) -> Any:
        return self._env.discount_spec()

    def seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def reset(self) -> Any:
        from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

        if self._next_seed is not None:
            seed = tensor_utils.pack_tensor(self._next_seed, dtype=np.int64)
            self._sent(dm_env_rpc_pb2.ResetRequest(settings={"seed": seed}))
            self._next_seed = None
        return self._alone(self._with_our_errors(self._env.reset))

    def step(self, action: Any) -> Any:
        # Hot: called once per step.
        action = {"action": action} if self._acts_by_one else action
        return self._alone(self._with_our_errors(lambda: self._env.step(action)))

    def _sent(self, request: Any) -> None:
        self._with_our_errors(lambda: self._connection.send(request))

    def _with_our_errors(self, call: Any) -> Any:
        from dm_env_rpc.v1.error import DmEnvRpcError as TheirError

        try:
            return call()
        except TheirError as error:
            raise _refused("", error) from error
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            # What the library raises for tensors and states that cannot be.
            self._connection.close()
            raise DmEnvRpcError(
                f"The dm_env_rpc server sent an answer that is none: "
                f"{type(error).__name__}: {error!s:.300}"
            ) from error

    def _alone(self, time_step: Any) -> Any:
        if not self._observes_one:
            return time_step
        return time_step._replace(observation=time_step.observation["observation"])


def _refused(address: str, error: Any) -> DmEnvRpcError:
    place = f" at {address}" if address else ""
    refused = DmEnvRpcError(f"The dm_env_rpc server{place} answered: {error.message}")
    refused.code = error.code
    return refused


def _checked_address(address: str) -> str:
    host, colon, port = str(address).removeprefix("//").rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(
            "The address of a dm_env_rpc server must be a host and a port, such as "
            f"'localhost:9000', got {describe(address)}."
        )
    return f"{host}:{port}"
