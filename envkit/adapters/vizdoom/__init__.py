"""ViZDoom: scenarios of Doom."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.vizdoom.suite:load",
    title="ViZDoom",
    example="basic",
    page="adapters/vizdoom",
    package="vizdoom",
    extra="vizdoom",
    requires=("vizdoom>=1.2",),
    lister="envkit.adapters.vizdoom.suite:scenarios",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["VizDoomWrapper", "load", "scenarios"], "envkit.adapters.vizdoom.suite"
    ),
)
