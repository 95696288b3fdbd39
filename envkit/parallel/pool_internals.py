"""`PoolInternals`: the private calls of wrappers and batches around a pool."""

from __future__ import annotations

import weakref
from typing import Any

from envkit._internal.internals import Internals
from envkit.parallel.asking import send_options
from envkit.provenance import recipe_of_rows
from envkit.registry import recipe_of_constructor
from envkit.time_step import AutoReset
from envkit.types import Array

__all__ = ["PoolInternals"]


class PoolInternals(Internals):
    """Implements envkit's private calls for a pool."""

    keeps_order_itself = True

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the recipe of the pool, with those of its environments."""
        recipe = recipe_of_rows(env, map(recipe_of_constructor, env._constructors))
        specs = {} if env._options.specs == "equal" else {"specs": env._options.specs}
        return {**recipe, "arguments": {"autoreset": env._order_kept.value, **specs}}

    def packages(self, env: Any) -> set[str]:
        """Returns no packages: they are in the workers."""
        return set()

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Sends options to the environments before the reset that uses them.

        Environments forget the options that this reset did not use, so nothing has to
        be taken back.
        """
        if options is not None:
            send_options(env, options, rows)
            env._given.set_options(options, rows)

    def suspend_order(self, env: Any, suspended: bool) -> None:
        """Suspends the pool's autoreset order, or restores it."""
        super().suspend_order(env, suspended)
        if env._order_kept is not AutoReset.NEXT_STEP and not env._closed:
            env._move_in(AutoReset.NEXT_STEP if suspended else env._order_kept)

    def rely_on_size(self, env: Any, holder: Any) -> None:
        """Makes `resize` raise while `holder` relies on the number of rows."""
        refs = [ref for ref in env._relying_refs if ref() is not None]
        env._relying_refs = [*refs, weakref.ref(holder)]

    def others_have_begun(self, env: Any, mask: Array) -> bool:
        """Returns True if all rows outside the mask have begun an episode."""
        env._settle()
        return bool(env._pool.begun[~mask].all())
