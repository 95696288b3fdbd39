"""Wrappers that choose, rename or join the parts of observations."""

import numpy as np

from envkit.wrappers.observation_parts import (
    FlattenObservation,
    FlattenObservationsWrapper,
    ObservationFilterWrapper,
    RenameObservation,
    SelectObservation,
)
from envkit.wrappers.observations import DtypeObservation
from tests.wrappers.case import Case

CASES = [
    Case("filter", lambda env: ObservationFilterWrapper(env, [0]), ("bandit",)),
    Case(
        "filter_reordered",
        lambda env: ObservationFilterWrapper(env, [-1, 0, 1]),
        ("cartpole", "wheel"),
    ),
    Case(
        "flatten_array",
        FlattenObservationsWrapper,
        ("bandit", "cartpole", "catch", "gridworld", "wheel", "camera"),
    ),
    Case(
        "flatten_allowed",
        lambda env: FlattenObservationsWrapper(env, ["board"]),
        ("tictactoe",),
    ),
    Case(
        "flatten_nest",
        lambda env: FlattenObservationsWrapper(DtypeObservation(env, np.float32)),
        ("tictactoe", "drive"),
    ),
    Case("flatten", FlattenObservation, ("bandit", "tictactoe", "drive", "camera")),
    Case("select_one", lambda env: SelectObservation(env, "mask"), ("tictactoe",)),
    Case("select_subnest", lambda env: SelectObservation(env, "rest"), ("drive",)),
    Case(
        "select",
        lambda env: SelectObservation(env, ["rest", "camera"]),
        ("drive",),
    ),
    Case(
        "rename",
        lambda env: RenameObservation(env, {"board": "squares"}),
        ("tictactoe",),
    ),
    Case(
        "rename_swapped",
        lambda env: RenameObservation(env, {"rest": "camera", "camera": "rest"}),
        ("drive",),
    ),
]
