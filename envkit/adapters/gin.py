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

TF-Agents enters its own configurables under the same names. gin takes a name once, so
the second of two entries would fail, `import tf_agents` included. envkit's entries
therefore put those of TF-Agents aside, step aside themselves while a module of
TF-Agents is imported, and give the names back in the end. The values that files bind
belong to the name, so both libraries are given them, whichever has it. gin has no
functions to remove or replace a name: `_Entries` uses the registry of gin-config 0.5.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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

# By module of TF-Agents, and there by name: the module of envkit that has that name.
# Strings, because some stand on other floors and no adapter imports those.
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

# The modules that files import before they use the names; they need not exist.
MODULES = frozenset({*HOMES, "tf_agents.environments", "tf_agents.specs"})

# This home is left alone until it is imported elsewhere, because it imports TensorFlow.
LATER = "envkit.tf.tf_py_environment"

# Closed by `unregister`; `None` while nothing is registered.
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
    """Undoes `register`: envkit's configurables take no values any more.

    Values that files have bound to the names are dropped, except where TF-Agents has
    the names, too.
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
    imports are imported in each worker, too, except those of TF-Agents; values of names
    that are not configurable there are left out.

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
    entries = _Entries()
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
    stack.enter_context(_imports_of_files(MODULES))
    stack.enter_context(_around_imports(watched))


def _add(
    stack: contextlib.ExitStack, entries: _Entries, module: str, name: str, home: str
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


class _Entries:
    """Holds the names in gin's register that stand for envkit's configurables."""

    def __init__(self) -> None:
        from gin import config

        self._config: Any = config
        # By name: what had it before.
        self._displaced: dict[str, Any] = {}
        # By name: what is configurable there, and what gin knew it as before.
        self._targets: dict[str, tuple[Any, Any]] = {}

    def enter(self, module: str, name: str, target: Callable[..., Any]) -> Any:
        """Makes a function or class configurable, and returns what takes values.

        That is the class itself, whose `__init__` is another from now on, or another
        function. What had the name is put aside.
        """
        selector = f"{module}.{name}"
        before = self._taken_out(selector)
        known_as = self._config._INVERSE_REGISTRY.get(target)
        try:
            configured = self._configured(module, name, target)
        except BaseException:
            self._put_back(selector, before)
            raise
        if selector in self._targets:
            self._forget(selector)
        else:
            self._displaced[selector] = before
        self._targets[selector] = target, known_as
        self._look_again(before)
        return configured

    @contextlib.contextmanager
    def aside(self, module: str) -> Iterator[None]:
        """Frees the names of a module while that is imported, and takes them again."""
        names = [name for name in self._targets if name.rpartition(".")[0] == module]
        entries = {name: self._taken_out(name) for name in names}
        try:
            yield
        finally:
            for name, entry in entries.items():
                self._displaced[name] = self._taken_out(name) or self._displaced[name]
                self._put_back(name, entry)

    def leave(self) -> None:
        """Gives every name back to what had it before.

        Where nothing had, the values of the name are dropped, because gin could not
        write them down any more.
        """
        for selector in list(self._targets):
            self._forget(selector)
            ours = self._taken_out(selector)
            before = self._displaced.pop(selector)
            self._put_back(selector, before)
            if before is None:
                self._drop_values(selector, ours)
            else:
                self._look_again(ours)

    def _configured(self, module: str, name: str, target: Callable[..., Any]) -> Any:
        configured: Any = self._config.configurable(name, module=module)(target)
        if inspect.isclass(target):
            configured.__init__ = _with_facts(configured.__init__)
            return configured
        configured = _with_facts(configured)
        entry = self._config._INVERSE_REGISTRY[target]._replace(wrapper=configured)
        self._config._REGISTRY[entry.selector] = entry
        self._config._INVERSE_REGISTRY[target] = entry
        return configured

    def _forget(self, selector: str) -> None:
        target, known_as = self._targets.pop(selector)
        if known_as is None:
            del self._config._INVERSE_REGISTRY[target]
        else:
            self._config._INVERSE_REGISTRY[target] = known_as

    def _taken_out(self, selector: str) -> Any:
        registry = self._config._REGISTRY
        return registry.pop(selector) if selector in registry else None

    def _put_back(self, selector: str, entry: Any) -> None:
        if entry is not None:
            self._config._REGISTRY[selector] = entry

    def _look_again(self, entry: Any) -> None:
        """Resolves the references in values to an entry again."""
        if entry is not None:
            for reference in self._references(self._config._CONFIG, entry):
                reference.initialize()

    def _references(self, values: Any, entry: Any) -> list[Any]:
        return list(self._config.iterate_references(values, to=entry.wrapper))

    def _drop_values(self, selector: str, entry: Any) -> None:
        for values in (self._config._CONFIG, self._config._OPERATIVE_CONFIG):
            for key, bound in list(values.items()):
                kept = {
                    name: value
                    for name, value in bound.items()
                    if key[1] != selector and not self._references([value], entry)
                }
                if len(kept) < len(bound) or key[1] == selector:
                    del values[key]
                if kept:
                    values[key] = kept


def _with_facts(configured: Callable[..., Any]) -> Callable[..., Any]:
    """Lets errors of envkit through as they are.

    gin raises a copy of each error, with a sentence of its own, which has none of the
    attributes that say which environment it was, and which does not pickle.
    """

    @functools.wraps(configured)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return configured(*args, **kwargs)
        except EnvkitError as copy:
            error = copy.__context__
            if error is None or type(error) not in type(copy).__bases__:
                raise
        raise error

    return call


_Around = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def _imports_of_files(modules: Collection[str]) -> Iterator[None]:
    """Lets gin files import modules that need not exist.

    Those names are known already, and TF-Agents may not be installed. Files with
    `from __gin__ import dynamic_registration` use the module itself, so for them it is
    imported.
    """
    from gin import config

    context = config.ParseContext
    imported = context.process_import

    def process_import(self: Any, statement: Any) -> None:
        if statement.module in modules and not self._dynamic_registration:
            self.imports.append(statement)
        else:
            imported(self, statement)

    context.process_import = process_import
    try:
        yield
    finally:
        context.process_import = imported
        # gin repeats the imports when it writes its configuration down.
        for statement in list(config._IMPORTS):
            if statement.module in modules and statement.module not in sys.modules:
                config._IMPORTS.remove(statement)


@contextlib.contextmanager
def _around_imports(modules: Mapping[str, _Around]) -> Iterator[None]:
    """Does something around the import of modules.

    Args:
        modules: By name: what makes the context in which the module's code is run.
    """
    finder = _Finder(modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        # A test runner may have put the list back as it was.
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds a module as the other finders do, and loads it in a context."""

    def __init__(self, modules: Mapping[str, _Around]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._modules[fullname])
                return spec
        return None


class _Loader(Loader):
    """Loads as another loader does, in a context; the module keeps that loader."""

    def __init__(self, loader: Any, around: _Around) -> None:
        self._loader = loader
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # importlib has set it
        module.__spec__.loader = module.__loader__ = self._loader
        with self._around():
            self._loader.exec_module(module)
