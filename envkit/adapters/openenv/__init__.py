"""OpenEnv: environments that a server of its protocol has."""

from envkit.extend import Scheme, lazy_names

# OpenEnv's own package is no need. The server is in envkit.remote.
SCHEME = Scheme(
    "envkit.adapters.openenv.client:load",
    title="OpenEnv",
    page="adapters/openenv",
    package="websockets",
    extra="openenv",
    requires=(
        "starlette>=0.40",
        "uvicorn>=0.35",
        "websockets>=15",
    ),
    address="http://localhost:8000",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["OpenEnvError", "OpenEnvWrapper", "load"], "envkit.adapters.openenv.client"
    ),
)
