"""The commands of `envkit`, which entry points name."""

from __future__ import annotations

import types
from typing import NamedTuple

__all__ = ["Command"]


class Command(NamedTuple):
    """A command of `envkit`: its module and its description.

    An entry point of the group `envkit.commands` names a `Command`, or a module whose
    docstring begins with the description. The module has

    - `EXAMPLE`: an example call, for its `--help`;
    - `add_arguments(parser)`, which adds its arguments;
    - `run(arguments)`, which returns the exit status: 0 for success, 1 if the command
      found a problem. An exception becomes one line and status 2.

    Attributes:
        module: The module, or its name, so that only the requested command is imported.
        text: The description, for `envkit --help`.
    """

    module: str | types.ModuleType
    text: str


BENCH = Command("envkit.cli.bench", "finds the fastest way to step an environment")
CHECK = Command("envkit.cli.check", "checks whether an environment keeps its promises")
CONVERT = Command(
    "envkit.cli.convert", "converts a recording to a Minari dataset, or back"
)
DESCRIBE = Command(
    "envkit.cli.describe", "shows an environment's specs and what it supports"
)
LIST = Command("envkit.cli.list_command", "lists the available environments")
PLAY = Command("envkit.cli.play", "lets you play an environment by hand")
PLOT = Command("envkit.cli.plot", "draws learning curves, with a spread over seeds")
RECORD = Command("envkit.cli.record", "records episodes, or films them")
REPLAY = Command("envkit.cli.replay", "plays, lists or checks a recording")
SERVE = Command("envkit.cli.serve", "serves environments to clients and to people")
TOP = Command("envkit.cli.top", "shows what the workers of a running pool are doing")
WORKER = Command("envkit.cli.worker", "runs a worker for a pool on another machine")
