"""`to_verifiers` without the trainer; `verifiers_checks.py` plays with it."""

from __future__ import annotations

import pytest

from envkit._shared.installed import is_installed
from envkit.errors import MissingDependencyError
from envkit.sessions import to_verifiers


@pytest.mark.skipif(is_installed("verifiers"), reason="verifiers is installed")
def test_a_missing_trainer_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingDependencyError, match=r'pip install "?verifiers'):
        to_verifiers("Catch", size=2)


def test_seeds_and_tasks_exclude_each_other():
    with pytest.raises(ValueError, match="seeds or tasks"):
        to_verifiers("Catch", size=2, seeds=[1], tasks=[{"seed": 1}])


def test_a_task_with_an_unknown_key_is_refused():
    with pytest.raises(TypeError, match="'sed'"):
        to_verifiers("Catch", size=2, tasks=[{"sed": 1}])
