"""The parts of `envkit.adapters.urnai`."""
