"""Environments and vector environments of Gymnasium, both ways."""
