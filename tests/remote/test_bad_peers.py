"""Servers and clients whose other end says anything at all."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import connect, make
from envkit.distributed.link import ANSWERED, ASKED, BEGUN, HEAD, MESSAGE
from envkit.errors import ConstructorError, WorkerCrashed
from envkit.remote.client_connection import Peer, ServerAddress, dial
from envkit.remote.protocol import MAGIC, MOST_MESSAGE, RefusedError, frame_of
from tests.remote.serving import Between, served
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

OPEN = {"environments": [["CartPole", {}, 2]]}


@pytest.fixture(scope="module")
def server():
    with served("CartPole", max_rows=4, max_sessions=8) as server:
        yield server


@pytest.fixture(scope="module")
def open_server():
    """A server without a token, which is found through any address."""
    with served("CartPole", token=None) as server:
        yield server


def address_of(server):
    return ServerAddress.parse(server.address)


def say(sock, data):
    """Says something, and no more; the other end may have left in the middle of it."""
    with contextlib.suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)


def heard(sock):
    """Returns all that the other end says, until it has closed the connection."""
    sock.settimeout(PATIENCE)
    said = bytearray()
    while True:
        try:
            data = sock.recv(1 << 16)
        except ConnectionResetError:
            return bytes(said)
        if not data:
            return bytes(said)
        said += data


def session_of(server):
    """Opens a session whose frames a test writes itself."""
    sock, facts, _ = dial([address_of(server)], {"open": OPEN}, Peer())
    return sock, facts


def messages_in(said):
    """Returns the messages of frames, up to where there is something else."""
    found = []
    while len(said) >= HEAD.size:
        kind, _, _, _, length = HEAD.unpack(said[: HEAD.size])
        if kind != MESSAGE or len(said) < HEAD.size + length:
            break
        found.append(json.loads(said[HEAD.size : HEAD.size + length]))
        said = said[HEAD.size + length :]
    return found


def still_serves(server):
    """Plays on a session of its own, beside whatever else goes on."""
    with (
        connect(server.address, num_envs=2) as env,
        make("CartPole", num_envs=2, backend="inline") as local,
    ):
        env.seed(1), local.seed(1)
        env.reset(), local.reset()
        ours, theirs = env.step([0, 1]), local.step([0, 1])
        return np.array_equal(ours.observation, theirs.observation)


GREETINGS = {
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(100),
    "another major version": MAGIC
    + b"".join(frame_of({"protocol": [9, 0], "nonce": "00" * 16, "order": "<"})),
    "no nonce": MAGIC + b"".join(frame_of({"protocol": [1, 0], "order": "<"})),
    "another order of bytes": MAGIC
    + b"".join(frame_of({"protocol": [1, 0], "nonce": "00" * 16, "order": "?"})),
    "a list": MAGIC + HEAD.pack(MESSAGE, 0, 0, 0, 2) + b"[]",
    "no JSON": MAGIC + HEAD.pack(MESSAGE, 0, 0, 0, 4) + b"\xff{{{",
    "a deep nest": MAGIC + HEAD.pack(MESSAGE, 0, 0, 0, 60000) + b"[" * 60000,
    "a huge message": MAGIC + HEAD.pack(MESSAGE, 0, 0, 0, 1 << 60),
    "rows": MAGIC + HEAD.pack(ASKED, 8, 0, 2, 100),
}


@pytest.mark.parametrize("case", GREETINGS)
def test_a_refused_stranger_gets_the_reason(server, case):
    with socket.create_connection(address_of(server)[:2]) as sock:
        say(sock, GREETINGS[case])
        (message,) = messages_in(heard(sock))
        assert message["refused"]


@settings(max_examples=20)
@given(data=st.binary(max_size=300), has_magic=st.booleans())
def test_no_message_of_a_stranger_disturbs_other_clients(server, data, has_magic):
    with socket.create_connection(address_of(server)[:2]) as sock:
        say(sock, (MAGIC if has_magic else b"") + data)
        heard(sock)
    assert server.ended() is None


def test_silent_strangers_keep_no_client_out():
    with served("CartPole") as server:
        host = address_of(server)[:2]
        silent = [socket.create_connection(host) for _ in range(100)]
        assert still_serves(server)
        for sock in silent:
            sock.close()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$array", "$dict", "$namedtuple", "$path", "size", "a"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
WANTS = st.dictionaries(
    st.sampled_from(["open", "resume", "observe", "proof"]),
    JSON
    | st.fixed_dictionaries(
        {"environments": st.lists(st.tuples(st.just("CartPole"), JSON, JSON))}
    ),
    min_size=1,
    max_size=2,
)


@settings(max_examples=12)
@given(wants=WANTS)
def test_any_request_is_granted_or_refused_with_a_reason(server, wants):
    told = ""
    try:
        sock, _, _ = dial([address_of(server)], wants, Peer())
        sock.close()
    except RefusedError as error:
        told = str(error)
    assert told or "open" in wants
    assert server.ended() is None


# In a session: frames whose heads are anything, or right ones with anything in them.
HEADS = st.builds(
    HEAD.pack,
    st.sampled_from([MESSAGE, ASKED, ANSWERED, BEGUN, 0, 77]),
    st.integers(0, 255),
    st.just(0),
    st.integers(0, 2**32 - 1) | st.integers(0, 3),
    st.integers(0, 2**64 - 1) | st.integers(0, 80) | st.just(MOST_MESSAGE + 1),
)
ASK = st.fixed_dictionaries(
    {
        "ask": st.integers(),
        "method": st.sampled_from(
            ["seed", "set_state", "reset", "render", "call", "get_state", "__class__"]
        ),
        "envs": st.lists(st.integers(-1, 2), max_size=2),
        "arguments": JSON | st.lists(JSON, max_size=2),
    }
)
MESSAGES = st.dictionaries(
    st.sampled_from(["bind", "ask", "ping", "method", "envs", "x"]), JSON, max_size=3
)
BIND = {"bind": {"info": [], "first_row": 0}}


@settings(max_examples=30)
@given(
    frames=st.lists(
        HEADS
        | st.binary(max_size=40)
        | (ASK | MESSAGES | JSON).map(
            lambda data: b"".join(frame_of(data))  # type: ignore[arg-type]
        ),
        max_size=4,
    ),
    binds=st.booleans(),
)
def test_a_broken_message_ends_only_its_own_session(server, frames, binds):
    sock, _ = session_of(server)
    with sock:
        say(sock, b"".join([*(frame_of(BIND) if binds else ()), *frames]))
        # It ends, or waits for its client to come back over another link.
        heard(sock)
    assert server.ended() is None
    server_sessions_end(server)


def server_sessions_end(server):
    for session in list(server._sessions.values()):
        session.stop("the example is over")
    assert until(lambda: not server._sessions)


def test_another_session_survives_all_broken_messages(server):
    assert still_serves(server)


SENT_BY_NO_CLIENT = {
    "more rows than there are": (HEAD.pack(ASKED, 0, 0, 3, 100), "impossible request"),
    "another size": (HEAD.pack(ASKED, 8, 0, 2, 5), "impossible request"),
    "an unknown order": (HEAD.pack(ASKED, 8 | 3, 0, 2, 28), "impossible request"),
    "answers": (HEAD.pack(ANSWERED, 8, 0, 2, 10), "a frame of kind 3 must not come"),
    "a huge message": (
        HEAD.pack(MESSAGE, 0, 0, 0, 1 << 40),
        "a frame must have at most 67108864 bytes, got 1099511627776.",
    ),
    "the layout again": (
        b"".join(frame_of(BIND)),
        "'bind' must not come after 'bind'.",
    ),
    "a message of a server": (
        b"".join(frame_of({"pong": 1, "clock": 2})),
        "the message is not one of the protocol.",
    ),
}


@pytest.mark.parametrize("case", SENT_BY_NO_CLIENT)
def test_a_broken_message_is_the_reason_for_the_end_of_its_session(server, case):
    data, text = SENT_BY_NO_CLIENT[case]
    sock, _ = session_of(server)
    with sock:
        sock.sendall(b"".join(frame_of(BIND)) + data)
        *_, last = messages_in(heard(sock))
        assert text in last["end"]


# Servers that are none.


def fake_server(answer):
    """Answers each connection with some bytes, and closes it when the client has."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            # The client may have left already.
            with sock, contextlib.suppress(OSError):
                sock.sendall(answer)
                sock.shutdown(socket.SHUT_WR)
                heard(sock)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return listener, f"tcp://127.0.0.1:{listener.getsockname()[1]}/CartPole"


@settings(max_examples=20)
@given(answer=st.binary(max_size=60) | JSON.map(lambda data: b"".join(frame_of(data))))  # type: ignore[arg-type]
def test_a_client_survives_any_answer(answer):
    listener, address = fake_server(answer)
    with pytest.raises(ConstructorError):
        connect(address)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def message(data):
    return b"".join(frame_of(data))


SENT_BY_NO_SERVER = {
    "an unknown frame": (HEAD.pack(77, 0, 0, 0, 1 << 50), "an unknown frame"),
    "a huge message": (HEAD.pack(MESSAGE, 0, 0, 0, 1 << 60), "an unknown frame"),
    "more rows than there are": (
        HEAD.pack(ANSWERED, 8, 0, 9, 100),
        "impossible answer",
    ),
    "no JSON": (HEAD.pack(MESSAGE, 0, 0, 0, 3) + b"{{{", "a message cannot be read"),
    "a client's message": (message(BIND), "is not one of the protocol"),
    "a resumed link that was not lost": (
        message({"resumed": [0], "replied": None}),
        "'resumed' must not come after 'bind'",
    ),
    "another's rows": (
        message({"raised": [1], "failure": {}}),
        "'raised' must have rows of the session",
    ),
    "a failure of no type": (
        message({"raised": [0], "failure": {}}),
        "a failure must have its type",
    ),
}


@pytest.mark.parametrize("case", SENT_BY_NO_SERVER)
def test_a_clients_error_describes_the_servers_broken_message(open_server, case):
    data, text = SENT_BY_NO_SERVER[case]
    between = Between(open_server.address)
    address = between.address
    with connect(address, resume=0.0, on_worker_failure="raise") as env:
        env.reset()
        between.say(data)
        with pytest.raises(WorkerCrashed, match=f"cut off, because .*{text}") as caught:
            play_on(env)
        assert f"an envkit server listens on {address}" in str(caught.value)
    between.close()


def play_on(env):
    """Plays until it cannot go on."""
    for _ in range(100_000):
        env.step([0])


def test_neither_end_unpickles_anything():
    """Python tells of each class that an unpickler looks up."""
    program = """
        import sys

        def audit(event, arguments):
            if event == "pickle.find_class":
                raise SystemExit(f"{arguments} was looked up")

        import numpy as np
        from envkit import connect
        from envkit.remote.server import serve
        from envkit.remote.offers import Menu, Offer, ServeOptions

        sys.addaudithook(audit)
        server = serve(Menu([Offer("CartPole")]), ServeOptions(port=0))
        with connect(server.address, num_envs=2) as env:
            env.seed(3), env.reset(), env.step([0, 1]), env.get_info(), env.render()
            env.set_state(env.get_state())
            env.reset(np.array([True, False]))
            env.provenance()
        server.close("")
        print("nothing")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ("nothing\n", "") == (done.stdout, done.stderr)
