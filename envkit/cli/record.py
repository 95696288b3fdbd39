"""`envkit record TARGET -o PATH`: films what a policy does, or records its episodes."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.pixels import check_picture, tiled
from envkit._shared.secret_files import DRAW
from envkit.cli.output import say, stdout_on_stderr
from envkit.cli.target import (
    Closing,
    add_policy,
    add_target,
    at_least_one,
    load_policy,
    make_rendering,
    note_seed,
    number_within,
    port_number,
    rendering_arguments,
    seed_target,
    target_arguments,
)
from envkit.cli.terminal import add_json, print_json, progress_bar
from envkit.desktop.person import Person
from envkit.errors import MissingDependencyError, RecordingError, SpecError
from envkit.extend import counted
from envkit.parallel.parallel_py_environment import ParallelPyEnvironment
from envkit.recording.record import Record
from envkit.registry import make
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.video import FORMATS, Film

__all__ = [
    "EXAMPLE",
    "Camera",
    "Tally",
    "add_arguments",
    "check_can_film",
    "check_output",
    "film",
    "kind_of",
    "new_directory",
    "run",
]

EXAMPLE = "envkit record CartPole -o cartpole.mp4 --policy my_agents:balance --seed 7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_target(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=Path,
        help="film.mp4 or film.gif, or the directory that the episodes go to, for "
        "envkit.recording.Replay and envkit replay; recordings/NAME-DATE if not given",
    )
    add_policy(parser)
    parser.add_argument(
        "--episodes",
        type=at_least_one,
        metavar="N",
        help="how many episodes, of a batch in each row; 1 without --steps",
    )
    parser.add_argument(
        "--steps",
        type=at_least_one,
        metavar="N",
        help="how many steps at most, of a batch in each row",
    )
    parser.add_argument(
        "--batch-size",
        type=at_least_one,
        metavar="N",
        help="so many environments in worker processes; a film shows them in a grid",
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="the seed of environment and policy; one is drawn and shown without it",
    )
    parser.add_argument(
        "--fps",
        type=number_within(1000.0, "number of pictures in a second, up to 1000"),
        default=30.0,
        metavar="N",
        help="how many pictures of a film are shown in a second, 30 if not given",
    )
    parser.add_argument(
        "--vnc",
        type=port_number,
        metavar="PORT",
        help="a person acts, and no policy: in a VNC viewer that connects to this "
        "port; 0 takes any that is free",
    )
    parser.add_argument(
        "--hz",
        type=number_within(
            1000.0, "number of steps in a second, from 0 to 1000", zero=True
        ),
        metavar="N",
        help="with --vnc: so many steps pass in a second; with 0 each waits for a key. "
        "Without it the environment's own pace counts, as in envkit play",
    )
    parser.add_argument(
        "--no-password",
        action="store_true",
        help="with --vnc: viewers need no password, so that every account of this "
        "machine can play",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what is there already"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Records, and prints a summary."""
    if arguments.output is None:
        arguments.output = _free_directory(arguments.target)
    kind = kind_of(arguments.output, arguments.fps)
    check_output(arguments.output, kind, overwrite=arguments.overwrite)
    check_can_film(kind)
    if arguments.hz is not None and arguments.vnc is None:
        raise ValueError("--hz is for --vnc, where a person acts: leave it out.")
    if arguments.no_password and arguments.vnc is None:
        raise ValueError("--no-password is for --vnc, where viewers connect.")
    if arguments.vnc is not None:
        if arguments.policy != "random":
            raise ValueError(
                "--vnc lets a person act, and --policy a policy: leave one of them out."
            )
        arguments.policy = "person"
    if arguments.episodes is None and arguments.steps is None:
        arguments.episodes = 1
    with stdout_on_stderr(), contextlib.ExitStack() as closes:
        env = closes.enter_context(Closing(_environment(arguments, kind)))
        has_drawn = seed_target(arguments, env)
        tally = Tally(
            env.batch_size or 1, episodes=arguments.episodes, steps=arguments.steps
        )
        if kind == "directory":
            pictures = _record_episodes(arguments, env, tally, closes)
        else:
            pictures = _record_film(arguments, env, tally)
        batched = env.batched
    _report(arguments, kind, tally, pictures, batched=batched, has_drawn=has_drawn)
    return 0


def _free_directory(target: str) -> Path:
    """Returns the directory of a recording that has no name of its own."""
    name = re.sub(r"[^\w.-]+", "-", target.rpartition(":")[2]).strip("-.")
    date = time.strftime("%Y-%m-%d-%H%M%S")
    path = free = Path("recordings", f"{name}-{date}")
    for number in itertools.count(2):
        if not free.exists():
            return free
        free = path.with_name(f"{path.name}-{number}")
    raise AssertionError("numbers have no end")


def _environment(arguments: argparse.Namespace, kind: str) -> Any:
    given = target_arguments(arguments)
    rows = arguments.batch_size
    if "num_envs" in given:
        if rows is not None:
            raise ValueError("--batch-size and --arg num_envs are the same: give one.")
        rows = given.pop("num_envs")
    if kind == "directory" and (rows is not None or arguments.vnc is None):
        return make(arguments.target, num_envs=rows, **given)
    if rows is None:
        return make_rendering(arguments.target, given)
    of_pools = inspect.signature(ParallelPyEnvironment).parameters
    its_own = {name: given[name] for name in given if name not in of_pools}
    given.update(rendering_arguments(arguments.target, its_own))
    return make(arguments.target, num_envs=rows, **given)


def _record_episodes(
    arguments: argparse.Namespace,
    env: Any,
    tally: Tally,
    closes: contextlib.ExitStack,
) -> int:
    with (
        _policy(arguments, env) as policy,
        new_directory(arguments.output) as folder,
        Closing(Record(env, folder)) as recorded,
    ):
        closes.pop_all()  # Record closes the environment, too.
        note_seed(arguments, recorded)
        _play(arguments, recorded, policy, tally)
    return 0


def _record_film(arguments: argparse.Namespace, env: Any, tally: Tally) -> int:
    with (
        _policy(arguments, env) as policy,
        film(arguments.output, arguments.fps, env, arguments.target) as camera,
    ):
        _play(arguments, env, policy, tally, camera)
    return camera.pictures


@contextlib.contextmanager
def _policy(
    arguments: argparse.Namespace, env: Any
) -> Iterator[Callable[[TimeStep], NestedArray]]:
    """Gives the policy, or the person who acts."""
    if arguments.vnc is None:
        yield load_policy(arguments.policy, env, arguments.seed)
        return
    has_password = not arguments.no_password
    if not has_password:
        say(
            "envkit record: --no-password lets every account of this machine play.",
            file=sys.stderr,
        )
    with Person(
        env,
        port=arguments.vnc,
        password=DRAW if has_password else None,
        name=arguments.target,
        hz=arguments.hz,
        await_picture=True,
    ) as person:
        host, port = person.address
        say(f"play in a VNC viewer: vnc://{host}:{port}", file=sys.stderr)
        if has_password:
            say(f"envkit record: its password is {person.password}", file=sys.stderr)
        sys.stderr.flush()
        yield person


def _play(
    arguments: argparse.Namespace,
    env: Any,
    policy: Callable[[TimeStep], NestedArray],
    tally: Tally,
    camera: Any = None,
) -> None:
    """Plays until there are enough episodes or steps."""
    episodes, steps = arguments.episodes, arguments.steps
    rows = env.batch_size or 1
    # An end of the episodes comes into sight only where they are all that is asked for.
    total = steps * rows if steps is not None else episodes * rows
    with progress_bar() as bar:
        task = bar.add_task("recording", total=total)
        time_step = env.reset()
        while True:
            tally.see(time_step)
            if camera is not None:
                camera.shoot()
            done = tally.steps if steps is not None else tally.episodes
            bar.update(task, completed=done)
            if tally.complete:
                return
            time_step = env.step(policy(time_step))


def _report(
    arguments: argparse.Namespace,
    kind: str,
    tally: Tally,
    pictures: int,
    *,
    batched: bool,
    has_drawn: bool,
) -> None:
    mean = tally.mean_return
    if arguments.json:
        print_json(
            {
                "output": str(arguments.output),
                "kind": kind,
                "target": arguments.target,
                "policy": arguments.policy,
                "seed": arguments.seed,
                "episodes": tally.episodes,
                "steps": tally.steps,
                "pictures": pictures or None,
                "returns": tally.returns if batched else tally.returns[0],
                "mean_return": mean,
            }
        )
        return
    earned = "" if mean is None else f", mean return {mean:g}"
    episodes = counted(tally.episodes, "whole episode")
    seed = f", seed {arguments.seed}" if has_drawn else ""
    steps = counted(tally.steps, "step")
    say(f"{arguments.output}: {episodes}, {steps}{earned}{seed}")


DIRECTORY = "directory"
_FILMS = {f".{name}" for name in FORMATS}
# Endings of films that are not made here; a directory of that name would surprise.
_OTHER_FILMS = {".avi", ".mov", ".mkv", ".webm", ".m4v", ".webp", ".apng", ".png"}
# GIFs count time in hundredths of a second; what is shorter than two they show slowly.
_FASTEST_GIF = 50


def kind_of(path: Path, fps: float = 30.0) -> str:
    """Returns the kind of the output: "mp4", "gif" or "directory".

    Example:
        >>> kind_of(Path("out.GIF")), kind_of(Path("runs/catch"))
        ('gif', 'directory')
    """
    suffix = path.suffix.lower()
    if suffix in _OTHER_FILMS:
        raise ValueError(
            f"{str(path)!r} ends in {path.suffix}; a film is .mp4 or .gif, and "
            "anything else is a directory of episodes."
        )
    if suffix == ".gif" and fps > _FASTEST_GIF:
        raise ValueError(
            f"A GIF shows at most {_FASTEST_GIF} pictures in a second, not {fps:g}. An "
            ".mp4 shows more."
        )
    return suffix[1:] if suffix in _FILMS else DIRECTORY


def check_can_film(kind: str) -> None:
    """Raises if the package is missing that writes such a film."""
    if kind == DIRECTORY:
        return
    try:
        FORMATS[kind].load()
    except MissingDependencyError as error:
        raise MissingDependencyError.needed_by(
            f"A film in .{kind}", package=error.package, extra=error.extra
        ) from error


def check_output(path: Path, kind: str, *, overwrite: bool) -> None:
    """Raises if something is there that may not be replaced."""
    if not path.exists() or (kind == DIRECTORY and _is_empty(path)):
        return
    if not overwrite and (kind == DIRECTORY or not path.is_dir()):
        raise FileExistsError(
            f"{str(path)!r} exists already. --overwrite replaces it, once the new one "
            "is whole."
        )
    if not path.is_dir() and not path.is_file():
        raise FileExistsError(
            f"{str(path)!r} is a device, a pipe or a socket, so it is not replaced."
        )
    # Because a directory of something else would be lost.
    if path.is_dir() and (kind != DIRECTORY or not (path / "recording.json").exists()):
        raise FileExistsError(
            f"{str(path)!r} is a directory that is not a recording of envkit, so it "
            "is not replaced."
        )


class Camera:
    """Adds pictures of an environment to a film; of a batch all rows side by side."""

    def __init__(self, film: Film, env: Any, name: str) -> None:
        """Takes the film, the environment, and its name."""
        self._film, self._env, self._name = film, env, name
        self._dims = () if env.batch_size is None else (env.batch_size,)
        self._shape: tuple[int, ...] = ()

    @property
    def pictures(self) -> int:
        """How many pictures there are."""
        return self._film.pictures

    def shoot(self) -> None:
        """Adds what the environment renders now."""
        try:
            picture = self._env.render("rgb_array")
        except NotImplementedError as error:
            why, *_ = str(error).split("\n")
            raise NotImplementedError(
                f"{self._name} cannot be filmed: {why} A directory of "
                "episodes needs no pictures: -o DIRECTORY."
            ) from error
        check_picture(picture, self._dims, f'{self._name}: render("rgb_array")')
        self._shape = self._shape or picture.shape
        if picture.shape != self._shape:
            raise SpecError(
                f"{self._name} cannot be filmed: its picture after {self.pictures} has "
                f"shape {picture.shape}, and those before have {self._shape}; a film "
                "has one size."
            )
        self._film.write(tiled(picture) if self._dims else picture)


@contextlib.contextmanager
def film(path: Path, fps: float, env: Any, name: str) -> Iterator[Camera]:
    """Yields the camera of an environment; the film takes its place at the end."""
    with _beside(path) as folder:
        made = Film(folder, "film", format=path.suffix[1:].lower(), fps=fps)
        try:
            yield Camera(made, env, name)
        finally:
            made.finish()
        if made.path is not None:
            os.replace(made.path, path)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields a directory to fill, which takes its place at the end."""
    with _beside(path) as folder:
        made = folder / "new"
        try:
            yield made
        except RecordingError as error:
            if error.__cause__ is None:
                raise
            # It names the folder that is removed now, as if something were left there.
            raise RecordingError(
                f"{str(path)!r} cannot be written: {error.__cause__}"
            ) from error
        old = folder / "old"
        try:
            if path.exists():
                os.replace(path, old)
            os.replace(made, path)
        except BaseException:
            if old.exists() and not path.exists():
                os.replace(old, path)
            raise


# An output is there as a whole, or not at all: it is made in a folder beside its place,
# and takes its place when it is whole. Whatever happens before, the folder is removed.
@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yields a folder on the same disk, and removes it in the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class Tally:
    """Counts steps, episodes and returns, for each row of a batch.

    Attributes:
        returns: The returns of the episodes of each row that are counted.

    Example:
        >>> from envkit import make
        >>> env, tally = make("Catch", rows=3, seed=1), Tally(1, episodes=2)
        >>> while not tally.complete:
        ...     tally.see(env.step(1))
        >>> tally.steps, tally.returns
        (4, [[-1.0, 1.0]])
    """

    def __init__(
        self, rows: int, *, episodes: int | None = None, steps: int | None = None
    ) -> None:
        """Takes the limits.

        Args:
            rows: The number of rows; 1 without a batch.
            episodes: The number of episodes that each row ends. Others do not count.
            steps: The most steps of a row.
        """
        self.returns: list[list[float]] = [[] for _ in range(rows)]
        self._episodes, self._most = episodes, steps
        self._so_far = np.zeros(rows)
        self._steps = np.zeros(rows, np.int64)

    def see(self, time_step: TimeStep) -> None:
        """Counts a time step."""
        step_types = np.reshape(np.asarray(time_step.step_type), -1)
        first = step_types == _FIRST
        self._so_far = np.where(first, 0.0, self._so_far + self._rewards(time_step))
        self._steps += ~first
        for row in (step_types == _LAST).nonzero()[0].tolist():
            if self._episodes is None or len(self.returns[row]) < self._episodes:
                self.returns[row].append(float(self._so_far[row]))

    @property
    def steps(self) -> int:
        """How many steps all rows have made together."""
        return int(self._steps.sum())

    @property
    def episodes(self) -> int:
        """How many episodes have ended and count."""
        return sum(map(len, self.returns))

    @property
    def mean_return(self) -> float | None:
        """The mean return of the episodes; `None` if none has ended."""
        earned = [value for row in self.returns for value in row]
        return float(np.mean(earned)) if earned else None

    @property
    def complete(self) -> bool:
        """Whether there is enough."""
        if self._most is not None and self._steps.max() >= self._most:
            return True
        wanted = self._episodes
        return wanted is not None and min(map(len, self.returns)) >= wanted

    def _rewards(self, time_step: TimeStep) -> Array:
        rows = len(self._so_far)
        # Of several agents together.
        leaves = [
            np.asarray(leaf, np.float64).reshape(rows, -1).sum(axis=1)
            for leaf in nest.flatten(time_step.reward)
        ]
        return np.asarray(np.sum(leaves, axis=0))
