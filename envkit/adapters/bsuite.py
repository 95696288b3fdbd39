"""bsuite, the Behaviour Suite: its environments by id."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envkit.extend import Scheme

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment

__all__ = ["SCHEME", "is_available", "load", "load_by_id", "names", "preload"]

SCHEME = Scheme(
    "envkit.adapters.bsuite:load_by_id",
    title="bsuite",
    example="catch/0",
    page="adapters/bsuite",
    package="bsuite",
    extra="bsuite",
    requires=("bsuite>=0.3.6",),
    lister="envkit.adapters.bsuite:names",
    preload="envkit.adapters.bsuite:preload",
)

_MODES = ("csv", "terminal")


def is_available() -> bool:
    """Returns whether bsuite is installed."""
    from envkit.errors import MissingDependencyError

    try:
        _require("bsuite")
    except MissingDependencyError:
        return False
    return True


def preload(bsuite_id: str) -> None:
    """Imports the other modules needed to make an environment."""
    importlib.import_module("envkit.adapters.dm_env")


def load(
    bsuite_id: str,
    record: bool = True,
    save_path: str | None = None,
    logging_mode: str = "csv",
    overwrite: bool = False,
) -> PyEnvironment:
    """Makes a bsuite environment.

    The attribute `bsuite_num_episodes` is the number of episodes of the experiment.
    Results are recorded in the format that bsuite's analysis reads.

    Args:
        bsuite_id: The experiment and its setting, such as `"deep_sea/7"`.
        record: Whether to record results.
        save_path: The folder for the results, if `logging_mode` is `"csv"`.
        logging_mode: `"csv"` writes a file, `"terminal"` logs.
        overwrite: Whether an existing file of the experiment may be overwritten.

    Raises:
        ValueError: The experiment is unknown, or `save_path` is missing.
    """
    _require(f"The environment {bsuite_id!r}")
    from bsuite import bsuite, sweep

    from envkit.adapters.dm_env import DmEnvWrapper

    if record:
        _check_record(save_path, logging_mode)
    if bsuite_id not in sweep.SETTINGS:
        raise ValueError(_unknown(bsuite_id, sweep.SETTINGS))
    name, _ = bsuite.unpack_bsuite_id(bsuite_id)
    # Not bsuite's load_from_id, because it prints the name.
    env = bsuite.load(name, sweep.SETTINGS[bsuite_id])
    if record:
        env = _recorded(env, bsuite_id, save_path, logging_mode, overwrite)
    return DmEnvWrapper(env)


def load_by_id(
    bsuite_id: str,
    record: bool | None = None,
    save_path: str | None = None,
    logging_mode: str = "csv",
    overwrite: bool = False,
) -> PyEnvironment:
    """Makes an environment as `load` does, but by default records nothing.

    `envkit.make("bsuite:catch/0")` calls this.

    Args:
        bsuite_id: The experiment and its setting.
        record: Whether to record results; `None` means yes if `save_path` or a
            `logging_mode` other than `"csv"` is given.
        save_path: The folder for the results.
        logging_mode: `"csv"` writes a file, `"terminal"` logs.
        overwrite: Whether an existing file of the experiment may be overwritten.
    """
    if record is None:
        record = save_path is not None or logging_mode != "csv"
    return load(bsuite_id, record, save_path, logging_mode, overwrite)


def names() -> list[str]:
    """Lists the ids of all experiments, in the order of bsuite's sweep.

    Example:
        >>> names()[:2]
        ['bandit/0', 'bandit/1']
    """
    _require("suite_bsuite")
    from bsuite import sweep

    return list(sweep.SWEEP)


def _check_record(save_path: str | None, logging_mode: str) -> None:
    if logging_mode not in _MODES:
        raise ValueError(
            f"logging_mode must be 'csv' or 'terminal', got {logging_mode!r}."
        )
    if logging_mode == "csv" and save_path is None:
        raise ValueError(
            "save_path is None, so there is no folder to record results in. Name one, "
            "or pass record=False."
        )


def _unknown(bsuite_id: str, known: Any) -> str:
    experiments = sorted({name.partition("/")[0] for name in known})
    experiment, _, _ = str(bsuite_id).partition("/")
    if experiment in experiments:
        count = sum(name.startswith(f"{experiment}/") for name in known)
        return (
            f"There is no experiment {bsuite_id!r} in bsuite: those of {experiment!r} "
            f"go from '{experiment}/0' to '{experiment}/{count - 1}'."
        )
    return (
        f"There is no experiment {bsuite_id!r} in bsuite: write 'name/number', such as "
        f"'catch/0'. The names are {', '.join(experiments)}."
    )


def _recorded(
    env: Any, bsuite_id: str, save_path: str | None, logging_mode: str, overwrite: bool
) -> Any:
    from bsuite.logging import csv_logging, terminal_logging

    if logging_mode == "terminal":
        return terminal_logging.wrap_environment(env)
    return csv_logging.wrap_environment(env, bsuite_id, save_path, overwrite)


def _require(needed_by: str) -> None:
    from envkit.adapters.foreign import require

    require("bsuite", needed_by=needed_by, extra="bsuite")
