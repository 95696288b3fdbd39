"""`envkit plot RUN...`: draws learning curves, with a spread over seeds."""

from __future__ import annotations

import argparse

from envkit.cli.output import say
from envkit.cli.parser import Parser
from envkit.cli.target import at_least_one
from envkit.cli.terminal import add_json, print_json
from envkit.monitoring.curves import (
    CENTERS,
    SPREADS,
    X_AXES,
    curves_in,
    draw,
    summary_of,
)
from envkit.monitoring.drawing import check_can_draw, check_can_save

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit plot runs/ppo runs/dqn --output curves.png"


def add_arguments(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="the folder of a log of LogEpisodes or of a recording, a curve each; of a "
        "folder without one, the logs below it, where folders whose names differ only "
        "in numbers are the seeds of one curve",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="curves.png",
        help="the file, whose ending chooses its kind, such as .png, .svg or .pdf "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--x",
        choices=list(X_AXES),
        default="step",
        help="the x axis: steps of all rows, seconds, or episodes (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--y",
        metavar="COLUMN",
        default="return",
        help="the y axis: a column of the log, such as length (default: %(default)s)",
    )
    parser.add_argument(
        "--window",
        type=at_least_one,
        metavar="N",
        help="how many episodes to average (default: a tenth of the shortest run, "
        "at most 100)",
    )
    parser.add_argument(
        "--center",
        choices=list(CENTERS),
        default="mean",
        help="the line over seeds (default: %(default)s)",
    )
    parser.add_argument(
        "--spread",
        choices=list(SPREADS),
        default="std",
        help="the band over seeds: standard deviation, minimum to maximum, 95%% "
        "confidence interval of the mean, or none (default: %(default)s)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draws the curves, and prints what is in them."""
    check_can_draw("envkit plot")
    check_can_save("--output", arguments.output)
    curves = curves_in(arguments.runs)
    figure = draw(
        curves,
        x=arguments.x,
        y=arguments.y,
        window=arguments.window,
        center=arguments.center,
        spread=arguments.spread,
    )
    figure.savefig(arguments.output)
    if arguments.json:
        told = {curve.label: [str(run.path) for run in curve.runs] for curve in curves}
        print_json({"output": arguments.output, "curves": told})
    else:
        say(*map(summary_of, curves), f"drawn in {arguments.output}")
    return 0
