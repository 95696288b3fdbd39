"""The judge: knows of every environment what has to come next, and what came."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np

from tests.soak.environments import (
    ACTION,
    BIRTH,
    CHAIN,
    CODES,
    ENV_ID,
    EPISODE,
    FIELDS,
    FLOOD,
    FORK,
    HANG,
    HELPER,
    PID,
    SLOW,
    STARTED,
    STEP,
    length,
    link,
    reward,
    truncates,
)
from tests.soak.plan import Started

FIRST, MID, LAST = 0, 1, 2


class Answer(NamedTuple):
    """What some rows were given, and what they answered.

    Attributes:
        rows: Which rows.
        actions: What each was given.
        time_step: What came.
        repaired: Which of them the pool says to have been lost, if it was asked.
    """

    rows: np.ndarray
    actions: np.ndarray
    time_step: Any
    repaired: np.ndarray | None = None


class Verdict(NamedTuple):
    """For each row of an answer, which of three things it is; a wrong one is none.

    Attributes:
        first: The beginning of an episode.
        went_on: The next step.
        cut: What was shown last, as a truncation, of an environment that was lost.
    """

    first: np.ndarray
    went_on: np.ndarray
    cut: np.ndarray

    @property
    def right(self) -> Any:
        return self.first | self.went_on | self.cut


class Judge:
    """Remembers what each environment showed last, and judges what it shows next.

    Attributes:
        steps: How many answers of rows there have been.
        wrong: What was wrong with some of them.
        cut: How many episodes were cut off because a worker was lost.
        begun: For each environment, how many episodes have begun.
        shown: For each environment, what it showed last.
        types: Likewise, the step type.
        pids: The processes in which environments have been.
        made: How often environments made each trouble that they were told to make.
        hung: The processes in which one hung.
        helpers: What environments have started and has not been seen to have ended.
        outlived: Those of them that have outlived their worker.
        stayed: Forks that were still there when the step that made them was answered.
        ignored: Actions with troubles that nothing came of; they are to be given again.
    """

    def __init__(self, num_envs: int) -> None:
        self.steps = self.cut = 0
        self.wrong: list[str] = []
        self.begun = np.zeros(num_envs, np.int64)
        self.shown = np.full((num_envs, len(FIELDS)), -1, np.int64)
        self.types = np.full(num_envs, LAST)
        self.pids: set[int] = set()
        self.made: Counter[int] = Counter()
        self.hung: set[int] = set()
        self.helpers: list[Started] = []
        self.outlived: list[Started] = []
        self.stayed: list[Started] = []
        self.ignored: deque[tuple[int, int]] = deque()
        # Rows whose episode was cut: another environment must begin the next one.
        self._lost = np.zeros(num_envs, bool)
        # What was shown of late: a question may have been answered some steps ago.
        self._lately: deque[np.ndarray] = deque(maxlen=256)

    def judge(self, answer: Answer) -> None:
        """Judges an answer that is the next one, and remembers it."""
        self.accept(answer, self.verdict(answer))

    def verdict(self, answer: Answer) -> Verdict:
        """Judges an answer as if it were the next one."""
        rows, actions, (types, rewards, discounts, shown), repaired = answer
        before, ended = self.shown[rows], self.types[rows] == LAST
        same = (shown[:, :EPISODE] == before[:, :EPISODE]).all(axis=1)
        env_id, episode, step = rows, shown[:, EPISODE], shown[:, STEP]

        first = ended & (types == FIRST) & (rewards == 0) & (discounts == 1)
        first &= (step == 0) & (shown[:, ACTION] == -1) & (shown[:, STARTED] == 0)
        first &= shown[:, CHAIN] == _links(0, env_id, episode, 0, 0)
        # A new environment begins with its first episode, and was born after the old.
        is_new = (shown[:, BIRTH] > before[:, BIRTH]) & (episode == 0)
        goes_on = same & (episode == before[:, EPISODE] + 1) & ~self._lost[rows]
        first &= is_new | goes_on

        went_on = ~ended & same & (episode == before[:, EPISODE])
        went_on &= (step == before[:, STEP] + 1) & (shown[:, ACTION] == actions)
        went_on &= shown[:, CHAIN] == _links(
            before[:, CHAIN], env_id, episode, step, actions
        )
        at_end = step == length(env_id, episode)
        went_on &= types == np.where(at_end, LAST, MID)
        went_on &= discounts == np.where(at_end & ~truncates(episode), 0, 1)
        went_on &= rewards == reward(shown[:, CHAIN])

        cut = ~ended & (types == LAST) & (rewards == 0) & (discounts == 1)
        cut &= (shown == before).all(axis=1)
        if repaired is not None:
            first, went_on, cut = first & ~repaired, went_on & ~repaired, cut & repaired
        mine = shown[:, ENV_ID] == rows
        return Verdict(first & mine, went_on & mine, cut & mine)

    def accept(self, answer: Answer, verdict: Verdict) -> None:
        """Remembers an answer."""
        rows, actions, time_step, _ = answer
        shown, before = time_step.observation, self.shown[rows]
        self._note_wrong(answer, verdict)
        self._note_replaced(before[verdict.first], shown[verdict.first])
        self._note_troubles(rows, actions, before, shown, verdict)
        self._lost[rows] = verdict.cut
        self.cut += int(verdict.cut.sum())
        self.begun[rows] += verdict.first
        self._lately.append(self.shown.copy())
        self.shown[rows], self.types[rows] = shown, time_step.step_type
        self.steps += len(rows)

    def check_where(self, places: list[list[int]]) -> bool:
        """Judges what environments say about themselves between two steps."""
        found = np.array(places)
        # An environment that has replaced another may not have begun an episode.
        new = (found[:, EPISODE] == -1) & (found[:, ENV_ID] == range(len(found)))
        return any(
            bool((new | (found == shown).all(axis=1)).all())
            for shown in [self.shown, *self._lately]
        )

    def check_standing(self, time_step: Any) -> bool:
        """Judges where the pool says that all rows stand."""
        return any(
            np.array_equal(time_step.observation, shown)
            for shown in [self.shown, *self._lately]
        )

    def _note_wrong(self, answer: Answer, verdict: Verdict) -> None:
        rows, actions, (types, rewards, discounts, shown), repaired = answer
        for i in np.flatnonzero(~verdict.right).tolist():
            row = rows[i]
            self.wrong.append(
                f"env {row}: {self.shown[row].tolist()} (type {self.types[row]}), "
                f"then action {actions[i]}, then {shown[i].tolist()} (type {types[i]}, "
                f"reward {rewards[i]}, discount {discounts[i]}, "
                f"repaired {None if repaired is None else repaired[i]})"
            )

    def _note_replaced(self, before: np.ndarray, shown: np.ndarray) -> None:
        """Looks for helpers of workers that have been replaced."""
        gone = set(before[:, PID].tolist()) - set(shown[:, PID].tolist())
        self.pids.update(shown[:, PID].tolist())
        if gone and self.helpers:
            left = [each for each in self.helpers if each.worker in gone]
            self.helpers = [each for each in self.helpers if each.worker not in gone]
            self.outlived += [each for each in left if each.is_there()]

    def _note_troubles(
        self,
        rows: np.ndarray,
        actions: np.ndarray,
        before: np.ndarray,
        shown: np.ndarray,
        verdict: Verdict,
    ) -> None:
        codes = actions % CODES
        for i in np.flatnonzero(codes * (actions >= 0)).tolist():
            code, pid = int(codes[i]), int(before[i, PID])
            if verdict.first[i]:
                # The action was not used, because the episode had ended.
                self.ignored.append((int(rows[i]), int(actions[i])))
            elif verdict.cut[i]:
                self.made[code] += code == HANG
                self.hung |= {pid} if code == HANG else set()
            elif verdict.went_on[i]:
                self.made[code] += 1
                self._note_started(code, Started.by(pid, int(shown[i, STARTED])))

    def _note_started(self, code: int, started: Started) -> None:
        if code == HELPER:
            self.helpers.append(started)
        elif code == FORK and started.is_there():
            self.stayed.append(started)
        elif code == HANG:
            self.wrong.append(f"an environment of worker {started.worker} did not hang")
        else:
            assert code in (FORK, FLOOD, SLOW)


def _links(chain: Any, *numbers: Any) -> Any:
    """Returns the next links of many chains."""
    arrays = [np.asarray(each).astype(np.uint64) for each in (chain, *numbers)]
    return link(*np.atleast_1d(*arrays)).astype(np.int64)
