"""gin-config: envkit's environments, wrappers and suites by TF-Agents' names.

```
import envkit.adapters.gin
import gin

envkit.adapters.gin.register()
gin.parse_config_file("cartpole.gin")
```

After `register()`, a file written for TF-Agents configures envkit. Values are bound
under the same full or shortened names, such as `suite_gym.load.environment_name` and
`TimeLimit.duration`. References such as `@suite_gym.load()` refer to envkit's version.
A file's `import tf_agents.environments.suite_gym` does not need TF-Agents.

Make anything else configurable with gin itself: `gin.configurable(FrameStack)`.

gin accepts a name only once, and TF-Agents registers its own configurables under these
names, so a process uses either envkit's or TF-Agents'.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.adapters.foreign import require
from envkit.errors import EnvkitError

__all__ = ["register", "unregister", "worker_setup"]

_WRAPPERS = (
    "ActionClipWrapper",
    "ActionDiscretizeWrapper",
    "ActionRepeat",
    "ExtraDisabledActionsWrapper",
    "FixedLength",
    "FlattenActionWrapper",
    "FlattenObservationsWrapper",
    "HistoryWrapper",
    "ObservationFilterWrapper",
    "OneHotActionWrapper",
    "PerformanceProfiler",
    "RunStats",
    "TimeLimit",
)
_COUNTING = ("CountingEnv", "EpisodeCountingEnv", "NestedCountingEnv")

# By TF-Agents module and name: the envkit module with that name. Strings, because
# adapters must not import some of these modules.
HOMES: dict[str, dict[str, str]] = {
    "tf_agents.environments.atari_preprocessing": {
        "AtariPreprocessing": "envkit.wrappers",
    },
    "tf_agents.environments.batched_py_environment": {
        "BatchedPyEnvironment": "envkit.batched_py_environment",
    },
    "tf_agents.environments.parallel_py_environment": {
        "ParallelPyEnvironment": "envkit.parallel.parallel_py_environment",
    },
    "tf_agents.environments.suite_bsuite": {
        "load": "envkit.adapters.bsuite",
    },
    "tf_agents.environments.suite_dm_control": {
        "load": "envkit.adapters.dm_control.suite",
        "load_pixels": "envkit.adapters.dm_control.suite",
    },
    "tf_agents.environments.suite_gym": {
        "load": "envkit.adapters.gym.suite",
        "wrap_env": "envkit.adapters.gym.suite",
    },
    "tf_agents.environments.suite_gymnasium": {
        "load": "envkit.adapters.gymnasium.suite",
        "wrap_env": "envkit.adapters.gymnasium.suite",
    },
    "tf_agents.environments.test_envs": dict.fromkeys(_COUNTING, "envkit.testing.envs"),
    "tf_agents.environments.tf_py_environment": {
        "TFPyEnvironment": "envkit.tf.tf_py_environment",
    },
    "tf_agents.environments.wrappers": dict.fromkeys(_WRAPPERS, "envkit.wrappers"),
    "tf_agents.specs.array_spec": {
        "ArraySpec": "envkit.specs.array_spec",
        "BoundedArraySpec": "envkit.specs.array_spec",
    },
}

# Modules that files import before they use the names; they need not exist.
MODULES = frozenset({*HOMES, "tf_agents.environments", "tf_agents.specs"})

# This module imports TensorFlow; until it is loaded, a function stands in for it.
NEEDS_TENSORFLOW = "envkit.tf.tf_py_environment"

_IMPORT_OF_TF_AGENTS = re.compile(r"^(import|from) tf_agents\b.*\n", re.MULTILINE)


class _Change(NamedTuple):
    """Describes an attribute that gin configures while envkit is registered.

    Attributes:
        owner: The owner of the attribute: a class, or a module of envkit or gin.
        name: Its name.
        before: Its value otherwise; `None` if the class inherits it.
        configured: The value that gin configures.
    """

    owner: Any
    name: str
    before: Any
    configured: Any

    def apply(self) -> None:
        setattr(self.owner, self.name, self.configured)

    def undo(self) -> None:
        if self.before is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


# gin accepts each name once per process, so they are registered once and kept.
_changes: list[_Change] = []
_is_registered = False


def register() -> None:
    """Makes envkit's environments, wrappers and suites configurable by gin.

    Call it before parsing files; calling it again changes nothing.

    Classes take values wherever they are called. Functions take them only when called
    through their module, as in `suite_gym.load(...)`, not under a name imported
    earlier. `TFPyEnvironment` takes them by reference, and in direct calls if envkit's
    class was imported before `register()`.

    Example:
        >>> import gin
        >>> from envkit.testing import CountingEnv
        >>> from envkit.wrappers import TimeLimit
        >>> register()
        >>> gin.parse_config("TimeLimit.duration = 7")
        ([], [])
        >>> TimeLimit(CountingEnv()).duration
        7
        >>> unregister()

    Raises:
        MissingDependencyError: gin-config is not installed.
        RuntimeError: gin's configuration is locked, for example by `gin.finalize()`, or
            TF-Agents has been imported and has registered the same names.
    """
    global _is_registered
    require("gin", needed_by="envkit.adapters.gin.register()", extra="gin")
    if not _changes:
        _check_names_are_free()
        _changes.extend(_entered())
    if not _is_registered:
        for change in _changes:
            change.apply()
        _is_registered = True


def unregister() -> None:
    """Undoes `register`: gin no longer configures envkit.

    gin still knows the names; `gin.clear_config()` drops the values. Does nothing
    without an earlier `register`.

    Example:
        >>> from envkit.wrappers import TimeLimit
        >>> before = TimeLimit.__init__
        >>> register()
        >>> unregister()
        >>> TimeLimit.__init__ is before
        True
    """
    global _is_registered
    if _is_registered:
        for change in _changes:
            change.undo()
        _is_registered = False


def worker_setup(*modules: str) -> Callable[[], None]:
    """Returns a function that gives a pool's workers the currently bound values.

    Workers start as new programs, and have not parsed the files of this one:

        ParallelPyEnvironment(makers, worker_setup=envkit.adapters.gin.worker_setup())

    Values travel as gin writes them: literals and references. Each worker also imports
    the modules that a file imports, except TF-Agents'; values for names that are not
    configurable in the worker are skipped.

    Args:
        *modules: Modules to import first, such as those with your own configurables
            that no file imports.

    Example:
        >>> import gin
        >>> from envkit import make
        >>> from envkit.testing import CountingEnv
        >>> register()
        >>> gin.parse_config("CountingEnv.steps_per_episode = 1")
        ([], [])
        >>> with make(CountingEnv, num_envs=1, worker_setup=worker_setup()) as env:
        ...     [bool(env.step([0]).is_last()) for _ in range(2)]
        [False, True]
        >>> unregister()
    """
    require("gin", needed_by="envkit.adapters.gin.worker_setup()", extra="gin")
    import gin

    text = _IMPORT_OF_TF_AGENTS.sub("", gin.config_str())
    return functools.partial(_set_up_worker, os.getpid(), modules, text)


def _set_up_worker(parent: int, modules: tuple[str, ...], text: str) -> None:
    # Workers that are threads have the values already, perhaps newer ones.
    if os.getpid() == parent:
        return
    import gin

    register()
    for module in modules:
        importlib.import_module(module)
    with gin.unlock_config():
        gin.parse_config(text, skip_unknown=True)


def _check_names_are_free() -> None:
    taken = sorted(module for module in HOMES if module in sys.modules)
    if taken:
        raise RuntimeError(
            f"TF-Agents' {taken[0]} has been imported, and registers its configurables "
            "in gin under the same names as envkit's. Use only one of the two in a "
            "process that parses gin files: leave out envkit.adapters.gin.register(), "
            "or the import."
        )


def _entered() -> list[_Change]:
    """Registers all names in gin, and returns the attributes to configure."""
    import gin
    from gin import config

    parse = config.ParseContext
    imported = parse.process_import
    changes = [_Change(parse, "process_import", imported, _lenient(imported))]
    for module, homes in HOMES.items():
        for name, home in homes.items():
            if home == NEEDS_TENSORFLOW and home not in sys.modules:
                gin.external_configurable(_make_tf_py_environment, name, module)
                continue
            owner = importlib.import_module(home)
            target = getattr(owner, name)
            if inspect.isclass(target):
                before = vars(target).get("__init__")
                gin.configurable(name, module=module)(target)
                configured = _with_facts(vars(target)["__init__"])
                changes.append(_Change(target, "__init__", before, configured))
            else:
                configured = gin.external_configurable(target, name, module)
                changes.append(_Change(owner, name, target, configured))
    return changes


def _make_tf_py_environment(
    environment: Any, check_dims: bool = False, isolation: Any = False
) -> Any:
    """Replaces the class until TensorFlow is needed."""
    made_by = importlib.import_module(NEEDS_TENSORFLOW).TFPyEnvironment
    return made_by(environment, check_dims, isolation)


def _lenient(imported: Callable[..., None]) -> Callable[..., None]:
    """Lets gin files import TF-Agents modules that need not exist.

    A file with `from __gin__ import dynamic_registration` uses the module itself, so
    the module is imported.
    """

    def process_import(self: Any, statement: Any) -> None:
        if statement.module in MODULES and not self._dynamic_registration:
            self.imports.append(statement)
        else:
            imported(self, statement)

    return process_import


def _with_facts(configured: Callable[..., Any]) -> Callable[..., Any]:
    """Lets envkit's errors through unchanged.

    gin raises a copy of each error with its own sentence added. The copy lacks the
    attributes that identify the environment, and does not pickle.
    """

    @functools.wraps(configured)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return configured(*args, **kwargs)
        except EnvkitError as copy:
            error: BaseException = copy
            # One copy for each gin call that the error came through.
            while type(error.__context__) in type(error).__bases__:
                error = error.__context__  # type: ignore[assignment]  # of that type
            if error is copy:
                raise
        raise error

    return call
