"""Promises about randomness: it depends only on the seed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from envkit import nest
from envkit.extend import counted
from envkit.testing.contract.findings import Skipped, broken, refuses
from envkit.testing.contract.recording import (
    Rollout,
    expect_same_stream,
    same_bits,
)
from envkit.testing.contract.trial import Actor, Move, Trial
from envkit.types import NestedArray, Seed

__all__ = [
    "global_random",
    "independence",
    "reseeding",
    "row_seeds",
    "seed_list",
    "seeding",
]

_FIX = (
    "Draw everything from a generator of the environment's own, and make it anew in "
    "seed(): self._rng = np.random.default_rng(seed)."
)


def _seed(env: Any, seed: Seed) -> None:
    try:
        env.seed(seed)
    except NotImplementedError:
        raise Skipped("seed() is not implemented", "seed") from None


class _GlobalGenerators:
    """Watches the random generators that the whole program shares."""

    def __init__(self) -> None:
        self._before = self._states()

    @staticmethod
    def _states() -> dict[str, Any]:
        numpys = np.random.get_state(legacy=False)  # noqa: NPY002  # it is watched
        assert isinstance(numpys, dict)  # legacy=False says so
        key = numpys["state"]["key"].tobytes(), numpys["state"]["pos"]
        return {
            "NumPy's (np.random.seed, np.random.rand and so on)": key,
            "Python's (the functions of the module random)": random.getstate(),
        }

    def check(self, call: str, place: str) -> None:
        """Raises `Broken` if a generator has moved since the last check."""
        before, self._before = self._before, self._states()
        for name, state in self._before.items():
            if state != before[name]:
                raise broken(
                    f"{call} used a global random generator{place}.",
                    "Anything else in the program moves it too, so a seed promises "
                    f"nothing. {_FIX} If a library draws, give each environment "
                    "generators of its own: PrivateRandomness(env), from "
                    "envkit.wrappers.",
                    expected="a generator of the environment's own",
                    got=f"{name} has moved",
                )


def global_random(trial: Trial) -> None:
    """Global random generators are not touched."""
    env = trial.make()
    # Seeding a generator with the same number again would not move it.
    _scramble()
    watch = _GlobalGenerators()
    trial.seed_if_possible(env)
    watch.check("seed()", "")
    recording = Rollout(trial.rows)

    def look(move: Move) -> None:
        recording.add(move.call, move.result)
        watch.check(move.call, f", in {recording.place(len(recording) - 1)}")

    # The policy draws from its own generator, so only the environment can move these.
    trial.record(env, after=look)


def seeding(trial: Trial) -> None:
    """The same seed and actions give the same stream."""
    first = trial.make()
    _seed(first, trial.seed)
    expected = trial.record(first, trial.past_end)
    _scramble()
    second = trial.make()
    _seed(second, trial.seed)
    expect_same_stream(
        expected,
        trial.record(second, trial.past_end),
        problem=f"Two environments with the seed {trial.seed} and the same actions "
        "differ, first in",
        advice=_FIX,
        labels=("one", "the other"),
    )


def _scramble() -> None:
    """Advances the global generators; `undisturbed_globals` restores them later."""
    np.random.random(7)  # noqa: NPY002  # the global generator is the subject
    random.random()  # an odd number of draws, so that no pair repeats by chance


def independence(trial: Trial) -> None:
    """Environments in one process do not affect each other."""
    trial.need_company()
    trial.need_repeatable()
    other = trial.new()
    moves = trial.play(other, trial.actor(1))

    def play_other(move: Move) -> None:
        next(moves)

    expect_same_stream(
        trial.reference,
        trial.record(trial.new(), after=play_other),
        problem="Playing another environment in between changes this one, in",
        advice="They share something: a class attribute or a module's variable that is "
        "written to. Make it in __init__ instead.",
        labels=("alone", "beside another"),
    )


def reseeding(trial: Trial) -> None:
    """A used environment can be seeded again."""
    env = trial.make()
    _seed(env, trial.seed + 1)
    trial.record(env, actor=trial.actor(1))
    _seed(env, trial.seed)
    again = trial.record(env)
    if trial.reference.equals(again):
        return
    trial.need_constancy()
    if not trial.stochastic:
        raise Skipped(
            "other seeds made no difference, so what an environment shows after "
            "earlier episodes may be meant"
        )
    expect_same_stream(
        trial.reference,
        again,
        problem=f"After some steps, seed({trial.seed}) and reset(), an environment "
        "does not repeat what a new one with this seed does, in",
        advice=f"Something random was drawn earlier and kept. {_FIX}",
        labels=("a new one", "a used one"),
    )


def row_seeds(trial: Trial) -> None:
    """One seed gives each row its own stream."""
    rows = trial.need_batch()
    if rows == 1:
        raise Skipped("the batch has one row only")
    _seed(trial.make(), trial.seed)
    if not trial.stochastic:
        raise Skipped("other seeds made no difference")
    for seed in range(trial.seed, trial.seed + 5):
        env = trial.make()
        env.seed(seed)
        if not _rows_agree(trial.record(env, actor=_same_for_all_rows(trial))):
            return
    raise broken(
        f"All {rows} rows do the same after seed({trial.seed}).",
        "A batch of copies teaches no more than one environment. "
        "envkit.seeding.seed_per_row(seed, batch_size) derives a seed for each row.",
        expected="a stream of its own for each row",
        got=f"{rows} times the same stream, with each of 5 seeds",
    )


def _same_for_all_rows(trial: Trial) -> Actor:
    """Returns the usual policy, with the first row's action in every row."""
    usual = trial.actor()
    if trial.chooses_actions:  # its actions may not be legal in another row
        return usual

    def repeat(leaf: Any) -> Any:
        return np.repeat(leaf[:1], len(leaf), axis=0)

    def act(time_step: Any, env: Any) -> NestedArray:
        return nest.map_structure(repeat, usual(time_step, env))

    return act


def _rows_agree(recording: Rollout) -> bool:
    return all(
        same_bits(leaf[row, ...], leaf[0, ...])
        for copied in recording.copies
        for _, leaf in copied
        for row in range(1, len(leaf))
    )


def seed_list(trial: Trial) -> None:
    """A batch takes one seed for each row."""
    rows = trial.need_batch()
    seeds = list(range(trial.seed, trial.seed + rows))
    streams = []
    for _ in range(2):
        env = trial.make()
        _seed(env, seeds)
        streams.append(trial.record(env))
    expect_same_stream(
        *streams,
        problem="Two batches with the same list of seeds differ, first in",
        advice=_FIX,
        labels=("one", "the other"),
    )
    for wrong in (seeds[:-1], [*seeds, seeds[-1] + 1]):
        if not refuses(trial.make().seed, wrong):
            raise broken(
                f"seed() accepted {counted(len(wrong), 'seed')} for {rows} rows.",
                "A list has one seed for each row: envkit.seeding.seed_per_row(seed, "
                "batch_size) checks that and returns them.",
                expected="a ValueError",
                got="no exception",
            )
