"""Wrappers of actions, and what they are made of."""
