"""The commands: `envkit COMMAND ...`, or `python -m envkit COMMAND ...`."""

from envkit.cli.plugins import Command as Command

__all__ = ["Command"]
