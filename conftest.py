"""Lets pytest run the code blocks of README.md and of the guides in docs/.

A block that begins with `>>>` is run line by line and its output compared; any other
```python block is run as it is. The blocks of one page share their names, from top to
bottom, so a page reads and runs like one session.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

from envkit import registry

# Sphinx runs its settings with a name that does not exist anywhere else; the other two
# are what it builds.
collect_ignore = [
    "docs/conf.py",
    "docs/_build",
    "docs/reference/generated",
    "tests/adapters/gym_games.py",  # a program for interpreters that have an old Gym
]
# By the library without which they cannot be imported.
_NEEDED_BY = {
    "browsergym": [
        "tests/adapters/browsergym_checks.py",
        "tests/adapters/browser_tasks.py",
    ],
    "dm_control": ["envkit/adapters/dm_control/suite.py"],
    "envpool": ["tests/adapters/pools.py"],
    "jax": ["envkit/jax.py", "docs/jax.md"],
    "openenv": ["tests/remote/openenv_checks.py", "tests/remote/openenv_games.py"],
    "ormsgpack": ["tests/adapters/rllib_checks.py"],  # comes with RLlib, not with Ray
    "skyrl_gym": ["tests/sessions/skyrl_checks.py"],
    "torch": ["envkit/torch", "docs/pytorch.md", "docs/coming_from_cleanrl.md"],
    "torchrl": ["envkit/torch/torchrl_environment.py", "docs/pytorch.md"],
    "transformers": ["tests/sessions/chat_models.py"],
    "trl": ["tests/sessions/trl_checks.py"],
}
# And a page about a library says so itself, in its first line.
for _page in sorted(Path(__file__).with_name("docs").glob("adapters/*.md")):
    if _needed := re.match(r"<!-- needs (\w+) -->", _page.read_text("utf-8")):
        _NEEDED_BY.setdefault(_needed[1], []).append(f"docs/adapters/{_page.name}")
for _library, _paths in _NEEDED_BY.items():
    if importlib.util.find_spec(_library) is None:
        collect_ignore += _paths

if sys.version_info < (3, 11):
    # The doctest of Python 3.10 compares the last line of an error's notes alone.
    _whole = SimpleNamespace(**vars(traceback))
    _whole.format_exception_only = lambda *error: [
        "".join(traceback.format_exception_only(*error))
    ]
    doctest.traceback = _whole  # type: ignore[attr-defined]

_registered = dict(registry._registry)


def _begin_page(namespace: dict[str, Any]) -> None:
    """Gives a page the module name that a reader's own session has."""
    namespace["__name__"] = "__main__"


def _end_page(namespace: dict[str, Any]) -> None:
    """Forgets what a page gave a name to, which other tests would stumble over."""
    registry._registry.clear()
    registry._registry.update(_registered)


pytest_collect_file = Sybil(
    # `...` in an output stands for what a reader has no use for.
    parsers=[PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS)],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    setup=_begin_page,
    teardown=_end_page,
).pytest()
