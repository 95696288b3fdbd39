"""The state of a MuJoCo physics of dm_control, saved and brought back in place.

Saved are what MuJoCo calls its integration state, the results of the last step that are
not computed from it again, and the parts of the model that tasks change: sizes, places,
colours, terrain. Textures and meshes, the bulk of a model, are left out.

Pickling a physics is something else: what comes back is another physics with a copy of
the whole model, and does not go on with the same last digits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["PhysicsState", "is_mujoco", "restore_physics", "save_physics", "size_of"]

# Nobody changes these while a simulation runs, and some are large.
_CONSTANT = ("bvh_", "mesh_", "name", "oct_", "skin_", "tex_", "text_")
# What a step leaves behind that the first half of the next does not compute.
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
_SIZES = ("nq", "nv", "nu", "nbody", "ngeom", "nsensordata", "nbuffer")


@dataclasses.dataclass(frozen=True, slots=True)
class PhysicsState:
    """What a physics holds at one moment.

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
    """Says whether something is a physics of dm_control around MuJoCo."""
    return any(
        kind.__name__ == "Physics" and kind.__module__.startswith("dm_control.mujoco")
        for kind in type(value).__mro__
    )


def size_of(physics: Any) -> str:
    """Says how large a physics is: only those of one size have states in common."""
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
    """Brings back the state of a physics of the same size."""
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
    """Has pictures show the terrain of the model, where there have been pictures."""
    import mujoco

    model = physics.model.ptr
    contexts = getattr(physics, "_contexts", None)
    if model.nhfield and contexts:
        with contexts.gl.make_current() as drawing:
            for index in range(model.nhfield):
                drawing.call(mujoco.mjr_uploadHField, model, contexts.mujoco.ptr, index)


def _fields(struct: Any) -> list[tuple[str, Any]]:
    """Lists the numbers and arrays of a struct of MuJoCo's that may change."""
    found = [
        (name, getattr(struct, name))
        for name in dir(struct)
        if not name.startswith(("_", *_CONSTANT))
    ]
    return [pair for pair in found if isinstance(pair[1], int | float | np.ndarray)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
