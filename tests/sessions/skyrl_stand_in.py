"""What SkyRL-Gym's `BaseTextEnv` is to its subclasses, where it is not installed."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest

__all__ = ["stand_in_for_skyrl_gym"]


class BaseTextEnv:
    def __init__(self):
        self.turns = 0
        self.max_turns = 1

    @staticmethod
    def aggregate_metrics(metrics):
        return {key: sum(m[key] for m in metrics) / len(metrics) for key in metrics[0]}


def stand_in_for_skyrl_gym(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `to_skyrl` find a base class, as if SkyRL-Gym were installed."""
    if importlib.util.find_spec("skyrl_gym") is not None:
        return
    home = types.ModuleType("skyrl_gym.envs.base_text_env")
    home.BaseTextEnv = BaseTextEnv
    for name in ("skyrl_gym", "skyrl_gym.envs"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, home.__name__, home)
