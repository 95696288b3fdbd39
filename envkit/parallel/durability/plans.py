"""Plans how to replay a lost environment, and judges the result."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np

from envkit.parallel.durability.anchors import Anchor, EnvHistory
from envkit.parallel.durability.journal import Journal, Moves
from envkit.parallel.env_seeds import EnvSeed
from envkit.parallel.messages import RemoteFailure, Replayed, ReplayPlan
from envkit.parallel.row_sets import are_among
from envkit.parallel.row_states import Rows
from envkit.parallel.slab_layout import SAME_STEP_ORDER
from envkit.types import Array

__all__ = ["plan_of", "same_bits", "why_it_differs", "without_anchor"]

_LARGEST = 2**32 - 1


def plan_of(
    known: EnvHistory, seed: EnvSeed, journal: Journal, most: int
) -> ReplayPlan | str:
    """Returns the plan to replay an environment, or the reason why that is impossible.

    Args:
        known: Its history.
        seed: Its seed.
        journal: The requests of its rows.
        most: How many steps may be replayed.
    """
    if not known.anchors and known.new is None:
        return known.no_anchor_because
    numbers = journal.numbers(known.rows)
    anchors = known.anchors[::-1]
    if len(anchors) > 1 and (anchors[0].numbers == numbers).all():
        anchors.pop(0)
    candidates = [anchor for anchor in (*anchors[:1], known.new) if anchor is not None]
    if known.has_certain_anchor:
        candidates = [anchor for anchor in candidates if anchor.is_certain]
    for anchor in candidates:
        moves = _moves(known, anchor.numbers, journal, most)
        if moves is not None:
            return _plan_from(known, seed, anchor, moves)
    if known.new is not None and any(each is known.new for each in candidates):
        plan = _plan_of_resets(known, seed, journal, most)
        if plan is not None:
            return plan
    return f"more than max_replay={most} steps would have to be played again"


def without_anchor(known: EnvHistory) -> str:
    """Returns the reason why an environment without a certain anchor is lost."""
    if known.saves is False:
        return "it has no seed and cannot save its state (seed the pool to change that)"
    return "it has neither a seed nor a saved state yet"


def _moves(
    known: EnvHistory, numbers: Array, journal: Journal, most: int
) -> Moves | None:
    away = int((journal.numbers(known.rows) - numbers).max()) >> 1
    return None if away > most else journal.since(known.rows, numbers)


def _plan_of_resets(
    known: EnvHistory, seed: EnvSeed, journal: Journal, most: int
) -> ReplayPlan | None:
    """Returns a plan that repeats all resets, but steps only in the last episode.

    That is right if its random numbers depend only on the number of resets.
    """
    assert known.new is not None  # resets are counted from there
    # Seeds and options would have to come between the resets.
    has_questions = any(
        method == "reset" or (method != "set_attr" and time > known.new.time)
        for time, method, _ in known.questions
    )
    if known.is_batch or has_questions:
        return None
    number = int(journal.numbers(known.rows)[0])
    # A lost reset was counted one time too many.
    lost = sum(begun == number + 2 & _LARGEST for begun in known.begins)
    resets, begins = known.resets - lost, known.begins[: -lost or None]
    if not begins or resets > most:
        return None
    moves = _moves(known, np.array(begins[-1:], np.uint32), journal, most)
    if moves is None:
        return None
    # Earlier questions belong to episodes that are over.
    first = int(moves.times[0]) if len(moves.times) else journal.time
    plan = _plan_from(known, seed, known.new._replace(time=first), moves)
    return plan._replace(resets=resets, number=begins[-1])


def _plan_from(
    known: EnvHistory, seed: EnvSeed, anchor: Anchor, moves: Moves
) -> ReplayPlan:
    return ReplayPlan(
        seed=anchor.seed,
        known_seed=(seed.seed, seed.rebuilds),
        attributes=tuple(known.attributes_at(anchor.time).items()),
        state=anchor.state,
        ended=anchor.ended,
        resets=0,
        number=int(anchor.numbers[0]),
        notes=tuple(
            tuple(each) for each in known.questions if each.time >= anchor.time
        ),
        **moves._asdict(),
    )


# Judging the result.


def why_it_differs(
    plan: ReplayPlan, result: Replayed | RemoteFailure, block: range, rows: Rows
) -> str:
    """Returns how an environment differs from the lost one; "" if it does not.

    Args:
        plan: The plan of the replay.
        result: Where it stands now, or its exception.
        block: Its rows.
        rows: All rows, with the time steps that the caller has seen.
    """
    if isinstance(result, RemoteFailure):
        first = result.message.partition("\n")[0]
        return f"playing its steps again has raised {result.type_name}: {first:.200}"
    slab = rows.slab
    replayed = Replayed(*result)
    compared = np.array(replayed.is_known) & rows.begun[block.start : block.stop]
    own = block.start + np.flatnonzero(compared)
    shows_last = slab.shows_last(own)
    is_same = slab.autoreset == SAME_STEP_ORDER
    asked = are_among(own, rows.resumed)
    # A worker that was lost during a step may have begun to write the FIRST after the
    # end of an episode.
    stands = ~(shows_last & asked) if is_same else np.ones(len(own), bool)
    # If it has not moved, it has no LAST, only the FIRST that followed.
    has_moved = are_among(own - block.start, plan.rows.tolist())
    shows = shows_last & has_moved if is_same else np.zeros(len(own), bool)
    for leaves, expected, mask in (
        (replayed.standing, slab.read_standing(own), stands),
        (replayed.shown, slab.read(own), shows),
    ):
        for leaf, other in zip(leaves, expected, strict=True):
            if not same_bits(leaf[compared][mask], other[mask]):
                return (
                    "it is not deterministic: the same steps have led elsewhere when "
                    "they were played again"
                )
    return ""


def same_bits(one: Array, other: Array) -> bool:
    """Returns True if two arrays are equal bit for bit; all NaNs count as equal.

    Example:
        >>> same_bits(np.array([np.nan, 0.0]), np.array([-np.nan, 0.0]))
        True
        >>> same_bits(np.array([0.0]), np.array([-0.0]))
        False
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.hasobject:
        return all(map(_are_alike, one.flat, other.flat))
    if one.dtype.kind in "fc":
        one, other = (np.where(np.isnan(each), np.nan, each) for each in (one, other))
    return one.tobytes() == other.tobytes()


def _are_alike(one: Any, other: Any) -> bool:
    """Returns True if two objects are equal, as far as that can be determined."""
    if type(one) is not type(other):
        return False
    with contextlib.suppress(Exception):  # comparing may raise anything
        if pickle.dumps(one) == pickle.dumps(other):
            return True
    with contextlib.suppress(Exception):
        return bool(one == other)
    return False
