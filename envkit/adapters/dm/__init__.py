"""What the adapters of dm_env and dm_control are made of."""
