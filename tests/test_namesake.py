"""Another project's files in the folder of this package are noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import envkit

REMEDY = (
    "run pip uninstall envkit envkit-rl, and install envkit-rl in an environment that "
    "has no envkit."
)
# What users of it may do first.
DOORS = [
    ["-c", "from envkit.errors import EnvkitError"],
    ["-c", "import envkit.adapters"],
    ["-c", "from envkit.parallel import ParallelPyEnvironment"],
    ["-c", "from envkit.specs import ArraySpec"],
    ["-m", "envkit", "list"],
]


def install(folder):
    """Installs envkit-rl in a folder, and returns it."""
    # Other tests may be writing the compiled files.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(envkit.__file__).parent, folder / "envkit", ignore=ignored)
    (folder / "envkit_rl-0.2.0.dist-info").mkdir()
    return folder


@pytest.fixture
def site(tmp_path):
    """Returns a folder in which envkit-rl is installed."""
    return install(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Returns a folder with files of both projects."""
    folder = install(tmp_path_factory.mktemp("site"))
    install_namesake(folder)
    return folder


@pytest.fixture(scope="module", params=["overwritten", "uninstalled"])
def broken(request, tmp_path_factory):
    """Returns a folder in which the other project has taken away `__init__.py`."""
    folder = install(tmp_path_factory.mktemp("site"))
    install_namesake(folder)
    init = folder / "envkit" / "__init__.py"
    if request.param == "overwritten":
        init.write_text("from envkit._env import Env\n__all__ = ['Env']\n", "utf-8")
    else:
        init.unlink()
    return folder


def install_namesake(site):
    """Adds the other project's files, all but its `__init__.py`."""
    (site / "envkit-0.7.1.dist-info").mkdir()
    (site / "envkit" / "_env.py").write_text("class Env: ...\n", "utf-8")


def run_whole(site, *arguments):
    """Runs Python in the folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def run(site, *arguments):
    """Runs Python in the folder; returns the status, and how standard error ends."""
    told = run_whole(site, *arguments)
    return told.returncode, (told.stderr.splitlines() or [""])[-1]


def test_without_another_project_there_is_no_warning(site):
    assert (0, "") == run(site, "-W", "error", "-c", "import envkit; envkit.make")


def test_files_of_the_other_project_cause_a_warning(shared):
    program = "import warnings, sys\nwarnings.simplefilter('error')\nimport envkit"
    status, said = run(shared, "-c", program)
    assert (
        1,
        f"UserWarning: The folder {shared / 'envkit'} belongs to envkit-rl and to "
        "another distribution, envkit, and each overwrites files of the other: "
        f"{REMEDY}",
    ) == (status, said)


def test_envkit_works_beside_the_other_project(shared):
    status, _ = run(shared, "-c", "import envkit; envkit.make('CartPole').reset()")
    assert 0 == status


def test_the_warning_comes_once_and_not_from_every_worker(shared):
    program = (
        "import envkit\n"
        "with envkit.make('CartPole', num_envs=2, num_workers=2) as env:\n"
        "    env.reset()\n"
    )
    told = run_whole(shared, "-c", program)
    assert (0, 1) == (told.returncode, told.stderr.count("UserWarning"))


@pytest.mark.parametrize("door", DOORS)
def test_an_init_file_overwritten_by_the_other_project_is_reported(broken, door):
    assert (
        1,
        f"ImportError: envkit-rl has lost its __init__.py in {broken / 'envkit'}, "
        "because another distribution, envkit, was installed or uninstalled there: "
        f"{REMEDY}",
    ) == run(broken, *door)
