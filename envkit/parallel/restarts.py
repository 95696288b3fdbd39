"""May this worker be restarted, and after what pause? Pure: times are passed in."""

from __future__ import annotations

import math
import numbers
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

__all__ = ["Decision", "GiveUp", "Replace", "RestartPolicy", "Restarts"]

# A worker that fails again after several pauses of this length does so for another
# reason than a busy machine, so waiting longer would only keep the others waiting.
LONGEST_PAUSE = 30.0
# A journal has a place for each of them and each row.
_MOST_STEPS = 2**24


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits how often what fails is replaced before its failure is raised.

    A worker that crashes or is late is replaced, with its environments; an environment
    that raises is built anew inside its worker. Each worker and each environment has a
    budget of its own: at most `max_restarts` restarts within any `within` seconds.
    Past it, the failure is raised as it would be without a policy.

    The first restart of those seconds comes at once, the second after a pause of
    `backoff` seconds, and each further one after twice the pause before it, up to 30
    seconds.

    With `recover="replay"` the environments of a worker that was lost continue where
    they stood, bit for bit, if they are deterministic: the new worker brings each to a
    state that it has saved, or seeds it, and plays again what it was asked since. Where
    the last time step then differs, or the same request ends the worker again, the
    episode ends as without it.

    Attributes:
        max_restarts: How many restarts are allowed; 0 allows none.
        within: The seconds in which they are counted, or `None` to count all there
            ever were.
        backoff: The seconds to wait before the second restart.
        recover: "replay", or `None` to end the episodes that were lost.
        anchor_every: After how many steps an environment is asked for its state anew;
            `None` asks at the begin of each episode.
        max_replay: How many steps may be played again.

    Example:
        >>> RestartPolicy(max_restarts=5, within=None).max_restarts
        5
        >>> RestartPolicy(recover="replay", anchor_every=200).max_replay
        2000
    """

    max_restarts: int = 3
    within: float | None = 60.0
    backoff: float = field(default=0.5, kw_only=True)
    recover: str | None = field(default=None, kw_only=True)
    anchor_every: int | None = field(default=1000, kw_only=True)
    max_replay: int = field(default=2000, kw_only=True)

    def __post_init__(self) -> None:
        _check_count("max_restarts", self.max_restarts)
        if self.within is not None:
            _check_seconds("within", self.within, "or None to count all restarts")
            if self.within <= 0:
                raise ValueError(
                    f"within is {self.within}, and nothing happens within so short a "
                    "time. Pass a positive number of seconds, or None to count all "
                    "restarts."
                )
        _check_seconds("backoff", self.backoff, "or 0 for no pause")
        if self.backoff < 0:
            raise ValueError(
                f"backoff is {self.backoff}, but a pause cannot be negative. Pass a "
                "number of seconds, or 0 for no pause."
            )
        self._check_recovery()

    def _check_recovery(self) -> None:
        if self.recover not in (None, "replay"):
            raise ValueError(
                'recover must be "replay", or None to end the episodes that were '
                f"lost, got {self.recover!r:.80}."
            )
        for name in ("anchor_every", "max_replay"):
            value = getattr(self, name)
            if value is None and name == "anchor_every":
                continue
            is_whole = isinstance(value, numbers.Integral)
            if isinstance(value, bool) or not is_whole:
                raise TypeError(f"{name} must be an integer, got {value!r:.80}.")
            if not 1 <= value <= _MOST_STEPS:
                raise ValueError(
                    f"{name} must be from 1 to {_MOST_STEPS}, got {value}."
                )
        if self.anchor_every is not None and self.anchor_every > self.max_replay:
            raise ValueError(
                f"anchor_every must be at most max_replay={self.max_replay}, got "
                f"{self.anchor_every}: between two anchors there would be steps from "
                "which no environment can be brought back."
            )


class Replace(NamedTuple):
    """The decision to replace what failed.

    Attributes:
        after: Seconds to wait before that.
    """

    after: float


class GiveUp(NamedTuple):
    """The decision to raise the failure.

    Attributes:
        reason: Why there is no restart, as it reads in the error's row "restarts".
    """

    reason: str


Decision: TypeAlias = Replace | GiveUp


class Restarts:
    """Decides about restarts, by those that it has granted of late.

    A subject is whatever has a budget of its own, such as `("worker", 3)`. The times
    come from a clock that never goes back.

    Example:
        >>> supervisor = Restarts(RestartPolicy(max_restarts=2, backoff=0.5))
        >>> supervisor.decide("worker 3", now=10.0)
        Replace(after=0.0)
        >>> supervisor.decide("worker 3", now=11.0)
        Replace(after=0.5)
        >>> supervisor.decide("worker 3", now=12.0)
        GiveUp(reason='2 of 2 within 60 s used up')
    """

    def __init__(self, policy: RestartPolicy | None) -> None:
        """Makes a supervisor that has granted nothing yet; `None` never will."""
        self._policy = policy
        self._granted: dict[Hashable, deque[float]] = {}

    def decide(self, subject: Hashable, now: float) -> Decision:
        """Decides what becomes of a subject that failed at `now`, and counts it."""
        policy = self._policy
        if policy is None:
            return GiveUp('not allowed (on_worker_failure="raise")')
        if policy.max_restarts == 0:
            return GiveUp("not allowed (max_restarts=0)")
        recent = self._granted.setdefault(subject, deque(maxlen=policy.max_restarts))
        if policy.within is not None:
            while recent and now - recent[0] >= policy.within:
                recent.popleft()
        if len(recent) == policy.max_restarts:
            return GiveUp(_used_up(policy))
        pause = _pause(policy.backoff, len(recent))
        # The restart counts from when it takes place, so that pauses, which differ,
        # cannot bring more of them into one window than the policy allows.
        recent.append(now + pause)
        return Replace(after=pause)

    def forget(self, subject: Hashable) -> None:
        """Forgets a subject that has ended; another may take its place."""
        self._granted.pop(subject, None)


def _pause(backoff: float, before: int) -> float:
    """Returns the pause before a restart that has so many before it in its window."""
    if before == 0:
        return 0.0
    # A larger exponent would leave the range of floats, long after the limit.
    return min(LONGEST_PAUSE, backoff * 2.0 ** min(before - 1, 1000))


def _used_up(policy: RestartPolicy) -> str:
    window = "" if policy.within is None else f" within {policy.within:g} s"
    return f"{policy.max_restarts} of {policy.max_restarts}{window} used up"


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name} is {value!r}, but restarts are counted in whole numbers. Pass an "
            "integer such as 3."
        )
    if value < 0:
        raise ValueError(
            f"{name} is {value}, but there cannot be fewer than no restarts. Pass 0 to "
            "allow none."
        )


def _check_seconds(name: str, value: object, otherwise: str) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"{name} is {value!r}, but times are numbers of seconds. Pass a number "
            f"such as 60.0, {otherwise}."
        )
    if not math.isfinite(value):
        raise ValueError(
            f"{name} is {value}, which no clock reaches. Pass a finite number of "
            f"seconds, {otherwise}."
        )
