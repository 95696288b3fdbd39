"""The commands of `envkit`, which entry points name."""

from __future__ import annotations

import types
from typing import NamedTuple

__all__ = ["Command"]


class Command(NamedTuple):
    """A command of `envkit`: its module and its description.

    An entry point of the group `envkit.commands` names a `Command`, or a module whose
    docstring begins with the description. The module has

    - `EXAMPLE`: a call of it, for its `--help`;
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
CHECK = Command("envkit.cli.check", "checks the promises of an environment")
CONVERT = Command(
    "envkit.cli.convert", "makes a Minari dataset of a recording, and back"
)
DESCRIBE = Command(
    "envkit.cli.describe", "says what an environment takes, gives and can do"
)
LIST = Command("envkit.cli.list_command", "lists the available environments")
PLAY = Command("envkit.cli.play", "plays an environment by hand")
RECORD = Command("envkit.cli.record", "films a policy, or records its episodes")
REPLAY = Command("envkit.cli.replay", "plays a recording, or checks it")
SERVE = Command("envkit.cli.serve", "serves environments by name to other machines")
TOP = Command("envkit.cli.top", "shows what the workers of a running pool do")
WORKER = Command("envkit.cli.worker", "runs one worker of a pool on another machine")
