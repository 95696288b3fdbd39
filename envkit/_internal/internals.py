"""Everything that envkit stores about an environment, behind one name: `Internals`.

Authors own the namespace of their classes. Besides the documented hooks, envkit uses
one name in it, `_envkit`. On a class it is an `Internals` shared by all its
environments: the arguments that the class's methods accept, and how envkit treats such
environments. An environment gets its own (`own_internals`) when something must be
stored for it, such as a batch's reset order, or a seed for the next reset.

A class of envkit that needs different treatment subclasses `Internals`, and says so in
its body: `_envkit = WrapperInternals()`.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from envkit import provenance
from envkit._internal.options import offer_options
from envkit._internal.text import named_rows
from envkit.provenance import Origin
from envkit.time_step import AutoReset

if TYPE_CHECKING:
    from envkit import nest
    from envkit._internal.direct_row import DirectRow
    from envkit._internal.threads import CallLock
    from envkit.types import Array

__all__ = [
    "ANYTHING",
    "Internals",
    "Methods",
    "ResetOrder",
    "class_behind",
    "has_internals",
    "methods_of",
    "own_internals",
    "refuse_seeds",
    "written_with",
]

# A method that accepts any keyword argument.
ANYTHING = "**"


class Methods(NamedTuple):
    """Describes the methods of a class.

    Attributes:
        reset_takes: The arguments of `reset` that its `_reset` accepts.
        reset_rows_takes: The arguments that its `_reset_rows` accepts.
        seeds_rows: False if it overrides how all rows are seeded, but not single rows.
        resets_rows: False if it overrides how all rows are reset, but not single rows.
        moves_rows: False if it overrides how all rows step, but not single rows.
        asks_should_reset: Whether it overrides `should_reset`.
        overrides_step: Whether it overrides `step`.
    """

    reset_takes: tuple[str, ...] = ()
    reset_rows_takes: tuple[str, ...] = ()
    seeds_rows: bool = False
    resets_rows: bool = True
    moves_rows: bool = True
    asks_should_reset: bool = False
    overrides_step: bool = False


class ResetOrder:
    """Holds the reset order of a batch, and its state between calls.

    Attributes:
        order: The order.
        batch: The batch inside that owns the order; `None` for this one.
        is_suspended: Whether rows currently move as under `NEXT_STEP`.
        resets_at_once: Whether rows are being reset in the step that ended their
            episodes.
        shown: The attributes that show the step before such resets.
        late_error: The error of such a reset; the next step raises it.
    """

    def __init__(
        self, order: AutoReset = AutoReset.NEXT_STEP, batch: Any = None
    ) -> None:
        """Takes an order, or the batch inside that has one."""
        self.order, self.batch = order, batch
        self.is_suspended = self.resets_at_once = False
        self.shown: tuple[str, ...] = ()
        self.late_error: Exception | None = None


class Internals:
    """Holds envkit's data about one environment, or about all environments of a class.

    Attributes:
        methods: The description of the class's methods.
        unseen: The calls whose first result has not been checked.
        is_special: Whether `reset` and `step` do more than call a hook: until the first
            results have been checked, and in a batch always.
        is_shared: Whether it belongs to a class, and must not be changed.
        one_thread: Whether calls from other threads wait for the running one.
        locks_here: Whether this class itself makes calls wait, not a base class.
        is_template: Whether the class may override `reset` and `step`.
        keeps_order: Whether it can handle the reset order of a batch.
        closes_at_once: Whether `close`, from any thread, ends running calls.
        wraps: Whether there is another environment in `_env`.
        keeps_order_itself: Whether a batch keeps its reset order in its hooks.
        lock: Held by the thread of the running call.
        origin: The recipe from which a `Constructor` made the environment.
        seed: The latest seed, for the provenance.
        next_seed: The seed of the next reset; a list in a batch.
        next_options: The options of the next reset; a list in a batch.
        direct: The object that steps the environment instead of `step`, if there is
            one.
        order: The reset order of a batch; `None` while it is `NEXT_STEP`.
        structure: The structure of a batch's time steps, once compiled.
    """

    methods = Methods()
    is_special = True
    is_shared = True
    wraps = False
    keeps_order_itself = False
    locks_here = False
    lock: CallLock
    origin: Origin | None = None
    seed: Any = None
    next_seed: Any = None
    next_options: Any = None
    direct: DirectRow | None = None
    order: ResetOrder | None = None
    structure: nest.Structure | None = None

    def __init__(
        self,
        *,
        first_look: bool = True,
        keeps_order: bool = True,
        one_thread: bool = False,
        is_template: bool = False,
        closes_at_once: bool = False,
    ) -> None:
        """Takes the declarations in the body of one of envkit's classes."""
        self.unseen: tuple[str, ...] = ("reset", "step") if first_look else ()
        self.keeps_order = keeps_order
        self.one_thread = one_thread
        self.is_template = is_template
        self.closes_at_once = closes_at_once
        # The same, with its checks still to be done.
        self._variants: dict[tuple[tuple[str, ...], bool], Internals] = {}

    def of_class(self, methods: Methods, *, is_declared: bool) -> Internals:
        """Returns a copy for a class, with the declarations in that class's body."""
        made = copy.copy(self)
        made.methods, made._variants = methods, {}
        made.locks_here = is_declared and self.one_thread
        return made

    def own(self, env: Any) -> Internals:
        """Returns the environment's own internals, creating them if necessary."""
        if not self.is_shared:
            return self
        env._envkit = made = copy.copy(self)
        made.is_shared, made._variants = False, {}
        return made

    def look(self, unseen: tuple[str, ...], is_special: bool) -> Internals:
        """Records that results were checked; returns this object or its replacement."""
        if not self.is_shared:
            self.unseen, self.is_special = unseen, is_special
            return self
        key = unseen, is_special
        if key not in self._variants:
            made = copy.copy(self)
            made.unseen, made.is_special = key
            self._variants[key] = made
        return self._variants[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_variants": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> Internals:
        if self.is_shared:
            return self
        memo[id(self)] = made = copy.copy(self)
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    # Methods that some of envkit's classes override.

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the part of the provenance that is needed to make another one."""
        return provenance.plain_recipe(env)

    def inside(self, env: Any) -> list[Any]:
        """Returns the environments that this one contains."""
        return []

    def packages(self, env: Any) -> set[str]:
        """Names the packages that the environment depends on."""
        inside = filter(has_internals, self.inside(env))
        packages = map(provenance.packages_of, inside)
        return provenance.packages_behind(env).union(*packages)

    def made_by(self, env: Any) -> provenance.MadeBy | None:
        """Returns the versions to record in a state; `None` if its parts have them."""
        return provenance.made_by(env)

    def accepts_options(self, env: Any, rows: Array | None) -> bool:
        """Returns True if the author's reset method accepts options."""
        methods = self.methods
        taken = methods.reset_takes if rows is None else methods.reset_rows_takes
        return "options" in taken

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Stores options for the next reset, or discards them.

        Args:
            env: The environment.
            options: A dictionary, or for a batch a list with one, or `None`, for each
                row; `None` discards stored options.
            rows: In a batch, a mask of the rows to be reset; `None` for all.
        """
        if self.accepts_options(env, rows):
            own_internals(env).next_options = options
        else:
            offer_options(env, options, rows)

    def seed_rows(self, env: Any, seeds: list[int | None]) -> None:
        """Seeds all rows of a batch, or some if its class supports that."""
        if None not in seeds:
            env.seed(seeds)
            return
        if not env.seeds_rows:
            refuse_seeds(env, seeds)
        env._seed_rows(seeds)

    def padding_rows(self, env: Any) -> Array | None:
        """Returns the rows whose next step repeats a `LAST`; `None` for none."""
        return None

    def changes_order(self, env: Any) -> bool:
        """Returns True if the reset order of the batch can be changed."""
        return True

    def suspend_order(self, env: Any, suspended: bool) -> None:
        """Suspends the reset order of the batch, or restores it.

        While it is suspended, rows move as under `NEXT_STEP`.
        """
        internals = own_internals(env)
        internals.order = internals.order or ResetOrder()
        internals.order.is_suspended = suspended

    @property
    def is_suspended(self) -> bool:
        """Whether rows currently move as under `NEXT_STEP`, whatever the order."""
        return self.order is not None and self.order.is_suspended

    @property
    def resets_at_once(self) -> bool:
        """Whether rows are being reset in the step that ended their episodes."""
        order = self.order
        if order is not None and order.batch is not None:
            order = order.batch._envkit.order
        return order is not None and order.resets_at_once

    def rely_on_size(self, env: Any, holder: Any) -> None:
        """Tells a batch of variable size which live object relies on its size."""

    def direct_row(self, env: Any) -> DirectRow | None:
        """Returns an object that steps the environment without time steps, or `None`.

        Only adapters of libraries have one, and wrappers that pass most steps on
        unchanged. A worker asks for it when it starts, and again after requests that
        may change the answer.
        """
        return None

    @staticmethod
    def are_own(env: Any, *names: str) -> bool:
        """Returns True if these methods of an environment are envkit's own.

        They are not if a subclass overrides one, or an instance attribute replaces one.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> __name__ = "my_game"  # the module of the class
            >>> class Twice(CountingEnv):
            ...     def _step(self, action):
            ...         return super()._step(2 * action)
            >>> Internals.are_own(CountingEnv(), "_step", "step")
            True
            >>> Internals.are_own(Twice(), "_step", "step")
            False
        """
        methods = [getattr(env, name) for name in names]
        homes = [getattr(getattr(m, "__func__", m), "__module__", "") for m in methods]
        return all(str(home).startswith("envkit.") for home in homes)

    def check_open(self, env: Any, call: str) -> None:
        """Raises if the environment is closed, if it is of a kind that must be open."""

    def others_have_begun(self, env: Any, mask: Array) -> bool:
        """Returns True if all rows outside a mask have a time step."""
        return env._current_time_step is not None


def has_internals(env: Any) -> bool:
    """Returns True if an object is an environment of envkit."""
    # Checks the class, because wrappers and mocks answer to any name.
    return isinstance(getattr(type(env), "_envkit", None), Internals)


def class_behind(env: Any) -> type:
    """Returns the class whose code moves an environment: an adapter's is a library's.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> class_behind(CountingEnv()).__name__
        'CountingEnv'
    """
    if has_internals(env) and not env._envkit.wraps:
        # A library's environment may raise anything.
        with contextlib.suppress(Exception):
            inner = env.unwrapped
            return type(env) if has_internals(inner) else type(inner)
    return type(env)


def refuse_seeds(env: Any, seeds: list[int | None]) -> NoReturn:
    """Refuses seeds for single rows."""
    rows = np.array([row for row, seed in enumerate(seeds) if seed is not None])
    raise NotImplementedError(
        f"{type(env).__name__} cannot seed {named_rows(rows)} alone: override "
        "_seed_rows(seeds), whose seeds are None for the rows that go on. "
        "seed(seeds) seeds all rows."
    )


def own_internals(env: Any) -> Internals:
    """Returns an environment's own `Internals`, creating them if necessary."""
    internals: Internals = env._envkit
    return internals.own(env) if internals.is_shared else internals


def methods_of(cls: Any, base: Any) -> Methods:
    """Inspects the methods of a class of environments that derives from `base`."""
    return Methods(
        reset_takes=_taken_by(cls._reset),
        reset_rows_takes=_taken_by(cls._reset_rows),
        seeds_rows=written_with(cls, "_seed_rows", "seed"),
        resets_rows=written_with(cls, "_reset_rows", "_reset"),
        moves_rows=written_with(cls, "_step_rows", "_step"),
        asks_should_reset=cls.should_reset is not base.should_reset,
        overrides_step=cls.step is not base.step,
    )


def _taken_by(method: Any) -> tuple[str, ...]:
    """Returns the arguments of a reset that a method accepts."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # it is not a Python function
        return ()
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return "seed", "options", ANYTHING
    return tuple(name for name in ("seed", "options") if name in parameters)


def written_with(cls: type, hook: str, whole: str) -> bool:
    """Returns True if a hook was written together with the method it belongs to."""
    for owner in cls.__mro__:
        if hook in vars(owner):
            return True
        if whole in vars(owner):
            return False
    return False
