"""Backends: each starts workers, wakes them, and reports how they ended."""
