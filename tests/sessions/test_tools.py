"""Tools: their schemas, and sessions that call them."""

from __future__ import annotations

import enum
import json
from typing import Any, Literal

import pytest

from envkit.sessions import Sessions, tool
from envkit.sessions.tools import tool_of
from tests.sessions.environments import Room
from tests.sessions.running import in_loop


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


@in_loop
async def test_a_session_calls_tools():
    async with Sessions(Room, 1) as sessions, sessions.lease(seed=3) as session:
        assert [each.name for each in session.tools] == ["take", "go"]
        turn = await session.reset()
        assert turn.text.startswith("Room ")
        turn = await session.call("go", direction="north")
        assert (turn.text, turn.reward, turn.end) == ("The door is locked.", 0.0, None)
        turn = await session.call("take", thing="key", count=2)
        assert turn.reward == 0.5
        turn = await session.call("go", direction="north")
        assert (turn.text, turn.total, turn.end) == ("You are out.", 1.5, "terminated")


def test_a_schema_comes_from_annotations_and_the_docstring():
    take, go = Room().tools
    assert take.description == "Takes something."
    assert take.parameters == {
        "type": "object",
        "properties": {
            "thing": {"type": "string", "description": "What to take, in one word."},
            "count": {"type": "integer", "default": 1, "description": "How many."},
        },
        "required": ["thing"],
        "additionalProperties": False,
    }
    assert go.parameters["properties"]["direction"] == {"enum": ["north", "south"]}


@in_loop
async def test_wrong_calls_of_a_program_are_refused():
    async with Sessions(Room, 1) as sessions, sessions.lease() as session:
        await session.reset()
        with pytest.raises(LookupError, match="Did you mean 'take'"):
            await session.call("tak", thing="key")
        with pytest.raises(TypeError, match="no argument 'think'"):
            await session.call("take", think="key")
        with pytest.raises(TypeError, match="needs thing"):
            await session.call("take")
        with pytest.raises(TypeError, match="'count' of the tool 'take' must fit"):
            await session.call("take", thing="key", count="two")


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("north", "Error: A call must be JSON"),
        pytest.param("[" * 100_000, "Error: A call must be JSON", id="deep"),
        ('{"name": "fly", "arguments": {}}', "Error: There is no tool 'fly'"),
        ('{"name": "go", "arguments": {"way": 1}}', "Error: The tool 'go' has no"),
        (
            '{"name": "go", "arguments": {"direction": "up"}}',
            "Error: The argument 'direction' of the tool 'go' must fit "
            '{"enum": ["north", "south"]}, got the string \'up\'.',
        ),
        (
            '{"name": "take", "arguments": {"thing": "key", "count": 1.5}}',
            "Error: The argument 'count' of the tool 'take' must fit "
            '{"type": "integer"}, got',
        ),
        ('{"name": "begin", "arguments": {}}', "Error: There is no tool 'begin'"),
    ],
)
def test_wrong_calls_of_a_model_are_explained_to_it(call, answer):
    env = Room()
    env.reset()
    time_step = env.step(call)
    assert str(time_step.observation).startswith(answer)
    assert not time_step.is_last()


@pytest.mark.parametrize(
    ("hint", "fitting", "others"),
    [
        (str, ["", "a"], [1, None]),
        (int, [0, -3], ["1", 1.0, True, None]),
        (float, [0, 1.5], ["1", False]),
        (bool, [True], [0, "true"]),
        (list[int], [[], [1]], [1, [1, "2"], {}]),
        (dict[str, float], [{}, {"a": 1}], [[], {"a": "1"}]),
        (Literal["a", 1], ["a", 1], ["b", [1]]),
        (int | None, [1, None], ["1", []]),
        (list[int] | str, ["a", [1]], [["a"], 1]),
        (tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], 1]),
        (tuple[int, ...], [[], [1, 2]], [["a"]]),
        (Colour, ["red", 2], ["RED", None]),
        (Any, [1, None, "a", []], []),
    ],
)
def test_arguments_must_fit_their_annotations(hint, fitting, others):
    def use(self, it):
        """Uses it."""

    use.__annotations__ = {"it": hint}
    use = tool_of("use", use)
    for value in fitting:
        use.check({"it": value})
    for value in others:
        with pytest.raises(TypeError, match="'it' of the tool 'use' must fit"):
            use.check({"it": value})


def test_a_tool_gets_the_types_that_it_asks_for():
    class Painter(Room):
        @tool
        def paint(
            self,
            colour: Colour,
            at: tuple[int, int] | None = None,
            others: list[Colour] | None = None,
            else_: Colour = Colour.RED,
        ) -> str:
            """Paints."""
            return f"{colour.name} {at} {others} {else_.name}"

    env = Painter()
    env.reset()
    (paint,) = [each for each in env.tools if each.name == "paint"]
    assert json.loads(json.dumps(paint.parameters)) == paint.parameters
    call = {"colour": "red", "at": [1, 2], "others": [2]}
    time_step = env.step(json.dumps({"name": "paint", "arguments": call}))
    assert str(time_step.observation) == f"RED (1, 2) {[Colour.BLUE]} RED"


async def waiting(self):
    """Waits."""


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (waiting, "must not be a coroutine function"),
        (lambda self, *things: "", r"must have names, got '\*things'"),
        (lambda self, **things: "", r"must have names, got '\*\*things'"),
        (lambda self, thing, /: "", "must have names, got 'thing'"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_in_the_class(method, why):
    with pytest.raises(TypeError, match=why):
        type("Wrong", (Room,), {"wrong": tool(method)})


@in_loop
async def test_an_environment_without_tools_says_so():
    async with Sessions("Catch", 1) as sessions, sessions.lease() as session:
        await session.reset()
        with pytest.raises(LookupError, match="declares none"):
            await session.call("look")
