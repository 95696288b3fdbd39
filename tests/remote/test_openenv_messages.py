"""OpenEnv's messages without sockets: recorded conversations, both ends, any text."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit._shared.json_schema import spec_of
from envkit.envs import CartPole
from envkit.errors import SpecError
from envkit.extend import Result
from envkit.remote.losses import EnvironmentLostError, loss_of
from envkit.remote.openenv_messages import (
    ANSWERS,
    CLIENT,
    CODES,
    SERVER,
    TASKS,
    ClientSession,
    Forms,
    JsonAnswer,
    Left,
    MessageError,
    OpenEnvError,
    ResetAsked,
    ServedSession,
    SessionState,
    StepAsked,
    TasksAsked,
)
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.special import ObjectSpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, StepType, TimeStep
from tests.remote import games, recorded_openenv

WALK_SCHEMA = json.loads(recorded_openenv.WALK_SCHEMA)
WALK = Forms(
    EnvironmentSpec(
        observation={
            "place": ArraySpec((2,), np.float64),
            "left": BoundedArraySpec((), np.int64, 0, 9),
            "word": ObjectSpec(),
        },
        action=spec_of(
            WALK_SCHEMA["action"], leave_out=("metadata",), only_required=True
        ),
        reward=REWARD_SPEC.replace(dtype=np.float64),
        discount=DISCOUNT_SPEC,
    ),
    "Walk",
)
SERVER_NAME = "The OpenEnv server at there"


def served(forms=WALK, **options):
    return ServedSession(forms, lambda: "drawn", **options)


def shown(data):
    """Returns the time step, the info and the flags of an environment that shows it."""
    observation = {key: data["observation"][key] for key in ("place", "left", "word")}
    info = data.get("metadata") or {}
    is_cut = bool(info.get("truncated"))
    step = TimeStep(
        StepType.LAST if data["done"] else StepType.MID,
        data["reward"],
        float(is_cut or not data["done"]),
        observation,
    )
    return step, info, (data["done"] and not is_cut, is_cut)


FIRST = shown(json.loads(recorded_openenv.OUR_CLIENT[0][1])["data"])


def answered(session, text, genuine):
    """Answers a message where the environment does what a genuine one has done."""
    event = session.receive(text)
    if not isinstance(event, ResetAsked | StepAsked):
        return event
    told = json.loads(genuine)
    if told["type"] == "error":
        return session.fail(RuntimeError(told["data"]["message"]))
    return session.observe(*shown(told["data"]))


def what_matters(text):
    """Returns what an answer says in OpenEnv's terms: no sentences, no additions."""
    answer = json.loads(text)
    kind, data = answer["type"], answer["data"]
    if kind == "error":
        return kind, data["code"]
    if kind == "mcp":
        return kind, data["jsonrpc"], data["id"], data.keys() & {"result", "error"}
    if kind == "state":
        return kind, data["step_count"] >= 0, data.keys()
    observation = {
        key: value for key, value in data["observation"].items() if key != "metadata"
    }
    return kind, observation, data["reward"], data["done"]


# Genuine ends.


def test_a_server_answers_a_recorded_client_like_openenvs_server():
    session = served()
    for text, genuine in recorded_openenv.THEIR_CLIENT_AND_SERVER:
        answer = answered(session, text, genuine)
        if genuine:
            assert what_matters(genuine) == what_matters(answer.text)
        else:
            assert isinstance(answer, Left)
    assert session.state is SessionState.CLOSED


# Where we say something else: a genuine server ends the session if a message is no
# object, lets the environment find fault with seeds, and refuses an empty `data`.
OTHERWISE = {
    "[1]": ("error", "VALIDATION_ERROR"),
    '"x"': ("error", "VALIDATION_ERROR"),
    "7": ("error", "VALIDATION_ERROR"),
    "null": ("error", "VALIDATION_ERROR"),
    '{"type":"reset","data":{"seed":-1}}': ("error", "VALIDATION_ERROR"),
    '{"type":"reset","data":{"seed":"x"}}': ("error", "VALIDATION_ERROR"),
    '{"type":"state","data":{}}': ("state", True, {"episode_id", "step_count"}),
}


@pytest.mark.parametrize(("text", "genuine"), recorded_openenv.STRANGE)
def test_a_broken_client_gets_the_answers_of_openenvs_server(text, genuine):
    session = served()
    session.receive('{"type": "reset"}')
    session.observe(*FIRST)
    answer = answered(session, text, genuine)
    if not genuine:
        assert isinstance(answer, Left)
        return
    expected = OTHERWISE.get(text) or what_matters(genuine)
    assert expected == what_matters(answer.text)
    assert isinstance(session.receive('{"type": "reset"}'), ResetAsked)


@pytest.mark.parametrize(
    ("kind", "body", "status", "genuine"), recorded_openenv.REQUESTS
)
def test_an_http_request_gets_the_answer_of_openenvs_server(
    kind, body, status, genuine
):
    session = served(alone=True)
    answer, told = session.receive_body(kind, body.encode()), json.loads(genuine)
    if isinstance(answer, TasksAsked):
        answer = session.fail(AttributeError(answer.method))
    elif isinstance(answer, ResetAsked):
        answer = session.observe(*shown(told))
    assert status == answer.status
    assert told.keys() <= json.loads(answer.body).keys()


def test_openenvs_client_gets_the_recorded_answers():
    env = CartPole()
    session = served(Forms(env.environment_spec(), "CartPole"))
    steps = 0
    for text, recorded in recorded_openenv.THEIR_CLIENT:
        event, answer = session.receive(text), json.loads(recorded or "{}")
        if isinstance(event, ResetAsked):
            env.seed(event.seed)
            event = session.observe(env.reset(), env.get_info(), (False, False))
        elif isinstance(event, StepAsked) and answer["type"] != "error":
            while steps < answer["data"]["metadata"]["episode_steps"]:
                time_step, steps = env.step(event.action), steps + 1
            is_over = bool(time_step.is_last())
            event = session.observe(time_step, env.get_info(), (is_over, False))
        if answer and answer["type"] != "state":
            assert answer == json.loads(event.text)


@pytest.mark.parametrize("name", ["OUR_CLIENT", "OUR_CLIENT_ECHO", "OUR_CLIENT_FULL"])
def test_a_client_sends_openenvs_server_the_recorded_messages(name):
    session = ClientSession(SERVER_NAME)
    for text, genuine in getattr(recorded_openenv, name):
        message = json.loads(text)
        assert text == session.ask(message["type"], message.get("data"))
        if not genuine:
            continue
        told = json.loads(genuine)
        data = told["data"]
        if told["type"] == "error":
            with pytest.raises(OpenEnvError, match=f"answered {data['code']}") as got:
                session.receive(genuine)
            assert data["code"] == got.value.code
            continue
        step = session.receive(genuine)
        if told["type"] != "observation":
            assert data == step
            continue
        info = data.get("metadata", {})
        discount = float(not data["done"] or "truncated" in info)
        reward = data["reward"] or 0.0
        ends = data["done"] and not discount, data["done"] and bool(discount)
        assert (data["observation"], reward, *ends, info, discount) == step
    is_full = name == "OUR_CLIENT_FULL"
    over = SessionState.CLOSED if is_full else SessionState.ASKED
    assert over is session.state


def test_envkits_client_sends_the_same_messages_as_openenvs():
    for text, genuine in recorded_openenv.THEIR_CLIENT_AND_SERVER:
        message, session = json.loads(text), ClientSession(SERVER_NAME)
        sent = session.ask(message["type"], message.get("data"))
        assert message == json.loads(sent)
        if message["type"] != "close" and "error" not in genuine:
            session.receive(genuine)
            assert session.state is SessionState.READY


# The tables.


def test_each_message_is_read_and_answered_by_its_row():
    taken = {kind for row in SERVER.values() for kind in row.receives}
    assert taken == ANSWERS.keys()
    for kind in taken - TASKS.keys():
        assert hasattr(ServedSession, f"_read_{kind}")
    answers = {*CLIENT[SessionState.ASKED].receives} - {"error"}
    assert answers == {answer for kind, answer in ANSWERS.items() if answer} - {"tasks"}


@pytest.mark.parametrize("table", [SERVER, CLIENT])
def test_each_state_is_reached_and_each_end_waits_for_one_answer(table):
    reached = {state for row in table.values() for state in row.then}
    assert reached == table.keys() - ({SessionState.NEW} - reached)
    assert ((), ()) == table[SessionState.CLOSED]


def test_nothing_is_read_while_the_environment_is_busy():
    session = served()
    session.receive('{"type": "reset"}')
    with pytest.raises(RuntimeError, match="reads nothing while its environment"):
        session.receive('{"type": "state"}')


def test_a_refused_reset_does_not_change_the_episode():
    session = served()
    session.receive('{"type": "reset"}')
    session.observe(*FIRST)
    session.receive('{"type": "reset", "data": {"task": 3}}')
    answer = session.fail(NotImplementedError("there are no options"))
    assert "VALIDATION_ERROR" == answer.code
    assert isinstance(session.receive('{"type":"step","data":{"push":1}}'), StepAsked)


def test_an_environment_that_raises_needs_a_reset():
    session = served()
    session.receive('{"type": "reset"}')
    loss = loss_of(ValueError("it is out of order.\nTwice"), "raised")
    answer = session.fail(EnvironmentLostError(loss))
    assert ("ENVIRONMENT_LOST", 500) == (answer.code, answer.status)
    assert {
        "message": "The environment was lost (raised): ValueError: it is out of order. "
        "Send reset to begin another episode.",
        "code": "ENVIRONMENT_LOST",
        "kind": "raised",
    } == json.loads(answer.data)
    refused = session.receive('{"type": "step", "data": {"push": 1}}')
    assert "The environment was lost: reset comes before step." in refused.text
    assert isinstance(session.receive('{"type": "reset"}'), ResetAsked)


def test_an_errors_text_is_cut_and_hides_the_servers_values():
    session = served(hide=lambda text: text.replace("hush", "…"))
    session.receive('{"type": "reset"}')
    answer = json.loads(session.fail(ValueError("hush " * 10_000)).text)
    assert "hush" not in answer["data"]["message"]
    assert 2000 == len(answer["data"]["message"])


def test_an_error_that_ends_the_session_is_the_last_answer():
    for code, meaning in CODES.items():
        session = served()
        assert code == session.refuse(MessageError(code, "so it is")).code
        assert meaning.ends == (session.state is SessionState.CLOSED)


# Any text.

SCALARS = st.one_of(
    st.sampled_from(
        ["null", "true", "NaN", "-Infinity", "1e999", "-0.0", "9" * 4000, "9" * 5000]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(json.dumps),
    st.text(max_size=5).map(json.dumps),
    st.sampled_from([r'"\ud83d"', r'"\u0000"', r'"\udc00\ud800"']),
)
NAMES = [
    *(
        "type",
        "data",
        "seed",
        "episode_id",
        "push",
        "action",
        "jsonrpc",
        "id",
        "method",
    ),
    *("split", "index", "observation", "reward", "done", "metadata", "discount"),
]
KEYS = st.sampled_from([*map(json.dumps, NAMES), r'"\ud83d"', '""', f'"{"x" * 300}"'])


def objects(children):
    """Draws JSON objects as text, in which a key may stand twice."""
    pairs = st.tuples(KEYS, children).map(":".join)
    return st.lists(pairs, max_size=4).map(lambda found: "{" + ",".join(found) + "}")


JSON = st.recursive(
    SCALARS | st.sampled_from(["[" * n + "]" * n for n in (50, 99, 101, 900, 20_000)]),
    lambda children: (
        st.lists(children, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | objects(children)
    ),
    max_leaves=8,
)
KINDS = st.sampled_from([*ANSWERS, "leap", "observation", "error"]).map(json.dumps)
GOOD = ['{"type":"reset"}', '{"type":"step","data":{"push":1}}', '{"type":"state"}']
TEXTS = st.one_of(
    st.sampled_from(GOOD),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.none(),
    JSON,
    st.builds('{{"type":{},"data":{}}}'.format, KINDS | JSON, JSON),
)
STEP, INFO, FLAGS = FIRST
# What an environment may do: it shows something, of which JSON cannot hold all, or
# raises.
ENDS = [
    FIRST,
    (STEP._replace(step_type=StepType.LAST), INFO, (True, False)),
    (STEP._replace(reward=float("nan"), discount=np.float32(0.5)), INFO, FLAGS),
    (STEP._replace(observation={**STEP.observation, "word": {1, 2}}), INFO, FLAGS),
    (STEP, {"far": [[10**5000]], 3: object(), "left": {"a": np.zeros(2)}}, FLAGS),
    (STEP, ["no", "mapping"], FLAGS),
    ValueError("\ud83d" * 3000),
    NotImplementedError("no options"),
    IndexError(),
    SystemExit(3),
    RecursionError("deep"),
    EnvironmentLostError(loss_of(ValueError("\ud83d" * 3000), "raised")),
]


def expect_answer(answer):
    """Checks that an answer is one message, small if it is an error."""
    assert isinstance(answer, JsonAnswer)
    message = json.loads(answer.text)
    assert {"type", "data"} == message.keys()
    assert answer.text.isascii()
    assert answer.body.isascii()
    json.loads(answer.body)
    if answer.code:
        assert message["data"]["code"] in CODES
        assert message["data"]["message"]
        assert len(answer.text) < 30_000
    assert 200 <= answer.status < 600


def settle(session, event, outcome):
    """Answers an event as an environment does that comes to some outcome."""
    if isinstance(event, JsonAnswer | Left):
        return event
    assert session.state is SessionState.ASKED
    if isinstance(outcome, BaseException):
        return session.fail(outcome)
    if isinstance(event, TasksAsked):
        return session.give_tasks(outcome[1])
    return session.observe(*outcome)


@given(
    texts=st.lists(st.tuples(TEXTS, st.sampled_from(ENDS)), max_size=6),
    start=st.sampled_from(["", "PLAYING", "ENDED", "LOST"]),
)
def test_any_text_in_any_state_is_answered_and_the_session_continues(texts, start):
    session = served()
    if start:
        session.receive('{"type":"reset"}')
        outcome = {"PLAYING": ENDS[0], "ENDED": ENDS[1], "LOST": ENDS[6]}[start]
        settle(session, ResetAsked(None, None, None), outcome)
        assert SessionState[start] is session.state
    for text, outcome in texts:
        event = session.receive(text)
        if isinstance(event, Left):
            assert session.state is SessionState.CLOSED
            return
        expect_answer(settle(session, event, outcome))
    again = settle(session, session.receive('{"type":"reset"}'), FIRST)
    assert "observation" == again.type
    assert session.state is SessionState.PLAYING


@given(
    kind=st.sampled_from(SERVER[SessionState.ALONE].receives),
    body=st.binary(max_size=20) | JSON.map(str.encode) | objects(JSON).map(str.encode),
    outcome=st.sampled_from(ENDS),
)
def test_any_body_of_a_request_is_answered(kind, body, outcome):
    session = served(alone=True)
    expect_answer(settle(session, session.receive_body(kind, body), outcome))


@pytest.mark.parametrize(("beyond", "code"), [(0, ""), (1, "TOO_LARGE")])
def test_the_limit_of_a_message_fits_the_largest_action(beyond, code):
    # JSON may have blanks at its end.
    text = '{"type":"state"}'.ljust(WALK.largest_message + beyond)
    assert code == served().receive(text).code


@pytest.mark.parametrize(("depth", "code"), [(98, ""), (99, "INVALID_JSON")])
def test_a_message_may_be_nested_at_most_a_hundred_levels_deep(depth, code):
    deep = "[" * depth + "]" * depth
    answer = served().receive(f'{{"type":"reset","data":{{"task":{deep}}}}}')
    assert code == getattr(answer, "code", "")


@given(
    kind=st.sampled_from(["reset", "step", "state", "mcp"]),
    text=TEXTS.filter(lambda text: text is not None)
    | st.builds(
        '{{"type":{},"data":{}}}'.format,
        st.sampled_from(["observation", "state", "error"]).map(json.dumps),
        objects(JSON),
    ),
)
def test_a_client_turns_any_answer_into_an_event_or_an_error(kind, text):
    session = ClientSession(SERVER_NAME)
    session.ask(kind)
    reason = SERVER_NAME
    try:
        event = session.receive(text)
    except (OpenEnvError, SpecError) as error:
        reason = str(error)
    else:
        assert isinstance(event, Result | dict)
        assert session.state is SessionState.READY
        if isinstance(event, Result):
            assert {float} == {type(event.reward), type(event.discount)}
    assert reason.startswith(SERVER_NAME)
    assert len(reason) < 30_000
    assert session.state in (SessionState.READY, SessionState.CLOSED)


# Both ends.


@given(
    seed=st.integers(0, 2**62),
    calls=st.lists(st.sampled_from(["reset", "step", "state"]), max_size=30),
)
def test_a_client_receives_the_environments_time_steps(seed, calls):
    env = games.Walk()
    forms = Forms(env.environment_spec(), "Walk")
    server, client, time_step = served(forms), ClientSession(SERVER_NAME), None
    env.seed(seed)
    for kind in calls:
        if kind == "step" and (time_step is None or time_step.is_last()):
            kind = "reset"
        action = {"push": [0.5, 1], "jump": False} if kind == "step" else {}
        event = server.receive(client.ask(kind, action))
        if kind == "state":
            assert {"episode_id", "step_count"} == client.receive(event.text).keys()
            continue
        time_step = env.reset() if kind == "reset" else env.step(event.action)
        discount, is_last = float(time_step.discount), bool(time_step.is_last())
        flags = is_last and not discount, is_last and bool(discount)
        step = client.receive(server.observe(time_step, env.get_info(), flags).text)
        seen = forms.observation.read(step.observation)
        for key, array in time_step.observation.items():
            np.testing.assert_array_equal(array, seen[key])
        reward = 0.0 if kind == "reset" else float(time_step.reward)
        assert (reward, *flags, discount) == (*step[1:4], step.discount)


def test_an_episode_without_a_name_gets_one():
    names = map("episode {}".format, itertools.count())
    session = ServedSession(WALK, lambda: next(names))
    for _ in range(2):
        session.receive('{"type": "reset"}')
        session.observe(*FIRST)
    assert '"episode 1"' in session.receive('{"type": "state"}').text
