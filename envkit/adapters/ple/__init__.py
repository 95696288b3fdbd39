"""PLE: the PyGame Learning Environment."""

from envkit.extend import Scheme, lazy_names

# PLE is in no registry: it is installed from a checkout.
SCHEME = Scheme(
    "envkit.adapters.ple.suite:load",
    title="PLE",
    example="Catcher",
    page="adapters/ple",
    package="pygame",
    beside="ple",
    remedy="Clone github.com/ntasfi/PyGame-Learning-Environment and install that "
    "folder: {command} -e PyGame-Learning-Environment",
    extra="ple",
    requires=(
        "pillow>=10",
        "pygame-ce>=2.5",
    ),
    lister="envkit.adapters.ple.suite:names",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(["PLEWrapper", "load", "names"], "envkit.adapters.ple.suite"),
)
