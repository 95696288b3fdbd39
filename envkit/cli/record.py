"""`envkit record TARGET -o PATH`: films what a policy does, or records its episodes."""

from __future__ import annotations

import argparse
import contextlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envkit.cli.numbers import at_least_one, number_within
from envkit.cli.output import say
from envkit.cli.target import Closing, add_target, seed_target, target_arguments
from envkit.cli.terminal import add_json, print_json, progress_bar

if TYPE_CHECKING:
    from envkit.cli.record_parts.policies import Policy
    from envkit.cli.record_parts.tally import Tally

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit record CartPole -o cartpole.mp4 --policy my_agents:balance --seed 7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    add_target(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        required=True,
        type=Path,
        help="film.mp4 or film.gif, or the directory that the episodes go to, for "
        "envkit.recording.Replay and envkit replay",
    )
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        default="random",
        help="who acts: random, which chooses among the legal actions where the "
        "observation or the info has them, or module:attribute, called with the time "
        "step that returns an action. A class is made first, and so is what a "
        "function makes whose first argument is called env: both are given the "
        "environment. Of a batch, time steps and actions have all rows",
    )
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
        help="what is random depends on it; one is drawn and shown if none is given",
    )
    parser.add_argument(
        "--fps",
        type=number_within(1000.0, "number of pictures in a second, up to 1000"),
        default=30.0,
        metavar="N",
        help="how many pictures of a film are shown in a second, 30 if not given",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what is there already"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Records, and says what there is."""
    from envkit.cli.output import stdout_on_stderr
    from envkit.cli.record_parts.outputs import check_can_film, check_output, kind_of
    from envkit.cli.record_parts.tally import Tally

    kind = kind_of(arguments.output, arguments.fps)
    check_output(arguments.output, kind, overwrite=arguments.overwrite)
    check_can_film(kind)
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


def _environment(arguments: argparse.Namespace, kind: str) -> Any:
    from envkit.cli.play_parts.rendered_target import (
        make_rendering,
        rendering_arguments,
    )
    from envkit.constructors import make
    from envkit.parallel.parallel_py_environment import ParallelPyEnvironment

    given = target_arguments(arguments)
    rows = arguments.batch_size
    if "num_envs" in given:
        if rows is not None:
            raise ValueError("--batch-size and --arg num_envs are the same: give one.")
        rows = given.pop("num_envs")
    if kind == "directory":
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
    from envkit.cli.record_parts.outputs import new_directory
    from envkit.cli.record_parts.policies import load_policy
    from envkit.recording.record import Record

    policy = load_policy(arguments.policy, env, arguments.seed)
    with (
        new_directory(arguments.output) as folder,
        Closing(Record(env, folder)) as recorded,
    ):
        closes.pop_all()  # Record closes the environment, too.
        _play(arguments, recorded, policy, tally)
    return 0


def _record_film(arguments: argparse.Namespace, env: Any, tally: Tally) -> int:
    from envkit.cli.record_parts.outputs import film
    from envkit.cli.record_parts.policies import load_policy

    policy = load_policy(arguments.policy, env, arguments.seed)
    with film(arguments.output, arguments.fps, env, arguments.target) as camera:
        _play(arguments, env, policy, tally, camera)
    return camera.pictures


def _play(
    arguments: argparse.Namespace,
    env: Any,
    policy: Policy,
    tally: Tally,
    camera: Any = None,
) -> None:
    """Acts until there is enough."""
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
    from envkit.wording import counted

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
