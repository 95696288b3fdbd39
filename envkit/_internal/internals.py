"""`Internals`: all that envkit keeps of an environment, behind one private name.

Authors own the namespace of their classes. Beside the documented hooks envkit takes one
name there, `_envkit`. On a class it is an `Internals` that all its environments share:
what the class's methods accept, and how envkit treats environments of that kind. An
environment gets one of its own (`own_internals`) when something has to be kept for it,
such as the reset order of a batch, or a seed that waits for the next reset.

A class of envkit that is to be treated differently subclasses `Internals`, and says so
in its body: `_envkit = WrapperInternals()`.
"""

from __future__ import annotations

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
    "has_internals",
    "methods_of",
    "own_internals",
    "refuse_seeds",
    "written_with",
]

# That a method takes any keyword argument.
ANYTHING = "**"


class Methods(NamedTuple):
    """What is known of the methods of a class.

    Attributes:
        reset_takes: Which arguments of `reset` its `_reset` takes.
        reset_rows_takes: Which of them its `_reset_rows` takes.
        seeds_rows: False if it changes how all rows are seeded, and not how some are.
        resets_rows: The same of how rows are reset.
        moves_rows: The same of how rows are stepped.
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
    """The reset order of a batch, and what it keeps between calls.

    Attributes:
        order: The order.
        batch: The batch inside whose order counts; `None` for this one.
        is_suspended: Whether rows move as under `NEXT_STEP` for now.
        resets_at_once: Whether rows are being reset in the step that ended their
            episodes.
        shown: The attributes that show the step before such resets.
        late_error: What such a reset has raised; the next step raises it.
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
    """What envkit keeps of one environment, or of all environments of a class.

    Attributes:
        methods: What is known of the methods of the class.
        unseen: The calls whose first result has not been looked at.
        is_special: Whether `reset` and `step` do more than call a hook: until the first
            results have been looked at, and in a batch always.
        is_shared: Whether it belongs to a class, and is not to be changed.
        one_thread: Whether calls of other threads wait until one is through.
        locks_here: Whether it is this class that makes calls wait, not a base of it.
        is_template: Whether the class may override `reset` and `step`.
        keeps_order: Whether it knows what to do with the reset order of a batch.
        closes_at_once: Whether `close`, in any thread, ends the calls of others.
        wraps: Whether there is another environment in `_env`.
        keeps_order_itself: Whether a batch keeps its reset order in its hooks.
        lock: Held by the thread whose call is under way.
        origin: What a `Constructor` made the environment of.
        seed: What it was seeded with last, for its provenance.
        next_seed: What the next reset is seeded with; a list in a batch.
        next_options: What the next reset is told; a list in a batch.
        direct: What steps the environment in the place of `step`, if something does.
        order: The reset order of a batch; `None` as long as that is `NEXT_STEP`.
        structure: The structure of a batch's time steps, once it has been compiled.
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
        """Takes what a class of envkit says in its body."""
        self.unseen: tuple[str, ...] = ("reset", "step") if first_look else ()
        self.keeps_order = keeps_order
        self.one_thread = one_thread
        self.is_template = is_template
        self.closes_at_once = closes_at_once
        # As this, but for what has been looked at.
        self._variants: dict[tuple[tuple[str, ...], bool], Internals] = {}

    def of_class(self, methods: Methods, *, is_declared: bool) -> Internals:
        """Returns a copy for a class, which may say in its body what it is to be."""
        made = copy.copy(self)
        made.methods, made._variants = methods, {}
        made.locks_here = is_declared and self.one_thread
        return made

    def own(self, env: Any) -> Internals:
        """Returns what belongs to one environment alone, which gets it here."""
        if not self.is_shared:
            return self
        env._envkit = made = copy.copy(self)
        made.is_shared, made._variants = False, {}
        return made

    def look(self, unseen: tuple[str, ...], is_special: bool) -> Internals:
        """Returns this after a look at results, or what takes its place."""
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

    # What is different in some classes of envkit.

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the part of the provenance that it takes to make another one."""
        return provenance.plain_recipe(env)

    def inside(self, env: Any) -> list[Any]:
        """Returns the environments that this one is made of."""
        return []

    def packages(self, env: Any) -> set[str]:
        """Names the packages that the environment depends on."""
        inside = filter(has_internals, self.inside(env))
        packages = map(provenance.packages_of, inside)
        return provenance.packages_behind(env).union(*packages)

    def made_by(self, env: Any) -> provenance.MadeBy | None:
        """Returns which versions a state is of; `None` if a part of it says so."""
        return provenance.made_by(env)

    def accepts_options(self, env: Any, rows: Array | None) -> bool:
        """Returns True if the author's method that begins episodes takes options."""
        methods = self.methods
        taken = methods.reset_takes if rows is None else methods.reset_rows_takes
        return "options" in taken

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Keeps options for the next reset, or forgets them.

        Args:
            env: The environment.
            options: A dictionary, in a batch a list with one, or `None`, for each row;
                `None` forgets what has been kept.
            rows: In a batch, a mask of the rows that are to be reset; `None` for all.
        """
        if self.accepts_options(env, rows):
            own_internals(env).next_options = options
        else:
            offer_options(env, options, rows)

    def seed_rows(self, env: Any, seeds: list[int | None]) -> None:
        """Seeds all rows of a batch, or some if its class says how."""
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
        """Whether the rows move as under `NEXT_STEP` for now, whatever the order."""
        return self.order is not None and self.order.is_suspended

    @property
    def resets_at_once(self) -> bool:
        """Whether rows are being reset in the step that ended their episodes."""
        order = self.order
        if order is not None and order.batch is not None:
            order = order.batch._envkit.order
        return order is not None and order.resets_at_once

    def rely_on_size(self, env: Any, holder: Any) -> None:
        """Tells a batch whose size may change what relies on it, while that lives."""

    def direct_row(self, env: Any) -> DirectRow | None:
        """Returns what steps the environment without time steps, if that is the same.

        Only adapters of libraries have one, and wrappers that let most steps be. A
        worker asks for it when it begins, and again when it was asked to do something
        after which another answer may be right.
        """
        return None

    @staticmethod
    def are_own(env: Any, *names: str) -> bool:
        """Returns True if these methods of an environment are envkit's own.

        They are not where a subclass overrides one, or something has taken its place.

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
        """Raises if the environment is closed, where it has to be closed at all."""

    def others_have_begun(self, env: Any, mask: Array) -> bool:
        """Returns True if the rows outside of a mask have a time step."""
        return env._current_time_step is not None


def has_internals(env: Any) -> bool:
    """Returns True if an environment, or whatever it is, is one of envkit's."""
    # Asked of the class, because wrappers and mocks answer to any name.
    return isinstance(getattr(type(env), "_envkit", None), Internals)


def refuse_seeds(env: Any, seeds: list[int | None]) -> NoReturn:
    """Refuses seeds for some rows alone."""
    rows = np.array([row for row, seed in enumerate(seeds) if seed is not None])
    raise NotImplementedError(
        f"{type(env).__name__} cannot seed {named_rows(rows)} alone: override "
        "_seed_rows(seeds), whose seeds are None for the rows that go on. "
        "seed(seeds) seeds all rows."
    )


def own_internals(env: Any) -> Internals:
    """Returns the `Internals` of one environment, which it gets here if need be."""
    internals: Internals = env._envkit
    return internals.own(env) if internals.is_shared else internals


def methods_of(cls: Any, base: Any) -> Methods:
    """Looks at the methods of a class of environments that derives from `base`."""
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
    """Returns which arguments of a reset a method takes."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # It is not a function of Python.
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
