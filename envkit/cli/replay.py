"""`envkit replay PATH`: plays a recording, lists its episodes, or checks it."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envkit import nest
from envkit.cli.output import say, stdout_on_stderr
from envkit.cli.page import PICTURES, write_page
from envkit.cli.parser import Renamed
from envkit.cli.target import Closing, add_hz, add_pickle, at_least_one
from envkit.cli.terminal import add_json, print_json
from envkit.errors import RecordingError
from envkit.extend import counted
from envkit.play.game import number_text
from envkit.play.key_map import WATCHING, Controls
from envkit.play.pictures import is_picture, observed_picture
from envkit.play.screen import is_terminal, open_screen
from envkit.provenance import envkit_version, from_plain, package_version
from envkit.recording.format import reading
from envkit.recording.replaying import Outcome, check, foreign_names, rebuilt
from envkit.recording.stored import Episode, Recording
from envkit.registry import make
from envkit.types import Array

__all__ = ["EXAMPLE", "Viewing", "add_arguments", "pictures_of", "run", "view"]

EXAMPLE = "envkit replay --check runs/catch"

_SAME, _DIFFERS, _UNCHECKED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("path", metavar="PATH", help="the directory of the recording")
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
    what.add_argument(
        "--html",
        metavar="PAGE",
        help="write a page for a browser, which needs nothing else: the episodes with "
        "their returns, pictures, and plots of what each time step held (default: no "
        "page)",
    )
    parser.add_argument(
        "--pictures",
        type=at_least_one,
        default=PICTURES,
        metavar="N",
        help="put about N pictures into the page of --html, evenly",
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
        help="check this environment, such as my_package.envs:make (default: the one "
        "that the recording names)",
    )
    add_pickle(parser)
    add_hz(parser, "so many time steps pass in a second", 10.0, zero=False)
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
        page = Path(arguments.html)
        write_page(recording, page, pictures_of(recording), arguments.pictures)
        told = {**_facts(recording), "page": str(page), "bytes": page.stat().st_size}
        if arguments.json:
            print_json(told)
        else:
            say(_title(recording), f"  {page}, {told['bytes'] / 1e6:.1f} MB")
        return _SAME
    if arguments.json:
        print_json(_facts(recording))
        return _SAME
    look = None if arguments.list else pictures_of(recording)
    if look is not None and is_terminal():
        view(recording, look, arguments.hz)
        return _SAME
    _list(recording)
    if not arguments.list:
        why = "there is no terminal to show it in" if look else "it has no pictures"
        say(f"Its episodes are listed because {why}.", file=sys.stderr)
    return _SAME


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
    if recording.facts["begun_before"]:
        raise RecordingError(
            "The environment had begun before it was wrapped in Record, so "
            "its state then is not known. Wrap it before its first reset."
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
    """Shows the code of others that the recording names, before it runs.

    Raises:
        RecordingError: It is not to be run.
    """
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
    # Not known of a recording that could not be compared to its end.
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
    """Returns the packages that had another version when it was recorded."""
    import platform

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


Look = Callable[["Episode", int], Array]


def pictures_of(recording: Recording) -> Look | None:
    """Returns a function from time steps to pictures; `None` if there are none.

    The pictures are those in the notes or the infos, or else in the observation.
    """
    entries = recording.of_kind("episode")
    if not entries:
        return None
    first = recording.load(entries[0])
    observed = observed_picture(recording.layout.time_step.template.observation)
    for look in (_noted, _informed):
        try:
            look(first, 0)
        except LookupError:
            continue
        return look
    if observed is None:
        return None
    return lambda episode, step: observed(episode.time_step(step).observation)


class Viewing:
    """Goes through the episodes of a recording, one time step after the other.

    Attributes:
        over: Whether the viewer has quit.
        paused: Whether the picture stays as it is.
        controls: The keys.
    """

    def __init__(self, recording: Recording) -> None:
        """Begins with the first time step of the first episode."""
        self.over = False
        self.paused = False
        self.controls = Controls(WATCHING)
        self._recording = recording
        self._entries = recording.of_kind("episode")
        self._index, self._step = 0, 0
        self._episode: Episode = recording.load(self._entries[0])

    def press(self, key: str) -> None:
        """Takes a key."""
        wanted = self.controls.of(key)
        if wanted == "quit":
            self.over = True
        elif wanted == "pause":
            if self._at_end:
                self._go_to(0)
            self.paused = not self.paused
        elif wanted == "forward":
            self.paused = True
            self._move(1)
        elif wanted == "back":
            self.paused = True
            self._move(-1)
        elif wanted == "next":
            self._go_to(min(self._index + 1, len(self._entries) - 1))
        elif wanted == "previous":
            # In its middle it begins again, as players of music do.
            self._go_to(self._index if self._step else max(self._index - 1, 0))

    def tick(self) -> None:
        """Shows the next time step; stays at the last one."""
        if not self.paused:
            self._move(1)
            self.paused = self._at_end

    def scene(self, look: Look) -> Array:
        """Returns the picture of the current time step."""
        return look(self._episode, self._step)

    def lines(self) -> tuple[str, str]:
        """Returns the lines below the picture."""
        episode, step = self._episode, self._step
        last = len(episode) - 1
        parts = [] if self._recording.batch_size is None else [f"row {episode.row}"]
        parts += [f"episode {episode.number}", f"step {step} of {last}"]
        parts.append(f"reward {number_text(episode.time_step(step).reward)}")
        if step:
            parts.append(f"action {_action_text(episode.action(step))}")
        if step == last:
            parts.append("the end" if self._at_end else "the last step")
        elif self.paused:
            parts.append("paused")
        return "   ".join(parts), self.controls.text()

    @property
    def _at_end(self) -> bool:
        is_last = self._index == len(self._entries) - 1
        return is_last and self._step == len(self._episode) - 1

    def _move(self, steps: int) -> None:
        there = self._step + steps
        if 0 <= there < len(self._episode):
            self._step = there
        elif there < 0 and self._index > 0:
            self._go_to(self._index - 1)
            self._step = len(self._episode) - 1
        elif there > 0 and not self._at_end:
            self._go_to(self._index + 1)

    def _go_to(self, index: int) -> None:
        self._index, self._step = index, 0
        self._episode = self._recording.load(self._entries[index])


def _noted(episode: Episode, step: int) -> Array:
    return _picture_in(episode.annotations(step))


def _informed(episode: Episode, step: int) -> Array:
    return _picture_in(episode.info(step))


def _picture_in(values: Any) -> Array:
    for _, leaf in nest.flatten_with_paths(values):
        if is_picture(leaf):
            return leaf  # type: ignore[no-any-return]  # it is one
    raise LookupError("There is no picture.")


def _action_text(action: Any) -> str:
    text = number_text(action) if _is_numeric(action) else repr(action)
    return text if len(text) <= 30 else f"{text[:29]}…"


def _is_numeric(action: Any) -> bool:
    return all(
        getattr(getattr(leaf, "dtype", None), "kind", "") in tuple("biuf")
        for leaf in nest.flatten(action)
    )


def view(recording: Recording, look: Look, hz: float) -> None:
    """Shows so many time steps in a second."""
    viewing = Viewing(recording)
    with open_screen() as screen:
        due = time.monotonic()
        while not viewing.over:
            screen.show(viewing.scene(look), *viewing.lines())
            due = max(due + 1.0 / hz, time.monotonic())
            try:
                if viewing.paused:
                    keys = screen.pressed()
                else:
                    keys = screen.pressed(max(0.0, due - time.monotonic()))
            except EOFError:  # The terminal is gone.
                return
            for key in keys:
                viewing.press(key)
            if not keys and time.monotonic() >= due:
                viewing.tick()
