"""Wrappers that change pictures in observations."""

from __future__ import annotations

from envkit.wrappers.pictures import (
    AddRenderObservation,
    CropObservation,
    GrayscaleObservation,
    ResizeObservation,
    TransposeObservation,
)
from tests.wrappers.case import Case

PICTURES = ("gridworld", "camera", "drive")

CASES = [
    Case("grayscale", GrayscaleObservation, PICTURES),
    Case(
        "grayscale_keep_dim",
        lambda env: GrayscaleObservation(env, True),
        ("gridworld",),
    ),
    Case(
        "grayscale_opencv",
        lambda env: GrayscaleObservation(env, weights="opencv"),
        ("camera",),
    ),
    Case("transpose", TransposeObservation, PICTURES),
    Case(
        "transpose_plane",
        lambda env: TransposeObservation(env, (1, 0)),
        ("catch", "tictactoe"),
    ),
    Case("resize", lambda env: ResizeObservation(env, (3, 5)), PICTURES),
    Case(
        "resize_larger",
        lambda env: ResizeObservation(env, (13, 4)),
        ("gridworld", "drive"),
    ),
    Case("crop", lambda env: CropObservation(env, 1, 2, 3), (*PICTURES, "catch")),
    # Drawing takes most of the time, so these games are short and quickly drawn.
    Case(
        "add_render",
        AddRenderObservation,
        ("catch", "gridworld", "drive"),
        steps=12,
        require=("render",),
    ),
    Case(
        "add_render_beside",
        lambda env: AddRenderObservation(env, render_only=False),
        ("catch", "drive"),
        require=("render",),
    ),
]
