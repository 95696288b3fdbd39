"""Every wrapper over every single environment keeps what environments promise."""

from __future__ import annotations

import pytest

from envkit.testing import check_environment
from tests.wrappers.all_cases import CASES, all_pairs
from tests.wrappers.environments import ENVIRONMENTS


@pytest.mark.parametrize(("case", "name"), all_pairs(CASES))
def test_a_wrapped_environment_is_an_environment(case, name):
    make = ENVIRONMENTS[name]

    check_environment(
        lambda: case.wrap(make(None)),
        steps=case.steps,
        require=["seed", "state", *case.require],
        skip=case.skip,
    )
