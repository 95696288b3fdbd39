"""MuJoCo in dm_control: saves the state of a physics, and chooses the renderer.

A saved state holds what MuJoCo calls its integration state, those results of the last
step that are not computed from it, and the parts of the model that tasks change: sizes,
positions, colours, terrain. Textures and meshes, the bulk of a model, are left out.

Pickling a physics is no substitute: it makes another physics with a copy of the whole
model, and that physics computes slightly different digits.

dm_control chooses its drawing library when it is imported. Without a graphics card it
loads Mesa's compiler, which crashes in a process that also has TensorFlow's, even
though most programs draw nothing. So `import_suite` postpones the choice until
something is drawn.

Without a display, dm_control is meant to choose EGL, or else OSMesa. But it tries GLFW
first, which only warns about the missing display. dm_control takes that for success,
and the second picture kills the program.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import threading
import warnings
from typing import Any

import numpy as np

from envkit.adapters.quiet import hush_imported
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

# Left out: constant during a simulation, and some are large.
_CONSTANT = ("bvh_", "mesh_", "name", "oct_", "skin_", "tex_", "text_")
# Results of a step that the first half of the next step does not recompute.
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
# GLFW's warnings begin with a number.
_GLFW = r"\(\d+\) b"
_VARIABLE = "MUJOCO_GL"
# The names in dm_control's module that depend on the drawing library.
_CHOICE = ("BACKEND", "Renderer", "USING_GPU")
_SIZES = ("nq", "nv", "nu", "nbody", "ngeom", "nsensordata", "nbuffer")


@dataclasses.dataclass(frozen=True, slots=True)
class PhysicsState:
    """Holds the state of a physics at one moment.

    Attributes:
        size: The size of its model, in words.
        integration: The integration state.
        results: Results of the last step, by name.
        model: Arrays of the model, by name.
        options: Options of the model, by name.
    """

    size: str
    integration: Array
    results: dict[str, Array]
    model: dict[str, Array]
    options: dict[str, Any]


def is_mujoco(value: Any) -> bool:
    """Returns True if a value is a dm_control physics that uses MuJoCo."""
    return any(
        kind.__name__ == "Physics" and kind.__module__.startswith("dm_control.mujoco")
        for kind in type(value).__mro__
    )


def size_of(physics: Any) -> str:
    """Describes the size of a physics; a state only fits a physics of the same size."""
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
    # dm_control leaves the first half of a step to the previous step: it derives
    # positions, velocities and contacts from the state.
    mujoco.mj_step1(model, data)
    for name, saved in state.results.items():
        getattr(data, name)[...] = saved
    _show_terrain(physics)


def _show_terrain(physics: Any) -> None:
    """Copies the model's terrain to the drawing contexts, if there are any."""
    import mujoco

    model = physics.model.ptr
    contexts = getattr(physics, "_contexts", None)
    if model.nhfield and contexts:
        with contexts.gl.make_current() as drawing:
            for index in range(model.nhfield):
                drawing.call(mujoco.mjr_uploadHField, model, contexts.mujoco.ptr, index)


def _fields(struct: Any) -> list[tuple[str, Any]]:
    """Lists the numbers and arrays in a MuJoCo struct that may change."""
    found = [
        (name, getattr(struct, name))
        for name in dir(struct)
        if not name.startswith(("_", *_CONSTANT))
    ]
    return [pair for pair in found if isinstance(pair[1], int | float | np.ndarray)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def import_suite() -> Any:
    """Imports dm_control's suite; the drawing library is loaded later.

    Raises:
        ImportError: dm_control cannot be imported.
    """
    try:
        if "dm_control._render" not in sys.modules:
            _postpone_choice()
        from dm_control import suite

        hush_imported()
    # Missing libraries raise many kinds of errors.
    except Exception as error:
        raise ImportError(f"dm_control cannot be imported{_hint(error)}") from error
    return suite


def _postpone_choice() -> None:
    """Imports the module that chooses the renderer, but postpones the choice.

    The module chooses when it is imported, but with the variable set to "off" it
    chooses nothing. Its names are then deleted, so that Python calls `__getattr__` for
    them.
    """
    chosen = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "off"
    try:
        from dm_control import _render
    finally:
        if chosen is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = chosen
    lock = threading.RLock()

    def choose(name: str) -> Any:
        if name not in _CHOICE:
            raise AttributeError(
                f"module {_render.__name__!r} has no attribute {name!r}"
            )
        with lock:
            if name not in vars(_render):  # another thread may have been faster
                _choose(_render)
        return vars(_render)[name]

    _forget_choice(_render)
    _render.__getattr__ = choose


def _choose(module: Any) -> None:
    """Makes dm_control choose its renderer now; skips GLFW if there is no display.

    Raises:
        ImportError: `MUJOCO_GL` names a library that is missing.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", _GLFW, UserWarning)
            importlib.reload(module)
    # Missing libraries raise many kinds of errors.
    except Exception:
        _forget_choice(module)
    else:
        return
    try:
        # Nothing can draw unless the variable names GLFW; `check_can_draw` reports it.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _GLFW, UserWarning)
            importlib.reload(module)
    # Missing libraries raise many kinds of errors.
    except Exception as error:
        _forget_choice(module)
        raise ImportError(f"dm_control cannot draw{_hint(error)}") from error


def _forget_choice(module: Any) -> None:
    for name in _CHOICE:
        vars(module).pop(name, None)


def _hint(error: Exception) -> str:
    return (
        f": {type(error).__name__}: {error}. If the environment variable "
        f"{_VARIABLE} is set, the library that it names has to be installed: libEGL "
        "for egl, libOSMesa for osmesa."
    )


def check_can_draw(name: str) -> None:
    """Makes dm_control choose its renderer; raises if that needs a missing display.

    Args:
        name: The environment's name in the message.
    """
    chosen = getattr(sys.modules.get("dm_control._render"), "BACKEND", "")
    if chosen == "glfw" and not _has_display():
        raise NotImplementedError(
            f"{name} cannot render: dm_control draws on a display, and there is "
            "none. Set the environment variable MUJOCO_GL to egl or osmesa before "
            "dm_control is imported."
        )


def _has_display() -> bool:
    glfw = sys.modules["glfw"]  # imported when it was chosen
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _GLFW, UserWarning)
        # Does nothing after an earlier success.
        return bool(glfw.init())
