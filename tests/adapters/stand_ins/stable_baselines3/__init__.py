"""Stands in for Stable-Baselines3 where that is not installed: it brings PyTorch.

It has what `to_sb3` inherits from the library. `sb3_checks.py` runs with the real one.
"""
