"""`envkit describe TARGET`: what an environment takes, gives and can do."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from envkit.cli.target import Closing, add_target, make_target, target_arguments
from envkit.cli.terminal import add_json, print_json, terminal

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit describe gymnasium:CartPole-v1"

_FINE = {"possible": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    add_target(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Makes an environment, asks it, and shows what it says."""
    from envkit.cli.describe_parts.facts import facts_of, specs_of
    from envkit.cli.output import print_trimmed, stdout_on_stderr
    from envkit.provenance import plain_arguments

    with stdout_on_stderr(), Closing(make_target(arguments)) as env:
        specs, facts = specs_of(env), facts_of(env)
    if arguments.json:
        known = plain_arguments(target_arguments(arguments))
        print_json({"target": arguments.target, "arguments": known, **facts})
        return 0
    title = facts["id"] or arguments.target
    print_trimmed(terminal(), _tree(title, specs, facts), "", _table(facts))
    return 0


def _tree(title: str, specs: dict[str, Any], facts: dict[str, Any]) -> Tree:
    from envkit.cli.describe_parts.spec_texts import bare_path

    tree = Tree(Text(title, style="bold"))
    for part, spec in specs.items():
        _add(tree, part, spec)
    info = facts.get("info", {"possible": False})
    if "info" not in specs and info["possible"]:
        branch = tree.add(_named("info", "" if info["holds"] else "empty"))
        for leaf in info["holds"]:
            branch.add(_named(bare_path(leaf["path"]), leaf["what"]))
    return tree


def _add(tree: Tree, name: str, spec: Any) -> None:
    from envkit.cli.describe_parts.spec_texts import children, leaf_text
    from envkit.nest_walk import is_nested

    if not is_nested(spec):
        tree.add(_named(name, leaf_text(spec)))
        return
    parts = children(spec)
    branch = tree.add(_named(name, "" if parts else "nothing"))
    for child_name, child in parts:
        _add(branch, child_name, child)


def _named(name: str, text: str) -> Text:
    return Text.assemble((name, "cyan"), "  " if name and text else "", text)


def _table(facts: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    limit = facts["episode"]["max_steps"]
    rows = {
        "rows": _rows(facts["batch"]),
        "episodes": "no limit is known" if limit is None else f"at most {limit} steps",
        "render": _picture(facts.get("render")),
        "seed": _possible(facts["seed"]),
        "state": _possible(facts.get("state")),
        "reset": None if facts.get("reset", _FINE)["possible"] else facts["reset"],
        **_origin(facts),
    }
    for name, text in rows.items():
        if text:
            table.add_row(name, Text(text if isinstance(text, str) else text["reason"]))
    return table


def _rows(batch: dict[str, Any]) -> str:
    if batch["kind"] == "single":
        return "a single environment"
    if batch["kind"] == "asynchronous":
        return f"{batch['rows']}, each of which takes its own time"
    can = [
        text
        for name, text in (
            ("resets_rows", "reset(mask)"),
            ("holds_rows", "step(action, mask)"),
        )
        if batch[name]
    ]
    masks = f"; {' and '.join(can)}" if can else "; always all at once"
    return f"{batch['rows']}, autoreset {batch['autoreset']}{masks}"


def _picture(render: dict[str, Any] | None) -> str:
    if render is None:
        return ""
    if not render["possible"]:
        return f"no: {render['reason']}"
    return f"{render['dtype']} {tuple(render['shape'])}"


def _possible(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return ""
    return "yes" if answer["possible"] else f"no: {answer['reason']}"


def _origin(facts: dict[str, Any]) -> dict[str, str]:
    """Returns where it comes from, for people: what provenance() says."""
    known = facts["provenance"]
    version = "" if facts["version"] is None else str(facts["version"])
    packages = {"envkit": known.get("envkit"), **known.get("packages", {})}
    arguments = known.get("arguments")
    return {
        "version": version,
        "class": known.get("class") or facts["class"],
        "arguments": "not known"
        if arguments is None
        else ", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        "made of": " around ".join(facts["layers"]),
        "packages": ", ".join(f"{name} {found}" for name, found in packages.items()),
        "python": str(known.get("python", "")),
    }
