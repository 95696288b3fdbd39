"""Keeps a pool going: recovery, checkpoints, limits, resizing, publishing."""
