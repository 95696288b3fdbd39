"""`Ending`: how a worker ended, as a sentence and as an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envkit._internal.text import facts_table, lines, listed, paragraphs, sentences
from envkit.errors import WorkerCrashed, WorkerError, WorkerTimeout
from envkit.parallel.messages import ExitReport

__all__ = [
    "PARTICIPLES",
    "Ending",
    "environments_row",
    "gone",
    "restart_remedy",
    "worker_name",
]

# Signals that crashing native code gets, or raises itself by abort().
_NATIVE_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"}
# The option that limits how long each of these may take.
_TIMEOUTS = {
    "step": "step_timeout",
    "reset": "reset_timeout",
    "rebuild": "reset_timeout",
    "construct": "start_timeout",
}
PARTICIPLES = {"rebuild": "rebuilt", "construct": "constructed"}
_LONGEST_LINE = 200
_MOST_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Describes how a worker ended, and what it was doing.

    The sentences leave out unknown facts.

    Attributes:
        report: How its process ended.
        command: What it was doing: "step", "reset", "rebuild", "construct", or a text
            such as "render()"; `None` for nothing, "" for unknown.
        env: The environment that it was doing this with.
        envs: Its environments.
        makers: Their constructors.
        reason: Why it is not replaced, in the words of `GiveUp`.
        steps: How many steps it had done since its start.
        others: How many other workers there are.
        timeout: The timeout in seconds that it exceeded, if it was stopped for that.
        killed: Whether stopping it worked; a thread cannot be killed.
    """

    report: ExitReport
    command: str | None
    env: int | None
    envs: Sequence[int]
    makers: Sequence[str]
    reason: str = ""
    steps: int | None = None
    others: int | None = None
    timeout: float | None = None
    killed: bool = True

    @property
    def sentence(self) -> str:
        """The first line of the error."""
        report, activity = self.report, _doing(self.command, self.env)
        if self.timeout is not None:
            name = worker_name(report.worker, self._known_pid, report.host)
            during = f": {activity}" if activity else ""
            return f"{name} did not answer within {self.timeout:g} s{during}."
        name = worker_name(report.worker, report.pid, report.host)
        end = _ended(report) + (f" while {activity}" if activity else "")
        if self.steps is not None:
            end = f"{end}, {_after_start(self.steps)}"
        return f"{name} {end}."

    @property
    def kind(self) -> str:
        """What kind of `Loss` it is."""
        if self.timeout is not None:
            return "timed_out"
        return self.report.lost_kind if self.report.lost else "crashed"

    @property
    def _known_pid(self) -> int | None:
        return self.report.pid if self.killed else None

    def error(self) -> WorkerError:
        """Returns the error."""
        return self._crash() if self.timeout is None else self._late(self.timeout)

    def _crash(self) -> WorkerError:
        report = self.report
        error = WorkerCrashed(
            self._message(
                sentences(
                    _cause_of_crash(report, self.command), _other_workers(self.others)
                ),
                restart_remedy(self.reason, "replace crashed workers"),
            ),
            worker=report.worker,
            envs=self.envs,
        )
        error.pid, error.exitcode, error.signal = (
            report.pid,
            report.exitcode,
            report.signal,
        )
        error.host = report.host
        error.command, error.env, error.steps = self.command, self.env, self.steps
        error.stderr_tail, error.resident = report.stderr_tail, report.resident or None
        return error

    def _late(self, timeout: float) -> WorkerError:
        setting = _TIMEOUTS.get(self.command or "")
        error = WorkerTimeout(
            self._message(
                "The worker was killed, and every process that it had started."
                if self.killed
                else "A thread cannot be killed: it was given up, and runs on until "
                "the environment returns.",
                f"If it may take longer, pass a larger {setting}." if setting else "",
                restart_remedy(self.reason, "replace late workers"),
            ),
            worker=self.report.worker,
            envs=self.envs,
        )
        error.pid, error.host = self._known_pid, self.report.host
        error.command, error.env = self.command, self.env
        error.timeout, error.stderr_tail = timeout, self.report.stderr_tail
        return error

    def _message(self, *remedies: str) -> str:
        return paragraphs(
            self.sentence,
            _worker_facts(self.envs, self.makers, self.reason, self.report.stderr_tail),
            lines(*remedies),
        )


def gone(earlier: WorkerError, call: str) -> WorkerError:
    """Returns the error for calls to a worker that was lost in an earlier call."""
    if not isinstance(earlier, WorkerCrashed | WorkerTimeout):
        return earlier
    name = worker_name(earlier.worker, earlier.pid, earlier.host)
    end, line, body = str(earlier).partition("\n")
    error = WorkerCrashed(
        f"{call}() needs {name}, which was lost in an earlier call; "
        f"it {end.removeprefix(name).lstrip()}{line}{body}",
        worker=earlier.worker,
        envs=earlier.envs,
    )
    # Less is known about a worker that was killed for being late.
    known = vars(earlier).keys() & WorkerCrashed.__annotations__.keys()
    vars(error).update({fact: getattr(earlier, fact) for fact in known})
    return error


# Parts of sentences.


def environments_row(envs: Sequence[int]) -> tuple[str, str]:
    """Returns the row of `facts_table` that lists environments."""
    return "environment" if len(envs) == 1 else "environments", listed(envs)


def _worker_facts(
    envs: Sequence[int], makers: Sequence[str], reason: str, stderr_tail: str
) -> str:
    names = list(dict.fromkeys(filter(None, makers)))
    if len(names) > 4:
        names = [*names[:4], f"and {len(names) - 4} more"]
    return facts_table(
        environments_row(envs),
        ("constructor" if len(names) == 1 else "constructors", "\n".join(names)),
        ("restarts", reason),
        ("last stderr", _stderr_excerpt(stderr_tail)),
    )


def _stderr_excerpt(tail: str) -> str:
    """Returns the most informative lines of standard error, shortened if necessary."""
    shown = tail.strip("\n").splitlines()
    for number, line in enumerate(shown):
        # Python's crash report begins with the cause and the innermost call, and can
        # run to hundreds of lines.
        if line.startswith("Fatal Python error"):
            shown = shown[number : number + _MOST_LINES]
            break
    return "\n".join(
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        for line in shown[-_MOST_LINES:]
    )


def worker_name(worker: int | None, pid: int | None, host: str = "") -> str:
    """Names a worker by index, process and machine, as far as they are known.

    Example:
        >>> worker_name(3, 4711), worker_name(3, 4711, "node-7"), worker_name(3, None)
        ('worker 3 (pid 4711)', 'worker 3 (pid 4711 on node-7)', 'worker 3')
    """
    place = f" on {host}" if host else ""
    return f"worker {worker} (pid {pid}{place})" if pid else f"worker {worker}"


def _doing(command: str | None, env: int | None) -> str:
    """Describes what a worker was doing: `None` is nothing, and "" is unknown."""
    who = "an environment" if env is None else f"env {env}"
    match command:
        case None:
            return "it was idle"
        case "":
            return ""
        case "step" | "reset":
            return f"{who} was in {command}()"
        case "rebuild" | "construct":
            return f"{who} was being {PARTICIPLES[command]}"
    return f"it answered {command}"


def _ended(report: ExitReport) -> str:
    if report.lost:
        return report.lost
    if report.signal:
        return f"was killed by {report.signal}"
    if report.exitcode is None:
        return "ended"
    return f"exited with code {report.exitcode}"


def _after_start(steps: int) -> str:
    if steps == 0:
        return "before its first step"
    number = f"{steps:,}".replace(",", " ")
    return f"{number} {'step' if steps == 1 else 'steps'} after start"


def _cause_of_crash(report: ExitReport, command: str | None) -> str:
    """Names the usual cause of such an end."""
    if report.lost or report.remedy:
        return report.remedy
    if report.signal in _NATIVE_SIGNALS:
        return f"Signal {report.signal} comes from native code."
    if report.signal == "SIGKILL":
        held = (
            f" This worker held {_size(report.resident)} when last seen."
            if report.resident
            else ""
        )
        return (
            f"envkit never sends SIGKILL {_during(command)}; on Linux the usual "
            f"sender is the out-of-memory killer.{held}"
        )
    if report.signal:
        return (
            f"{report.signal} came from another program, a person, or the environment "
            "itself."
        )
    if report.exitcode is not None:
        return (
            "envkit did not ask it to: the environment, or native code under it, "
            "called os._exit() or exit()."
        )
    return ""


def _during(command: str | None) -> str:
    match command:
        case None:
            return "to an idle worker"
        case "":
            return "to a worker in use"
        case "step" | "reset":
            return f"during {command}()"
        case "rebuild" | "construct":
            return "while an environment is being " + PARTICIPLES[command]
    return f"during {command}"


def _size(count: int) -> str:
    """Formats a number of bytes in a suitable unit."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _other_workers(others: int | None) -> str:
    match others:
        case None:
            return ""
        case 0:
            return "No other worker is left."
        case 1:
            return "The other worker is idle and unharmed."
    return f"The other {others} workers are idle and unharmed."


def restart_remedy(reason: str, what: str) -> str:
    """Says how to survive such failures, or that restarts were already tried.

    Args:
        reason: The supervisor's reason to give up; "" if it was not asked.
        what: The remedy to suggest, such as "replace crashed workers".
    """
    if not reason:
        return ""
    if reason.startswith("not allowed"):
        return f"To {what} and go on, pass on_worker_failure=RestartPolicy()."
    return (
        f"Its RestartPolicy allows no further restart: {reason}. What fails so often "
        "has a cause that a restart does not cure."
    )
