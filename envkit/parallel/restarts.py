"""Decides whether a worker may restart, and after how long; reads no clock."""

from __future__ import annotations

import math
import numbers
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

__all__ = ["Decision", "GiveUp", "Replace", "RestartPolicy", "Restarts", "reason_of"]

# If a worker fails again after several pauses of this length, a busy machine is not the
# cause. Longer pauses would only delay the other workers.
LONGEST_PAUSE = 30.0
# A journal reserves a place for every step of every row.
_MOST_STEPS = 2**24


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits how often a worker or environment is replaced before its failure raises.

    A worker that crashes or is late is replaced, with its environments. An environment
    that raises is rebuilt inside its worker. Each worker and each environment has its
    own budget: at most `max_restarts` restarts within any `within` seconds. Once it is
    used up, failures raise as they do without a policy.

    The first restart in that time is immediate. The second waits `backoff` seconds, and
    each further one twice as long as the one before, up to 30 seconds.

    With `recover="replay"`, deterministic environments of a lost worker continue where
    they stood, bit for bit. The pool keeps an anchor for each environment, a saved
    state or else its last seeding and reset, and a journal of the requests since. The
    new worker restores the anchor and replays the journal, in wrappers and batches too;
    replayed steps are neither counted nor recorded. In these cases the episode ends as
    it does without recovery, and a warning says why:

    - The last time step differs after the replay: the environment is not deterministic,
      or its state lacks something. It is not tried again.
    - There is neither a saved state nor a seed yet, because the worker died before it
      could be asked. There is a state from the next reset on. An environment that
      cannot save its state is tried again after `seed`.
    - The same request kills its worker, or exceeds `step_timeout`, a second time.
    - The journal has more than `max_replay` steps. Environments that cannot save their
      state get there some time after each seeding. From then on only the resets since
      the seeding and the steps of the episode are replayed, which is right if an
      environment draws random numbers in resets alone. If it draws in steps, it usually
      fails the comparison; otherwise it continues with other random numbers.
    - An environment that cannot save its state has raised an exception, or one of its
      methods was called.

    A call in which a worker dies raises and has not happened; questions such as
    `get_info` are asked again.

    Attributes:
        max_restarts: How many restarts are allowed; 0 allows none.
        within: The window in seconds in which restarts count; with `None` all count.
        backoff: The seconds to wait before the second restart.
        recover: "replay", or `None` to end the lost episodes.
        anchor_every: How many steps pass between two saves of an environment's state;
            `None` saves at the beginning of each episode.
        max_replay: How many steps may be replayed; the journal holds as many actions
            for each row.

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
        after: Seconds to wait first.
    """

    after: float


class GiveUp(NamedTuple):
    """The decision to raise the failure.

    Attributes:
        reason: Why there is no restart, as it reads in the error's row "restarts".
    """

    reason: str


Decision: TypeAlias = Replace | GiveUp


def reason_of(decision: Decision) -> str:
    """Returns why there is no restart; "" if there is one."""
    return "" if isinstance(decision, Replace) else decision.reason


class Restarts:
    """Grants restarts within the policy's budget.

    A subject is anything with its own budget, such as `("worker", 3)`. Times must come
    from a monotonic clock.

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
        """Starts with full budgets; without a policy, no restart is granted."""
        self._policy = policy
        self._granted: dict[Hashable, deque[float]] = {}

    def decide(self, subject: Hashable, now: float) -> Decision:
        """Decides whether to replace something that failed at `now`, and counts it."""
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
        # A restart counts from its own time, not the failure's. Otherwise pauses of
        # different length could bring more restarts into one window than the policy
        # allows.
        recent.append(now + pause)
        return Replace(after=pause)

    def forget(self, subject: Hashable) -> None:
        """Forgets something that has ended; its key may be used again."""
        self._granted.pop(subject, None)


def _pause(backoff: float, before: int) -> float:
    """Returns the pause before a restart that follows `before` others in its window."""
    if before == 0:
        return 0.0
    # A larger exponent would overflow a float; the limit is reached long before.
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
