"""The argument TARGET: an environment, as `make` takes it, and what it is made with."""

from __future__ import annotations

import argparse
import ast
from typing import Any

__all__ = ["add_target", "make_target", "target_arguments"]


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
