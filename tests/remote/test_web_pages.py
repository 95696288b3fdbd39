"""Web pages reach no server that has no secret; all other clients do."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import urllib.request

import pytest

from envkit._shared.web_pages import web_page_refusal
from envkit.remote.offers import Menu, Offer, ServeOptions
from tests import waiting
from tests.remote.serving import certificate_in

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from envkit.remote import universe
from envkit.remote.openenv import OpenEnvServer
from envkit.remote.rewarder import authorization

STEP = json.dumps({"action": {"value": 1}}).encode()


@contextlib.contextmanager
def serving(*targets, **options):
    offers = [Offer(target) for target in targets or ("Catch",)]
    chosen = ServeOptions(**{"port": 0, "token": None, **options})
    with OpenEnvServer(Menu(offers), chosen) as server:
        yield server


@pytest.fixture(scope="module")
def server():
    with serving() as made:
        yield made


def port_of(server):
    return int(server.url.rpartition(":")[2])


def answer(server, method, path, body=None, to="127.0.0.1", **headers):
    """Returns the status and the text that a request is answered with."""
    connection = http.client.HTTPConnection(
        to, port_of(server), timeout=waiting.PATIENCE
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        connection.request(method, path, body, named)
        response = connection.getresponse()
        return response.status, response.read().decode()


FOREIGN = {
    "a page of another site": {"Origin": "https://evil.example"},
    "a page without an origin": {"Origin": "null"},
    "a page of another server of this machine": {"Origin": "http://127.0.0.1:3000"},
    "a name that was bound to our address": {"Host": "evil.example:{port}"},
    "such a name, with an origin": {
        "Host": "evil.example:{port}",
        "Origin": "http://evil.example:{port}",
    },
    "the address of another machine": {"Host": "192.0.2.7:{port}"},
    "a name that begins as ours": {"Host": "localhost.evil.example:{port}"},
    "a name with ours as a user": {"Host": "localhost@evil.example:{port}"},
    "an empty name": {"Host": ""},
    "a picture in a page": {"Sec_Fetch_Site": "cross-site"},
    "a picture in a page of this machine": {"Sec_Fetch_Site": "same-site"},
}


def filled(headers, server):
    return {name: value.format(port=port_of(server)) for name, value in headers.items()}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/schema"),
        ("GET", "/health"),
        ("GET", "/Catch/splits"),
        ("GET", "/nowhere"),
        ("POST", "/step"),
        ("POST", "/reset"),
        ("POST", "/mcp"),
        ("OPTIONS", "/step"),
    ],
)
def test_no_route_answers_a_web_page(server, method, path, headers):
    body = STEP if method == "POST" else None
    typed = {"Content_Type": "application/json"} if body else {}
    status, told = answer(
        server, method, path, body, **typed, **filled(headers, server)
    )
    assert 403 == status
    assert "is not a name of this server" in told or "web pages are refused" in told


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_no_websocket_is_opened_for_a_web_page(server, headers):
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "Host" not in headers:
        lines.insert(0, f"Host: 127.0.0.1:{port_of(server)}")
    lines = [line.format(port=port_of(server)) for line in lines]
    lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    with socket.create_connection(("127.0.0.1", port_of(server))) as sock:
        sock.settimeout(waiting.PATIENCE)
        sock.sendall("\r\n".join(["GET /ws HTTP/1.1", *lines, "", ""]).encode())
        assert b"HTTP/1.1 403 Forbidden" == sock.makefile("rb").readline().strip()


def test_web_pages_reach_none_of_several_environments():
    with serving("Catch", "CartPole") as server:
        for path in ("/Catch/step", "/CartPole/step", "/health", "/list_environments"):
            told = answer(server, "POST", path, STEP, Origin="http://evil.example")
            assert 403 == told[0]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
@pytest.mark.parametrize("path", ["/step", "/reset", "/mcp", "/state", "/Catch/tasks"])
def test_a_body_that_a_form_could_send_is_refused(server, path, kind):
    told = answer(server, "POST", path, STEP, Content_Type=kind)
    assert 415 == told[0]
    assert f"must be application/json, got '{kind}'" in told[1]


def test_a_body_without_a_type_is_refused(server):
    assert 415 == answer(server, "POST", "/step", STEP)[0]
    assert 200 == answer(server, "POST", "/reset")[0]


OWN = {
    "this address": {},
    "the name of this machine": {"Host": "localhost:{port}"},
    "large letters": {"Host": "LOCALHOST"},
    "the other protocol": {"Host": "[::1]:{port}"},
    "another port, as of a tunnel": {"Host": "localhost:9999"},
    "what some libraries say": {
        "Host": "localhost:{port}",
        "Origin": "http://localhost:{port}",
    },
    "an address that a person typed": {"Sec_Fetch_Site": "none"},
}


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
def test_other_clients_are_answered(server, headers):
    headers = filled(headers, server)
    assert 200 == answer(server, "GET", "/schema", **headers)[0]
    for kind in ("application/json", "application/json; charset=utf-8"):
        told = answer(server, "POST", "/step", STEP, Content_Type=kind, **headers)
        assert 200 == told[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_clients_may_use_any_name_of_the_machine(host):
    listening = "::1" if host == "[::1]" else "127.0.0.1"
    if listening == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with serving(host=listening) as server:
        place = f"{host}:{port_of(server)}"
        with urllib.request.urlopen(f"http://{place}/health") as told:
            assert 200 == told.status
        # One of these sends an origin, as the library websocket-client does.
        for origin in (None, f"http://{place}"):
            connecting = connect(f"ws://{place}/ws", origin=origin, proxy=None)
            with connecting as session:
                session.send('{"type": "reset"}')
                told = json.loads(session.recv(timeout=waiting.PATIENCE))
            assert "observation" == told["type"]


def test_a_server_for_all_machines_accepts_names_of_their_network():
    named = ["127.0.0.1", "192.168.1.5", "[fd00::1]", "trainer", "trainer.local"]
    for name in [*named, "env.default.svc.cluster.local", socket.gethostname()]:
        assert web_page_refusal([("host", f"{name}:8000")], "0.0.0.0") is None
    for name in ("evil.example", "local.evil.example", "192.168.1.5.evil.example"):
        assert web_page_refusal([("host", f"{name}:8000")], "0.0.0.0")


def test_a_server_accepts_the_name_that_it_was_bound_to():
    named = [("host", "Trainer.Example.org:8000")]
    assert web_page_refusal(named, "trainer.example.org") is None
    assert web_page_refusal(named, "127.0.0.1")


def test_a_server_with_a_token_accepts_any_host_name():
    headers = {"Authorization": f"Bearer {'s' * 16}", "Host": "proxy.example"}
    with serving(token=b"s" * 16) as server:
        assert 200 == answer(server, "GET", "/schema", **headers)[0]
        assert 200 == answer(server, "POST", "/step", STEP, **headers)[0]


def test_encrypted_connections_follow_the_same_rules(tmp_path):
    cert, key = certificate_in(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with serving(tls=context, cert=cert, key=key) as server:
        trusting = ssl.create_default_context(cafile=cert)
        port = port_of(server)
        # A WebSocket by hand: the library's client may wait for ever for the end of an
        # encrypted connection that was refused.
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        upgrade["Sec-WebSocket-Version"] = "13"
        upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        told = []
        for origin in (
            {},
            {"Origin": f"https://localhost:{port}"},
            {"Origin": "https://a.b"},
        ):
            connection = http.client.HTTPSConnection(
                "localhost", port, timeout=waiting.PATIENCE, context=trusting
            )
            with contextlib.closing(connection):
                connection.request("GET", "/ws", headers={**upgrade, **origin})
                told.append(connection.getresponse().status)
        assert [101, 101, 403] == told


# Universe's rewarder. Its usual password is in every client, so pages know it.


@contextlib.contextmanager
def remote(**options):
    made = universe.serve(Menu([Offer("Catch")]), ServeOptions(port=0, **options))
    try:
        yield made
    finally:
        made.close("the test is over")


def rewarder_of(remote, password="openai", origin=None, **headers):
    host, port = remote.rewarder.address
    named = {"authorization": authorization(password), **headers}
    return connect(
        f"ws://{host}:{port}", additional_headers=named, origin=origin, proxy=None
    )


def test_a_rewarder_with_the_usual_password_answers_no_web_page():
    with remote(password=None) as made:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:3000"):
            with pytest.raises(InvalidStatus, match="403"):
                rewarder_of(made, origin=origin)
        # A WebSocket library sets this header itself.
        lines = ["GET / HTTP/1.1", "Host: evil.example", "Upgrade: websocket"]
        lines += ["Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
        with socket.create_connection(made.rewarder.address) as sock:
            sock.settimeout(waiting.PATIENCE)
            sock.sendall("\r\n".join(lines).encode())
            assert b"HTTP/1.1 403 Forbidden" == sock.makefile("rb").readline().strip()
        with rewarder_of(made) as client:
            told = json.loads(client.recv(timeout=waiting.PATIENCE))
        assert "v0.env.describe" == told["method"]


def test_a_rewarder_with_a_secret_accepts_any_host_name():
    with remote(password=b"secret") as made:
        with rewarder_of(made, "secret", origin="http://proxy.example") as client:
            told = json.loads(client.recv(timeout=waiting.PATIENCE))
        assert "v0.env.describe" == told["method"]
