"""Names that a package lacks: where to find them, or what envkit calls them.

Only a name that was not found loads this module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

__all__ = ["instead_of"]

_POOL = "make(target, num_envs=8) makes a pool"
_WORKERS = (
    "ParallelPyEnvironment(constructors) has its environments in worker processes"
)
_INLINE = (
    'ParallelPyEnvironment(constructors, backend="inline") steps them in this process'
)
_WRAPPER = "PyEnvironmentBaseWrapper is the base class of wrappers"
_SPACE = "specs take the place of spaces; BoundedArraySpec has a minimum and a maximum"
_CHECK = "envkit.testing.check_environment(make_env) checks an environment"
_NORMALIZED = "NormalizeReward(NormalizeObservation(env), 0.99) normalizes both"
_SELECT = "it is SelectObservation(env, names)"
_CHECKER = "it is PassiveChecker(env)"
_TENSORS = "actions may be tensors, and TorchEnvironment returns time steps of tensors"
_SHOWN = "`envkit play` shows a game in a window, and so does render('human')"
_DRAWN = "TransformObservation(AddRenderObservation(env), function) draws over pictures"
_TO_GYMNASIUM = "it is PyToGymnasium(env), and PyToGymnasiumVector(env) for a batch"
# Names in gymnasium, gymnasium.vector and gymnasium.wrappers, and of Stable-Baselines3.
_NAMES = {
    "envkit": {
        "ActionWrapper": _WRAPPER,
        "AsyncVectorEnv": _WORKERS,
        "Box": _SPACE,
        "Discrete": _SPACE,
        "DummyVecEnv": _INLINE,
        "Env": "PyEnvironment is the base class of environments",
        "ObservationWrapper": _WRAPPER,
        "RewardWrapper": _WRAPPER,
        "Space": _SPACE,
        "SubprocVecEnv": _WORKERS,
        "SyncVectorEnv": _INLINE,
        "VecEnv": _POOL,
        "VectorEnv": _POOL,
        "Wrapper": _WRAPPER,
        "check_env": _CHECK,
        "list_envs": "`envkit list` in a terminal lists the names",
        "make_vec": _POOL,
        "make_vec_env": _POOL,
        "pprint_registry": "`envkit list` in a terminal lists the names",
        "spaces": _SPACE,
        "vector": _POOL,
    },
    "adapters": {
        "to_gym": _TO_GYMNASIUM,
        "to_gymnasium": _TO_GYMNASIUM,
        "to_gymnasium_vector": "it is PyToGymnasiumVector(env)",
    },
    "wrappers": {
        "AddWhiteNoise": _DRAWN,
        "ArrayConversion": _TENSORS,
        "AtariWrapper": "it is AtariPreprocessing(env)",
        "Autoreset": "the step after a LAST begins the next episode",
        "ClipAction": "it is ActionClipWrapper(env)",
        "DictInfoToList": "get_infos() of a pool has a dictionary for each environment",
        "FilterObservation": _SELECT,
        "FrameStackObservation": "it is FrameStack(env, stack_size)",
        "HumanRendering": _SHOWN,
        "JaxToNumpy": _TENSORS,
        "JaxToTorch": _TENSORS,
        "Monitor": "it is RecordEpisodeStatistics(env), or LogEpisodes(env, folder)",
        "NumpyToTorch": _TENSORS,
        "ObstructView": _DRAWN,
        "OrderEnforcing": "the first step begins an episode, so no order is wrong",
        "PassiveEnvChecker": _CHECKER,
        "RenderCollection": "RecordVideo(env, folder) films episodes",
        "RepeatAction": "it is ActionRepeat(env, times)",
        "VecCheckNan": _CHECKER,
        "VecExtractDictObs": _SELECT,
        "VecFrameStack": "it is FrameStack(env, stack_size)",
        "VecMonitor": "it is RecordEpisodeStatistics(env), or LogEpisodes(env, folder)",
        "VecNormalize": _NORMALIZED,
        "VecVideoRecorder": "it is RecordVideo(env, folder)",
        "VectorizeTransformAction": "it is TransformAction(env, function)",
        "VectorizeTransformObservation": "it is TransformObservation(env, function)",
        "VectorizeTransformReward": "it is TransformReward(env, function)",
        "Wrapper": "it is PyEnvironmentBaseWrapper",
        "vector": "each wrapper works on batches and pools too",
    },
}


def instead_of(package: str, name: str) -> str:
    """Returns what to use instead of a name that a package lacks, or "".

    Example:
        >>> instead_of("envkit", "SpecError")
        'it is in envkit.errors'
    """
    instead = _NAMES.get(package.removeprefix("envkit."), {}).get(name, "")
    if instead:
        return instead
    if _is_module(package, name):
        return f"`import {package}.{name}` imports that module"
    home = _home_of(name)
    if home:
        return f"it is in {home}"
    # Its library may have it in another package.
    return next((names[name] for names in _NAMES.values() if name in names), "")


def _is_module(package: str, name: str) -> bool:
    is_package = hasattr(sys.modules[package], "__path__")
    return is_package and importlib.util.find_spec(f"{package}.{name}") is not None


def _home_of(name: str) -> str:
    """Returns the public module that lists a name, or ""."""
    root = sys.modules["envkit"]
    for found in pkgutil.iter_modules(root.__path__, "envkit."):
        source = importlib.util.find_spec(found.name)
        if "._" in found.name or source is None or source.origin is None:
            continue
        # Importing them all would take a while.
        with contextlib.suppress(OSError):
            text = Path(source.origin).read_text(encoding="utf-8")
            if f'"{name}"' in text and _lists(found.name, name):
                return found.name
    return ""


def _lists(module: str, name: str) -> bool:
    try:
        return name in getattr(importlib.import_module(module), "__all__", ())
    except ImportError:  # its library is not installed
        return True
