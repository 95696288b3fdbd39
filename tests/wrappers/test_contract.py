"""Every wrapper over every environment keeps what environments promise."""

from __future__ import annotations

import pytest

from envkit.testing import check_environment
from envkit.testing.checks import CHECKS
from tests.wrappers.all_cases import CASES, pairs
from tests.wrappers.environments import ENVIRONMENTS

# Commuting cases first, so that their numbers are the same in both lists.
IN_ORDER = sorted(CASES, key=lambda case: not case.commutes)
OF_BATCHES = [case for case in IN_ORDER if case.batched]
# Drawing takes long, and is the base class's in nearly all wrappers: where it is not,
# and in one wrapper of the others, the case requires it.
DRAWING = tuple(check.name for check in CHECKS if check.name.startswith("render"))


def check(case, name, rows):
    make = ENVIRONMENTS[name]
    check_environment(
        lambda: case.wrap(make(rows)),
        steps=case.steps,
        require=["seed", "state", "episodes", *case.require],
        skip=(*case.skip, *(() if "render" in case.require else DRAWING)),
    )


@pytest.mark.parametrize(("case", "name"), pairs(IN_ORDER, turn=0))
def test_wrapped_environments_keep_the_contract(case, name):
    check(case, name, None)


@pytest.mark.parametrize(("case", "name"), pairs(OF_BATCHES, turn=1))
def test_wrapped_batches_keep_the_contract(case, name):
    check(case, name, 3)
