"""Programs: what a caller does with a pool, so that two can be compared."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st

from envkit import BatchedPyEnvironment
from envkit.parallel import AutoReset
from envkit.wrappers import ActionRepeat, RebuildAfter, StandbyEnvironment, TimeLimit
from tests.parallel.environments import Walk

ROWS = 4


class Forgetful(Walk):
    """Cannot save its state; where it goes depends on a seed alone."""

    def _get_state(self):
        raise NotImplementedError

    def _reset(self, options=None):
        time_step = super()._reset()
        self._place += 0 if options is None else options["far"]
        return time_step._replace(observation=self._observe())


class Bent(Walk):
    """Takes options, and has an attribute that its state does not have."""

    slope = 0.0

    def _reset(self, options=None):
        time_step = super()._reset()
        self._place += 0 if options is None else options["far"]
        return time_step._replace(observation=self._observe())

    def _observe(self):
        seen = super()._observe()
        return {**seen, "place": seen["place"] + self.slope}

    def lift(self):
        self._place = self._place + 1.0


class Limited:
    """Makes an environment in wrappers, whose counts must come along."""

    def __new__(cls, seed=0):
        return TimeLimit(ActionRepeat(Bent(seed), 2), duration=3)


def batch_of(seed=0):
    envs = [Bent(seed), Bent(seed + 1)]
    return BatchedPyEnvironment(envs, multithreading=False)


class Rebuilt:
    """Makes an environment that is built anew after each second episode."""

    def __new__(cls, seed=0):
        return RebuildAfter(functools.partial(Bent, seed), episodes=2)


class Pair:
    """Makes two environments that play a row's episodes by turns."""

    def __new__(cls, seed=0):
        return StandbyEnvironment(functools.partial(Bent, seed))


MAKERS = {
    "saves": Bent,
    "forgets": Forgetful,
    "limited": Limited,
    "batch": batch_of,
    "rebuilt": Rebuilt,
    "pair": Pair,
}


def constructors(kind):
    count = ROWS // 2 if kind == "batch" else ROWS
    return [functools.partial(MAKERS[kind], seed) for seed in range(count)]


# What a program does with a pool: a name, and numbers to do it with.

_MASKS = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)
_KINDS = [
    ("step", st.none()),
    ("step", st.none()),
    ("step", st.none()),
    ("some", _MASKS),
    ("reset", _MASKS),
    ("seeded", st.integers(0, 9)),
    ("told", _MASKS),
    ("seed", st.integers(0, 9)),
    ("attribute", st.integers(0, 9)),
    ("lift", st.none()),
    ("back", st.none()),
    ("alone", st.integers(0, ROWS - 1)),
    ("order", st.sampled_from(list(AutoReset))),
]


def moves_named(*names):
    """Draws moves of some names only: a filter would draw most lists in vain."""
    return st.one_of(
        [st.tuples(st.just(name), number) for name, number in _KINDS if name in names]
    )


MOVES = moves_named(*dict(_KINDS))


class Program:
    """Plays moves on a pool, and keeps all that came back."""

    def __init__(self, env, kind):
        self.env, self.kind = env, kind
        self.seen, self.told = [env.reset()], []
        self._rng = np.random.default_rng(5)
        self._token = None

    def play(self, name, number):
        getattr(self, f"_{name}")(number)
        env = self.env
        self.seen += [env.current_time_step(), env.repaired]
        self.told.append(repr(env.get_info()))

    def _actions(self):
        return self._rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32)

    def _whole(self, mask):
        """Makes a mask fit environments that are batches and move together."""
        mask = np.array(mask)
        return np.repeat(mask[::2], 2) if self.kind == "batch" else mask

    def _playable(self, mask):
        """Leaves out the rows that need a reset first."""
        if self.env.autoreset is AutoReset.DISABLED:
            mask = mask & ~self._ended()
            if self.kind == "batch":
                mask = np.repeat(mask[::2] & mask[1::2], 2)
        return mask

    def _ended(self):
        return self.env.current_time_step().is_last()

    def _step(self, _):
        mask, actions = self._playable(np.ones(ROWS, bool)), self._actions()
        if mask.all():
            self.seen.append(self.env.step(actions))
        elif mask.any():
            self.seen.append(self.env.step(actions, mask))
        if self.env.autoreset is AutoReset.DISABLED and (ended := self._ended()).any():
            self.seen.append(self.env.reset(ended))

    def _some(self, mask):
        mask = self._playable(self._whole(mask))
        if mask.any():
            self.seen.append(self.env.step(self._actions(), mask))

    def _reset(self, mask):
        mask = np.array(mask)
        if mask.any():
            self.seen.append(self.env.reset(mask))

    def _seeded(self, seed):
        self.seen.append(self.env.reset(seed=seed))

    def _told(self, mask):
        mask = np.array(mask)
        if mask.any():
            self.seen.append(self.env.reset(mask, options={"far": 3.0}))

    def _seed(self, seed):
        self.env.seed(seed)

    def _attribute(self, value):
        if self.kind != "batch":
            self.env.set_attr("slope", float(value))

    def _lift(self, _):
        if self.kind not in ("batch", "forgets"):
            self.env.call("lift")

    def _back(self, _):
        if self.kind == "forgets":
            return
        if self._token is not None:
            self.env.set_state(self._token)
        self._token = self.env.get_state()

    def _alone(self, row):
        if self.kind == "batch" or not self._playable(np.arange(ROWS) == row).any():
            return
        action = self._rng.uniform(-1, 1, 2).astype(np.float32)
        self.seen.append(self.env.envs[row].step(action))

    def _order(self, order):
        self.env.autoreset = order
