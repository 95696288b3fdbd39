"""Holds what is shared."""
