"""`envkit record TARGET -o PATH`: films a policy, or records its episodes."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envkit._shared.listening import is_loopback
from envkit._shared.secret_files import DRAW
from envkit.cli.output import say, stdout_on_stderr
from envkit.cli.parser import Parser, Renamed
from envkit.cli.recorder import (
    DIRECTORY,
    FILM_HZ,
    add_output,
    check_output,
    recorded,
)
from envkit.cli.secrets import (
    add_password,
    add_tls,
    check_contradiction,
    password_in,
    tls_in,
)
from envkit.cli.target import (
    Closing,
    add_hz,
    add_policy,
    add_seed,
    add_target,
    add_web_port,
    at_least_one,
    busy_port_explained,
    load_policy,
    make_rendering,
    port_number,
    rendering_arguments,
    seed_recording,
    seed_target,
    target_arguments,
)
from envkit.cli.terminal import add_json, print_json, progress_bar
from envkit.desktop.human import Person
from envkit.play.tally import Tally
from envkit.registry import make, without_pool_options
from envkit.remote.offers import (
    ServeOptions,
    check_exposure,
    with_reachable_host,
)
from envkit.remote.plugins import VNC_PORT
from envkit.remote.vnc import host_for_vnc, pages_for
from envkit.time_step import TimeStep
from envkit.types import NestedArray

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit record CartPole -o cartpole.mp4 --policy my_agents:balance --seed 7"

_OF_VNC = (
    *("port", "web_port", "host", "cert", "key"),
    *("password_file", "no_password"),
)


def add_arguments(parser: Parser) -> None:
    """Adds the arguments of the command."""
    add_target(parser)
    add_output(parser, "-o", "--output", default="recordings/NAME-DATE")
    add_policy(parser)
    parser.add_argument(
        "--episodes",
        type=at_least_one,
        metavar="N",
        help="the number of episodes, in each row of a batch (default: 1, or no limit "
        "with --steps)",
    )
    parser.add_argument(
        "--steps",
        type=at_least_one,
        metavar="N",
        help="the maximum number of steps, in each row of a batch (default: no limit)",
    )
    add_seed(
        parser,
        "the seed of the environment and the policy (default: that of --arg seed=N, "
        "else a random one, printed)",
    )
    add_hz(
        parser,
        "steps per second of the film or, with --vnc, of the game, where 0 waits for a "
        f"key before each step (default: {FILM_HZ:g} in a film; with --vnc, the "
        "environment's own speed as in envkit play)",
    )
    parser.add_argument(
        "--vnc",
        action="store_true",
        help="let a person act instead of a policy, in a VNC viewer or a browser",
    )
    parser.flags_without_value["--pictures"] = (
        "--pictures takes no number here: every time step has a picture."
    )
    parser.flags_without_value["--vnc"] = (
        "--vnc no longer takes the port: write --vnc --port=PORT."
    )
    parser.add_argument("--batch-size", action=Renamed, const="--num-envs")
    parser.add_argument("--fps", action=Renamed, const="--hz")
    add_json(parser)
    viewers = parser.add_argument_group("options of --vnc")
    viewers.add_argument(
        "--port",
        type=port_number,
        metavar="PORT",
        help=f"the port for VNC viewers; 0 picks a free one (default: {VNC_PORT})",
    )
    add_web_port(viewers)
    viewers.add_argument(
        "--host",
        help="the address to listen on; with --cert, other machines can reach the page "
        "for browsers (default: 127.0.0.1, which only this machine can reach)",
    )
    add_tls(viewers)
    add_password(viewers)


def run(arguments: argparse.Namespace) -> int:
    """Records, and prints a summary."""
    path = arguments.output or _free_directory(arguments.target)
    hz = arguments.hz or FILM_HZ
    kind = check_output(
        path, hz, overwrite=arguments.overwrite, pictures=arguments.pictures
    )
    _check_effects(arguments, kind)
    if arguments.episodes is None and arguments.steps is None:
        arguments.episodes = 1
    with stdout_on_stderr(), contextlib.ExitStack() as closes:
        env = closes.enter_context(Closing(_environment(arguments, kind)))
        has_drawn = seed_target(arguments, env)
        batched, rows = env.batched, env.batch_size or 1
        tally = Tally(rows, episodes=arguments.episodes, steps=arguments.steps)
        with (
            _policy(arguments, env) as policy,
            recorded(
                env, path, kind, hz, arguments.target, pictures=arguments.pictures
            ) as recording,
        ):
            closes.pop_all()  # the recorder closes it too
            seed_recording(arguments, recording)
            _play(arguments, recording, policy, tally)
    pictures: int | None = tally.time_steps
    if kind == DIRECTORY:  # each row has its own
        pictures = tally.time_steps * rows if arguments.pictures else None
    told = {
        "output": str(path),
        "kind": kind,
        "target": arguments.target,
        "policy": "person" if arguments.vnc else arguments.policy,
        "seed": arguments.seed,
        "episodes": tally.episodes,
        "steps": tally.steps,
        "pictures": pictures,
        "returns": tally.returns if batched else tally.returns[0],
        "mean_return": tally.mean_return,
    }
    if arguments.json:
        print_json(told)
    else:
        seed = f", seed {arguments.seed}" if has_drawn else ""
        say(f"{path}: {tally.summary()}{seed}")
    return 0


def _check_effects(arguments: argparse.Namespace, kind: str) -> None:
    """Raises for options that would have no effect."""
    if arguments.vnc and arguments.policy != "random":
        raise ValueError("--vnc and --policy contradict each other: leave one out.")
    check_contradiction(arguments, "password_file", "no_password")
    if arguments.vnc:
        return
    for name in _OF_VNC:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} has no effect without --vnc.")
    if arguments.hz is not None and not (arguments.hz and kind != DIRECTORY):
        where = "--vnc" if kind != DIRECTORY else "a film or --vnc"
        raise ValueError(
            f"--hz={arguments.hz:g} has no effect without {where}: leave it out."
        )


def _free_directory(target: str) -> Path:
    """Returns an unused directory, for a recording without a given path."""
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
    rows = given.pop("num_envs", None)
    draws = kind != DIRECTORY or arguments.pictures
    if not draws and (rows is not None or not arguments.vnc):
        return make(arguments.target, num_envs=rows, **given)
    if rows is None:
        return make_rendering(arguments.target, given)
    its_own, _ = without_pool_options(given)
    given.update(rendering_arguments(arguments.target, its_own))
    return make(arguments.target, num_envs=rows, **given)


@contextlib.contextmanager
def _policy(
    arguments: argparse.Namespace, env: Any
) -> Iterator[Callable[[TimeStep], NestedArray]]:
    """Yields the policy, or the person who acts."""
    if not arguments.vnc:
        yield load_policy(arguments.policy, env, arguments.seed)
        return
    options = _options_of(arguments)
    password = options.password
    port = VNC_PORT if arguments.port is None else arguments.port
    with busy_port_explained():
        person = Person(
            env,
            host=host_for_vnc(options),
            port=port,
            password=password,
            name=arguments.target,
            hz=arguments.hz,
            await_picture=True,
        )
    with person, contextlib.ExitStack() as pages:
        browsers, note = pages_for({arguments.target: person}, options)
        host, port = person.address
        say(f"play in a VNC viewer: vnc://{host}:{port}", file=sys.stderr)
        if browsers is not None:
            pages.callback(browsers.close, "The recording is complete.")
            drawn = person.password if password is DRAW else None
            url = browsers.page(arguments.target, drawn)
            url = with_reachable_host(url, options.host)
            say(f"play in a browser: {url}", file=sys.stderr)
        if note:
            say(f"envkit record: {note}", file=sys.stderr)
        if password is DRAW:
            say(f"envkit record: the password is {person.password}", file=sys.stderr)
        sys.stderr.flush()
        yield person


def _options_of(arguments: argparse.Namespace) -> ServeOptions:
    """Returns the options for viewers, and prints their warnings."""
    given = password_in("--password-file", arguments.password_file)
    options = ServeOptions(
        host=arguments.host or "127.0.0.1",
        password=None if arguments.no_password else given or DRAW,
        tls=tls_in(arguments.cert, arguments.key),
        web_port=arguments.web_port,
    )
    if options.tls is None and not is_loopback(options.host):
        raise ValueError(
            f"--host={options.host} lets other machines connect, and without --cert "
            "and --key the password travels in the clear: add them, or leave --host "
            "out and connect through a tunnel."
        )
    check_exposure(options, ["password"])
    if arguments.no_password:
        say(
            "envkit record: --no-password lets every account of this machine play.",
            file=sys.stderr,
        )
    return options


def _play(
    arguments: argparse.Namespace,
    env: Any,
    policy: Callable[[TimeStep], NestedArray],
    tally: Tally,
) -> None:
    """Plays until enough episodes or steps are recorded."""
    episodes, steps = arguments.episodes, arguments.steps
    rows = env.batch_size or 1
    # The total is only known if the number of episodes or steps is given.
    total = steps * rows if steps is not None else episodes * rows
    with progress_bar() as bar:
        task = bar.add_task("recording", total=total)
        time_step = env.reset()
        while True:
            tally.see(time_step)
            done = tally.steps if steps is not None else tally.episodes
            bar.update(task, completed=done)
            if tally.complete:
                return
            time_step = env.step(policy(time_step))
