"""dm_env_rpc's protocol: its own compliance suite, and what it does not ask.

The suite comes with the library, as does the adaptor that dm_env's own tests go
through.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import ssl
import subprocess
import sys
import types

import numpy as np
import pytest
from absl.testing import absltest
from hypothesis import given
from hypothesis import strategies as st

import envkit
from envkit import nest
from envkit.errors import SpecError
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings, TextSpec
from envkit.testing import CountingEnv, check_environment
from tests import waiting
from tests.remote import games
from tests.remote.serving import certificate_in

pytest.importorskip("dm_env_rpc", reason="dm_env_rpc is not installed")

import grpc
from dm_env import StepType, test_utils
from dm_env_rpc.v1 import connection as dm_env_rpc_connection
from dm_env_rpc.v1 import (
    dm_env_adaptor,
    dm_env_rpc_pb2,
    dm_env_rpc_pb2_grpc,
    error,
    tensor_utils,
)
from dm_env_rpc.v1.compliance import (
    create_destroy_world,
    join_leave_world,
    reset,
    reset_world,
    step,
)

from envkit.remote.dm_env_rpc import DmEnvRpcServer
from envkit.remote.dm_env_rpc_client import DmEnvRpcError, DmEnvRpcWrapper
from envkit.remote.dm_env_rpc_tensors import TensorCodec

WALK = "tests.remote.games:Walk"
SECRET = "a secret of some length"
STATES = dm_env_rpc_pb2.EnvironmentStateType


@contextlib.contextmanager
def serving(*targets, num_workers=None, arguments=None, port=0, **options):
    offers = [Offer(target, arguments, num_workers=num_workers) for target in targets]
    options = {"token": None, **options}
    chosen = ServeOptions(port=port, **options)
    server = DmEnvRpcServer(Menu(offers), chosen)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def walks():
    with serving(WALK, allow_arg=("most", "least")) as server:
        yield server


@contextlib.contextmanager
def connected(server, metadata=None):
    with grpc.insecure_channel(server.address) as channel:
        connection = dm_env_rpc_connection.Connection(channel, metadata)
        try:
            yield connection
        finally:
            # Its stream ends with its channel.
            connection.close()


def create(connection, **settings):
    tensors = {
        name: tensor_utils.pack_tensor(value) for name, value in settings.items()
    }
    request = dm_env_rpc_pb2.CreateWorldRequest(settings=tensors)
    return connection.send(request).world_name


def join(connection, world):
    request = dm_env_rpc_pb2.JoinWorldRequest(world_name=world)
    return connection.send(request).specs


def destroy(connection, world):
    """Destroys a world, whose process the server then has for the next one."""
    connection.send(dm_env_rpc_pb2.LeaveWorldRequest())
    connection.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=world))


def step_of(connection, actions=(), observations=()):
    return connection.send(
        dm_env_rpc_pb2.StepRequest(
            actions=dict(actions), requested_observations=observations
        )
    )


# Their suite, by `envkit serve`, of which one environment has nested observations and
# actions of three kinds.


@contextlib.contextmanager
def serving_in_a_process(*targets):
    command = [sys.executable, "-m", "envkit", "serve", *targets, "--dm-env-rpc"]
    process = subprocess.Popen(
        [*command, "--port=0", "--no-token"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = process.stdout.readline().split()[-1]
        yield types.SimpleNamespace(address=address, process=process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def served():
    with serving_in_a_process("CartPole", f"walk={WALK}") as server:
        yield server


WRONG = types.MappingProxyType({"no_such_setting": tensor_utils.pack_tensor(1)})


class _Connected:
    """Has a connection of its own for each test."""

    offer = "walk"

    @pytest.fixture(autouse=True)
    def _connect(self, served):
        with connected(served) as self.made:
            yield

    @property
    def connection(self):
        return self.made

    @property
    def required_world_settings(self):
        return {"environment": tensor_utils.pack_tensor(self.offer)}


class TestCreateDestroyWorld(_Connected, create_destroy_world.CreateDestroyWorld):
    required_world_settings = _Connected.required_world_settings
    invalid_world_settings = WRONG
    has_multiple_world_support = True


class _InWorld(_Connected):
    """Has made a world for each test."""

    @pytest.fixture(autouse=True)
    def _make_world(self, _connect):
        self.made_world = create(self.made, environment=self.offer)
        yield
        destroy(self.made, self.made_world)

    @property
    def world_name(self):
        return self.made_world


class TestJoinLeaveWorld(_InWorld, join_leave_world.JoinLeaveWorld):
    invalid_join_settings = WRONG


class TestReset(_InWorld, reset.Reset):
    def join_world(self):
        return join(self.made, self.made_world)


class TestResetWorld(_InWorld, reset_world.ResetWorld):
    pass


class TestStep(_InWorld, step.Step):
    @pytest.fixture(autouse=True)
    def _join(self, _make_world):
        self.joined_specs = join(self.made, self.made_world)

    @property
    def specs(self):
        return self.joined_specs


class TestAdaptor(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """dm_env's own tests, through the adaptor of dm_env_rpc."""

    offer = "walk"

    @pytest.fixture(autouse=True)
    def _connect(self, served):
        with connected(served) as self.made:
            yield
            destroy(self.made, self.made_world)

    def make_object_under_test(self):
        settings = {"environment": self.offer}
        made = dm_env_adaptor.create_and_join_world(self.made, settings, {})
        self.made_world = made.world_name
        return made.env


class TestCreateDestroyCartPole(TestCreateDestroyWorld):
    offer = "CartPole"


class TestJoinLeaveCartPole(TestJoinLeaveWorld):
    offer = "CartPole"


class TestResetOfCartPole(TestReset):
    offer = "CartPole"


class TestResetWorldOfCartPole(TestResetWorld):
    offer = "CartPole"


class TestStepOfCartPole(TestStep):
    offer = "CartPole"


class TestAdaptorOfCartPole(TestAdaptor):
    offer = "CartPole"


# What their suite does not ask.


def test_the_state_of_a_step_tells_how_an_episode_ends(walks):
    ends = set()
    with connected(walks) as connection:
        join(connection, create(connection, seed=3))
        states = [step_of(connection).state for _ in range(60)]
    before = [STATES.TERMINATED, *states]
    for last, state in zip(before, states, strict=False):
        if last != STATES.RUNNING:
            assert STATES.RUNNING == state
        ends.add(state)
    assert {STATES.RUNNING, STATES.TERMINATED, STATES.INTERRUPTED} == ends


def test_missing_actions_have_their_minimum(walks):
    with connected(walks) as connection, contextlib.ExitStack() as stack:
        env = stack.enter_context(
            contextlib.closing(
                dm_env_adaptor.create_and_join_world(connection, {"seed": 5}, {}).env
            )
        )
        own = games.Walk()
        own.seed(5)
        own.reset()
        env.reset()
        least = {"push": np.array([-1, 0], np.float32), "jump": False}
        expected, actual = own.step(least), env.step({})
    np.testing.assert_array_equal(
        expected.observation["place"], actual.observation["place"]
    )


def test_the_first_time_step_has_no_reward_and_no_discount(walks):
    with connected(walks) as connection:
        env = dm_env_adaptor.create_and_join_world(connection, {}, {}).env
        first = env.reset()
        env.close()
    assert (StepType.FIRST, None, None) == first[:3]


def test_an_unusual_discount_is_an_observation():
    with serving("tests.remote.games:Discounting") as server:
        with connected(server) as connection:
            specs = join(connection, create(connection))
            names = [spec.name for spec in specs.observations.values()]
            assert ["observation", "reward", "discount"] == names
        with DmEnvRpcWrapper(server.address) as env:
            env.reset()
            assert 0.25 == env.step(0).discount


def test_a_world_has_one_player_at_a_time(walks):
    with connected(walks) as first, connected(walks) as second:
        world = create(first)
        join(first, world)
        with pytest.raises(error.DmEnvRpcError, match="joined by another client"):
            join(second, world)
        destroy = dm_env_rpc_pb2.DestroyWorldRequest(world_name=world)
        with pytest.raises(error.DmEnvRpcError, match="LeaveWorld comes first"):
            second.send(destroy)
        first.send(dm_env_rpc_pb2.LeaveWorldRequest())
        join(second, world)
        assert STATES.RUNNING == step_of(second).state


def test_a_clients_worlds_end_when_it_leaves():
    with serving(WALK, max_sessions=1) as server:
        with connected(server) as first:
            world = create(first)
            with (
                connected(server) as second,
                pytest.raises(error.DmEnvRpcError, match="room for 1 session"),
            ):
                create(second)

        def has_room():
            with connected(server) as third, contextlib.suppress(error.DmEnvRpcError):
                return create(third)

        # As long as there is room, another client may join it.
        with connected(server) as third:
            join(third, world)
        assert waiting.until(has_room)


def test_an_abandoned_world_is_destroyed_after_a_while():
    with serving(WALK, idle_timeout=0.05) as server:

        def made():
            # Its stream may be silent for too long, too.
            with connected(server) as first, contextlib.suppress(grpc.RpcError):
                return create(first)

        def is_gone():
            with connected(server) as second, contextlib.suppress(grpc.RpcError):
                try:
                    join(second, world)
                except error.DmEnvRpcError as refused:
                    return "There is no world" in refused.message

        world = waiting.until(made)
        assert waiting.until(is_gone)


def test_settings_become_constructor_arguments(walks):
    with connected(walks) as connection:
        assert create(connection, most=2)
        with pytest.raises(error.DmEnvRpcError, match=r"has no argument .*least"):
            create(connection, least=2)
        settings = {"most": dm_env_rpc_pb2.Tensor()}
        request = dm_env_rpc_pb2.CreateWorldRequest(settings=settings)
        with pytest.raises(error.DmEnvRpcError, match="numbers or text"):
            connection.send(request)


def test_a_setting_chooses_one_of_several_environments():
    with serving("Catch", "CartPole") as server, connected(server) as connection:
        assert create(connection, environment="Catch").startswith("Catch-")
        with pytest.raises(error.DmEnvRpcError, match="name one of them: Catch, Cart"):
            create(connection)
        with pytest.raises(error.DmEnvRpcError, match=r"no environment .*Pong"):
            create(connection, environment="Pong")


def test_an_environment_that_raises_is_reported_and_starts_a_new_episode():
    with (
        serving("envkit.testing:CrashingEnv", allow_arg=("crash_at",)) as server,
        connected(server) as connection,
    ):
        join(connection, create(connection, crash_at=1))
        step_of(connection)
        lost = r"was lost \(raised\): RuntimeError: CrashingEnv"
        with pytest.raises(error.DmEnvRpcError, match=lost):
            step_of(connection)
        assert STATES.RUNNING == step_of(connection).state


def test_a_client_needs_the_token():
    with serving(WALK, token=SECRET.encode()) as server:
        with (
            connected(server) as connection,
            pytest.raises(grpc.RpcError, match="must be 'Bearer TOKEN'"),
        ):
            create(connection)
        with pytest.raises(DmEnvRpcError, match="UNAUTHENTICATED"):
            DmEnvRpcWrapper(server.address)
        with connected(server, [("authorization", f"Bearer {SECRET}")]) as connection:
            assert create(connection)
        with DmEnvRpcWrapper(server.address, token=SECRET) as env:
            assert env.reset().is_first()


def test_a_silent_stream_ends_with_a_reason():
    with (
        serving(WALK, idle_timeout=0.05) as server,
        connected(server) as connection,
        pytest.raises(grpc.RpcError, match=r"There was no request for 0\.05 s\."),
    ):
        connection._stream.read()


def test_a_hanging_environment_delays_no_other_client():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with (
        serving("tests.remote.games:Stuck") as server,
        connected(server) as stuck,
        connected(server) as free,
    ):
        join(stuck, create(stuck))
        step_of(stuck)
        step_of(stuck)
        request = dm_env_rpc_pb2.EnvironmentRequest()
        request.step.SetInParent()
        stuck._stream.write(request)
        assert games.IS_STUCK.wait(waiting.PATIENCE)
        join(free, create(free))
        assert STATES.RUNNING == step_of(free).state
        games.GO_ON.set()
        assert STATES.RUNNING == stuck._stream.read().step.state


def test_a_server_closes_even_if_an_environment_hangs(monkeypatch):
    monkeypatch.setattr("envkit.remote.env_threads._GRACE", 0.1)
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with serving("tests.remote.games:Stuck") as server:
        channel = grpc.insecure_channel(server.address)
        connection = dm_env_rpc_connection.Connection(channel)
        join(connection, create(connection))
        step_of(connection)
        step_of(connection)
        request = dm_env_rpc_pb2.EnvironmentRequest()
        request.step.SetInParent()
        connection._stream.write(request)
        assert games.IS_STUCK.wait(waiting.PATIENCE)
    games.GO_ON.set()
    channel.close()


def tensor(payload, shape, **values):
    return dm_env_rpc_pb2.Tensor(shape=shape, **{payload: values})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            {9: tensor("bools", [], array=[True])},
            "There is no action 9; there",
        ),
        ({1: tensor("bools", [2], array=[True])}, "must have the shape ()"),
        ({1: tensor("bools", [], array=[])}, "and 0 values."),
        ({1: dm_env_rpc_pb2.Tensor()}, "must have the dtype bool, got no values"),
        ({2: tensor("floats", [2], array=[0, 9])}, "9.0 at index (1,)"),
        ({2: tensor("floats", [-1], array=[0, 0, 0])}, "and 3 values."),
        ({2: tensor("doubles", [2], array=[0, 0])}, "dtype float32, got doubles"),
        ({2: tensor("floats", [2**31 - 1], array=[0])}, "got the shape"),
    ],
)
def test_actions_that_do_not_fit_are_refused(walks, actions, message):
    with connected(walks) as connection:
        join(connection, create(connection))
        step_of(connection)
        with pytest.raises(error.DmEnvRpcError) as caught:
            step_of(connection, actions)
        assert message in caught.value.message
        assert step_of(connection).state


@pytest.mark.parametrize(
    "spec",
    [
        {"a.b": ArraySpec((), bool)},
        {1: ArraySpec((), bool)},
        ArraySpec((), "S3"),
        ArraySpec((), np.complex64),
        ObjectSpec(),
        ObjectSpec(kind=Strings(bytes)),
        {"reward": ArraySpec((), np.float32)},
    ],
)
def test_specs_that_the_protocol_cannot_carry_are_refused(spec):
    whole = CountingEnv().environment_spec()._replace(observation=spec)
    with pytest.raises(SpecError, match=r"dm_env_rpc (has|reserves)"):
        TensorCodec(whole)


@pytest.mark.parametrize(
    ("spec", "bounds"),
    [
        (ArraySpec((2,), np.int16), (None, None)),
        (BoundedArraySpec((), np.int16, -3, 3), ([-3], [3])),
        (BoundedArraySpec((), np.int64, 0, 2**63 - 1), ([0], None)),
        (BoundedArraySpec((2,), np.float32, -np.inf, 1), (None, [1])),
        (BoundedArraySpec((2, 1), np.float64, [[0], [1]], 3), ([0, 1], [3])),
        (BoundedArraySpec((2, 2), np.float64, [0, 1], 3), ([0, 1, 0, 1], [3])),
        (TextSpec((), "<U4"), (None, None)),
    ],
)
def test_bounds_are_sent_in_the_forms_of_the_protocol(spec, bounds):
    whole = CountingEnv().environment_spec()._replace(action={"a": spec})
    sent = TensorCodec(whole).specs.actions[1]
    found = []
    for bound in (sent.min, sent.max):
        payload = bound.WhichOneof("payload")
        found.append(list(getattr(bound, payload).array) if payload else None)
    assert bounds == tuple(found)


# Bad peers.


def raw_stream(server, requests):
    """Yields the answers to requests that may be any bytes."""
    with grpc.insecure_channel(server.address) as channel:
        process = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")
        for answer in process(iter(requests)):
            yield dm_env_rpc_pb2.EnvironmentResponse.FromString(answer)


def valid_requests(world):
    requests = [
        {"create_world": {}},
        {"join_world": {"world_name": world}},
        {"step": {"requested_observations": [1, 2]}},
        {"step": {"actions": {2: tensor("floats", [2], array=[0, 0])}}},
        {"reset": {}},
        {"leave_world": {}},
    ]
    return [
        dm_env_rpc_pb2.EnvironmentRequest(**one).SerializeToString() for one in requests
    ]


@st.composite
def mutated(draw):
    """Draws requests, with bytes in them changed, added or taken away."""
    data = bytearray(draw(st.sampled_from(valid_requests("tests.remote.games:Walk-1"))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        if draw(st.booleans()):
            data[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif place < len(data):
            data[place] = draw(st.integers(0, 255))
    return bytes(data)


@given(requests=st.lists(st.binary(max_size=30) | mutated(), min_size=1, max_size=4))
def test_no_request_ends_a_stream_or_disturbs_another(walks, requests):
    with connected(walks) as good:
        join(good, create(good, seed=1))
        first = step_of(good, observations=[1, 2, 3, 4])
        answers = list(raw_stream(walks, requests))
        assert len(requests) == len(answers)
        for answer in answers:
            assert answer.WhichOneof("payload")
            if answer.WhichOneof("payload") == "error":
                assert answer.error.code
                assert answer.error.message
        seed = {"seed": tensor_utils.pack_tensor(1, np.int64)}
        good.send(dm_env_rpc_pb2.ResetRequest(settings=seed))
        assert first == step_of(good, observations=[1, 2, 3, 4])


@given(data=st.binary(min_size=1, max_size=200))
def test_no_bytes_sent_to_the_port_break_the_server(walks, data):
    host, port = walks.address.split(":")
    with socket.create_connection((host, int(port)), 60) as raw:
        raw.sendall(data)
    with connected(walks) as connection:
        assert create(connection)


def test_an_oversized_request_ends_only_its_own_stream(walks):
    large = {"x": tensor_utils.pack_tensor("x" * (1 << 20))}
    with connected(walks) as good, connected(walks) as bad:
        join(good, create(good))
        with pytest.raises(grpc.RpcError, match="larger than max"):
            bad.send(dm_env_rpc_pb2.CreateWorldRequest(settings=large))
        assert STATES.RUNNING == step_of(good).state


# The client.


def expect_same(expected, actual):
    for one, other in zip(nest.flatten(expected), nest.flatten(actual), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype.kind, one.tolist()) == (other.dtype.kind, other.tolist())


def play_both(first, second, steps=60, seed=5):
    rng = np.random.default_rng(1)
    for env in (first, second):
        env.seed(seed)
    expect_same(first.reset(), second.reset())
    for _ in range(steps):
        action = {
            "push": rng.uniform([-1, 0], 1).astype(np.float32),
            "jump": rng.random() < 0.5,
        }
        expect_same(first.step(action), second.step(action))


@pytest.mark.parametrize("num_workers", [None, 1])
def test_a_client_plays_the_same_episodes_as_the_environment(num_workers):
    with (
        serving(WALK, num_workers=num_workers) as server,
        DmEnvRpcWrapper(server.address, text_length=3) as env,
    ):
        play_both(games.Walk(), env, steps=60 if num_workers is None else 20)


def test_an_environment_of_single_arrays_has_the_same_specs():
    with serving("CartPole") as server, DmEnvRpcWrapper(server.address) as env:
        assert envkit.make("CartPole").environment_spec() == env.environment_spec()
        env.seed(3)
        own = envkit.make("CartPole", seed=3)
        for _ in range(30):
            expect_same(own.step(1), env.step(1))


def test_make_finds_the_client_by_its_scheme_and_it_works_in_a_pool(walks):
    target = f"dm_env_rpc:{walks.address}"
    with envkit.make(target, num_envs=2, num_workers=1, text_length=3) as pool:
        pool.seed([1, 2])
        own = [games.Walk(), games.Walk()]
        for env, seed in zip(own, [1, 2], strict=True):
            env.seed(seed)
        action = {"push": np.zeros((2, 2), np.float32), "jump": np.zeros(2, bool)}
        one = {"push": np.zeros(2, np.float32), "jump": False}
        for _ in range(12):
            batch = pool.step(action)
            alone = [env.step(one) for env in own]
            expect_same(nest.map_structure(lambda *rows: np.stack(rows), *alone), batch)


def test_a_text_longer_than_text_length_is_refused(walks):
    with DmEnvRpcWrapper(walks.address, text_length=1) as env:
        env.seed(1)
        with pytest.raises(SpecError, match="'word' has a text of 3 characters, and"):
            env.reset()


@pytest.mark.heavy
def test_the_client_fulfils_the_contract_of_environments(walks):
    check_environment(functools.partial(DmEnvRpcWrapper, walks.address, text_length=3))


def test_a_crash_ends_the_episode_marked_and_the_next_one_begins():
    crash = {"crash_at": 3, "how": "SIGKILL"}
    with (
        serving("envkit.testing:CrashingEnv", arguments=crash, num_workers=1) as server,
        DmEnvRpcWrapper(server.address) as env,
    ):
        steps = [env.step(0) for _ in range(5)]
    assert [0, 1, 1, 2, 0] == [int(step.step_type) for step in steps]
    assert 1.0 == steps[3].discount
    (loss,) = env.losses()
    assert "crashed" == loss.kind
    assert "The environment was lost (crashed): worker 0" in str(loss.error)
    assert not env.repaired


def test_a_closing_server_truncates_the_episode_and_the_client_reconnects():
    port = games.free_port()
    with serving("CartPole", port=port) as server:
        env = DmEnvRpcWrapper(server.address, connect_timeout=waiting.PATIENCE)
        first = env.reset()
    last = env.step(0)
    assert (True, 0.0, 1.0) == (bool(last.is_last()), last.reward, last.discount)
    expect_same(first.observation, last.observation)
    assert "the server is stopping" in env.get_info()["lost"]
    assert "link_lost" == env.current_losses()[0].kind
    with serving("CartPole", port=port):
        assert env.step(0).is_first()
        env.close()


def test_the_next_client_gets_no_environment_whose_restarts_are_used_up(
    trouble, tmp_path
):
    target, arguments = "tests.remote.games:Drawing", {"folder": str(tmp_path)}
    with serving(target, arguments=arguments, num_workers=1) as server:
        with DmEnvRpcWrapper(server.address) as env:
            trouble("reset", times=4)
            with pytest.raises(DmEnvRpcError, match="was killed by SIGKILL"):
                env.reset(seed=5)
        with DmEnvRpcWrapper(server.address) as env:
            assert env.reset(seed=6).is_first()


def test_a_server_killed_in_a_session_truncates_the_episode():
    with serving_in_a_process("CartPole") as server:
        env = DmEnvRpcWrapper(server.address, connect_timeout=waiting.PATIENCE)
        assert env.step(0).is_first()
        assert env.step(0).is_mid()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(waiting.PATIENCE)
        assert env.step(0).is_last()
        assert env.get_info()["truncated"]
        assert env.repaired
        env.close()


def test_a_late_answer_truncates_the_episode():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with serving("tests.remote.games:Stuck") as server:
        env = DmEnvRpcWrapper(server.address, timeout=waiting.PATIENCE)
        env.reset()
        env.step(0)
        env._stream._timeout = 0.05
        assert env.step(0).is_last()
        assert "no answer within 0.05 s" in env.get_info()["lost"]
        games.GO_ON.set()
        env.close()


def test_tls_encrypts_and_checks_the_certificate(tmp_path):
    cert, key = certificate_in(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with serving(
        "Catch", tls=context, cert=cert, key=key, token=SECRET.encode()
    ) as server:
        with DmEnvRpcWrapper(server.address, token=SECRET, cafile=cert) as env:
            assert env.reset().is_first()
        with pytest.raises(DmEnvRpcError, match="could not be reached"):
            DmEnvRpcWrapper(server.address, token=SECRET, connect_timeout=0.5)


def test_a_missing_server_is_an_error_with_its_address():
    with socket.socket() as silent:  # which does not listen
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DmEnvRpcError, match=r"be reached within 0\.05 s\."):
            DmEnvRpcWrapper(address, connect_timeout=0.05)


@pytest.mark.parametrize("address", ["there", ":9000", "there:port", ""])
def test_a_malformed_address_is_refused(address):
    with pytest.raises(ValueError, match="must be a host and a port"):
        DmEnvRpcWrapper(address)


@pytest.fixture(scope="module")
def strange_server():
    """A server whose answers are those of a list, after the first two."""
    answers = []
    specs = dm_env_rpc_pb2.ActionObservationSpecs()
    shown = specs.observations[1]
    shown.name, shown.dtype = "shown", dm_env_rpc_pb2.DataType.FLOAT

    class Strange(dm_env_rpc_pb2_grpc.EnvironmentServicer):
        def Process(self, requests, context):
            for request in requests:
                kind = request.WhichOneof("payload")
                answer = dm_env_rpc_pb2.EnvironmentResponse()
                if kind == "step" and answers:
                    yield answers[0]
                    continue
                getattr(answer, kind).SetInParent()
                if kind in ("join_world", "reset"):
                    getattr(answer, kind).specs.CopyFrom(specs)
                yield answer

    server = grpc.server(dm_env_rpc_connection_pool())
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Strange(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", answers
    server.stop(None).wait()


def dm_env_rpc_connection_pool():
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(4)


@st.composite
def strange_answers(draw):
    """Draws answers to a step, most of which are none."""
    answer = dm_env_rpc_pb2.EnvironmentResponse()
    if draw(st.booleans()):
        answer.step.state = draw(st.integers(0, 5))
        for number in draw(st.lists(st.integers(0, 2), max_size=2)):
            value = draw(st.floats(width=32) | st.text(max_size=3) | st.booleans())
            packed = tensor_utils.pack_tensor(value)
            answer.step.observations[number].CopyFrom(packed)
    elif draw(st.booleans()):
        answer.error.code = draw(st.integers(0, 20))
        answer.error.message = draw(st.text(max_size=5))
    return answer


@given(answer=strange_answers())
def test_a_malformed_answer_of_a_server_is_an_error(strange_server, answer):
    address, answers = strange_server
    answers[:] = []
    env = DmEnvRpcWrapper(address, connect_timeout=waiting.PATIENCE)
    answers[:] = [answer]
    reason = "none is needed"
    try:
        first = env.reset()
        assert np.float32 == first.observation["shown"].dtype
    except (DmEnvRpcError, SpecError) as refused:
        reason = str(refused)
    finally:
        env.close()
    assert reason
