"""Arguments that several commands share: environments, policies and numbers."""

from __future__ import annotations

import argparse
import ast
import contextlib
import errno
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from envkit._shared.listening import ListenError
from envkit.cli.output import say
from envkit.errors import RecordingError
from envkit.extend import describe, lines_at_close
from envkit.policies import random_actions
from envkit.provenance import recipe_of
from envkit.registry import make

__all__ = [
    "Closing",
    "add_arg",
    "add_hz",
    "add_pickle",
    "add_policy",
    "add_seed",
    "add_target",
    "add_web_port",
    "at_least",
    "at_least_one",
    "busy_port_explained",
    "key_value",
    "load_policy",
    "make_rendering",
    "make_target",
    "number_within",
    "port_number",
    "rendering_arguments",
    "seed_recording",
    "seed_target",
    "target_arguments",
    "wants_mode",
    "with_mode",
]

_FASTEST = 1000.0


def add_target(parser: argparse.ArgumentParser, *, pools: bool = True) -> None:
    """Adds the argument TARGET, and the options for making the environment.

    Args:
        parser: The parser.
        pools: Whether to add `--num-envs`.
    """
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="the environment, written as for envkit.make: CartPole, "
        "gymnasium:Acrobot-v1, my_package.envs:make_env",
    )
    add_arg(parser, "an argument of the environment's constructor, such as rows=5")
    parser.set_defaults(num_envs=None)
    if pools:
        parser.add_argument(
            "--num-envs",
            type=at_least_one,
            metavar="N",
            help="make a pool of N environments; --arg then sets its options too, such "
            "as backend=thread (default: a single environment)",
        )


def add_arg(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds the option `--arg`."""
    parser.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=key_value,
        dest="target_arguments",
        help=f"{text}; can be repeated (default: none)",
    )


def add_seed(
    parser: argparse.ArgumentParser, text: str, default: int | None = None
) -> None:
    """Adds the option `--seed`; without a default the text states one."""
    parser.add_argument(
        "--seed", type=at_least(0), metavar="N", default=default, help=text
    )


def add_hz(
    parser: argparse.ArgumentParser,
    text: str,
    default: float | None = None,
    *,
    zero: bool = True,
) -> None:
    """Adds the option `--hz`; without a default, the text states it.

    Args:
        parser: The parser.
        text: Its help.
        default: The default, in steps per second.
        zero: Whether 0 is allowed, which waits for a key before each step.
    """
    span = f"{'from 0' if zero else 'above 0 and up'} to {_FASTEST:g}"
    parser.add_argument(
        "--hz",
        type=number_within(_FASTEST, f"number of steps per second, {span}", zero=zero),
        metavar="N",
        default=default,
        help=text,
    )


def add_pickle(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--pickle`."""
    parser.add_argument(
        "--pickle",
        action="store_true",
        help="load pickles, which can run any code; only from people you trust",
    )


def target_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments for making the environment, including `num_envs`."""
    given = dict(arguments.target_arguments)
    if arguments.num_envs is None:
        return given
    if "num_envs" in given:
        raise ValueError("--num-envs and --arg num_envs are the same: pass only one.")
    return {**given, "num_envs": arguments.num_envs}


def make_target(arguments: argparse.Namespace, **more: Any) -> Any:
    """Makes the environment, with more arguments of `make`."""
    return make(arguments.target, **{**target_arguments(arguments), **more})


class Closing:
    """Closes an environment at the end; prints exceptions of `close` in one line.

    They change neither the command's output nor its exit status. Only a recording that
    cannot be written raises.
    """

    def __init__(self, env: Any) -> None:
        """Takes the environment."""
        self._env = env

    def __enter__(self) -> Any:
        return self._env

    def __exit__(self, *_: object) -> None:
        try:
            self._env.close()
        except RecordingError:
            raise
        except (Exception, SystemExit) as error:  # its code may raise anything
            say(*lines_at_close([error]), file=sys.stderr)


def seed_target(arguments: argparse.Namespace, env: Any) -> bool:
    """Seeds an environment to record; returns whether the seed was drawn."""
    if arguments.seed is not None:
        env.seed(arguments.seed)
        return False
    import numpy as np

    # Its constructor may have seeded it already.
    if "seed" in target_arguments(arguments) or recipe_of(env)["seed"] is not None:
        return False
    # Some simulators accept at most 31 bits.
    seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    try:
        env.seed(seed)
    except NotImplementedError:
        return False
    arguments.seed = seed
    return True


def seed_recording(arguments: argparse.Namespace, recorded: Any) -> None:
    """Seeds an environment again through its recording, unless that has the seed."""
    if arguments.seed is not None and recipe_of(recorded)["seed"] is None:
        recorded.seed(arguments.seed)


def key_value(text: str) -> tuple[str, Any]:
    """Reads `NAME=VALUE`: a name, and a Python literal or a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=VALUE, such as rows=5"
        )
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a word needs no quotes
        return name, value


def at_least(least: int) -> Callable[[str], int]:
    """Returns a parser of integers."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {text!r}"
            )
        return int(text)

    return read


at_least_one = at_least(1)


def number_within(
    most: float, what: str, *, zero: bool = False
) -> Callable[[str], float]:
    """Returns a parser of numbers above 0.

    Args:
        most: The largest allowed number.
        what: A noun for the number, for error messages.
        zero: Whether 0 is allowed too.
    """

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if 0.0 < number <= most or (zero and number == 0.0):
            return number
        raise argparse.ArgumentTypeError(f"must be a {what}, got {text!r}")

    return read


def port_number(text: str) -> int:
    """Reads a port."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"must be a port, an integer from 0 to 65535, got {text!r}"
        )
    return int(text)


def add_web_port(parser: argparse._ActionsContainer) -> None:
    """Adds the option for the port of the web page."""
    parser.add_argument(
        "--web-port",
        type=port_number,
        metavar="PORT",
        help="the port for browsers; 0 picks a free one (default: 100 below --port, or "
        "a free one if that is in use)",
    )


@contextlib.contextmanager
def busy_port_explained() -> Iterator[None]:
    """Adds the remedy to the error about a port in use."""
    try:
        yield
    except ListenError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ValueError(
            f"{error} Choose another with --port, or let --port=0 pick a free one."
        ) from error


_MODE = "rgb_array"
_NO_MODE = object()


def make_rendering(target: Any, arguments: dict[str, Any]) -> Any:
    """Makes an environment that renders pictures, if it supports that.

    Gymnasium's environments and similar ones take a mode in their constructor.
    """
    env = make(target, **arguments)
    if "render_mode" in arguments or not wants_mode(env):
        return env
    try:
        rendering = make(target, **with_mode(arguments))
    except Exception:  # its constructor takes no mode, or it cannot draw
        return env
    env.close()
    return rendering


def rendering_arguments(target: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments with which an environment renders pictures."""
    if "render_mode" in arguments:
        return arguments
    with make(target, **arguments) as env:
        wants = wants_mode(env)
    return with_mode(arguments) if wants else arguments


def with_mode(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments with the mode that renders into arrays."""
    return {**arguments, "render_mode": _MODE}


def wants_mode(env: Any) -> bool:
    """Returns True if it was made without a mode, but supports pictures."""
    if getattr(env, "render_mode", _NO_MODE) is not None:
        return False
    metadata = getattr(env, "metadata", None)
    modes = metadata.get("render_modes", ()) if isinstance(metadata, dict) else ()
    return _MODE in modes


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--policy`, which `load_policy` reads."""
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        default="random",
        help="random, which draws legal actions if the observation or info has a mask "
        "of them; or module:attribute, a function that takes a time step and returns "
        "an action. A class, or a function whose first argument is named env, is "
        "called with the environment and returns that function. In a batch, time steps "
        "and actions hold all rows",
    )


_ENVIRONMENTS = ("env", "environment")


def load_policy(name: str, env: Any, seed: int | None) -> Callable[[Any], Any]:
    """Returns a policy by name: a function of time steps.

    Args:
        name: "random", for `random_actions`, or "module:attribute", a function of a
            time step. If it is a class, or a function whose first argument is called
            `env`, it is called with the environment, and the result is the policy.
        env: The environment that the policy is for.
        seed: The seed of a random policy.

    Example:
        >>> from envkit import make
        >>> env = make("Catch", seed=1)
        >>> int(load_policy("random", env, seed=3)(env.reset()))
        2
    """
    if name == "random":
        return random_actions(env, seed)
    policy: Any = _attribute(name)
    if inspect.isclass(policy):
        make_policy: Any = policy
        policy = make_policy(env) if _first_parameter(policy) else make_policy()
    elif _first_parameter(policy) in _ENVIRONMENTS:
        policy = policy(env)
    if not callable(policy):
        raise TypeError(
            f"The policy {name!r} must be a function of a time step that returns an "
            f"action, got {describe(policy)}."
        )
    return policy  # type: ignore[no-any-return]  # it is callable


def _attribute(name: str) -> Any:
    if not all(name.partition(":")):
        raise ValueError(
            "The policy must be 'random' or 'module:attribute', such as "
            f"my_package.agents:act, got {name!r}."
        )
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ModuleNotFoundError, ValueError) as error:
        raise ValueError(f"The policy {name!r} cannot be imported: {error}.") from error


def _first_parameter(function: Any) -> str:
    """Returns the name of the first argument; "" if it is unknown."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return ""
    return parameters[0].name
