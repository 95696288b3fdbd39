"""Declares the protocols of `envkit serve` and the schemes of remote environments.

Entry points name these objects. They hold functions as strings, because the command
reads all protocols and serves only a few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.extend import Scheme

__all__ = [
    "DM_ENV_RPC_PORT",
    "OPENENV_PORT",
    "OWN_PROTOCOL",
    "PORT",
    "VNC_PORT",
    "ServeProtocol",
]

# The usual ports of the protocols; PORT is that of envkit's own.
PORT, OPENENV_PORT, DM_ENV_RPC_PORT, VNC_PORT = 7600, 8000, 9000, 5900

# Neither end needs OpenEnv's own package.
OPENENV = Scheme(
    "envkit.remote.openenv_client:load",
    title="OpenEnv",
    page="adapters/openenv",
    package="websockets",
    extra="openenv",
    requires=(
        "starlette>=0.40",
        "uvicorn>=0.35",
        "websockets>=15",
    ),
    address="http://localhost:8000",
)
DM_ENV_RPC = Scheme(
    "envkit.remote.dm_env_rpc_client:load",
    title="dm_env_rpc",
    page="adapters/dm_env_rpc",
    package="dm_env_rpc",
    extra="dm-env-rpc",
    requires=("dm-env-rpc>=1.1",),
    address="localhost:9000",
)
UNIVERSE = Scheme(
    "envkit.remote.universe_client:load",
    title="remotes of OpenAI Universe",
    page="coming_from_universe",
    package="websockets",
    extra="universe",
    requires=("websockets>=15",),
    address="//localhost:5900+15900",
)


class ServeProtocol(NamedTuple):
    """Describes a protocol of `envkit serve` and its flag.

    Each entry point in the group `envkit.protocols` names one of these; the flag is
    called like the entry point.

    Attributes:
        serve: A function, or `"module:function"`. Called with a menu and options, it
            listens and returns a `Service`.
        text: The help text of the flag.
        has: The options that this protocol supports, such as `"token_file"` and
            `"no_token"`, among those that not every protocol supports.
        secret: The kind of secret that clients need: "token" or "password".
        sockets: The number of inherited sockets it can take from `options.sockets`: -1
            for one per environment, 0 if it always opens its own.
        port: Its usual port; the first, if it listens on several.
    """

    serve: str | Callable[[Any, Any], Any]
    text: str
    has: tuple[str, ...] = ("token_file", "no_token")
    secret: str = "token"
    sockets: int = 0
    port: int | None = None


_TOKENS = ("token_file", "tokens_file", "no_token")
_PASSWORDS = ("password_file", "no_password")

# envkit's own protocol, the default.
OWN_PROTOCOL = ServeProtocol(
    "envkit.remote.server:serve",
    "",
    has=(
        *_TOKENS,
        "sessions_per_process",
        "max_rows",
        "idle_timeout",
        "observers",
        "allow_call",
        "allow_arg",
    ),
    sockets=1,
    port=PORT,
)
OPENENV_PROTOCOL = ServeProtocol(
    "envkit.remote.openenv:serve",
    f"serve clients of OpenEnv, at --port (default: {OPENENV_PORT})",
    has=(*_TOKENS, "num_workers", "recover", "idle_timeout"),
    sockets=1,
    port=OPENENV_PORT,
)
DM_ENV_RPC_PROTOCOL = ServeProtocol(
    "envkit.remote.dm_env_rpc:serve",
    f"serve clients of dm_env_rpc, at --port (default: {DM_ENV_RPC_PORT})",
    has=(*_TOKENS, "num_workers", "recover", "idle_timeout", "allow_arg"),
    port=DM_ENV_RPC_PORT,
)
UNIVERSE_PROTOCOL = ServeProtocol(
    "envkit.remote.universe:serve",
    f"act as a remote of OpenAI Universe: VNC at --port (default: {VNC_PORT}), and "
    "the rewarder 10,000 ports above it",
    has=(*_PASSWORDS, "recover"),
    secret="password",
    sockets=2,
    port=VNC_PORT,
)
VNC_PROTOCOL = ServeProtocol(
    "envkit.remote.vnc:serve",
    "let people watch and play in VNC viewers and browsers, with the keys of envkit "
    f"play: the first environment at --port (default: {VNC_PORT}), the others at the "
    "ports above it, and all of them in browsers at --web-port",
    has=(
        *_PASSWORDS,
        "recover",
        "observers",
        "observer_password_file",
        "hz",
        "web_port",
    ),
    secret="password",
    sockets=-1,
    port=VNC_PORT,
)
