"""`Menu`, `Offer` and `ServeOptions`, which all protocols of `envkit serve` use.

A protocol is a module with a function that takes a `Menu` and `ServeOptions`, listens,
and returns a `Service`, which serves in its own threads. The command `envkit.cli.serve`
first refuses to let other machines in without a secret. Once all services listen, it
prints their lines, waits for a signal, and closes them.
"""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from envkit._shared.listening import is_loopback
from envkit._shared.secret_files import DRAW, Draw
from envkit._shared.server_secret import TokensFile
from envkit.errors import EnvkitError
from envkit.extend import listed, suggestion
from envkit.registry import constructor, load, make

__all__ = [
    "Menu",
    "Offer",
    "Refusal",
    "ServeOptions",
    "Service",
    "check_exposure",
    "with_reachable_host",
]

# The restart policy for environments in processes; a string, because only servers with
# such environments import the engine.
_POLICY = "envkit.parallel:RestartPolicy"
_PROCESS = "envkit.parallel:ProcessPyEnvironment"
# The session sets the number of rows, and the server limits it.
_COUNTS = ("num_envs", "batch_size")


class Refusal(EnvkitError, ValueError):
    """A client's request is refused; the message is for the client.

    Attributes:
        kind: The kind of the `Loss`, if the client's environments are lost.
    """

    def __init__(self, message: str = "", *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class ServeOptions(NamedTuple):
    """The address, secrets and limits of a server.

    Attributes:
        host: The address to listen on; by default only this machine can connect.
        port: The port; 0 for any free one, `None` for the protocol's usual port.
        token: The token that clients need; by default the server draws one. A
            `TokensFile` holds several, and `None` admits everyone who reaches the port.
        tls: An SSL context for connections; `None` for no encryption.
        max_sessions: The maximum number of sessions at a time.
        sessions_per_process: The maximum number of sessions that share a process, in
            threads.
        max_rows: The maximum number of environments in a session.
        idle_timeout: Seconds without a request after which a session ends.
        observers: The maximum number of observers of a session.
        allow_call: The methods that clients may call with `call`.
        allow_arg: The constructor arguments that clients may pass.
        password: The password of viewers, for `--vnc` and `--universe`; only 8
            characters count. By default the server draws one; `None` for none.
        observer_password: The password of viewers that only watch, for `--vnc`.
        hz: The steps a second, for `--vnc`; 0 to step once for each key, `None` for the
            environment's own pace.
        web_port: The port of the pages for browsers, for `--vnc`; 0 for any free one,
            `None` for the VNC port minus 100.
        cert: The certificate's file, for libraries that take no SSL context.
        key: The private key's file, if it is not in `cert`.
        sockets: Sockets already listening on `host`, such as systemd's. If empty, the
            server opens its own.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    token: bytes | Draw | TokensFile | None = DRAW
    tls: ssl.SSLContext | None = None
    max_sessions: int = 64
    sessions_per_process: int = 1
    max_rows: int = 4096
    idle_timeout: float = 600.0
    observers: int = 0
    allow_call: tuple[str, ...] = ()
    allow_arg: tuple[str, ...] = ()
    password: str | Draw | None = DRAW
    observer_password: str | None = None
    hz: float | None = None
    web_port: int | None = None
    cert: str | None = None
    key: str | None = None
    sockets: tuple[socket.socket, ...] = ()

    def port_or_socket(self, usual: int, number: int = 0) -> int | socket.socket:
        """Returns the port or socket to pass to `listener`.

        Args:
            usual: The usual port of the protocol.
            number: The number of sockets that the protocol has opened before.
        """
        if self.sockets:
            return self.sockets[number]
        first = usual if self.port is None else self.port
        return first + number if first else 0


class Service(Protocol):
    """A server of one protocol, which is already listening.

    Attributes:
        line: The line for the command to print: the protocol and the address.
        invitation: How clients connect that cannot find the secret, because they belong
            to other users, machines or libraries. It contains the secret; "" if none
            was drawn.
    """

    line: str
    invitation: str

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of sessions, for `--health`.

        Optional for other packages' services.
        """

    def ended(self) -> str | None:
        """Returns why it stopped without `close`; `None` while it serves."""

    def close(self, reason: str) -> None:
        """Sends clients the reason, closes their environments, and stops listening.

        Returns within a few seconds even if environments hang; calling it again does
        nothing.
        """


class Offer:
    """An environment that a server offers by name.

    Attributes:
        name: Its name for clients: the target, or the part before `=`.
        target: The target for `envkit.make`.
        id: The target with its version, if it has one.
        version: The version, or `None`.
        arguments: The server's own arguments, which clients cannot change.
        recipe: Makes an environment.
        source: The target's origin: `"module:attribute"` or `"scheme:id"`.
        library: The package or scheme in `source`.
        num_workers: The number of processes to keep for clients; `None` if environments
            live in this process.

    Example:
        >>> offer = Offer("CartPole")
        >>> offer.name, offer.id, offer.version
        ('CartPole', 'CartPole-v1', 1)
        >>> offer.make().batched
        False
    """

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        num_workers: int | None = None,
        recover: str | None = None,
    ) -> None:
        """Takes a target as for `envkit.make`, with an optional name before it.

        Args:
            target: `"CartPole"`, `"gymnasium:Hopper-v5"`, `"maze=my_package:make"`.
            arguments: Arguments for the constructor.
            num_workers: The number of processes to keep for clients; `None` to make
                environments in this process.
            recover: The `recover` option of these processes' `RestartPolicy`.
        """
        name, equals, rest = target.partition("=")
        self.name, self.target = (name, rest) if equals else (target, target)
        self.arguments = dict(arguments or {})
        self.num_workers, self._recover = num_workers, recover
        self.recipe = constructor(self.target, **self.arguments)
        build = self.recipe.build
        if not isinstance(build, str):
            kind = build if hasattr(build, "__qualname__") else type(build)
            build = f"{kind.__module__}:{kind.__qualname__}"
        self.source = build
        self.library = self.source.partition(":")[0].partition(".")[0]
        recipe = self.recipe.plain_recipe()
        self.id: str = recipe["id"]
        self.version: int | None = recipe["version"]
        self._parameters: dict[str, inspect.Parameter] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names that clients may use."""
        if self.name != self.target:
            return (self.name,)
        bare = self.id.removesuffix(f"-v{self.version}")
        return tuple(dict.fromkeys([self.name, self.id, bare]))

    def check_arguments(
        self, arguments: Any, allowed: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Checks and returns a client's keyword arguments.

        Args:
            arguments: The data that the client sent.
            allowed: The names that the client may use.

        Raises:
            Refusal: They are no keyword arguments; or the server has set one of them,
                does not allow it, or the constructor does not take it.
        """
        if not isinstance(arguments, dict) or not all(
            isinstance(name, str) for name in arguments
        ):
            raise Refusal("The arguments must be a dictionary whose keys are names.")
        known = None
        for name in arguments:
            if name in self.arguments:
                # Its value may be a secret of the server.
                raise Refusal(
                    f"The server sets {name} of {self.name}, and a client cannot "
                    "change it: leave it out."
                )
            if name in _COUNTS:
                raise Refusal(
                    f"A client cannot pass {name!r}: the session's num_envs is the "
                    "number of environments."
                )
            if name not in allowed:
                may = f"only {listed(allowed)}" if allowed else "no arguments"
                raise Refusal(
                    f"A client may pass {may} here, not {name!r:.80}"
                    " (envkit serve --allow-arg NAME)."
                )
            known = self._signature() if known is None else known
            if name not in known:
                raise Refusal(
                    f"{self.name} has no argument {name!r:.80}."
                    f"{suggestion(name, known)} It takes: {listed(known) or 'none'}."
                )
        return dict(arguments)

    def hide(self, text: str) -> str:
        """Replaces the values of `--arg` in a message for a client.

        Example:
            >>> Offer("CartPole", {"secret": "hush!"}).hide("'hush!' is wrong")
            "'…' is wrong"
        """
        for value in _texts_in(self.arguments):
            text = text.replace(value, "…")
        return text

    def _signature(self) -> dict[str, inspect.Parameter]:
        """Returns the parameters that a client may pass by name."""
        if self._parameters is None:
            build = self.recipe.build
            if isinstance(build, str):
                build = load(self.name, build)
            try:
                found = dict(inspect.signature(build).parameters)
            except (TypeError, ValueError):  # written in C, without a signature
                found = {}
            by_name = (
                inspect.Parameter.KEYWORD_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            )
            self._parameters = {
                name: parameter
                for name, parameter in found.items()
                if parameter.kind in by_name
                and name not in _COUNTS
                and name not in self.arguments
            }
        return self._parameters

    def make(self, **arguments: Any) -> Any:
        """Makes the environment.

        With workers it lives in a process that is replaced when it crashes: the client
        continues, after a `LAST` unless the environment recovers. Without workers it
        lives in this process and thread.

        Args:
            **arguments: Arguments that `check_arguments` returned.
        """
        recipe = constructor(self.recipe, **arguments)
        if self.num_workers is None:
            return recipe()
        env = load("num_workers", _PROCESS)(recipe, on_worker_failure=self._policy())
        env.start()
        return env

    def make_row(self, **arguments: Any) -> Any:
        """Makes the environment; with workers, as a batch of one row.

        The batch is a pool, which asks its process for infos only when needed.

        Args:
            **arguments: As for `make`.
        """
        if self.num_workers is None:
            return self.make(**arguments)
        recipe = constructor(self.recipe, **arguments)
        return make(recipe, num_envs=1, num_workers=1, on_worker_failure=self._policy())

    def _policy(self) -> Any:
        return load("num_workers", _POLICY)(recover=self._recover)

    def make_drawing(self) -> Any:
        """Makes a single environment that can draw pictures."""
        env = self.make()
        has_no_mode = getattr(env, "render_mode", "") is None
        if has_no_mode and "render_mode" not in self.arguments:
            # Gymnasium's environments must know when they are made.
            env.close()
            env = self.make(render_mode="rgb_array")
        return env


# Shorter values are no secrets, and occur in messages for other reasons.
_LEAST_HIDDEN = 4


def _texts_in(value: Any) -> Iterator[str]:
    """Yields the texts in an argument's value that may occur in a message."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _texts_in(part)
    elif isinstance(value, bytes):
        yield from _texts_in(value.decode("utf-8", "replace"))
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if len(text) >= _LEAST_HIDDEN:
            # Verbatim, and as repr() escapes it.
            yield from dict.fromkeys([text, repr(text)[1:-1]])


class Menu:
    """The environments that a server offers.

    Example:
        >>> menu = Menu([Offer("CartPole"), Offer("corner=GridWorld")])
        >>> menu.find("CartPole-v1").name, menu.find("corner").id
        ('CartPole', 'GridWorld-v1')
        >>> menu.find("Pong")
        Traceback (most recent call last):
        envkit.remote.offers.Refusal: This server has no environment 'Pong'. It has: \
CartPole, corner.
    """

    def __init__(self, offers: Sequence[Offer]) -> None:
        """Takes the offers; if two have the same name, the first one counts."""
        self.offers = tuple(offers)

    @property
    def names(self) -> list[str]:
        """The environments' names."""
        return [offer.name for offer in self.offers]

    def hide(self, text: str) -> str:
        """Replaces the values of `--arg` in a message for a client."""
        for offer in self.offers:
            text = offer.hide(text)
        return text

    def find(self, name: str) -> Offer:
        """Returns the environment with a name; "" finds the only one.

        Raises:
            Refusal: There is none; the message lists the names.
        """
        if not name and len(self.offers) == 1:
            return self.offers[0]
        for offer in self.offers:
            if name in offer.names:
                return offer
        if not name:
            raise Refusal(
                "This server has several environments, so name one of them: "
                f"{', '.join(self.names)}."
            )
        raise Refusal(
            f"This server has no environment {name[:80]!r}."
            f"{suggestion(name[:80], self.names)} It has: {', '.join(self.names)}."
        )


def with_reachable_host(address: str, host: str) -> str:
    """Replaces a wildcard host in an address with this machine's name.

    Example:
        >>> with_reachable_host("tcp://127.0.0.1:7600", "127.0.0.1")
        'tcp://127.0.0.1:7600'
    """
    if host not in ("", "0.0.0.0", "::"):
        return address
    for part in ("0.0.0.0", "[::]"):
        address = address.replace(part, socket.gethostname(), 1)
    return address


def check_exposure(
    options: ServeOptions, kinds: Collection[str] = ("token",)
) -> str | None:
    """Refuses to let other machines in without a secret.

    Args:
        options: The options of the server.
        kinds: The kinds of secrets of the protocols: "token", "password", or both.

    Returns:
        A warning about a missing secret, or about a secret without TLS; `None` if all
        is well.

    Raises:
        ValueError: Anyone who reaches the address could use the environments.
    """
    secrets = {"token": options.token, "password": options.password}
    missing = [kind for kind in kinds if secrets[kind] is None]
    if is_loopback(options.host):
        if not missing:
            return None
        flags = " and ".join(f"--no-{kind}" for kind in missing)
        return f"{flags}: every account of this machine can use the environments."
    if missing:
        where = f"--host={options.host}"
        remedy = "leave --host out and reach it through a tunnel"
        if options.sockets:
            where = f"The inherited socket at {options.host}"
            remedy = "have the unit listen on 127.0.0.1"
        raise ValueError(
            f"{where} lets other machines connect, and there is no {missing[0]}, so "
            "anyone who reaches it could use the environments. Leave "
            f"--no-{missing[0]} out, or {remedy}."
        )
    if options.tls is None:
        return (
            f"The server listens on {options.host} without TLS: all traffic can be "
            "read and changed on the way. It includes the token with --openenv and "
            "--dm-env-rpc, and the password with --web-port; the passwords of "
            "--universe and --vnc protect little. Pass --cert and --key; --vnc then "
            "lets other machines reach only its pages for browsers."
        )
    return None
