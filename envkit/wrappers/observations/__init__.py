"""Wrappers of observations, and what they are made of."""
