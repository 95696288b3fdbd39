"""What a model says becomes an action, or is explained to it."""

from __future__ import annotations

import numpy as np
import pytest

from envkit.sessions.replies import Replies
from envkit.specs import BoundedArraySpec, TextSpec
from envkit.specs.special import ObjectSpec, Strings
from tests.sessions.environments import Room

NUMBER = BoundedArraySpec((), np.int64, 0, 2)
KEYS = {"way": NUMBER, "speed": BoundedArraySpec((2,), np.float32, 0, 1)}
WORD = TextSpec((), "<U9")
TEXT = ObjectSpec(kind=Strings(str))


@pytest.mark.parametrize(
    ("spec", "reply", "action"),
    [
        (TEXT, "  go north\n", "  go north\n"),
        (TEXT, "", ""),
        (TEXT, '{"value": 1}', '{"value": 1}'),
        (WORD, "north", "north"),
        (NUMBER, "2", 2),
        (NUMBER, ' {"value": 1} ', 1),
        (NUMBER, "```json\n1\n```", 1),
        (NUMBER, "```\n0\n```", 0),
    ],
)
def test_a_reply_becomes_an_action(spec, reply, action):
    assert Replies(spec).action(reply) == action


def test_a_reply_may_have_keys():
    action = Replies(KEYS).action('{"way": 1, "speed": [0.5, 1]}')
    assert {"way": 1, "speed": [0.5, 1.0]} == {
        key: value.tolist() for key, value in action.items()
    }


@pytest.mark.parametrize(
    ("spec", "reply"),
    [
        (NUMBER, "north"),
        (NUMBER, ""),
        (NUMBER, "```\n"),
        (NUMBER, "7"),
        (NUMBER, "1.5"),
        (NUMBER, "[1]"),
        (NUMBER, '{"way": 1}'),
        (NUMBER, "[" * 100_000),
        (KEYS, "1"),
        (KEYS, '{"way": 1}'),
        (WORD, "ten letters"),
    ],
)
def test_other_replies_are_explained(spec, reply):
    with pytest.raises(ValueError, match="The reply"):
        Replies(spec).action(reply)


def test_a_model_is_told_what_to_reply():
    assert Replies(TEXT).instructions == ""
    assert Replies(NUMBER).instructions == (
        'Reply with JSON that fits {"type":"integer","minimum":0,"maximum":2}.'
    )
    assert '"speed"' in Replies(KEYS).instructions
    told = Replies(TEXT, Room().tools).instructions
    assert all(tool.description in told for tool in Room().tools)
