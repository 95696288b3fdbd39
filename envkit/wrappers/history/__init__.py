"""Wrappers that show earlier observations."""
