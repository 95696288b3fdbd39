"""What terminals send, and what keys are called."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from envkit.cli.play_parts.key_names import decode, parse_keys

SENT = ["a", "Q", " ", "\r", "\x7f", "\x1b[A", "\x1bOD", "\x1b[3~", "\x1b[1;5C", "é"]


@given(st.lists(st.sampled_from(SENT)), st.data())
def test_keys_are_the_same_in_however_many_pieces_they_come(parts, data):
    text = "".join(parts)
    cut = data.draw(st.integers(0, len(text)))
    first, rest = decode(text[:cut])
    second, left = decode(rest + text[cut:])

    assert decode(text) == ([*first, *second], left)


def test_keys_have_names():
    names = ["a", "q", "space", "enter", "backspace", "up", "left", "é"]

    assert (names, "") == decode("".join(SENT))


def test_a_key_that_there_is_not_is_named(message_of):
    assert (
        "There is no key 'hop' in '<hop>'. Keys are characters, and in angle brackets "
        "backspace, down, enter, esc, left, right, space, tab, up."
    ) == message_of(ValueError, lambda: parse_keys("<hop>"))
