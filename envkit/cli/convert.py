"""`envkit convert SOURCE`: converts a recording to a Minari dataset, or back."""

from __future__ import annotations

import argparse

from envkit.adapters.minari.datasets import from_minari, to_minari
from envkit.cli.output import say, stdout_on_stderr
from envkit.cli.target import add_pickle
from envkit.cli.terminal import add_json, print_json
from envkit.extend import counted
from envkit.recording.stored import Recording

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit convert runs/catch --minari catch/random-v0"

_SCHEME = "minari:"
# The options that describe a new dataset, under Minari's names.
_ABOUT = {
    "author": "the dataset's author",
    "author_email": "the author's email address",
    "algorithm_name": "the name of the algorithm that chose the actions",
    "code_permalink": "a link to the code",
    "description": "a description of the dataset",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a recording's directory, or minari:ID for a dataset",
    )
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        help="from a dataset: the directory of the new recording",
    )
    parser.add_argument(
        "--minari",
        metavar="ID",
        help="from a recording: the id of the new dataset, such as catch/random-v0 "
        "(default: none)",
    )
    for name, text in _ABOUT.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="TEXT",
            help=f"{text} (default: none)",
        )
    parser.add_argument(
        "--download",
        action="store_true",
        help="download the dataset if it is not on this machine",
    )
    add_pickle(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Converts in the direction that the arguments ask for."""
    is_dataset = arguments.source.startswith(_SCHEME)
    is_given = arguments.directory is not None, arguments.minari is not None
    if is_given != (is_dataset, not is_dataset):
        raise ValueError(
            "Pass either a recording and --minari ID, or minari:ID and the directory "
            "of the new recording."
        )
    with stdout_on_stderr():
        name, path, episodes, steps, lost = (_from if is_dataset else _to)(arguments)
    if arguments.json:
        counts = {"episodes": episodes, "steps": steps, "left_out": lost}
        print_json({"dataset": name, "path": path, **counts})
    else:
        say(f"{path}: {counted(episodes, 'episode')}, {counted(steps, 'step')}")
    if lost and not arguments.json:
        whose = "its environment was" if lost == 1 else "their environments were"
        say(f"  {counted(lost, 'episode')} left out, because {whose} lost")
    return 0


def _to(arguments: argparse.Namespace) -> tuple[str, str, int, int, int]:
    """Returns the dataset's id and path, and the numbers of episodes and steps.

    The last number counts the episodes left out because they were lost.
    """
    given = {name: getattr(arguments, name) for name in _ABOUT}
    about = {name: text for name, text in given.items() if text is not None}
    dataset = to_minari(
        arguments.source, arguments.minari, pickle=arguments.pickle, **about
    )
    path = str(dataset.storage.data_path)
    counts = int(dataset.total_episodes), int(dataset.total_steps)
    recording = Recording(arguments.source, pickle=arguments.pickle, warn=False)
    return dataset.id, path, *counts, len(recording.lost_episodes())


def _from(arguments: argparse.Namespace) -> tuple[str, str, int, int, int]:
    """Returns the dataset's id, the recording's path, and the same numbers."""
    name = arguments.source.removeprefix(_SCHEME)
    recording = from_minari(
        name,
        arguments.directory,
        download=arguments.download,
        pickle=arguments.pickle,
    )
    lengths = [len(episode) - 1 for episode in recording.episodes()]
    return name, str(recording.path), len(lengths), sum(lengths), 0
