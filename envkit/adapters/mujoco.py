"""MuJoCo in dm_control: the state of a physics, and what pictures are drawn with.

Saved are what MuJoCo calls its integration state, the results of the last step that are
not computed from it again, and the parts of the model that tasks change: sizes, places,
colours, terrain. Textures and meshes, the bulk of a model, are left out.

Pickling a physics is something else: what comes back is another physics with a copy of
the whole model, and does not go on with the same last digits.

dm_control chooses what to draw with when it is imported. Without a display it is meant
to choose EGL, or else OSMesa. But GLFW, which it tries first, only warns that there is
none. dm_control takes that for a success, and the second picture ends the program.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = [
    "PhysicsState",
    "check_can_draw",
    "import_suite",
    "is_mujoco",
    "restore_physics",
    "save_physics",
    "size_of",
]

# Left out because they do not change while a simulation runs, and some are large.
_CONSTANT = ("bvh_", "mesh_", "name", "oct_", "skin_", "tex_", "text_")
# The results of a step that the first half of the next does not compute.
_RESULTS = (
    "act_dot",
    "actuator_force",
    "cacc",
    "cfrc_ext",
    "cfrc_int",
    "energy",
    "qacc",
    "qacc_smooth",
    "qacc_warmstart",
    "qfrc_actuator",
    "qfrc_constraint",
    "qfrc_inverse",
    "qfrc_smooth",
    "sensordata",
)
# How the warnings of GLFW begin: with a number.
_GLFW = r"\(\d+\) b"
_SIZES = ("nq", "nv", "nu", "nbody", "ngeom", "nsensordata", "nbuffer")


@dataclasses.dataclass(frozen=True, slots=True)
class PhysicsState:
    """Holds the state of a physics at one moment.

    Attributes:
        size: That of its model, in words.
        integration: The integration state.
        results: Results of the last step, by their names.
        model: Arrays of the model, by their names.
        options: Options of the model, by their names.
    """

    size: str
    integration: Array
    results: dict[str, Array]
    model: dict[str, Array]
    options: dict[str, Any]


def is_mujoco(value: Any) -> bool:
    """Returns whether a value is a physics of dm_control around MuJoCo."""
    return any(
        kind.__name__ == "Physics" and kind.__module__.startswith("dm_control.mujoco")
        for kind in type(value).__mro__
    )


def size_of(physics: Any) -> str:
    """Describes the size of a physics; only those of one size share states."""
    model = physics.model.ptr
    sizes = ", ".join(f"{name}={getattr(model, name)}" for name in _SIZES)
    return f"a MuJoCo model with {sizes}"


def save_physics(physics: Any) -> PhysicsState:
    """Saves the state of a physics."""
    import mujoco

    model, data = physics.model.ptr, physics.data.ptr
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, integration, kind)
    return PhysicsState(
        size=size_of(physics),
        integration=integration,
        results={name: getattr(data, name).copy() for name in _RESULTS},
        model={
            name: value.copy()
            for name, value in _fields(model)
            if isinstance(value, np.ndarray) and value.size
        },
        options={name: _copied(value) for name, value in _fields(model.opt)},
    )


def restore_physics(physics: Any, state: PhysicsState) -> None:
    """Restores the state of a physics of the same size."""
    import mujoco

    model, data = physics.model.ptr, physics.data.ptr
    for name, saved in state.model.items():
        getattr(model, name)[...] = saved
    for name, value in state.options.items():
        if isinstance(value, np.ndarray):
            getattr(model.opt, name)[...] = value
        else:
            setattr(model.opt, name, value)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, state.integration, kind)
    # The first half of a step, which dm_control leaves to the step before: positions,
    # velocities and contacts as they follow from the state.
    mujoco.mj_step1(model, data)
    for name, saved in state.results.items():
        getattr(data, name)[...] = saved
    _show_terrain(physics)


def _show_terrain(physics: Any) -> None:
    """Copies the terrain of the model to where pictures are drawn, if they are."""
    import mujoco

    model = physics.model.ptr
    contexts = getattr(physics, "_contexts", None)
    if model.nhfield and contexts:
        with contexts.gl.make_current() as drawing:
            for index in range(model.nhfield):
                drawing.call(mujoco.mjr_uploadHField, model, contexts.mujoco.ptr, index)


def _fields(struct: Any) -> list[tuple[str, Any]]:
    """Lists the numbers and arrays in a struct of MuJoCo's that may change."""
    found = [
        (name, getattr(struct, name))
        for name in dir(struct)
        if not name.startswith(("_", *_CONSTANT))
    ]
    return [pair for pair in found if isinstance(pair[1], int | float | np.ndarray)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def import_suite() -> Any:
    """Imports the suite of dm_control, so that it draws without a display if it can.

    Raises:
        ImportError: It cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", _GLFW, UserWarning)
            from dm_control import suite
    # Because missing libraries raise errors of many kinds.
    except Exception:
        suite = _imported_quietly()
    return suite


def _imported_quietly() -> Any:
    """Imports it where nothing can draw; most tasks need no pictures."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _GLFW, UserWarning)
            from dm_control import suite
    # Likewise.
    except Exception as error:
        raise ImportError(
            f"dm_control cannot be imported: {type(error).__name__}: {error}. If the "
            "environment variable MUJOCO_GL is set, the library that it names has to "
            "be installed: libEGL for egl, libOSMesa for osmesa."
        ) from error
    return suite


def check_can_draw(name: str) -> None:
    """Raises if dm_control has chosen a display, and there is none.

    Args:
        name: The name of the environment in the message.
    """
    chosen = getattr(sys.modules.get("dm_control._render"), "BACKEND", "")
    if chosen == "glfw" and not _has_display():
        raise NotImplementedError(
            f"{name} cannot render: dm_control draws on a display, and there is "
            "none. Set the environment variable MUJOCO_GL to egl or osmesa before "
            "dm_control is imported."
        )


def _has_display() -> bool:
    glfw = sys.modules["glfw"]  # It has been chosen.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _GLFW, UserWarning)
        # It does nothing where it has succeeded before.
        return bool(glfw.init())
