"""What operators rely on: refusals in the log, /healthz, tokens with names and expiry.

A refusal is one line, `PEER was refused by PROTOCOL: REASON`, whatever the protocol is.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys

import pytest

from envkit import connect, make
from envkit._shared.admission import Admission
from envkit._shared.server_secret import TokensFile
from envkit.desktop import DesktopClient, DesktopError, DesktopServer
from envkit.errors import ConstructorError, EnvkitError
from envkit.remote import dm_env_rpc, openenv, universe
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.remote.protocol import MAGIC, ORDER, PROTOCOL, frame_of
from envkit.remote.rewarder import authorization
from envkit.remote.server import Server
from tests.remote.serving import certificate_in
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

for _package in ("starlette", "uvicorn", "websockets", "dm_env_rpc"):
    pytest.importorskip(_package, reason=f"{_package} is not installed")

SECRET, WRONG = "a secret of some length", "another of some length"
SERVE = [sys.executable, "-m", "envkit", "serve"]


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Lets servers and clients of this test find no secrets of others."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return certificate_in(tmp_path_factory.mktemp("certificate"))


def tls_options(certificate):
    cert, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return {"tls": context, "cert": cert, "key": key}


# Each protocol: how it is served, and where it listens.


def own_place(server):
    return ("127.0.0.1", int(server.address.rpartition(":")[2]))


def openenv_place(server):
    return ("127.0.0.1", int(server.url.rpartition(":")[2]))


@contextlib.contextmanager
def serving(protocol, *targets, **options):
    """Serves by a protocol; yields the server and the place of its port."""
    menu = Menu([Offer(target) for target in targets or ("Catch",)])
    if protocol == "vnc":
        server = DesktopServer(**{"password": "letmein", **options})
        try:
            yield server, server.address
        finally:
            server.close()
        return
    options = {"token": SECRET.encode(), "password": SECRET, "port": 0, **options}
    serve = {
        "envkit": Server,
        "openenv": openenv.serve,
        "dm-env-rpc": dm_env_rpc.serve,
        "universe": universe.serve,
    }[protocol]
    more = {"to_prove": options.pop("to_prove")} if "to_prove" in options else {}
    server = serve(menu, ServeOptions(**options), **more)
    place = {
        "envkit": own_place,
        "openenv": openenv_place,
        "dm-env-rpc": lambda one: ("127.0.0.1", int(one.address.rpartition(":")[2])),
        "universe": lambda one: one.rewarder.address,
    }[protocol](server)
    try:
        yield server, place
    finally:
        server.close("the test is over")


def say(place, data=b"", tls=None):
    """Says some bytes, and reads all that comes back."""
    heard = b""
    with socket.create_connection(place, PATIENCE) as sock:
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname="localhost")
        sock.settimeout(PATIENCE)
        sock.sendall(data)
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            while part := sock.recv(1 << 16):
                heard += part
    return heard


def request(path="/schema", host="127.0.0.1", **headers):
    named = {"Host": host, "Connection": "close", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def upgrade(path="/ws", **headers):
    return request(
        path,
        **{
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
            **headers,
        },
    )


def greeting(**changes):
    said = {"protocol": [*PROTOCOL], "nonce": "00" * 16, "order": ORDER, **changes}
    return MAGIC + b"".join(frame_of(said))


def say_to_own(place, wants):
    """Says hello and what is wanted."""
    return say(place, greeting() + b"".join(frame_of(wants)))


def hello_by_tls(place):
    """Begins a TLS handshake with a server that has no certificate."""
    context = ssl.create_default_context()
    with contextlib.suppress(OSError), socket.create_connection(place) as sock:
        sock.settimeout(PATIENCE)
        context.wrap_socket(sock, server_hostname="localhost")


def opened(place, token=SECRET, **options):
    host, port = place
    with contextlib.suppress(ConstructorError):
        connect(f"tcp://{host}:{port}", token=token, **options).close()


def made(scheme, place, **options):
    where = "http://127.0.0.1" if scheme == "openenv" else "127.0.0.1"
    with contextlib.suppress(EnvkitError):
        make(f"{scheme}:{where}:{place[1]}", **options).close()


def viewed(place, password):
    with contextlib.suppress(DesktopError):
        DesktopClient(*place, password=password).close()


def rewarded(place, password, path="/", **headers):
    named = {"Authorization": authorization(password)} if password else {}
    with socket.create_connection(place, PATIENCE) as sock:
        sock.settimeout(PATIENCE)
        sock.sendall(upgrade(path, **named, **headers))
        heard = sock.recv(1 << 16)
        if heard.startswith(b"HTTP/1.1 101") and "4" in str(len(headers)):
            return heard
        with contextlib.suppress(OSError):
            while sock.recv(1 << 16):
                pass
        return heard


BEARER = {"Authorization": f"Bearer {SECRET}"}
GUESS = {"Authorization": f"Bearer {WRONG}"}
BASIC = "Basic " + base64.b64encode(f"token:{WRONG}".encode()).decode()
NO_CERTIFICATE = "The client uses TLS, and this server has no certificate."

# What is refused: the protocol, what a client does, the reason, and options.
REFUSALS = {
    "envkit: wrong token": (
        "envkit",
        lambda place: opened(place, WRONG),
        "the token is wrong",
        {},
    ),
    "envkit: no token": (
        "envkit",
        lambda place: say_to_own(place, {"list": True}),
        "it gave no token",
        {},
    ),
    "envkit: version": (
        "envkit",
        lambda place: say(place, greeting(protocol=[9, 0])),
        "The server speaks protocol 1.0",
        {},
    ),
    "envkit: order of bytes": (
        "envkit",
        lambda place: say(place, greeting(order="?")),
        "The two machines have different byte orders",
        {},
    ),
    "envkit: not its protocol": (
        "envkit",
        lambda place: say(place, b"SSH-2.0-OpenSSH_9.9\r\n"),
        "This is a server of envkit environments, which speaks its own",
        {},
    ),
    "envkit: TLS without a certificate": ("envkit", hello_by_tls, NO_CERTIFICATE, {}),
    "envkit: too slow": (
        "envkit",
        lambda place: say(place, MAGIC),
        "it took too long to say who it is|it has not proved itself within",
        {"to_prove": 0.2},
    ),
    "envkit: too many rows": (
        "envkit",
        lambda place: opened(place, num_envs=3),
        r"A session may have at most 2 environments \(--max-rows\); you asked for 3",
        {"max_rows": 2},
    ),
    "envkit: unknown environment": (
        "envkit",
        lambda place: opened((place[0], f"{place[1]}/Pong")),
        "This server has no environment 'Pong'",
        {},
    ),
    "envkit: an argument": (
        "envkit",
        lambda place: opened(place, rows=5),
        "A client may pass no arguments here, not 'rows'",
        {},
    ),
    "envkit: another path": (
        "envkit",
        lambda place: say(place, request("/metrics")),
        "There is only /healthz here for HTTP, not '/metrics'",
        {},
    ),
    "envkit: a web page": (
        "envkit",
        lambda place: say(place, request("/healthz", Origin="http://evil.example")),
        "The header Origin is 'http://evil.example'",
        {},
    ),
    "envkit: a foreign name": (
        "envkit",
        lambda place: say(place, request("/healthz", host="evil.example")),
        "The header Host is 'evil.example'",
        {},
    ),
    "openenv: wrong token": (
        "openenv",
        lambda place: say(place, request(**GUESS)),
        "the token is wrong",
        {},
    ),
    "openenv: wrong token of a WebSocket": (
        "openenv",
        lambda place: say(place, upgrade(**GUESS)),
        "the token is wrong",
        {},
    ),
    "openenv: wrong token in the address": (
        "openenv",
        lambda place: say(place, upgrade(Authorization=BASIC)),
        "the token is wrong",
        {},
    ),
    "openenv: no token": (
        "openenv",
        lambda place: say(place, request()),
        "it gave no token",
        {},
    ),
    "openenv: a web page": (
        "openenv",
        lambda place: say(place, request(Origin="http://evil.example")),
        "The header Origin is 'http://evil.example'",
        {"token": None},
    ),
    "openenv: a web page's WebSocket": (
        "openenv",
        lambda place: say(place, upgrade(Origin="http://evil.example")),
        "The header Origin is 'http://evil.example'",
        {"token": None},
    ),
    "openenv: a foreign name": (
        "openenv",
        lambda place: say(place, request(host="evil.example")),
        "The header Host is 'evil.example'",
        {"token": None},
    ),
    "openenv: too slow": (
        "openenv",
        lambda place: say(place, b"GET /schema HTTP/1.1\r\n"),
        r"it has not proved itself within 0\.2 s",
        {},
    ),
    "openenv: not HTTP": (
        "openenv",
        lambda place: say(place, b"\0\1\2\3 nothing of that\r\n\r\n"),
        "Invalid HTTP request received",
        {},
    ),
    "openenv: nothing there": (
        "openenv",
        lambda place: say(place, request("/nowhere", **BEARER)),
        "There is nothing at /nowhere",
        {},
    ),
    "openenv: TLS without a certificate": ("openenv", hello_by_tls, NO_CERTIFICATE, {}),
    "dm-env-rpc: wrong token": (
        "dm-env-rpc",
        lambda place: made("dm_env_rpc", place, token=WRONG),
        "the token is wrong",
        {},
    ),
    "dm-env-rpc: no token": (
        "dm-env-rpc",
        lambda place: made("dm_env_rpc", place),
        "it gave no token",
        {},
    ),
    "dm-env-rpc: an argument": (
        "dm-env-rpc",
        lambda place: made("dm_env_rpc", place, token=SECRET, settings={"rows": 5}),
        "A client may pass no arguments here, not 'rows'",
        {},
    ),
    "dm-env-rpc: unknown environment": (
        "dm-env-rpc",
        lambda place: made(
            "dm_env_rpc", place, token=SECRET, settings={"environment": "Pong"}
        ),
        "This server has no environment 'Pong'",
        {},
    ),
    "universe: wrong password": (
        "universe",
        lambda place: rewarded(place, WRONG),
        "the password is wrong",
        {},
    ),
    "universe: no password": (
        "universe",
        lambda place: rewarded(place, None),
        "it gave no password",
        {},
    ),
    "universe: a web page": (
        "universe",
        lambda place: rewarded(place, "openai", Origin="http://evil.example"),
        "The header Origin is 'http://evil.example'",
        {"password": None},
    ),
    "universe: a foreign name": (
        "universe",
        lambda place: say(place, request("/healthz", host="evil.example")),
        "The header Host is 'evil.example'",
        {},
    ),
    "universe: too slow": (
        "universe",
        lambda place: say(place, b"GET / HTTP/1.1\r\n"),
        r"it has not proved itself within 0\.2 s",
        {},
    ),
    "universe: not HTTP": (
        "universe",
        lambda place: say(place, b"\0\1\2\3 nothing of that\r\n\r\n"),
        "did not receive a valid HTTP request: ",
        {},
    ),
    "universe: TLS without a certificate": (
        "universe",
        hello_by_tls,
        NO_CERTIFICATE,
        {},
    ),
    "vnc: wrong password": (
        "vnc",
        lambda place: viewed(place, "mellon"),
        r"The password is wrong\.",
        {},
    ),
    "vnc: not its protocol": (
        "vnc",
        lambda place: say(place, b"GET / HTTP/1.1\r\n\r\n"),
        "The other end must begin with 'RFB' and a version",
        {},
    ),
    "vnc: too slow": (
        "vnc",
        lambda place: say(place),
        r"it has not proved itself within 0\.2 s",
        {"handshake_timeout": 0.2},
    ),
}


def refusals(caplog):
    return [text for text in caplog.messages if " was refused by " in text]


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_logged_in_one_line_with_its_reason(case, caplog, monkeypatch):
    protocol, provoke, reason, options = REFUSALS[case]
    caplog.set_level(logging.INFO, "envkit")
    if case.endswith("too slow"):
        monkeypatch.setitem(Admission.__init__.__kwdefaults__, "patience", 0.2)
    with serving(protocol, **options) as (_, place):
        provoke(place)
        assert until(lambda: refusals(caplog))
    (line,) = refusals(caplog)
    expected = rf"127\.0\.0\.1:\d+ was refused by {protocol}: ({reason})"
    assert re.match(expected, line), line
    assert not re.search(f"{SECRET}|{WRONG}", caplog.text)


FULL = {
    "envkit": lambda place, token=SECRET: connect(
        f"tcp://127.0.0.1:{place[1]}", token=token
    ),
    "openenv": lambda place, token=SECRET: make(
        f"openenv:http://127.0.0.1:{place[1]}", token=token
    ),
    "dm-env-rpc": lambda place, token=SECRET: make(
        f"dm_env_rpc:127.0.0.1:{place[1]}", token=token
    ),
    "vnc": lambda place: DesktopClient(*place, password="letmein"),
}


@pytest.mark.parametrize("protocol", FULL)
def test_one_session_too_many_is_logged_in_one_line(protocol, caplog):
    limit = {"max_viewers": 1} if protocol == "vnc" else {"max_sessions": 1}
    with serving(protocol, **limit) as (_, place), FULL[protocol](place) as first:
        if protocol == "openenv":  # Its sessions begin with the first episode.
            first.reset()
        with contextlib.suppress(EnvkitError), FULL[protocol](place) as second:
            second.reset()
        assert until(lambda: refusals(caplog))
    (line,) = refusals(caplog)
    assert re.match(rf"127\.0\.0\.1:\d+ was refused by {protocol}: (The|There) ", line)
    assert re.search(r"1 (session|environment|viewer)", line), line


def test_a_full_rewarder_logs_one_line_and_still_answers_healthz(caplog):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect as plain

    headers = {"authorization": authorization(SECRET)}
    with serving("universe", max_sessions=1) as (_, place):
        url = f"ws://{place[0]}:{place[1]}"
        with plain(url, additional_headers=headers) as first:
            first.recv(PATIENCE)
            with pytest.raises(InvalidStatus, match="503"):
                plain(url, additional_headers=headers)
            assert 200 == get(place)[0]
    (line,) = refusals(caplog)
    assert line.endswith(" was refused by universe: There is already 1 client.")


@pytest.mark.parametrize("protocol", ["envkit", "openenv", "universe"])
def test_a_client_without_tls_is_logged_by_a_server_with_a_certificate(
    protocol, caplog, certificate
):
    with serving(protocol, **tls_options(certificate)) as (_, place):
        say(place, request())
        assert until(lambda: refusals(caplog))
    (line,) = refusals(caplog)
    assert re.match(
        rf"127\.0\.0\.1:\d+ was refused by {protocol}: This server uses TLS, and the "
        "client does not",
        line,
    )


@pytest.mark.parametrize("protocol", ["envkit", "openenv", "universe"])
def test_a_client_that_does_not_trust_the_certificate_is_logged_in_one_line(
    protocol, caplog, certificate
):
    with serving(protocol, **tls_options(certificate)) as (_, place):
        hello_by_tls(place)
        assert until(lambda: refusals(caplog))
    (line,) = refusals(caplog)
    assert re.match(
        rf"127\.0\.0\.1:\d+ was refused by {protocol}: the TLS handshake has failed",
        line,
    )


@pytest.mark.parametrize("protocol", ["envkit", "openenv", "universe"])
def test_a_tls_handshake_that_stalls_is_dropped_in_time(
    protocol, caplog, certificate, monkeypatch
):
    monkeypatch.setitem(Admission.__init__.__kwdefaults__, "patience", 0.2)
    options = {"to_prove": 0.2} if protocol == "envkit" else {}
    with serving(protocol, **tls_options(certificate), **options) as (_, place):
        say(place, b"\x16\x03\x01\x02\x00\x01")
        assert until(lambda: refusals(caplog))
    (line,) = refusals(caplog)
    told = "(it took too long to say who it is|it has not proved itself within 0.2 s)"
    assert re.search(rf"was refused by {protocol}: {told}$", line), line


def test_refusals_of_token_holders_are_logged_with_their_names(tmp_path, caplog):
    file = TokensFile(tokens_in(tmp_path, f"alice {ALICE}\n"))
    for protocol in TOKENS:
        with (
            serving(protocol, token=file, max_sessions=1) as (_, place),
            FULL[protocol](place, ALICE) as first,
        ):
            first.reset()
            assert not enters(protocol, place, ALICE)
            assert until(lambda: refusals(caplog))
            (line,) = refusals(caplog)
            assert re.match(
                rf"alice@127\.0\.0\.1:\d+ was refused by {protocol}: ", line
            )
            caplog.clear()


@pytest.mark.parametrize("protocol", ["envkit", "openenv", "universe", "vnc"])
def test_each_dropped_stranger_is_logged_in_one_line(protocol, caplog):
    most = 16 if protocol == "vnc" else 64
    with serving(protocol) as (_, place), contextlib.ExitStack() as stack:
        for _ in range(most + 3):
            sock = socket.create_connection(place, PATIENCE)
            stack.enter_context(sock)
        assert until(lambda: len(refusals(caplog)) == 3)
        for line in refusals(caplog):
            assert line.endswith("it has not proved itself, and others came")


def test_a_flood_of_refusals_is_counted_instead_of_logged(caplog):
    admission = Admission("vnc")
    for number in range(5000):
        admission.refuse(f"127.0.0.1:{number}", "no")
    assert 1000 <= len(caplog.messages) < 1200


def test_the_log_escapes_control_characters_of_clients(caplog):
    Admission("vnc").refuse("127.0.0.1:7", "\x1b[2J\r\nsecond line \u202e")
    assert [r"127.0.0.1:7 was refused by vnc: \u001b[2J\u000d"] == caplog.messages


# Health.


def get(place, path="/healthz", cafile=None, **headers):
    """Returns the status and the body of an answer."""
    if cafile is None:
        connection = http.client.HTTPConnection(*place, timeout=PATIENCE)
    else:
        context = ssl.create_default_context(cafile=cafile)
        connection = http.client.HTTPSConnection(
            "localhost", place[1], timeout=PATIENCE, context=context
        )
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status == 200:
            assert "application/json" == answer.headers["Content-Type"]
        return answer.status, answer.read().decode()


HTTP = ["envkit", "openenv", "universe"]


@pytest.mark.parametrize("protocol", HTTP)
def test_healthz_needs_no_secret_and_reveals_no_numbers(protocol, caplog):
    with serving(protocol) as (_, place):
        status, body = get(place)
        assert 200 == status
        assert {"status": "ok", "protocol": protocol} == json.loads(body)
    assert [] == refusals(caplog)


@pytest.mark.parametrize("protocol", HTTP)
def test_healthz_answers_over_tls(protocol, certificate):
    with serving(protocol, **tls_options(certificate)) as (_, place):
        assert 200 == get(place, cafile=certificate[0])[0]


@pytest.mark.parametrize("protocol", HTTP)
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}],
    ids=str,
)
def test_healthz_answers_no_web_page(protocol, headers):
    with serving(protocol) as (_, place):
        assert 403 == get(place, **headers)[0]


@pytest.mark.parametrize("protocol", ["envkit", "openenv"])
def test_healthz_answers_when_the_server_is_full(protocol):
    with serving(protocol, max_sessions=1) as (_, place), FULL[protocol](place):
        assert 200 == get(place)[0]


def test_another_path_at_envkits_own_port_is_404():
    with serving("envkit") as (_, place):
        told = "There is only /healthz here for HTTP, not '/'.\n"
        assert (404, told) == get(place, "/")


def test_an_endless_request_at_envkits_own_port_is_400():
    with serving("envkit") as (_, place):
        heard = say(place, b"GET /healthz HTTP/1.1\r\n" + b"x" * 20000)
        assert heard.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("protocol", ["envkit", "openenv"])
def test_head_of_healthz_is_the_answer_to_get_without_its_body(protocol, caplog):
    with serving(protocol) as (_, place):
        heard = [
            say(place, request("/healthz").replace(b"GET", method, 1))
            for method in (b"GET", b"HEAD")
        ]
    whole, head = (answer.partition(b"\r\n\r\n") for answer in heard)
    assert b'"status"' in whole[2]
    assert b"" == head[2]
    assert without_date(whole[0]) == without_date(head[0])
    assert [] == refusals(caplog)


def without_date(head):
    return [line for line in head.split(b"\r\n") if not line.startswith(b"date:")]


def test_post_to_healthz_at_envkits_own_port_is_405():
    with serving("envkit") as (_, place):
        heard = say(place, request("/healthz").replace(b"GET", b"POST", 1))
    assert heard.startswith(b"HTTP/1.1 405 Method Not Allowed")
    assert b"\r\nAllow: GET, HEAD\r\n" in heard
    assert heard.endswith(b"This port answers GET and HEAD, not 'POST'.\n")


def test_the_port_for_all_services_answers_head():
    with command("Catch", "--no-token", "--health=0") as (_, lines):
        heard = say(health_place(lines), request("/healthz").replace(b"GET", b"HEAD"))
    assert heard.startswith(b"HTTP/1.1 200 OK")
    assert heard.endswith(b"\r\n\r\n")


def grpc_health(place, service=""):
    """Asks as grpc_health_probe does, whose messages have one field each."""
    import grpc

    name = service.encode()
    asked = b"\x0a" + bytes([len(name)]) + name if name else b""
    with grpc.insecure_channel(f"{place[0]}:{place[1]}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return check(asked, timeout=PATIENCE)
        except grpc.RpcError as error:
            return error.code().name


def test_dm_env_rpc_answers_grpcs_health_service(caplog):
    with serving("dm-env-rpc", max_sessions=1) as (_, place), FULL["dm-env-rpc"](place):
        assert b"\x08\x01" == grpc_health(place)
        assert b"\x08\x01" == grpc_health(place, "dm_env_rpc.v1.Environment")
        assert [] == refusals(caplog)
        assert "NOT_FOUND" == grpc_health(place, "another.Service")
        (line,) = refusals(caplog)
        assert line.endswith("The service here is 'dm_env_rpc.v1.Environment'.")


@contextlib.contextmanager
def command(*arguments, stderr=subprocess.PIPE):
    """Runs `envkit serve`; yields the process and the lines of its services."""
    process = subprocess.Popen(
        [*SERVE, *arguments, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    with process:
        try:
            yield process, process.stdout
        finally:
            process.kill()


def health_place(lines):
    for line in lines:
        if found := re.match(r"health: https?://127\.0\.0\.1:(\d+)/healthz", line):
            return "127.0.0.1", int(found[1])
    raise AssertionError("there was no line for --health")


def test_one_port_answers_for_all_services():
    flags = ["--vnc", "--openenv", "--dm-env-rpc", "--universe", "--hz=0"]
    with command("Catch", *flags, "--health=0") as (_, lines):
        status, body = get(health_place(lines))
        told = json.loads(body)
    assert (200, "ok") == (status, told["status"])
    services = {one["protocol"]: one for one in told["services"]}
    assert ["vnc", "openenv", "dm-env-rpc", "universe"] == list(services)
    for one in services.values():
        assert ("ok", 0) == (one["status"], one["sessions"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", services["openenv"]["address"])
    assert "Catch" not in body


def test_the_port_for_all_services_counts_sessions_and_refuses_web_pages():
    with command("Catch", "--no-token", "--health=127.0.0.1:0") as (_, lines):
        address = lines.readline().split()[-1]
        place = health_place(lines)
        with connect(address) as env:
            env.reset()
            (service,) = json.loads(get(place)[1])["services"]
            assert ("envkit", address, 1) == (
                service["protocol"],
                service["address"],
                service["sessions"],
            )
        assert 403 == get(place, Origin="http://evil.example")[0]
        assert 404 == get(place, "/")[0]


def is_refused_by_the_system(address):
    try:
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    except ConnectionRefusedError:
        return True
    return False


def test_healthz_of_a_stopping_server_is_503(tmp_path):
    file = tmp_path / "open"
    file.touch()
    target = "slow=tests.remote.games:SlowToClose"
    with command(target, f"--arg=file={file}", "--no-token", "--health=0") as made:
        process, lines = made
        address = lines.readline().split()[-1]
        place = health_place(lines)
        with contextlib.suppress(EnvkitError), connect(f"{address}/slow") as env:
            env.reset()
            process.send_signal(signal.SIGTERM)
            assert until(lambda: os.path.exists(f"{file}.closing"))
            status, body = get(place)
            assert (503, "stopping") == (status, json.loads(body)["status"])
            # Nobody waits there for an answer that never comes.
            assert until(lambda: is_refused_by_the_system(address))
            file.unlink()
        assert 143 == process.wait(PATIENCE)


# Tokens with names and expiry.

ALICE, BOB = "a token of alices 1", "b-token-of-bobs-0001"
ALICE = ALICE.replace(" ", "-")
PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01"


def tokens_in(folder, text, mode=0o600):
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


WRONG_FILES = {
    "nothing": ("# nobody\n\n", "must have a token, and '.*' has none"),
    "one word": (f"alice {ALICE}\nbob\n", "line 2 .*NAME TOKEN EXPIRY, got 1 word\\."),
    "a short token": ("alice short\n", "line 1 .*at least 16 characters, got 5"),
    "a name twice": (
        f"alice {ALICE}\n# and\nalice {BOB}\n",
        "line 3 .*The name must be unique: line 1 has it too",
    ),
    "a token twice": (
        f"alice {ALICE}\nbob {ALICE}\n",
        "line 2 .*The token must be unique: line 1 has it too",
    ),
    "no date": (f"alice {ALICE} soon\n", "line 1 .*got 'soon'"),
    "no name": (f"al/ice {ALICE}\n", "line 1 .*A name must have"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_an_error_in_a_token_file_names_the_line(case, tmp_path):
    text, message = WRONG_FILES[case]
    with pytest.raises(ValueError, match=message) as caught:
        TokensFile(tokens_in(tmp_path, text))
    assert ALICE not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (f"\ufeffalice {ALICE}\r\nbob {BOB}\r\n", ALICE),
        (f"alice {ALICE}#{ALICE} # hers\n#bob {BOB}\n", f"{ALICE}#{ALICE}"),
    ],
    ids=["as Windows writes it", "a # within a token"],
)
def test_a_token_file_may_have_a_byte_order_mark_and_comments(text, token, tmp_path):
    first = TokensFile(tokens_in(tmp_path, text)).holders()[0]
    assert ("alice", token.encode()) == first[:2]


def test_a_token_file_that_others_can_read_is_refused(tmp_path):
    with pytest.raises(PermissionError, match="has the mode 0644"):
        TokensFile(tokens_in(tmp_path, f"alice {ALICE}\n", 0o644))


def enters(protocol, place, token):
    """Returns whether a client gets in with a token."""
    scheme = {"openenv": "openenv:http://", "dm-env-rpc": "dm_env_rpc:"}
    try:
        if protocol == "envkit":
            connect(f"tcp://127.0.0.1:{place[1]}", token=token).close()
        else:
            with make(f"{scheme[protocol]}127.0.0.1:{place[1]}", token=token) as env:
                env.reset()
    except EnvkitError:
        return False
    return True


TOKENS = ["envkit", "openenv", "dm-env-rpc"]


@pytest.mark.parametrize("protocol", TOKENS)
def test_each_token_admits_its_holder_until_it_expires(protocol, tmp_path, caplog):
    caplog.set_level(logging.INFO, "envkit")
    text = f"# ours\nalice {ALICE} {FUTURE} # for the year\nbob {BOB} {PAST}\n"
    file = TokensFile(tokens_in(tmp_path, text))
    with serving(protocol, token=file) as (_, place):
        assert enters(protocol, place, ALICE)
        assert not enters(protocol, place, BOB)
        assert not enters(protocol, place, WRONG)
    assert any(re.match(r"alice@127\.0\.0\.1:\d+ ", text) for text in caplog.messages)
    expired, *guessed = refusals(caplog)
    assert expired.endswith("the token of bob expired on 2001-01-01T00:00:00+00:00")
    assert {"the token is wrong"} == {line.rpartition(": ")[2] for line in guessed}


def test_an_expired_token_is_refused_without_its_name(tmp_path):
    file = TokensFile(tokens_in(tmp_path, f"bob {BOB} {PAST}\n"))
    told = "The token has expired"
    with (
        serving("envkit", token=file) as (server, _),
        pytest.raises(ConstructorError, match=told) as caught,
    ):
        connect(server.address, token=BOB)
    assert "bob " not in str(caught.value).replace(BOB, "")


@pytest.mark.parametrize("protocol", TOKENS)
def test_a_changed_token_file_is_read_again(protocol, tmp_path):
    path = tokens_in(tmp_path, f"alice {ALICE}\n")
    with serving(protocol, token=TokensFile(path)) as (_, place):
        assert enters(protocol, place, ALICE)
        path.write_text(f"bob {BOB}\n")
        assert enters(protocol, place, BOB)
        assert not enters(protocol, place, ALICE)
        # As editors and secret managers do it.
        other = tmp_path / "other"
        other.write_text(f"alice {ALICE}\nbob {BOB}\n")
        other.chmod(0o600)
        other.replace(path)
        assert enters(protocol, place, ALICE)


def replace_by_a_pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


BREAK = {
    "a pipe": replace_by_a_pipe,
    "a wrong line": lambda path: path.write_text("alice\n"),
    "for all to read": lambda path: path.chmod(0o644),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_broken_token_file_keeps_the_previous_tokens_valid_and_is_logged_once(
    case, tmp_path, caplog
):
    path = tokens_in(tmp_path, f"alice {ALICE}\n")
    with serving("envkit", token=TokensFile(path)) as (_, place):
        BREAK[case](path)
        assert enters("envkit", place, ALICE)
        assert enters("envkit", place, ALICE)
        (line,) = [text for text in caplog.messages if "is not used" in text]
        assert "the previous tokens stay valid: " in line
        assert ALICE not in line


def test_a_removed_token_ends_no_session_and_resumes_none(tmp_path, monkeypatch):
    from tests.remote.serving import Between

    path = tokens_in(tmp_path, f"alice {ALICE}\nbob {BOB}\n")
    with serving("envkit", token=TokensFile(path)) as (server, _):
        between = Between(server.address)
        with connect(
            between.address, token=ALICE, on_worker_failure="raise", resume=PATIENCE
        ) as env:
            env.reset()
            path.write_text(f"bob {BOB}\n")
            env.step([0])
            between.cut()
            with pytest.raises(EnvkitError, match="The token is not this server's"):
                env.step([0])
        between.close()


def test_the_command_takes_a_token_file(tmp_path):
    path = tokens_in(tmp_path, f"alice {ALICE}\n")
    with command("Catch", f"--tokens-file={path}") as (process, lines):
        address = lines.readline().split()[-1]
        connect(address, token=ALICE).close()
        process.terminate()
        log = process.communicate()[1]
    assert re.search(r"alice@127\.0\.0\.1:\d+ opened the session", log)
    assert ALICE not in log


CONTRADICTIONS = {
    "both files": (
        ["--tokens-file={file}", "--token-file={file}"],
        "--tokens-file and --token-file contradict each other: leave one out.",
    ),
    "none and some": (
        ["--tokens-file={file}", "--no-token"],
        "--tokens-file and --no-token contradict each other: leave one out.",
    ),
    "viewers": (
        ["--vnc", "--tokens-file={file}"],
        "--tokens-file has no effect with --vnc: use --password-file, as VNC compares "
        "8 characters of one password.",
    ),
    "a token as password": (
        ["--openenv", "--vnc", "--tokens-file={file}", "--password-file={password}"],
        "--tokens-file and --password-file must have different secrets",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_the_command_refuses_contradictory_options(case, capsys, tmp_path):
    from envkit.cli.main import main

    password = tmp_path / "password"
    password.write_text(ALICE[:8])
    password.chmod(0o600)
    file = tokens_in(tmp_path, f"alice {ALICE}\n")
    arguments, message = CONTRADICTIONS[case]
    given = [each.format(file=file, password=password) for each in arguments]
    assert 2 == main(["serve", "Catch", *given])
    assert message in capsys.readouterr().err
