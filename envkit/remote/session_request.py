"""Checks a client's request for a session, and the actions it sends later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.extend import counted
from envkit.parallel.slab import Slab
from envkit.registry import constructor
from envkit.remote.offers import Menu, Refusal, ServeOptions
from envkit.remote.plain_values import ProtocolError, value_of
from envkit.specs.arrays import BoundedArraySpec
from envkit.types import Array, EnvConstructor

__all__ = ["ActionGuard", "SessionRequest", "request_of"]


class SessionRequest(NamedTuple):
    """A checked request for a session.

    Attributes:
        constructors: The constructor of each environment.
        names: The names of the environments.
        first_env: The index of the first environment, for messages.
        validate: Which time steps are checked.
        seeds: The seed of each environment before its first reset.
        rings: Whether each row is answered as soon as it is done.
        hide: Removes the values of the server's own arguments from a message.
        hidden: The names of the server's own arguments.
    """

    constructors: tuple[EnvConstructor, ...]
    names: tuple[str, ...]
    first_env: int = 0
    validate: str = "first"
    seeds: tuple[Any, ...] = ()
    rings: bool = False
    hide: Callable[[str], str] = str
    hidden: frozenset[str] = frozenset()


def request_of(request: Any, menu: Menu, options: ServeOptions) -> SessionRequest:
    """Checks and returns a client's request.

    Raises:
        Refusal: The menu lacks an environment, or the client asks for too much.
    """
    if not isinstance(request, dict) or not isinstance(
        request.get("environments"), list
    ):
        raise Refusal("A session needs a list of environments.")
    makers: list[Callable[[], Any]] = []
    names: list[str] = []
    hidden: set[str] = set()
    most = options.max_rows
    for one in request["environments"]:
        if not isinstance(one, list) or len(one) != 3:
            raise Refusal("An environment must be a name, arguments and a count.")
        name, arguments, count = one
        if not isinstance(name, str) or type(count) is not int or count < 1:
            raise Refusal("An environment must be a name, arguments and a count.")
        offer = menu.find(name)
        try:
            given = value_of(arguments)
        except ProtocolError as error:
            raise Refusal(str(error)) from error
        given = offer.check_arguments(given, options.allow_arg)
        if len(makers) + count > most:
            raise Refusal(
                f"A session may have at most {counted(most, 'environment')} "
                f"(--max-rows); you asked for {len(makers) + count}."
            )
        makers += [constructor(offer.recipe, **given)] * count
        names += [offer.id] * count
        hidden |= offer.arguments.keys()
    if not makers:
        raise Refusal("A session must have at least one environment.")
    validate, first_env = request.get("validate", "first"), request.get("first_env", 0)
    if validate not in ("always", "first", "never"):
        raise Refusal("validate must be 'always', 'first' or 'never'.")
    if type(first_env) is not int or first_env < 0:
        raise Refusal("first_env must be the index of an environment.")
    seeds = value_of(request.get("seeds", []))
    if not isinstance(seeds, list) or len(seeds) not in (0, len(makers)):
        raise Refusal("seeds must be a list with one seed per environment.")
    return SessionRequest(
        tuple(makers),
        tuple(names),
        first_env,
        validate,
        tuple(seeds),
        bool(request.get("rings")),
        menu.hide,
        frozenset(hidden),
    )


class ActionGuard:
    """Checks a client's actions before the environments see them."""

    def __init__(self, slab: Slab, begins: Callable[[int], bool]) -> None:
        self._slab = slab
        self._begins = begins
        self._bounded: list[tuple[int, Array, Array]] = []
        self._unsigned: dict[int, tuple[str, int]] = {}
        for leaf, spec in enumerate(slab.layout.action.leaves):
            if not isinstance(spec, BoundedArraySpec) or spec.dtype.kind not in "iufb":
                continue
            low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
            if spec.dtype.kind in "iu":
                info = np.iinfo(spec.dtype)
                if (low <= info.min).all() and (high >= info.max).all():
                    continue
            self._bounded.append((leaf, low, high))
            # With a minimum of 0 one comparison is enough: read as unsigned, negative
            # numbers are large.
            if spec.dtype.kind in "iu" and not low.any() and not high.ndim:
                self._unsigned[leaf] = (f"u{spec.dtype.itemsize}", int(high))

    def bad_rows(self, rows: Sequence[int]) -> list[int]:
        """Returns the rows whose next step has an action out of bounds."""
        # Hot: once per request.
        slab, bad = self._slab, None
        columns = slab.action_columns()
        is_all = len(rows) == slab.layout.rows
        for leaf, low, high in self._bounded:
            column = columns[leaf] if is_all else columns[leaf][rows]
            if leaf in self._unsigned and column.size:
                kind, most = self._unsigned[leaf]
                if column.view(kind).max() <= most:
                    continue
            if not column.size or (
                not low.ndim
                and not high.ndim
                and column.min() >= low
                and column.max() <= high
            ):
                continue
            fits = (column >= low) & (column <= high)
            if fits.all():
                continue
            one = ~fits.reshape(len(fits), -1).all(axis=1)
            bad = one if bad is None else bad | one
        if bad is None:
            return []
        chosen = np.asarray(rows)[bad]
        return [
            row
            for row in chosen[slab.are_to_step(chosen)].tolist()
            # The action of a step that begins an episode is ignored.
            if not self._begins(row)
        ]
