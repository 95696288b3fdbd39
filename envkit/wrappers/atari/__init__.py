"""Wrappers for Atari games, and for games like them."""
