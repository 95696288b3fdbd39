"""The sentences in errors about workers: pure functions from facts to text.

Whatever is not known is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from envkit.wording import counted, listed

__all__ = [
    "among_others",
    "crash_cause",
    "crash_end",
    "doing",
    "environments_row",
    "facts",
    "first_line",
    "late_end",
    "lines",
    "other_workers",
    "paragraphs",
    "raised_during",
    "raised_remedy",
    "raised_what",
    "restart_remedy",
    "sentences",
    "timeout_remedy",
    "worker_facts",
    "worker_name",
]

# What native code is told by, or tells itself by abort().
NATIVE_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"}
# The settings that limit how long these may take.
TIMEOUTS = {
    "step": "step_timeout",
    "reset": "reset_timeout",
    "rebuild": "reset_timeout",
    "construct": "start_timeout",
}
PARTICIPLES = {"rebuild": "rebuilt", "construct": "constructed"}
LONGEST_LINE = 200
MOST_LINES = 12


def first_line(message: str) -> str:
    """Returns the line of a message that is complete in itself."""
    return message.partition("\n")[0]


def paragraphs(*parts: str) -> str:
    """Puts an empty line between those that are not empty."""
    return "\n\n".join(part for part in parts if part)


def sentences(*parts: str) -> str:
    """Puts a space between those that are not empty."""
    return " ".join(part for part in parts if part)


def lines(*parts: str) -> str:
    """Puts each that is not empty on a line of its own."""
    return "\n".join(part for part in parts if part)


def facts(*rows: tuple[str, str]) -> str:
    r"""Lays out names and what they stand for in two columns; no row for nothing.

    Example:
        >>> print(facts(("worker", "5"), ("restarts", ""), ("lines", "one\ntwo")))
          worker          5
          lines           one
                          two
    """
    return "\n".join(
        f"  {name if number == 0 else '':<14}  {line}".rstrip()
        for name, text in rows
        if text
        for number, line in enumerate(text.splitlines())
    )


def worker_name(worker: int | None, pid: int | None) -> str:
    """Names a worker by its index and its process, if it has one of its own."""
    return f"worker {worker} (pid {pid})" if pid else f"worker {worker}"


def doing(command: str | None, env: int | None) -> str:
    """Says what a worker did: `None` is nothing, and "" is not known.

    Example:
        >>> doing("step", 21), doing("call('level')", 21), doing(None, None)
        ('env 21 was in step()', "it answered call('level')", 'it was idle')
    """
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


def raised_during(command: str | None) -> str:
    """Says during what an environment raised, as the end of a sentence."""
    match command:
        case None | "":
            return ""
        case "step" | "reset":
            return f" in {command}()"
        case "rebuild" | "construct":
            return " while it was being " + PARTICIPLES[command]
    return f" in {command}"


def crash_end(
    *,
    exitcode: int | None,
    signal: str | None,
    command: str | None,
    env: int | None,
    steps: int | None,
) -> str:
    """Says how, during what and when a worker ended."""
    how = _ended(exitcode, signal)
    activity = doing(command, env)
    during = f"{how} while {activity}" if activity else how
    return during if steps is None else f"{during}, {_after_start(steps)}"


def crash_cause(
    *,
    exitcode: int | None,
    signal: str | None,
    command: str | None,
    resident: int | None,
) -> str:
    """Says what usually ends a worker like this."""
    if signal in NATIVE_SIGNALS:
        return f"Signal {signal} comes from native code."
    if signal == "SIGKILL":
        held = (
            f" This worker held {_size(resident)} when last seen." if resident else ""
        )
        return (
            f"Nobody in envkit sends SIGKILL {_during(command)}; on Linux the usual "
            f"sender is the out-of-memory killer.{held}"
        )
    if signal:
        return (
            f"Somebody sent {signal}: another program, a person, or the environment "
            "itself."
        )
    if exitcode is not None:
        return (
            "Nobody asked it to: the environment, or native code under it, called "
            "os._exit() or exit()."
        )
    return ""


def other_workers(others: int | None) -> str:
    """Says how the rest of the pool is."""
    match others:
        case None:
            return ""
        case 0:
            return "No other worker is left."
        case 1:
            return "The other worker is idle and unharmed."
    return f"The other {others} workers are idle and unharmed."


def restart_remedy(restarts: str, what: str) -> str:
    """Says how to go on after failures like this, or that it was tried.

    Args:
        restarts: What the supervisor said; "" if it was not asked.
        what: What is to be replaced, such as "replace crashed workers".
    """
    if not restarts:
        return ""
    if restarts.startswith("not allowed"):
        return f"To {what} and go on, pass on_worker_failure=RestartPolicy()."
    return (
        f"Its RestartPolicy allows no further restart: {restarts}. What fails so often "
        "has a cause that a restart does not cure."
    )


def timeout_remedy(command: str | None) -> str:
    """Says what to do where a late answer is in order."""
    setting = TIMEOUTS.get(command or "")
    return f"If it may take longer, pass a larger {setting}." if setting else ""


def raised_what(type_name: str, text: str) -> str:
    """Names an exception with the first line of its text.

    Example:
        >>> raised_what("KeyError", "'level'"), raised_what("Done", "")
        ("KeyError: 'level'", 'Done')
    """
    line, _, more = text.strip().partition("\n")
    if len(line) > LONGEST_LINE or more:
        line = f"{line[:LONGEST_LINE].rstrip()} …"
    # A sentence goes on after it.
    line = line.removesuffix(".")
    return f"{type_name}: {line}" if line else type_name


def among_others(messages: Sequence[str]) -> str:
    r"""Lists what else failed in the same call, by first lines.

    Example:
        >>> print(among_others(["env 3 raised KeyError: 'x' in step().\n\nMore."]))
        1 other failure in the same call:
          - env 3 raised KeyError: 'x' in step().
    """
    shown = [f"  - {first_line(message)}" for message in messages[:8]]
    if len(messages) > len(shown):
        shown.append(f"  - and {len(messages) - len(shown)} more")
    heading = f"{counted(len(messages), 'other failure')} in the same call:"
    return "\n".join([heading, *shown])


def environments_row(envs: Sequence[int]) -> tuple[str, str]:
    """Names environments, for `facts`."""
    return "environment" if len(envs) == 1 else "environments", listed(envs)


def worker_facts(
    envs: Sequence[int], constructors: Sequence[str], restarts: str, stderr_tail: str
) -> str:
    """Lays out what there is to know about a worker that failed."""
    names = list(dict.fromkeys(filter(None, constructors)))
    if len(names) > 4:
        names = [*names[:4], f"and {len(names) - 4} more"]
    return facts(
        environments_row(envs),
        ("constructor" if len(names) == 1 else "constructors", "\n".join(names)),
        ("restarts", restarts),
        ("last stderr", _stderr_excerpt(stderr_tail)),
    )


def late_end(pid: int | None) -> str:
    """Says what became of a worker that was late; one without pid is a thread."""
    if pid is None:
        return (
            "A thread cannot be killed: it was given up, and runs on until the "
            "environment returns."
        )
    return "The worker was killed, and every process that it had started."


def raised_remedy(worker: int | None, command: str | None, restarts: str) -> str:
    """Says what still works after an environment raised, and how to go on."""
    lives = "" if worker is None else f"Worker {worker} lives on."
    # What raised in render() goes on with its episode.
    episode = (
        "reset(), or reset(mask) for this row alone, begins a new episode."
        if command in {"step", "reset"}
        else ""
    )
    return lines(
        sentences(lives, episode),
        restart_remedy(restarts, "have such environments built anew"),
    )


def _ended(exitcode: int | None, signal: str | None) -> str:
    if signal:
        return f"was killed by {signal}"
    return "ended" if exitcode is None else f"exited with code {exitcode}"


def _after_start(steps: int) -> str:
    if steps == 0:
        return "before its first step"
    number = f"{steps:,}".replace(",", " ")
    return f"{number} {'step' if steps == 1 else 'steps'} after start"


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
    """Writes a number of bytes in a unit that suits it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _stderr_excerpt(tail: str) -> str:
    """Chooses the lines of standard error that tell most: few, and none too long."""
    shown = tail.strip("\n").splitlines()
    for number, line in enumerate(shown):
        # Python's report of a crash begins with the cause and the innermost call, and
        # can be hundreds of lines long.
        if line.startswith("Fatal Python error"):
            shown = shown[number : number + MOST_LINES]
            break
    return "\n".join(
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"
        for line in shown[-MOST_LINES:]
    )
