"""What the adapters of EnvPool are made of."""
