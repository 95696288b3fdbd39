"""What all protocols of `envkit serve` share: environments, clients, limits.

A protocol is a module with a function that takes a `Menu` and `ServeOptions`, listens,
and returns a `Service`; it serves in threads of its own. The command, which is
`envkit.cli.serve`, has refused by then to be reached from elsewhere without a token. It
prints the line of each service when all listen, waits for a signal, and closes them.
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

# Where a restart policy is, for environments in processes; a string, because only a
# server that has such environments loads the engine.
_POLICY = "envkit.parallel:RestartPolicy"
_PROCESS = "envkit.parallel:ProcessPyEnvironment"
# How many rows there are is for the session to say, and for the server to limit.
_COUNTS = ("num_envs", "batch_size")


class Refusal(EnvkitError, ValueError):
    """What a client has asked for is not to be had; the message is for the client."""


class ServeOptions(NamedTuple):
    """How a server is to listen, and how much it allows.

    Attributes:
        host: The address to listen at; the machine itself alone unless told.
        port: The port; 0 for any that is free, `None` for the usual one of a protocol.
        token: What clients have to know; a drawn one unless told, one of several with a
            `TokensFile`, and `None` lets in everyone who reaches the port.
        tls: What encrypts connections; `None` for connections in the clear.
        max_sessions: How many sessions there may be at a time.
        max_rows: How many environments a session may have.
        idle_timeout: Seconds after which a session ends that asks nothing.
        observers: How many connections may watch a session.
        allow_call: The names that `call` may name.
        allow_arg: The arguments of environments that clients may give.
        password: What viewers have to know, by `--vnc` and `--universe`: 8 characters
            of it count. A drawn one unless told, and `None` for none.
        observer_password: What viewers have to know that only watch, by `--vnc`.
        hz: The steps in a second, by `--vnc`; 0 if each waits for a key, and `None` for
            the environment's own pace.
        web_port: The port of the pages for browsers, by `--vnc`; 0 for any that is
            free, `None` for 100 below that of VNC.
        cert: The file of the certificate in `tls`, for libraries that take no context.
        key: That of its private key, if it is not in the same file.
        sockets: Sockets that listen already, at `host`, as systemd hands them over; the
            server opens its own where there are none.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    token: bytes | Draw | TokensFile | None = DRAW
    tls: ssl.SSLContext | None = None
    max_sessions: int = 64
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
        """Returns where to listen, for `listener`.

        Args:
            usual: The usual port of the protocol.
            number: How many it listens at before this one.
        """
        if self.sockets:
            return self.sockets[number]
        first = usual if self.port is None else self.port
        return first + number if first else 0


class Service(Protocol):
    """A server of one protocol, which listens from when it has been made.

    Attributes:
        line: What the command prints when it listens: the protocol and the address.
        invitation: How clients connect that do not find the secret: those of other
            users, on other machines, and of other makers. It has the secret in it; ""
            if none was drawn.
    """

    line: str
    invitation: str

    def health(self) -> list[dict[str, Any]]:
        """Returns where it serves, and how many sessions it has, for `--health`.

        Other packages' services need not have this.
        """

    def ended(self) -> str | None:
        """Returns why it has ended unasked; `None` as long as it serves."""

    def close(self, reason: str) -> None:
        """Tells clients the reason, closes their environments, and stops listening.

        It returns within some seconds, whatever environments do; calling it again does
        nothing.
        """


class Offer:
    """An environment that a server offers by name.

    Attributes:
        name: What clients call it: the target, or what stands before `=` in it.
        target: What `envkit.make` takes.
        id: The target with its version, if it has one.
        version: The version, or `None`.
        arguments: What the server makes it with, which clients cannot change.
        recipe: What makes one.
        source: What the target stands for: `"module:attribute"` or `"scheme:id"`.
        library: The package or scheme in that.
        num_workers: How many processes are kept for clients; `None` if environments
            live in this one.

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
        """Takes a target, as `envkit.make` does; a name of its own may come before it.

        Args:
            target: `"CartPole"`, `"gymnasium:Hopper-v5"`, `"maze=my_package:make"`.
            arguments: What to make it with.
            num_workers: How many processes are kept for clients; `None` to have
                environments in this one.
            recover: What the `RestartPolicy` of these processes is to have.
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
        """What clients may call it."""
        if self.name != self.target:
            return (self.name,)
        bare = self.id.removesuffix(f"-v{self.version}")
        return tuple(dict.fromkeys([self.name, self.id, bare]))

    def check_arguments(
        self, arguments: Any, allowed: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Returns keyword arguments of a client, if it may give them.

        Args:
            arguments: What the client has sent.
            allowed: The names of those that it may give.

        Raises:
            Refusal: They are none, the server has set one of them or does not allow it,
                or the signature of what makes the environment does not have it.
        """
        if not isinstance(arguments, dict) or not all(
            isinstance(name, str) for name in arguments
        ):
            raise Refusal("The arguments must be a dictionary whose keys are names.")
        known = None
        for name in arguments:
            if name in self.arguments:
                # Its value is the server's secret.
                raise Refusal(
                    f"{self.name} is served with a {name} of the server's, which a "
                    "client cannot change: leave it out."
                )
            if name in _COUNTS:
                raise Refusal(
                    f"The argument {name!r} is not a client's to give: how many "
                    "environments there are is the session's num_envs."
                )
            if name not in allowed:
                may = f"only {listed(allowed)}" if allowed else "no arguments"
                raise Refusal(
                    f"A client may give {may} here, not {name!r:.80}"
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
        """Returns a message for a client without the values that `--arg` has given.

        Example:
            >>> Offer("CartPole", {"secret": "hush!"}).hide("'hush!' is wrong")
            "'…' is wrong"
        """
        for value in _texts_in(self.arguments):
            text = text.replace(value, "…")
        return text

    def _signature(self) -> dict[str, inspect.Parameter]:
        """Returns the parameters that a client may give by name."""
        if self._parameters is None:
            build = self.recipe.build
            if isinstance(build, str):
                build = load(self.name, build)
            try:
                found = dict(inspect.signature(build).parameters)
            except (TypeError, ValueError):  # It is of C, and does not say.
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

        With workers it lives in a process that is replaced when it crashes, so that its
        stream goes on, with a `LAST` unless it recovers; without, in this process and
        thread.

        Args:
            **arguments: What `check_arguments` has returned.
        """
        recipe = constructor(self.recipe, **arguments)
        if self.num_workers is None:
            return recipe()
        env = load("num_workers", _PROCESS)(recipe, on_worker_failure=self._policy())
        env.start()
        return env

    def make_row(self, **arguments: Any) -> Any:
        """Makes the environment, with workers as a batch of one row.

        That is a pool, which asks its process for infos only when needed.

        Args:
            **arguments: Likewise.
        """
        if self.num_workers is None:
            return self.make(**arguments)
        recipe = constructor(self.recipe, **arguments)
        return make(recipe, num_envs=1, num_workers=1, on_worker_failure=self._policy())

    def _policy(self) -> Any:
        return load("num_workers", _POLICY)(recover=self._recover)

    def make_drawing(self) -> Any:
        """Makes a single environment so that it draws pictures."""
        env = self.make()
        has_no_mode = getattr(env, "render_mode", "") is None
        if has_no_mode and "render_mode" not in self.arguments:
            # Those of Gymnasium are told when they are made.
            env.close()
            env = self.make(render_mode="rgb_array")
        return env


# Shorter values are no secrets, and messages have them for other reasons.
_LEAST_HIDDEN = 4


def _texts_in(value: Any) -> Iterator[str]:
    """Yields how the parts of an argument's value may stand in a message."""
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
            # As it is, and as repr() escapes it.
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
        """Takes the offers; the first of those with the same name is found."""
        self.offers = tuple(offers)

    @property
    def names(self) -> list[str]:
        """What the environments are called."""
        return [offer.name for offer in self.offers]

    def hide(self, text: str) -> str:
        """Returns a message for a client without values that `--arg` has given."""
        for offer in self.offers:
            text = offer.hide(text)
        return text

    def find(self, name: str) -> Offer:
        """Returns the environment of that name; "" if there is only one.

        Raises:
            Refusal: There is none; the message names those that there are.
        """
        if not name and len(self.offers) == 1:
            return self.offers[0]
        for offer in self.offers:
            if name in offer.names:
                return offer
        if not name:
            raise Refusal(
                "This server has several environments, so one must be named: "
                f"{', '.join(self.names)}."
            )
        raise Refusal(
            f"This server has no environment {name[:80]!r}."
            f"{suggestion(name[:80], self.names)} It has: {', '.join(self.names)}."
        )


def with_reachable_host(address: str, host: str) -> str:
    """Returns an address for clients of other machines, where a server listens to all.

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
    """Refuses to be reached from elsewhere without a secret.

    Args:
        options: Where to listen.
        kinds: Which secrets the protocols have: "token", "password", or both.

    Returns:
        What is to be said of servers without a secret, and of a secret without TLS;
        `None` if nothing is.

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
            remedy = "have the unit listen at 127.0.0.1"
        raise ValueError(
            f"{where} lets other machines connect, and there is no {missing[0]}, so "
            "anyone who reaches it could use the environments. Leave "
            f"--no-{missing[0]} out, or {remedy}."
        )
    if options.tls is None:
        return (
            f"The server listens at {options.host} without TLS: what travels can be "
            "read and changed on the way, the token travels with --openenv and "
            "--dm-env-rpc, the password with --web-port, and the passwords of "
            "--universe and --vnc protect little. Pass --cert and --key, with which "
            "--vnc lets other machines reach its page for browsers alone."
        )
    return None
