"""Names that adapters, backends and other packages build on, beyond the public ones.

Packages below the wall import only public names and these from the contract and the
engine. Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._internal.lazy_names import lazy_names as lazy_names

if TYPE_CHECKING:
    from envkit._internal.arguments import checked_flag as checked_flag
    from envkit._internal.arguments import checked_size as checked_size
    from envkit._internal.direct_row import DirectRow as DirectRow
    from envkit._internal.direct_row import Result as Result
    from envkit._internal.extras import install_command as install_command
    from envkit._internal.first_look import leave_unseen as leave_unseen
    from envkit._internal.internals import Internals as Internals
    from envkit._internal.lazy_names import lazy_names as lazy_names
    from envkit._internal.objects import as_environment as as_environment
    from envkit._internal.plugins import Plugins as Plugins
    from envkit._internal.removed import (
        refuses_removed_options as refuses_removed_options,
    )
    from envkit._internal.schemes import Scheme as Scheme
    from envkit._internal.schemes import scheme_named as scheme_named
    from envkit._internal.text import a_or_an as a_or_an
    from envkit._internal.text import bound_text as bound_text
    from envkit._internal.text import counted as counted
    from envkit._internal.text import foreign as foreign
    from envkit._internal.text import listed as listed
    from envkit._internal.text import suggestion as suggestion
    from envkit._internal.threads import locked as locked
    from envkit.actions import ACCEPTED_KINDS as ACCEPTED_KINDS
    from envkit.actions import ActionRows as ActionRows
    from envkit.base_wrapper import WrapperInternals as WrapperInternals
    from envkit.base_wrapper import WrapperState as WrapperState
    from envkit.base_wrapper import set_attribute as set_attribute
    from envkit.batches import copied_arrays as copied_arrays
    from envkit.batches import hand_options as hand_options
    from envkit.batches import options_copy as options_copy
    from envkit.batches import rely_on_size as rely_on_size
    from envkit.losses import may_lose as may_lose
    from envkit.parallel.worker.environments import lines_at_close as lines_at_close
    from envkit.py_environment import SpecifiedEnvironment as SpecifiedEnvironment
    from envkit.specs.arrays import as_array as as_array
    from envkit.specs.arrays import as_outer_dims as as_outer_dims
    from envkit.specs.arrays import within as within
    from envkit.specs.validation import describe as describe
    from envkit.specs.validation import flatten_as as flatten_as
    from envkit.time_step import FLAGS as FLAGS
    from envkit.time_step import derive_from_tf_agents as derive_from_tf_agents
    from envkit.time_step import flags_in as flags_in

_HOMES = {
    "ACCEPTED_KINDS": "envkit.actions",
    "FLAGS": "envkit.time_step",
    "ActionRows": "envkit.actions",
    "DirectRow": "envkit._internal.direct_row",
    "Internals": "envkit._internal.internals",
    "Plugins": "envkit._internal.plugins",
    "Result": "envkit._internal.direct_row",
    "Scheme": "envkit._internal.schemes",
    "SpecifiedEnvironment": "envkit.py_environment",
    "WrapperInternals": "envkit.base_wrapper",
    "WrapperState": "envkit.base_wrapper",
    "a_or_an": "envkit._internal.text",
    "as_array": "envkit.specs.arrays",
    "as_environment": "envkit._internal.objects",
    "as_outer_dims": "envkit.specs.arrays",
    "bound_text": "envkit._internal.text",
    "checked_flag": "envkit._internal.arguments",
    "checked_size": "envkit._internal.arguments",
    "copied_arrays": "envkit.batches",
    "counted": "envkit._internal.text",
    "derive_from_tf_agents": "envkit.time_step",
    "describe": "envkit.specs.validation",
    "flags_in": "envkit.time_step",
    "flatten_as": "envkit.specs.validation",
    "foreign": "envkit._internal.text",
    "hand_options": "envkit.batches",
    "install_command": "envkit._internal.extras",
    "lazy_names": "envkit._internal.lazy_names",
    "leave_unseen": "envkit._internal.first_look",
    "lines_at_close": "envkit.parallel.worker.environments",
    "listed": "envkit._internal.text",
    "locked": "envkit._internal.threads",
    "may_lose": "envkit.losses",
    "options_copy": "envkit.batches",
    "refuses_removed_options": "envkit._internal.removed",
    "rely_on_size": "envkit.batches",
    "scheme_named": "envkit._internal.schemes",
    "set_attribute": "envkit.base_wrapper",
    "suggestion": "envkit._internal.text",
    "within": "envkit.specs.arrays",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
