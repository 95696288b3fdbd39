"""Wrappers of pictures, and arithmetic on pictures."""
