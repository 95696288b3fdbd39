"""Environments whose observations are chosen by a test."""

from __future__ import annotations

from typing import Any

from envkit import BatchedPyEnvironment, restart
from envkit.testing import ScriptedEnv


def showing(observation: Any, spec: Any = None) -> ScriptedEnv:
    """Makes an environment whose observations are all the same."""
    return ScriptedEnv([restart(observation)], spec)


def showing_rows(*observations: Any, spec: Any = None) -> BatchedPyEnvironment:
    """Makes a batch in which each row has its own observation."""
    envs = [showing(observation, spec) for observation in observations]
    return BatchedPyEnvironment(envs, multithreading=False)
