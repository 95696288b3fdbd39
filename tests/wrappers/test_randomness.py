"""The random streams of wrappers."""

from __future__ import annotations

from envkit import BatchedPyEnvironment
from envkit.envs import Catch
from envkit.wrappers.atari.openings import NoopReset
from envkit.wrappers.repeats import StickyAction


def test_wrappers_of_different_kinds_draw_from_different_streams():
    noops = NoopReset(Catch(batch_size=3), 5)
    sticky = StickyAction(noops, 0.25)
    sticky.seed(7)

    assert not set(noops._streams.keys) & set(sticky._streams.keys)


def test_those_inside_and_outside_of_a_batch_draw_from_different_streams():
    rows = [NoopReset(Catch(), 5) for _ in range(3)]
    sticky = StickyAction(BatchedPyEnvironment(rows, multithreading=False), 0.25)
    sticky.seed(7)

    assert not {row._streams.keys[0] for row in rows} & set(sticky._streams.keys)
