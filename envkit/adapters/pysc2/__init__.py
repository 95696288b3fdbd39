"""PySC2: StarCraft II."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.pysc2.suite:load",
    title="PySC2",
    example="MoveToBeacon",
    page="adapters/pysc2",
    package="pysc2",
    extra="pysc2",
    requires=(
        "absl-py>=1.4",
        "pysc2>=4.0",
    ),
    lister="envkit.adapters.pysc2.suite:names",
)

__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(["load", "names", "prepare"], "envkit.adapters.pysc2.suite")
)
