"""gin-config: envkit's environments, wrappers and suites, named as in TF-Agents' files.

```
import envkit.adapters.gin
import gin

envkit.adapters.gin.register()
gin.parse_config_file("cartpole.gin")
```

From `register()` on, a file that was written for TF-Agents configures envkit. Values
are bound by the same names, whole or shortened: `suite_gym.load.environment_name`,
`TimeLimit.duration`. References such as `@suite_gym.load()` stand for what envkit has.
And `import tf_agents.environments.suite_gym` in a file needs no TF-Agents.

Something else becomes configurable as gin says: `gin.configurable(FrameStack)`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.gin_config.gin_imports import around_imports, imports_of_files
from envkit.adapters.gin_config.gin_names import HOMES, LATER, MODULES
from envkit.adapters.gin_config.gin_registry import Entries

__all__ = ["register", "unregister", "worker_setup"]

# What `unregister` closes, while there is something to unregister.
_registration: contextlib.ExitStack | None = None

_IMPORT_OF_TF_AGENTS = re.compile(r"^(import|from) tf_agents\b.*\n", re.MULTILINE)


def register() -> None:
    """Makes envkit's environments, wrappers and suites configurable by gin.

    Call it before files are parsed. Where TF-Agents is imported, too, before or after,
    the names stand for what envkit has, and both libraries are given the values.
    Calling it again changes nothing.

    Classes take values wherever they are called. Functions do so through their module,
    `suite_gym.load(...)`, but not where they were imported from it before.

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
        RuntimeError: gin's configuration is locked, as it is after `gin.finalize()`.
    """
    global _registration
    require("gin", needed_by="envkit.adapters.gin.register()", extra="gin")
    if _registration is not None:
        return
    stack = contextlib.ExitStack()
    try:
        _fill(stack)
    except BaseException:
        stack.close()
        raise
    _registration = stack


def unregister() -> None:
    """Undoes `register`: nothing of envkit's takes values from gin any more.

    What files have said of the names is dropped, except where TF-Agents has them, too.
    Without a `register` before, it does nothing.

    Example:
        >>> from envkit.wrappers import TimeLimit
        >>> before = TimeLimit.__init__
        >>> register()
        >>> unregister()
        >>> TimeLimit.__init__ is before
        True
    """
    global _registration
    if _registration is not None:
        stack, _registration = _registration, None
        stack.close()


def worker_setup(*modules: str) -> Callable[[], None]:
    """Returns what gives the workers of a pool the values that are bound now.

    Workers start as new programs, which know nothing of what this one has parsed:

        ParallelPyEnvironment(makers, worker_setup=envkit.adapters.gin.worker_setup())

    Values travel as gin writes them down, literals and references. Modules that a file
    imports are imported in each worker, too, except those of TF-Agents; values for what
    nobody has made configurable there are left out.

    Args:
        *modules: What to import first, such as modules with configurables of your own
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
    # Workers that are threads have the values, and perhaps newer ones.
    if os.getpid() == parent:
        return
    import gin

    register()
    for module in modules:
        importlib.import_module(module)
    with gin.unlock_config():
        gin.parse_config(text, skip_unknown=True)


def _fill(stack: contextlib.ExitStack) -> None:
    entries = Entries()
    stack.callback(entries.leave)
    watched: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        module: functools.partial(entries.aside, module) for module in HOMES
    }
    for module, homes in HOMES.items():
        for name, home in homes.items():
            add = functools.partial(_add, stack, entries, module, name, home)
            if home == LATER and home not in sys.modules:
                entries.enter(module, name, _make_tf_py_environment)
                watched[home] = functools.partial(_after, add)
            else:
                add()
    stack.enter_context(imports_of_files(MODULES))
    stack.enter_context(around_imports(watched))


def _add(
    stack: contextlib.ExitStack, entries: Entries, module: str, name: str, home: str
) -> None:
    """Makes one name of a module of envkit configurable, until the stack is closed."""
    owner = importlib.import_module(home)
    target = getattr(owner, name)
    if inspect.isclass(target):
        own = vars(target).get("__init__")
        entries.enter(module, name, target)
        stack.callback(_restore_init, target, own)
    else:
        setattr(owner, name, entries.enter(module, name, target))
        stack.callback(setattr, owner, name, target)


def _restore_init(target: Any, own: Any) -> None:
    if own is None:  # It had that of its base.
        del target.__init__
    else:
        target.__init__ = own


@contextlib.contextmanager
def _after(action: Callable[[], None]) -> Iterator[None]:
    yield
    import gin

    # Files have been parsed by then, and gin may take new names only before.
    with gin.unlock_config():
        action()


def _make_tf_py_environment(
    environment: Any, check_dims: bool = False, isolation: Any = False
) -> Any:
    """Stands for the class until TensorFlow is needed."""
    made_by = importlib.import_module(LATER).TFPyEnvironment
    return made_by(environment, check_dims, isolation)
