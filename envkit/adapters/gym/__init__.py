"""The old Gym, in which a step returns four or five values."""

from envkit.extend import Scheme, lazy_names

# Older versions conflict with envkit's requirements.
SCHEME = Scheme(
    "envkit.adapters.gym.suite:load",
    title="the old Gym",
    example="CartPole-v1",
    page="adapters/gym",
    package="gym",
    extra="gym",
    requires=("gym>=0.22",),
    lister="envkit.adapters.gym.suite:names",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["GymWrapper", "load", "names", "wrap_env"], "envkit.adapters.gym.suite"
    ),
)
