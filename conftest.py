"""Lets pytest run the code blocks of README.md and of the guides in docs/.

A block that begins with `>>>` is run line by line and its output compared; any other
```python block is run as it is. The blocks of one page share their names, from top to
bottom, so a page reads and runs like one session.
"""

from __future__ import annotations

import doctest
import importlib.util
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
if importlib.util.find_spec("openenv") is None:  # Then they cannot be imported.
    collect_ignore += [
        "tests/remote/openenv_checks.py",
        "tests/remote/openenv_games.py",
    ]
if importlib.util.find_spec("jax") is None:
    collect_ignore += ["envkit/jax.py", "docs/jax.md"]
if importlib.util.find_spec("minari") is None:
    collect_ignore += ["docs/adapters/minari.md"]
if importlib.util.find_spec("torch") is None:
    collect_ignore += ["envkit/torch", "docs/pytorch.md", "docs/coming_from_cleanrl.md"]
elif importlib.util.find_spec("torchrl") is None:
    collect_ignore += ["envkit/torch/torchrl_environment.py", "docs/pytorch.md"]


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
