"""`envkit replay PATH`: plays a recording, lists what it holds, or checks it."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING, Any

from envkit.cli.numbers import number_within
from envkit.cli.output import say
from envkit.cli.target import Closing
from envkit.cli.terminal import add_json, print_json

if TYPE_CHECKING:
    from envkit.recording.checking import Outcome
    from envkit.recording.stored import Recording

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit replay --check runs/catch"

_SAME, _DIFFERS, _UNCHECKED = 0, 1, 2
_FASTEST = 1000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    parser.add_argument("path", help="the directory of the recording")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--list",
        action="store_true",
        help="list the episodes. So it is without a terminal, too, and where neither "
        "observations nor infos nor notes have pictures that could be played",
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="make the environment again, play the recorded actions, and compare every "
        "time step bit for bit. That imports and calls what the recording names: "
        "unless this is envkit's own, it is shown, and you are asked. Exit status: 0 "
        "the same, 1 it differs, 2 it could not be compared to its end.",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import and call what the recording names without asking: only of people "
        "that you trust",
    )
    parser.add_argument(
        "--env",
        metavar="TARGET",
        help="check this environment, such as my_package.envs:make, instead of the one "
        "that the recording names",
    )
    parser.add_argument(
        "--pickle",
        action="store_true",
        help="read pickles, which may run any code: only of people that you trust",
    )
    parser.add_argument(
        "--fps",
        type=number_within(
            _FASTEST, f"number of time steps in a second, up to {_FASTEST:g}"
        ),
        default=10.0,
        metavar="N",
        help="play so many time steps in a second, 10 if not given",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plays, lists or checks a recording."""
    from envkit.recording.stored import Recording

    recording = Recording(arguments.path, pickle=arguments.pickle, warn=False)
    if arguments.check:
        return _check(
            recording, arguments.env, trusts=arguments.trust, as_json=arguments.json
        )
    if arguments.json:
        print_json(_facts(recording))
        return _SAME
    if arguments.list or not _view(recording, arguments.fps):
        _list(recording)
    return _SAME


def _view(recording: Recording, fps: float) -> bool:
    """Plays a recording, if somebody can see it and there is something to see."""
    from envkit.cli.play_parts.screen import is_terminal
    from envkit.cli.replay_parts.viewer import view
    from envkit.cli.replay_parts.viewing import pictures_of

    look = pictures_of(recording) if is_terminal() else None
    if look is None:
        return False
    view(recording, look, fps)
    return True


def _list(recording: Recording) -> None:
    say(_title(recording))
    for episode in recording.episodes():
        of = "" if recording.batch_size is None else f"row {episode.row}, "
        steps = len(episode) - 1
        ended = "" if episode.ended == "last" else f", left by {episode.ended}"
        say(f"  {of}episode {episode.number}: {steps} steps{ended}")
    for event in recording.events:
        if event["event"] == "dropped":
            say(f"  row {event['row']}, episode {event['episode']}: dropped")


def _facts(recording: Recording) -> dict[str, Any]:
    return {
        **_origin(recording),
        "batch_size": recording.batch_size,
        "episodes": [
            {
                "row": episode.row,
                "episode": episode.number,
                "steps": len(episode) - 1,
                "ended": episode.ended,
            }
            for episode in recording.episodes()
        ],
        "dropped": [
            {"row": event["row"], "episode": event["episode"]}
            for event in recording.events
            if event["event"] == "dropped"
        ],
    }


def _origin(recording: Recording) -> dict[str, Any]:
    return {
        "path": str(recording.path),
        "id": recording.provenance["id"],
        "envkit": recording.facts["envkit"],
    }


def _title(recording: Recording) -> str:
    known = recording.provenance
    wrappers = [layer["class"].rpartition(":")[2] for layer in known["wrappers"]]
    around = f" in {', '.join(wrappers)}" if wrappers else ""
    written = recording.facts["envkit"]
    return f"{recording.path}: {known['id']}{around}, written by envkit {written}"


def _check(
    recording: Recording, target: str | None, *, trusts: bool, as_json: bool
) -> int:
    from envkit.cli.output import stdout_on_stderr
    from envkit.errors import RecordingError
    from envkit.recording.checking import check

    if recording.facts["begun_before"]:
        raise RecordingError(
            "The environment had begun before it was wrapped in Record, and nobody "
            "knows what it had done. Wrap it before its first reset."
        )
    if target is None:
        _ask_before_imports(recording, trusts=trusts)
    with stdout_on_stderr():
        env, assumed = _environment(recording, target)
        with Closing(env), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = check(recording, env)
    if as_json:
        print_json(_outcome(recording, outcome, assumed))
    else:
        say(_title(recording), *_report(recording, outcome, assumed))
    if outcome.difference is not None:
        return _DIFFERS
    return _SAME if outcome.unchecked is None else _UNCHECKED


def _ask_before_imports(recording: Recording, *, trusts: bool) -> None:
    """Shows what the recording names of other people's code, before it runs.

    Raises:
        RecordingError: It is not to be run.
    """
    from envkit.errors import RecordingError
    from envkit.recording.rebuilding import foreign_names

    names = foreign_names(recording.provenance)
    if not names:
        return
    can_ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not trusts and not can_ask:
        raise RecordingError(
            f"Checking the recording in {str(recording.path)!r} imports and calls "
            f"{', '.join(names)}, and a recording that comes from elsewhere may name "
            "any code. If you trust this one, pass --trust."
        )
    say(f"{recording.path} imports and calls", file=sys.stderr)
    say(*(f"  {name}" for name in names), file=sys.stderr)
    if trusts:
        return
    print("That may run any code. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RecordingError("Nothing was imported, and nothing has been checked.")


def _environment(recording: Recording, target: str | None) -> tuple[Any, list[str]]:
    from envkit.constructors import make
    from envkit.plain_data import from_plain
    from envkit.recording.layout import reading
    from envkit.recording.rebuilding import rebuilt

    if target is None:
        return rebuilt(recording.provenance)
    env = make(target)
    seed = recording.provenance["seed"]
    if seed is not None:
        with reading(f"The seed in {str(recording.path / 'provenance.json')!r}"):
            seed = from_plain(seed)
        env.seed(seed)
    return env, []


def _outcome(
    recording: Recording, outcome: Outcome, assumed: list[str]
) -> dict[str, Any]:
    difference = outcome.difference
    # Of what could not be compared to its end nobody knows.
    same = None if outcome.unchecked is not None else True
    notes = [] if difference is None else [*assumed, *_other_versions(recording)]
    return {
        **_origin(recording),
        "same": same if difference is None else False,
        "episodes": outcome.episodes,
        "time_steps": outcome.time_steps,
        "difference": None if difference is None else difference._asdict(),
        "unchecked": outcome.unchecked,
        "notes": notes,
    }


def _report(recording: Recording, outcome: Outcome, assumed: list[str]) -> list[str]:
    from envkit.wording import counted

    episodes = counted(outcome.episodes, "episode")
    compared = f"{episodes}, {counted(outcome.time_steps, 'time step')}"
    difference = outcome.difference
    if difference is None:
        lines = [f"  the same, bit for bit: {compared}"]
        return (
            lines if outcome.unchecked is None else [*lines, f"  {outcome.unchecked}"]
        )
    row = "" if difference.row is None else f"row {difference.row}, "
    return [
        f"  it differs, after {compared} that are the same",
        "",
        f"  where      {row}episode {difference.episode}, step {difference.step}, "
        f"at {difference.place}",
        f"  recorded   {difference.recorded}",
        f"  now        {difference.now}",
        "",
        *[f"  {line}" for line in [*assumed, *_other_versions(recording)]],
    ]


def _other_versions(recording: Recording) -> list[str]:
    """Says what has another version now than it had when it was recorded."""
    import platform

    from envkit.provenance import envkit_version, package_version

    known = recording.provenance
    then = {"envkit": known["envkit"], "python": known["python"], **known["packages"]}
    now = {name: package_version(name) for name in known["packages"]}
    now |= {"envkit": envkit_version(), "python": platform.python_version()}
    changed = [
        f"{name} was {then[name]} and is {now[name]}."
        for name in then
        if then[name] != now[name]
    ]
    if known["seed"] is None and not any(
        event["event"] == "seed" for event in recording.events
    ):
        changed.append("No seed was given, as far as the recording knows.")
    return changed
