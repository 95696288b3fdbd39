"""Environments over a network: served by name, and connected with.

Nothing in here unpickles what comes from a network: a peer names environments, and
sends numbers and plain data.
"""
