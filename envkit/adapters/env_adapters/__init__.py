"""The parts of `EnvAdapter`."""
