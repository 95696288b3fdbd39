"""`envkit replay PATH`: plays a recording, lists its episodes, or checks it."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

from envkit.cli.drawing import SECONDS, draw, rebuilt_to_draw, unlisted_names
from envkit.cli.output import error_text, say, stdout_on_stderr
from envkit.cli.page import (
    check_replaceable,
    environment_names,
    wrapper_names,
    write_page,
)
from envkit.cli.page_pictures import PagePictures
from envkit.cli.parser import Renamed
from envkit.cli.target import (
    Closing,
    add_hz,
    add_pickle,
    at_least_one,
    make_rendering,
)
from envkit.cli.terminal import add_json, print_json
from envkit.errors import RecordingError
from envkit.extend import counted
from envkit.losses import Loss
from envkit.play.screen import is_terminal
from envkit.play.viewing import (
    kept_pictures,
    observed_pictures,
    pictures_of,
    view,
)
from envkit.provenance import envkit_version, from_plain, package_version
from envkit.recording.format import reading
from envkit.recording.replaying import ReplayOutcome, check, foreign_names, rebuilt
from envkit.recording.stored import Recording
from envkit.registry import make

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit replay --check runs/catch"

# Observations of up to this many fields on the longer side are boards, whose numbers
# may be codes, rather than pictures.
_LARGEST_BOARD = 32

_SAME, _DIFFERS, _UNCHECKED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("path", metavar="PATH", help="the directory of the recording")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--list",
        action="store_true",
        help="list the episodes (default: only if there is no terminal, or the "
        "recording has no pictures)",
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="rebuild the environment, repeat the recorded actions, and compare every "
        "time step bit for bit. This imports and calls the code that the recording "
        "names, and asks you first unless that is envkit's own. Exit status: 0 if all "
        "is the same, 1 if something differs, 2 if the comparison could not be "
        "finished",
    )
    what.add_argument(
        "--html",
        metavar="PAGE",
        help="write a self-contained page for browsers, with the episodes' returns, "
        "pictures and plots (default: no page)",
    )
    parser.add_argument(
        "--draw",
        action=argparse.BooleanOptionalAction,
        help="with --html: draw the pictures by repeating the recorded actions in the "
        "environment, as long as each time step is the same as recorded; --no-draw "
        "never does (default: for recordings without pictures, or only with tiny "
        "observed ones, if envkit or an installed library lists the environment; for "
        f"up to {SECONDS:g} seconds)",
    )
    parser.add_argument(
        "--pictures",
        type=at_least_one,
        metavar="N",
        help="with --html: the approximate number of pictures, evenly spaced (default: "
        "2000, and fewer if they are large)",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="with --check or --draw: do not ask before importing the code; only for "
        "recordings from people you trust",
    )
    parser.add_argument(
        "--env",
        metavar="TARGET",
        help="with --check or --html: the environment, such as my_package.envs:make "
        "(default: the one that the recording names)",
    )
    add_pickle(parser)
    add_hz(parser, "time steps per second", 10.0, zero=False)
    parser.add_argument("--fps", action=Renamed, const="--hz")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plays, lists or checks a recording."""
    recording = Recording(arguments.path, pickle=arguments.pickle, warn=False)
    if arguments.check:
        return _check(
            recording, arguments.env, trusts=arguments.trust, as_json=arguments.json
        )
    if arguments.html is not None:
        _write_page(recording, arguments)
        return _SAME
    if arguments.draw is not None:
        raise ValueError("--draw has no effect without --html: name the page.")
    if arguments.json:
        print_json(_facts(recording))
        return _SAME
    look = None if arguments.list else pictures_of(recording)
    if look is not None and is_terminal():
        view(recording, look, arguments.hz)
        return _SAME
    _list(recording)
    if not arguments.list:
        why = (
            "there is no terminal to play them in" if look else "they have no pictures"
        )
        say(f"The episodes are listed because {why}.", file=sys.stderr)
    return _SAME


def _write_page(recording: Recording, arguments: argparse.Namespace) -> None:
    page = Path(arguments.html)
    check_replaceable(page)
    pictures = _pictures(recording, arguments)
    write_page(recording, page, pictures)
    told = {
        **_facts(recording),
        "page": str(page),
        "bytes": page.stat().st_size,
        "pictures": len(pictures),
        "pictures_from": pictures.source,
        "pictures_missing": pictures.problem or None,
    }
    if arguments.json:
        print_json(told)
        return
    kind = f"{pictures.source} pictures" if pictures.source else "no pictures"
    count = f"{len(pictures)} " if pictures.source else ""
    say(_title(recording), f"  {page}, {told['bytes'] / 1e6:.1f} MB, {count}{kind}")
    if pictures.problem:
        say(pictures.problem, file=sys.stderr)


def _pictures(recording: Recording, arguments: argparse.Namespace) -> PagePictures:
    """Returns the pictures for the page: the recording's own, or drawn ones."""
    pictures = PagePictures(recording, arguments.pictures)
    if arguments.draw or arguments.env is not None:
        if arguments.env is None:
            _ask_before_imports(recording, "Drawing", "drawn", trusts=arguments.trust)
        _draw(recording, arguments.env, pictures, None)
        return pictures
    look = kept_pictures(recording)
    if look is None and arguments.draw is None and _shows_little(recording):
        try:
            _draw_unasked(recording, pictures)
        except (Exception, SystemExit) as error:  # other code may raise anything
            why = error_text(error).rstrip(".")
            pictures.problem = f"There are no pictures: {why}."
        if not pictures.problem:
            return pictures
    look = look or observed_pictures(recording)
    if look is not None:
        pictures = PagePictures(recording, arguments.pictures)
        pictures.take_kept(recording, look)
    elif pictures.problem and not len(pictures):
        pictures.problem += " envkit record --pictures keeps pictures from the start."
    return pictures


def _shows_little(recording: Recording) -> bool:
    """True if observations have no pictures, or only boards of a few fields."""
    first = next(recording.episodes(), None)
    look = observed_pictures(recording)
    if first is None or look is None:
        return first is not None
    height, width, _ = look(first, 0).shape
    return bool(max(height, width) <= _LARGEST_BOARD)


def _draw_unasked(recording: Recording, pictures: PagePictures) -> None:
    with stdout_on_stderr():  # listing imports libraries
        names = unlisted_names(recording.provenance)
    if names:
        pictures.problem = (
            "There are no pictures: drawing them imports and calls "
            f"{', '.join(names)}. If you trust the recording, envkit replay --html "
            "--draw does so."
        )
        return
    _draw(recording, None, pictures, SECONDS)


def _draw(
    recording: Recording,
    target: str | None,
    pictures: PagePictures,
    seconds: float | None,
) -> None:
    _check_beginning(recording)
    with stdout_on_stderr(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if target is None:
            env = rebuilt_to_draw(recording.provenance)
        else:
            env = _seeded(recording, make_rendering(target, {}))
        with Closing(env):
            draw(recording, env, pictures, seconds)
    if pictures.differs:
        pictures.problem = " ".join([pictures.problem, *_other_versions(recording)])


def _check_beginning(recording: Recording) -> None:
    if recording.facts["begun_before"]:
        raise RecordingError(
            "The environment was already running when Record wrapped it, so its first "
            "state is unknown. Wrap it before its first reset."
        )


def _list(recording: Recording) -> None:
    facts = _facts(recording)
    say(_title(recording))
    for one in facts["episodes"]:
        of = "" if recording.batch_size is None else f"row {one['row']}, "
        why = "close" if one["ended"] == "closed" else one["ended"]
        ended = "" if why == "last" else f", cut short by {why}"
        if one["lost"] is not None:
            ended = f", cut short because its environment was lost ({one['lost']})"
        say(f"  {of}episode {one['episode']}: {counted(one['steps'], 'step')}{ended}")
    for one in facts["dropped"]:
        say(f"  row {one['row']}, episode {one['episode']}: dropped")


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
                "lost": _kind(recording.loss_of(episode)),
            }
            for episode in recording.episodes()
        ],
        "dropped": [
            {"row": event["row"], "episode": event["episode"]}
            for event in recording.events
            if event["event"] == "dropped"
        ],
    }


def _kind(loss: Loss | None) -> str | None:
    return None if loss is None else loss.kind


def _origin(recording: Recording) -> dict[str, Any]:
    return {
        "path": str(recording.path),
        "id": recording.provenance["id"],
        "envkit": recording.facts["envkit"],
    }


def _title(recording: Recording) -> str:
    known = recording.provenance
    wrappers = wrapper_names(known)
    around = f" in {', '.join(wrappers)}" if wrappers else ""
    written = recording.facts["envkit"]
    name = f"{environment_names(known)}{around}"
    return f"{recording.path}: {name}, written by envkit {written}"


def _check(
    recording: Recording, target: str | None, *, trusts: bool, as_json: bool
) -> int:
    _check_beginning(recording)
    if target is None:
        _ask_before_imports(recording, "Checking", "checked", trusts=trusts)
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


def _ask_before_imports(
    recording: Recording, doing: str, done: str, *, trusts: bool
) -> None:
    """Shows the foreign code that a recording names, before it runs.

    Raises:
        RecordingError: The user does not allow it to run.
    """
    names = foreign_names(recording.provenance)
    if not names:
        return
    can_ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not trusts and not can_ask:
        raise RecordingError(
            f"{doing} the recording in {str(recording.path)!r} imports and calls "
            f"{', '.join(names)}, and a recording that comes from elsewhere may name "
            "any code. If you trust this one, pass --trust."
        )
    say(f"{recording.path} imports and calls", file=sys.stderr)
    say(*(f"  {name}" for name in names), file=sys.stderr)
    if trusts:
        return
    print(
        "That can run any code. Continue? [y/N] ", end="", file=sys.stderr, flush=True
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RecordingError(f"Nothing was imported or {done}.")


def _environment(recording: Recording, target: str | None) -> tuple[Any, list[str]]:
    if target is None:
        return rebuilt(recording.provenance)
    return _seeded(recording, make(target)), []


def _seeded(recording: Recording, env: Any) -> Any:
    seed = recording.provenance["seed"]
    if seed is not None:
        with reading(f"The seed in {str(recording.path / 'provenance.json')!r}"):
            seed = from_plain(seed)
        env.seed(seed)
    return env


def _outcome(
    recording: Recording, outcome: ReplayOutcome, assumed: list[str]
) -> dict[str, Any]:
    difference = outcome.difference
    # Unknown if the recording could not be compared to its end.
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


def _report(
    recording: Recording, outcome: ReplayOutcome, assumed: list[str]
) -> list[str]:
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
    """Returns the packages whose version has changed since the recording."""
    import platform

    known = recording.provenance
    then = {"envkit": known["envkit"], "python": known["python"], **known["packages"]}
    now = {name: package_version(name) for name in known["packages"]}
    now |= {"envkit": envkit_version(), "python": platform.python_version()}
    changed = [
        f"{name} was {then[name]} and is now {now[name]}."
        for name in then
        if then[name] != now[name]
    ]
    if known["seed"] is None and not any(
        event["event"] == "seed" for event in recording.events
    ):
        changed.append("The recording names no seed.")
    return changed
