"""dm_env_rpc without gRPC: recorded streams, both ends, any bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dm_env_rpc", reason="dm_env_rpc is not installed")

from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

from envkit.remote.dm_env_rpc_messages import (
    REQUESTS,
    ApplyAction,
    BeginEpisode,
    ClientStream,
    CreateWorld,
    DestroyWorld,
    DmEnvRpcError,
    JoinWorld,
    LeaveWorld,
    ReceivedStep,
    ResetWorld,
    ServerStream,
    Worlds,
    WorldState,
)
from envkit.remote.dm_env_rpc_tensors import INVALID, StatusError, TensorCodec
from envkit.remote.env_threads import SingleEnv, flags_of
from tests.remote import games
from tests.remote.recorded_dm_env_rpc import CATCH, WALK

Request = dm_env_rpc_pb2.EnvironmentRequest
Response = dm_env_rpc_pb2.EnvironmentResponse
STATES = dm_env_rpc_pb2.EnvironmentStateType
# The codes of `google.rpc` that are errors.
CODES = range(1, 17)


class Owner:
    """Does what the events of its streams ask for, in environments of its own."""

    def __init__(self):
        self.worlds = Worlds()

    def answer(self, stream, data):
        event = stream.receive(data)
        if event is not None:
            try:
                self.handle(stream, event)
            except StatusError as error:
                stream.refuse(error.code, error.message)
            except NotImplementedError as error:  # It takes no options.
                stream.refuse(13, str(error))
        return stream.data_to_send()

    def handle(self, stream, event):
        match event:
            case CreateWorld(settings):
                stream.created(self.create(stream, dict(settings)))
            case JoinWorld(name):
                stream.joined(self.worlds.join(name, stream))
            case BeginEpisode(world, seed, options):
                stream.stepped(world.env.reset(seed, options))
            case ApplyAction(world, action):
                time_step = world.env.step(action)
                _, truncated = flags_of(time_step, world.env.info())
                stream.stepped(time_step, truncated=truncated)
            case ResetWorld(name, settings):
                self.worlds.find(name).reset(settings)
                stream.done()
            case LeaveWorld(world):
                world.player = None
                stream.done()
            case DestroyWorld(name):
                self.worlds.remove(name)
                stream.done()

    def create(self, stream, settings):
        seed = {"seed": settings.pop("seed")} if "seed" in settings else {}
        if settings:
            raise StatusError(INVALID, "A client may give no arguments here.")
        env = SingleEnv(games.Walk())
        codec = TensorCodec(env.env.environment_spec())
        world = self.worlds.add("walk", codec=codec, env=env, creator=stream)
        world.reset(seed)
        return world.name


def message(kind, fields=None):
    return Request(**{kind: fields or {}}).SerializeToString()


def without_text(answer):
    """Returns an answer without the text of an error, which servers word freely."""
    if answer.WhichOneof("payload") == "error":
        answer.error.message = ""
    return answer


# The genuine library.


def test_a_server_answers_a_recorded_client_as_recorded():
    owner, stream = Owner(), ServerStream()
    answers = [owner.answer(stream, request) for request, _ in WALK]
    for (_, expected), answer in zip(WALK, answers, strict=True):
        assert without_text(Response.FromString(expected)) == without_text(
            Response.FromString(answer)
        )
    states = [Response.FromString(answer).step.state for answer in answers]
    assert {STATES.RUNNING, STATES.TERMINATED, STATES.INTERRUPTED} <= set(states)


def ask_as_recorded(client, request):
    """Has a client ask for what a genuine client has asked for; returns the bytes."""
    kind = request.WhichOneof("payload")
    asked = getattr(request, kind)
    if kind == "step":
        paddle = [tensor_utils.unpack_tensor(each) for each in asked.actions.values()]
        return client.step(dict.fromkeys(["paddle"], *paddle))
    name = [asked.world_name] if hasattr(asked, "world_name") else []
    settings = [dict(asked.settings)] if hasattr(asked, "settings") else []
    return getattr(client, kind.removesuffix("_world"))(*name, *settings)


def test_a_client_sends_a_recorded_server_the_recorded_requests():
    client, steps = ClientStream("The server"), []
    for data, answer in CATCH:
        request = Request.FromString(data)
        if client.state not in REQUESTS[request.WhichOneof("payload")]:
            continue  # Ours knows that the answer is an error.
        assert request == Request.FromString(ask_as_recorded(client, request))
        if Response.FromString(answer).WhichOneof("payload") == "error":
            with pytest.raises(DmEnvRpcError, match="The server answered: ") as raised:
                client.receive(answer)
            assert (13, False) == (raised.value.code, client.is_broken)
            continue
        event = client.receive(answer)
        if isinstance(event, ReceivedStep):
            flags = event.is_first, event.is_last, event.truncated
            steps.append((*flags, float(event.reward)))
            assert (3, 3) == event.observation["board"].shape
    expected = [(1, 0, 0, 0.0), (0, 0, 0, 0.0), (0, 1, 0, -1.0), (1, 0, 0, 0.0)]
    assert expected == steps[:4]
    assert WorldState.OUTSIDE is client.state


# Both ends.


def talk(owner, stream, client, data):
    return client.receive(owner.answer(stream, data))


@given(data=st.data(), seed=st.integers(0, 2**40))
def test_the_two_ends_understand_each_other(data, seed):
    owner, stream, client = Owner(), ServerStream(), ClientStream("It")
    name = talk(owner, stream, client, client.create({"seed": seed}))
    talk(owner, stream, client, client.join(name, {}))
    own = games.Walk()
    own.seed(seed)
    for _ in range(data.draw(st.integers(1, 12))):
        push = data.draw(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2))
        action = {"push": np.array(push, np.float32), "jump": data.draw(st.booleans())}
        expected = own.step(action)
        got = talk(owner, stream, client, client.step(action))
        assert (expected.is_first(), expected.is_last()) == got[:2]
        assert (expected.is_last() and expected.discount > 0) == got.truncated
        for key, array in expected.observation.items():
            np.testing.assert_array_equal(array, got.observation[key])
        assert client.state is stream.state
    talk(owner, stream, client, client.leave())
    talk(owner, stream, client, client.destroy(name))
    assert [] == list(owner.worlds)


# Any bytes.


def tensors():
    """Draws tensors that fit, and others."""
    values = st.sampled_from(
        [
            True,
            1,
            -1,
            2.5,
            "a",
            [0.5, 0.5],
            [9.0, 9.0],
            np.float32([0, 0]),
            [[]],
            "9" * 9,
        ]
    )
    tensor = st.builds(tensor_utils.pack_tensor, values)
    return tensor | st.builds(
        lambda shape, array: dm_env_rpc_pb2.Tensor(
            shape=shape, floats={"array": array}
        ),
        st.lists(st.integers(-2, 2**31 - 1), max_size=3),
        st.lists(st.floats(width=32), max_size=3),
    )


def settings():
    names = st.sampled_from(["seed", "speed", "environment", ""])
    return st.dictionaries(names, tensors(), max_size=2)


names = st.sampled_from(["walk-1", "walk-2", "walk", ""]) | st.text(max_size=3)
numbers = st.integers(0, 6)
REQUEST = {
    "create_world": st.fixed_dictionaries({"settings": settings()}),
    "join_world": st.fixed_dictionaries(
        {"world_name": names}, optional={"settings": settings()}
    ),
    "step": st.fixed_dictionaries(
        {"requested_observations": st.lists(numbers, max_size=4)},
        optional={"actions": st.dictionaries(numbers, tensors(), max_size=2)},
    ),
    "reset": st.fixed_dictionaries({"settings": settings()}),
    "reset_world": st.fixed_dictionaries({"world_name": names, "settings": settings()}),
    "leave_world": st.just({}),
    "destroy_world": st.fixed_dictionaries({"world_name": names}),
    "extension": st.just({"type_url": "x", "value": b"y"}),
}
messages = st.one_of(
    [
        fields.map(
            lambda given, kind=kind: Request(**{kind: given}).SerializeToString()
        )
        for kind, fields in REQUEST.items()
    ]
)
# What gets far: a world, joined, in which an episode has begun.
BEGINNING = [
    message("create_world"),
    message("join_world", {"world_name": "walk-1"}),
    message("step", {"requested_observations": [1, 2, 3, 4]}),
]


@given(
    count=st.integers(0, 3),
    requests=st.lists(
        st.tuples(st.booleans(), messages | st.binary(max_size=30)), max_size=8
    ),
)
def test_any_request_in_any_state_has_one_answer_and_leads_to_a_state_in_the_table(
    count, requests
):
    owner = Owner()
    one, other = ServerStream(), ServerStream()
    for request in BEGINNING[:count]:
        owner.answer(one, request)
    for is_other, data in requests:
        stream = other if is_other else one
        before = stream.state
        answer = Response.FromString(owner.answer(stream, data))
        kind = answer.WhichOneof("payload")
        assert kind
        assert b"" == stream.data_to_send()
        if kind == "error":
            assert answer.error.code in CODES
            assert answer.error.message
            assert stream.state is before
        else:
            assert kind == Request.FromString(data).WhichOneof("payload")
            assert stream.state in REQUESTS[kind][before]


# What a client asks for in each state, after the answers that have led there.
ASKING = {
    "outside": (0, lambda client: client.create({})),
    "joining": (1, lambda client: client.join("catch", {})),
    "ready": (2, lambda client: client.step()),
    "resetting": (2, lambda client: client.reset({})),
    "playing": (3, lambda client: client.step({"paddle": 0})),
}
CREATED, JOINED, STARTED = CATCH[1], CATCH[2], CATCH[5]


@pytest.mark.parametrize(("count", "ask"), ASKING.values(), ids=ASKING)
@given(data=st.sampled_from([answer for _, answer in CATCH + WALK]) | st.binary())
def test_any_answer_is_an_event_or_an_error_with_a_reason(count, ask, data):
    client = ClientStream("It")
    for request, answer in [CREATED, JOINED, STARTED][:count]:
        ask_as_recorded(client, Request.FromString(request))
        client.receive(answer)
    ask(client)
    try:
        client.receive(data)
    except DmEnvRpcError as error:
        how = "sent a malformed answer" if client.is_broken else "answered"
        assert str(error).startswith(f"It {how}: ")  # noqa: PT017  # or an event
    else:
        assert not client.is_broken


# What an owner must not do.


@pytest.mark.parametrize(
    "call",
    [
        lambda stream: stream.created("x"),
        lambda stream: stream.done(),
        lambda stream: stream.refuse(3, "no"),
    ],
)
def test_an_owner_cannot_answer_before_a_request(call):
    with pytest.raises(RuntimeError):
        call(ServerStream())


def test_no_request_is_read_before_the_last_one_is_answered():
    stream = ServerStream()
    stream.receive(message("create_world"))
    with pytest.raises(RuntimeError, match="The answer to create_world is due first"):
        stream.receive(message("create_world"))


def test_a_client_cannot_send_a_request_in_the_wrong_state():
    client = ClientStream("It")
    with pytest.raises(RuntimeError, match="reset must not be asked for outside"):
        client.reset({})


def test_after_an_error_of_the_environment_the_next_step_begins_an_episode():
    owner, stream = Owner(), ServerStream()
    for request in BEGINNING:
        owner.answer(stream, request)
    assert isinstance(stream.receive(message("step")), ApplyAction)
    stream.refuse(13, "RuntimeError: it broke")
    assert WorldState.READY is stream.state
    assert isinstance(stream.receive(message("step")), BeginEpisode)


def test_a_world_reset_during_a_step_begins_an_episode_at_the_next_step():
    owner, stream, other = Owner(), ServerStream(), ServerStream()
    for request in BEGINNING:
        owner.answer(stream, request)
    event = stream.receive(message("step"))
    seed = {"seed": tensor_utils.pack_tensor(5)}
    reset = message("reset_world", {"world_name": "walk-1", "settings": seed})
    owner.answer(other, reset)
    owner.handle(stream, event)
    begun = stream.receive(message("step"))
    assert (5, None) == begun[1:]


def test_an_error_does_not_reveal_hidden_values():
    stream = ServerStream(hide=lambda text: text.replace("secret", "..."))
    stream.receive(message("create_world"))
    stream.refuse(13, "the secret \udc80 is wrong")
    assert (
        "the ... ? is wrong" == Response.FromString(stream.data_to_send()).error.message
    )
