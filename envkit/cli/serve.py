"""`envkit serve TARGET...`: serves environments to clients and to people.

Each protocol is a flag and an entry point of the group `envkit.protocols`, which names
an `envkit.remote.ServeProtocol`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from envkit._internal.entry_points import loaded
from envkit._shared.activation import notify
from envkit._shared.health import HEALTH_PATH
from envkit._shared.secret_files import DRAW
from envkit._shared.server_secret import TokensFile
from envkit.cli.output import say
from envkit.cli.parser import Parser, Removed, Renamed
from envkit.cli.secrets import (
    VNC_LENGTH,
    add_password,
    add_tls,
    check_contradiction,
    password_in,
    tls_in,
    token_in,
    tokens_in,
)
from envkit.cli.server_log import logged
from envkit.cli.services import Chosen, Services, host_and_port, places_of, warnings_of
from envkit.cli.target import (
    add_arg,
    add_hz,
    add_web_port,
    at_least_one,
    busy_port_explained,
    number_within,
    port_number,
)
from envkit.errors import EnvkitError
from envkit.extend import Plugins, describe, listed
from envkit.remote.offers import (
    Menu,
    Offer,
    ServeOptions,
    Service,
)
from envkit.remote.plugins import OWN_PROTOCOL, ServeProtocol

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit serve CartPole gymnasium:Hopper-v5 --port 7600"

_LONGEST = 86400.0


_PROTOCOLS = Plugins("envkit.protocols", "protocol")


_OWN = Chosen("", OWN_PROTOCOL)

# What to use instead of an option that only other protocols have.
_INSTEAD = {
    "token_file": "--password-file",
    "tokens_file": "--password-file, as VNC compares 8 characters of one password",
    "no_token": "--no-password",
    "password_file": "--token-file",
    "no_password": "--no-token",
}
# What clients of envkit's own protocol do themselves.
_IN_CONNECT = {
    "num_workers": "connect(..., num_workers=N) starts a process here for each worker",
    "recover": (
        'connect(..., on_worker_failure=RestartPolicy(recover="replay")) does this '
        "from the client"
    ),
}


def add_arguments(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\nIt runs until Ctrl-C or SIGTERM, and then closes all "
        "environments."
    )
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="+",
        help="an environment, written as for envkit.make; NAME=TARGET serves it under "
        "another name",
    )
    add_arg(parser, "an argument of all environments, which clients cannot change")
    parser.add_argument(
        "--host",
        help="the address to listen on (default: 127.0.0.1, which only this machine "
        "can reach; or the sockets that systemd passes)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="PORT",
        help="the port; 0 picks a free one. Several protocols take the ports from PORT "
        "upwards (default: the usual port of each protocol)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with the token that clients need, of at least 16 characters "
        "(default: a random token, which your own clients find; the command prints how "
        "others connect)",
    )
    parser.add_argument(
        "--tokens-file",
        metavar="FILE",
        help="a file with a token for each client, in lines of NAME TOKEN or NAME "
        "TOKEN EXPIRY; changes to it count at once (default: one token for all)",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="let every account on this machine connect",
    )
    add_password(parser)
    add_tls(parser)
    parser.add_argument(
        "--health",
        type=host_and_port,
        metavar="[HOST:]PORT",
        help=f"answer GET {HEALTH_PATH} at this address for all services, without a "
        "secret (default: each service answers at its own port)",
    )
    parser.add_argument(
        "--num-workers",
        type=at_least_one,
        metavar="N",
        help="the number of processes kept ready for the next clients (default: 1)",
    )
    parser.add_argument(
        "--recover",
        action="store_const",
        const="replay",
        help="let crashed environments continue where they were, bit for bit if they "
        "are deterministic",
    )
    parser.add_argument(
        "--threads",
        action=Removed,
        const="each client has a process of its own, unless --sessions-per-process "
        "says otherwise; leave it out",
    )
    parser.add_argument(
        "--max-sessions",
        type=at_least_one,
        default=64,
        metavar="N",
        help="the maximum number of sessions at once",
    )
    parser.add_argument(
        "--sessions-per-process",
        type=at_least_one,
        metavar="N",
        help="the maximum number of sessions that share a process, in threads: for "
        "environments that mostly wait. A crash ends all of them (default: each has "
        "its own process)",
    )
    parser.add_argument(
        "--max-rows",
        type=at_least_one,
        metavar="N",
        help="the maximum number of environments in a session (default: 4096)",
    )
    parser.add_argument(
        "--idle-timeout",
        type=number_within(_LONGEST, f"number of seconds, up to {_LONGEST:g}"),
        metavar="SECONDS",
        help="end sessions without a request for this long (default: 600)",
    )
    parser.add_argument(
        "--observers",
        type=at_least_one,
        metavar="N",
        help="the number of connections that may watch each session (default: none; "
        "15 with --vnc)",
    )
    parser.add_argument(
        "--allow-call",
        action="append",
        default=[],
        metavar="NAME",
        help="a method of the environments that clients may call; can be repeated "
        "(default: none)",
    )
    parser.add_argument(
        "--allow-arg",
        action="append",
        default=[],
        metavar="NAME",
        help="a constructor argument that clients may set; can be repeated (default: "
        "none)",
    )
    parser.add_argument(
        "--observer-password-file",
        metavar="FILE",
        help="a file with the password for viewers who only watch (default: everyone "
        "may play)",
    )
    parser.add_argument(
        "--observer-token-file", action=Renamed, const="--observer-password-file"
    )
    add_hz(
        parser,
        "steps per second; 0 waits for a key before each step (default: the "
        "environment's own speed, as in envkit play)",
    )
    add_web_port(parser)
    protocols = parser.add_argument_group("protocols besides envkit's own")
    own = _PROTOCOLS.own()
    for name in [*own, *(other for other in _PROTOCOLS.names() if other not in own)]:
        # A package may have chosen the name of one of the options above.
        with contextlib.suppress(argparse.ArgumentError):
            protocols.add_argument(
                f"--{name}",
                action="append_const",
                const=name,
                dest="protocols",
                help=_text_of(name).replace("%", "%%"),
            )
    parser.set_defaults(protocols=[])
    parser.prefix_help(_scopes())


def _text_of(name: str) -> str:
    """Returns a protocol's description, or the error if it is broken."""
    try:
        return _chosen(name).protocol.text
    except EnvkitError as error:
        return str(error)


def _chosen(name: str) -> Chosen:
    plugin = _PROTOCOLS.find(name)
    assert plugin is not None  # its flag was added
    found = plugin.load()
    if isinstance(found, ServeProtocol):
        return Chosen(name, found)
    if not callable(found):
        raise plugin.broken(
            f"is {describe(found)}, which is neither a ServeProtocol nor a function "
            "that serves"
        )
    return Chosen(name, ServeProtocol(found, f"serve by the protocol {name}"))


def _own_protocols() -> list[Chosen]:
    """Returns the protocols of envkit, without those of other packages."""
    return [_OWN, *map(_chosen, _PROTOCOLS.own())]


def _scopes() -> dict[str, str]:
    """Returns prefixes for the help of options: the protocols that support them."""
    protocols = _own_protocols()
    scopes = {}
    for name in {name for each in protocols for name in each.protocol.has}:
        having = [each.name for each in protocols if name in each.protocol.has]
        others = [each.name for each in protocols if each.name not in having]
        word, names = ("with", having) if len(having) <= 2 else ("not with", others)
        scopes[name] = f"{word} {' and '.join(names)}: "
    return scopes


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal ends it; the signal determines the exit status."""
    protocols = [_chosen(name) for name in arguments.protocols] or [_OWN]
    _check_effects(arguments, protocols)
    menu, options = _menu_of(arguments), _options_of(arguments)
    places = places_of(arguments, protocols, options)
    warnings = warnings_of(places)
    with logged(debug=arguments.debug), contextlib.ExitStack() as stack:
        for warning in warnings:
            say(f"envkit serve: {warning}", file=sys.stderr)
        if options.tls is not None and any(one.flag == "universe" for one in protocols):
            say(
                "envkit serve: --cert encrypts only Universe's rewarder: what the "
                "desktop shows and takes can be read and changed on the way.",
                file=sys.stderr,
            )
        services = Services()
        # It answers until all other services have stopped.
        health = services.health_server(arguments.health, options.tls)
        if health is not None:
            stack.callback(health.close)
        for chosen, place in places.items():
            service = _start(chosen.protocol, menu, place)
            stack.callback(service.close, "the server is stopping")
            services.add(chosen, service)
        stack.callback(notify, "STOPPING=1")
        stack.callback(services.stop)
        services.begin()
        notify("READY=1")
        # Programs that wait for the last line can connect: everything listens now.
        say(*services.lines(), *([] if health is None else [f"health: {health.url}"]))
        sys.stdout.flush()
        for line in services.invitations():
            say(f"envkit serve: {line}", file=sys.stderr)
        sys.stderr.flush()
        return services.await_end()


def _check_effects(arguments: argparse.Namespace, protocols: list[Chosen]) -> None:
    """Raises for options that none of the protocols supports.

    Raises:
        ValueError: An option would have no effect.
    """
    known = _own_protocols()
    for name in dict.fromkeys(name for each in known for name in each.protocol.has):
        is_given = getattr(arguments, name) not in (None, [], False)
        if is_given and not any(name in each.protocol.has for each in protocols):
            option = f"--{name.replace('_', '-')}"
            having = [each.name for each in known if name in each.protocol.has]
            remedy = f"use {_INSTEAD[name]}" if name in _INSTEAD else "leave it out"
            if protocols == [_OWN] and name in _IN_CONNECT:
                remedy = f"leave it out; {_IN_CONNECT[name]}"
            chosen = listed(each.name for each in protocols)
            raise ValueError(
                f"{option} has no effect with {chosen}: {remedy}. It works "
                f"with {listed(having)}."
            )


def _menu_of(arguments: argparse.Namespace) -> Menu:
    """Returns the menu: each TARGET, with the arguments of `--arg`."""
    given = dict(arguments.target_arguments)
    # If each client has one environment, a pool of one is its process.
    workers = arguments.num_workers or 1
    return Menu(
        [
            Offer(target, given, num_workers=workers, recover=arguments.recover)
            for target in arguments.targets
        ]
    )


def _options_of(arguments: argparse.Namespace) -> ServeOptions:
    """Returns the options for listening, with token and certificate loaded."""
    given = {
        name: getattr(arguments, name)
        for name in ("sessions_per_process", "max_rows", "idle_timeout", "observers")
        if getattr(arguments, name) is not None
    }
    token = token_in("--token-file", arguments.token_file)
    password = password_in("--password-file", arguments.password_file)
    observer_password = password_in(
        "--observer-password-file", arguments.observer_password_file
    )
    tokens = tokens_in("--tokens-file", arguments.tokens_file)
    check_contradiction(arguments, "token_file", "no_token")
    check_contradiction(arguments, "tokens_file", "no_token")
    check_contradiction(arguments, "tokens_file", "token_file")
    check_contradiction(arguments, "password_file", "no_password")
    if observer_password is not None and arguments.no_password:
        raise ValueError(
            "--observer-password-file and --no-password contradict each other: "
            "without a password, every viewer can play."
        )
    _check_apart(token, tokens, password, observer_password)
    return ServeOptions(
        host=arguments.host or "127.0.0.1",
        port=arguments.port,
        token=None if arguments.no_token else token or tokens or DRAW,
        password=None if arguments.no_password else password or DRAW,
        observer_password=observer_password,
        hz=arguments.hz,
        web_port=arguments.web_port,
        tls=tls_in(arguments.cert, arguments.key),
        max_sessions=arguments.max_sessions,
        allow_call=tuple(arguments.allow_call),
        allow_arg=tuple(arguments.allow_arg),
        cert=arguments.cert,
        key=arguments.key,
        **given,
    )


def _start(protocol: ServeProtocol, menu: Menu, options: ServeOptions) -> Service:
    serve = protocol.serve
    if isinstance(serve, str):
        serve = loaded(serve)
    with busy_port_explained():
        service: Service = serve(menu, options)
    return service


def _check_apart(
    token: bytes | None,
    tokens: TokensFile | None,
    password: str | None,
    observer_password: str | None,
) -> None:
    """Raises for a password that gives away the token or another password.

    Raises:
        ValueError: Two of them begin alike, and VNC compares the beginning.
    """
    several = () if tokens is None else tokens.holders()
    known: list[tuple[str, bytes | None]] = [
        ("--token-file", token),
        *(("--tokens-file", holder.secret) for holder in several),
        ("--password-file", (password or "").encode()),
        ("--observer-password-file", (observer_password or "").encode()),
    ]
    seen: dict[bytes, str] = {}
    for option, secret in known:
        if secret:
            first = seen.setdefault(secret[:VNC_LENGTH], option)
            if first is not option:
                raise ValueError(
                    f"{first} and {option} must have different secrets: the first "
                    f"{VNC_LENGTH} characters are the same, and a VNC password can "
                    "be guessed by those who see it being used."
                )
