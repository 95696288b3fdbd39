"""Every wrapper over every batch keeps what environments promise."""

from __future__ import annotations

import pytest

from envkit.testing import check_environment
from tests.wrappers.all_cases import CASES, pairs, taking_turns
from tests.wrappers.environments import ENVIRONMENTS

ROWS = 3


@pytest.mark.parametrize(
    ("case", "name"), pairs(taking_turns([case for case in CASES if case.batched]))
)
def test_a_wrapped_batch_is_a_batch(case, name):
    make = ENVIRONMENTS[name]

    check_environment(
        lambda: case.wrap(make(ROWS)),
        steps=case.steps,
        require=["seed", "state", *case.require],
        skip=case.skip,
    )
