"""Runs the examples on two cores, and writes their times into examples/README.md.

    python tools/time_examples.py
    python tools/time_examples.py ppo_torch sb3

Each program runs in an empty folder, with this interpreter. Its row of the table has
the first sentence and the indented commands of its docstring, the last line that it
printed, its pictures, and how long it took: in seconds, and in the CPU seconds of all
its processes. A program that fails keeps the figures it had, and is named at the end.
So where one environment cannot have the packages of all examples, run this with the
interpreters of several.
"""

import ast
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"
START, END = "<!-- examples -->\n", "<!-- end of examples -->\n"
HEADING = (
    "| program | what it shows | what it ends with | seconds | CPU | install |",
    "| :--- | :--- | :--- | ---: | ---: | :--- |",
)


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


def described(name: str) -> tuple[str, str]:
    """Returns the first sentence of an example's docstring, and its commands."""
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text("utf-8"))
    doc = ast.get_docstring(tree) or ""
    commands = re.findall(r"^    ((?:pip|apt-get) install .*)$", doc, re.M)
    return doc.partition("\n")[0], "<br>".join(f"`{line}`" for line in commands)


def figures() -> dict[str, tuple[str, str, str]]:
    """Returns the end, the seconds and the CPU seconds of each row of the table."""
    rows = [row.split(" | ") for row in _parts()[1].splitlines()]
    return {
        row[0].partition("[")[2].partition(".py")[0]: (row[2], row[3], row[4])
        for row in rows
        if row[0].startswith("| [")
    }


def table(known: dict[str, tuple[str, str, str]]) -> str:
    lines = list(HEADING)
    for name in names():
        shows, install = described(name)
        measured = " | ".join(known.get(name, ("", "", "")))
        program = f"[{name}.py]({name}.py)"
        lines.append(f"| {program} | {shows} | {measured} | {install} |")
    return "\n".join(lines) + "\n"


def run(name: str) -> tuple[str, str, str] | None:
    """Runs an example; returns its end and its seconds, or None if it fails."""
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="the examples ") as folder:
        began, used = time.perf_counter(), cpu_seconds()
        ended = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": python_path.rstrip(os.pathsep)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds, used = time.perf_counter() - began, cpu_seconds() - used
        pictures = sorted(path.name for path in Path(folder).glob("*.[pg][ni][gf]"))
    print(f"{name:20} {seconds:6.1f} s, CPU {used:6.1f} s", flush=True)
    if ended.returncode:
        return None
    end = " ".join(ended.stdout.splitlines()[-1].split())
    ends = [end, *(f"`{name}`" for name in pictures)]
    return ", ".join(ends).replace("|", "\\|"), f"{seconds:.0f}", f"{used:.0f}"


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _parts() -> tuple[str, str, str]:
    before, _, rest = README.read_text("utf-8").partition(START)
    middle, _, after = rest.partition(END)
    return before, middle, after


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    known, failed = figures(), []
    for name in sys.argv[1:] or names():
        result = run(name)
        if result is None:
            failed.append(name)
        else:
            known[name] = result
        before, _, after = _parts()
        README.write_text(f"{before}{START}\n{table(known)}\n{END}{after}", "utf-8")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
