"""The matrix, for whoever has several interpreters: `nox`, or `nox -s core`."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
# It asks for pygame, and others for pygame-ce, which is in the same folder.
PYSC2 = "pysc2>=4.0"

# What needs a library that is not among the install needs stays out; `docs` and the
# README show environments of such libraries, too.
BEFORE_THE_DOORS = [
    "tests",
    "envkit",
    "--ignore=tests/tf",
    "--ignore=tests/adapters",
    "--ignore=tests/envs/test_cartpole.py",
    "--ignore=envkit/tf",
    "--ignore=envkit/adapters",
    "-k=not envkit.tf and not tensorflow and not reinforce "
    "and not benchmark_of_batches and not shows_its_tables",
]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Runs the whole suite with the newest of everything."""
    session.install("-e", ".[test]")
    session.install("--no-deps", PYSC2)
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """Runs the whole suite with NumPy 1.26 and the oldest TensorFlow that we take."""
    session.install("-e", ".[test]", "numpy==1.26.*", "tensorflow==2.16.*")
    session.install("--no-deps", PYSC2)
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python="3.11")
def core(session: nox.Session) -> None:
    """Runs what needs nothing but the install needs: the doors are doors."""
    session.install("-e", ".", "attrs", "hypothesis", "pytest", "sybil", "wrapt")
    session.run(
        "python",
        "-m",
        "pytest",
        "--doctest-ignore-import-errors",
        *BEFORE_THE_DOORS,
        *session.posargs,
    )
