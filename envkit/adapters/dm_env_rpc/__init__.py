"""dm_env_rpc: environments that a server of its protocol has."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.dm_env_rpc.client:load",
    title="dm_env_rpc",
    page="adapters/dm_env_rpc",
    package="dm_env_rpc",
    extra="dm-env-rpc",
    requires=("dm-env-rpc>=1.1",),
    address="localhost:9000",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["DmEnvRpcError", "DmEnvRpcWrapper", "load"],
        "envkit.adapters.dm_env_rpc.client",
    ),
)
