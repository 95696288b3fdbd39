"""Looking at everything that goes through."""

from envkit.wrappers.checking import PassiveChecker
from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS

CASES = [
    Case("passive_checker", PassiveChecker, tuple(ENVIRONMENTS), require=("render",))
]
