"""A wrapper that gives environments their own global random generators."""

from envkit.wrappers.private_randomness import PrivateRandomness
from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS

CASES = [
    Case(
        "private_randomness",
        PrivateRandomness,
        tuple(ENVIRONMENTS),
        commutes=False,
        batched=False,
    )
]
