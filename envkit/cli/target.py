"""The argument TARGET: an environment, as `make` takes it, and what it is made with."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import Any

from envkit.cli.output import say

__all__ = ["Closing", "add_target", "make_target", "seed_target", "target_arguments"]


def add_target(parser: argparse.ArgumentParser) -> None:
    """Lets a command take an environment."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="what envkit.make takes: CartPole, gymnasium:Acrobot-v1, "
        "my_package.envs:make_env",
    )
    parser.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_argument,
        dest="target_arguments",
        help="what it is made with, as often as needed: --arg rows=5 --arg mode=easy",
    )


def target_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what the environment is made with."""
    return dict(arguments.target_arguments)


def make_target(arguments: argparse.Namespace, **more: Any) -> Any:
    """Makes the environment, with further arguments of `make`."""
    from envkit.constructors import make

    return make(arguments.target, **{**target_arguments(arguments), **more})


class Closing:
    """Closes an environment in the end; says in one line what that raises.

    It changes neither what the command has found out nor its exit status. What a
    recording cannot write is raised.
    """

    def __init__(self, env: Any) -> None:
        """Takes the environment."""
        self._env = env

    def __enter__(self) -> Any:
        return self._env

    def __exit__(self, *_: object) -> None:
        from envkit.errors import RecordingError
        from envkit.parallel.hosting import lines_at_close

        try:
            self._env.close()
        except RecordingError:
            raise
        except Exception as error:
            say(*lines_at_close([error]), file=sys.stderr)


def seed_target(arguments: argparse.Namespace, env: Any) -> bool:
    """Seeds an environment that is recorded; returns whether it drew the seed."""
    if arguments.seed is not None:
        env.seed(arguments.seed)
        return False
    import numpy as np

    from envkit.provenance import recipe_of

    # What makes the environment may have seeded it already.
    if "seed" in target_arguments(arguments) or recipe_of(env)["seed"] is not None:
        return False
    # Some simulators accept no more than 31 bits.
    seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    try:
        env.seed(seed)
    except NotImplementedError:
        return False
    arguments.seed = seed
    return True


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=VALUE, such as rows=5"
        )
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # A word needs no quotes.
        return name, value
