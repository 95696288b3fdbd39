"""dm_env_rpc's door when an environment is lost, to its own adaptor and to ours."""

from __future__ import annotations

import numpy as np
import pytest

import envkit
from tests.waiting import PATIENCE

pytest.importorskip("dm_env_rpc", reason="dm_env_rpc is not installed")

import grpc
from dm_env_rpc.v1 import connection as dm_env_rpc_connection
from dm_env_rpc.v1 import dm_env_adaptor, dm_env_rpc_pb2, tensor_utils
from dm_env_rpc.v1.error import DmEnvRpcError as TheirError
from google.rpc.error_details_pb2 import ErrorInfo

from envkit.remote import dm_env_rpc
from envkit.remote.dm_env_rpc_client import DmEnvRpcError, DmEnvRpcWrapper
from envkit.remote.offers import Menu, Offer, ServeOptions

ABORTED, NOT_NOW = 10, 9
ACTION = {"action": np.int64(0)}
# How an environment is lost: in a process of the server, or by an exception with and
# without one.
WAYS = [("SIGKILL", 1, "crashed"), ("raise", 1, "raised"), ("raise", None, "raised")]
ways = pytest.mark.parametrize(("how", "num_workers", "kind"), WAYS)


def first_of(seed):
    return int(np.random.default_rng(seed).integers(1_000_000))


@pytest.fixture
def connected():
    """Connects to servers as their library does."""
    channels = []

    def connect(server):
        channels.append(grpc.insecure_channel(server.address))
        return dm_env_rpc_connection.Connection(channels[-1])

    yield connect
    for channel in channels:
        channel.close()


@pytest.fixture
def adaptor_of(connected):
    return lambda server: dm_env_adaptor.create_and_join_world(
        connected(server), {}, {}
    )[0]


def kind_in(error):
    (detail,) = error.details
    info = ErrorInfo()
    assert detail.Unpack(info)
    assert info.reason == "ENVIRONMENT_LOST"
    return info.metadata["kind"]


@ways
def test_their_adaptor_gets_an_error_and_no_last(
    drawing_served, adaptor_of, trouble, how, num_workers, kind
):
    env = adaptor_of(drawing_served(dm_env_rpc, num_workers=num_workers))
    env.reset()
    assert env.step(ACTION).mid()
    trouble("step", how)
    with pytest.raises(TheirError) as caught:
        env.step(ACTION)
    assert caught.value.code == ABORTED
    assert f"The environment was lost ({kind}): " in caught.value.message
    assert kind_in(caught.value) == kind
    # It does not know that the episode is over, and would take a FIRST for a MID.
    with pytest.raises(TheirError) as caught:
        env.step(ACTION)
    assert caught.value.code == NOT_NOW
    assert env.reset().first()
    assert env.step(ACTION).mid()


def step_of(connection):
    return connection.send(dm_env_rpc_pb2.StepRequest(requested_observations=[1]))


def world_of(connection):
    created = connection.send(dm_env_rpc_pb2.CreateWorldRequest())
    connection.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=created.world_name))


def test_a_step_without_actions_begins_the_next_episode(
    drawing_served, connected, trouble
):
    connection = connected(drawing_served(dm_env_rpc, num_workers=1))
    world_of(connection)
    step_of(connection)
    trouble("step")
    with pytest.raises(TheirError):
        step_of(connection)
    for _ in range(2):
        state = step_of(connection).state
        assert state == dm_env_rpc_pb2.EnvironmentStateType.RUNNING


def reset_with(connection, seed):
    settings = {"seed": tensor_utils.pack_tensor(seed)}
    connection.send(dm_env_rpc_pb2.ResetRequest(settings=settings))
    return tensor_utils.unpack_tensor(step_of(connection).observations[1])


@pytest.mark.parametrize("how", ["SIGKILL", "raise"])
def test_a_lost_reset_begins_the_episode_of_its_seed(
    drawing_served, connected, trouble, how
):
    connection = connected(drawing_served(dm_env_rpc, num_workers=1))
    world_of(connection)
    trouble("reset", how, times=2)
    assert reset_with(connection, 5) == first_of(5)
    trouble("step", how)
    with pytest.raises(TheirError):
        step_of(connection)
    assert reset_with(connection, 6) == first_of(6)


def test_a_reset_that_raises_is_an_error(drawing_served, connected, trouble):
    connection = connected(drawing_served(dm_env_rpc))
    world_of(connection)
    trouble("reset", "raise")
    with pytest.raises(TheirError) as caught:
        reset_with(connection, 5)
    assert (caught.value.code, kind_in(caught.value)) == (ABORTED, "reset_failed")
    assert reset_with(connection, 5) == first_of(5)


def test_our_client_raises_what_the_environment_raises_and_then_needs_a_reset(
    drawing_served, trouble
):
    with DmEnvRpcWrapper(drawing_served(dm_env_rpc).address) as env:
        env.reset()
        trouble("step", "raise")
        with pytest.raises(DmEnvRpcError, match="there is no step today") as caught:
            env.step(0)
        assert caught.value.kind == "raised"
        with pytest.raises(DmEnvRpcError, match=r"reset\(\) comes before step"):
            env.step(0)
        assert env.reset().is_first()
        assert env.step(0).is_mid()


def test_an_action_is_delivered_once_though_its_answer_is_lost(
    drawing_served, between, actions
):
    link = between(drawing_served(dm_env_rpc).address)
    address = link.address.removeprefix("tcp://")
    with DmEnvRpcWrapper(address, connect_timeout=PATIENCE) as env:
        first = env.reset()
        with link.cutting_after(lambda: actions() == "1"):
            lost = env.step(1)
        assert (lost.is_last(), lost.reward, lost.discount) == (True, 0, 1)
        assert lost.observation == first.observation
        assert env.repaired
        assert env.current_losses()[0].kind == "link_lost"
        assert env.get_info()["lost"]
        assert env.step(1).is_first()
        assert not env.repaired
        assert env.step(0).is_mid()
        assert [loss.kind for loss in env.losses()] == ["link_lost"]
    assert actions() == "10"


def test_a_pool_shows_what_its_clients_have_lost(drawing_served, trouble):
    server = drawing_served(dm_env_rpc, num_workers=1)
    target = f"dm_env_rpc:{server.address}"
    with envkit.make(target, num_envs=2, num_workers=1) as pool:
        pool.reset()
        pool.step([0, 0])
        trouble("step")
        last = pool.step([0, 0])
        assert sorted(last.is_last()) == [False, True]
        assert pool.repaired.tolist() == last.is_last().tolist()
        ((row, loss),) = pool.current_losses().items()
        assert (loss.row, loss.kind) == (row, "crashed")


def test_a_step_that_cannot_be_sent_ends_the_episode_for_their_adaptor_too():
    offer = Offer("tests.remote.games:Unsendable")
    server = dm_env_rpc.serve(Menu([offer]), ServeOptions(port=0, token=None))
    try:
        with grpc.insecure_channel(server.address) as channel:
            connection = dm_env_rpc_connection.Connection(channel)
            env, _ = dm_env_adaptor.create_and_join_world(connection, {}, {})
            env.reset()
            for _ in range(2):
                with pytest.raises(TheirError):
                    env.step(ACTION)
            assert env.reset().first()
    finally:
        server.close()
