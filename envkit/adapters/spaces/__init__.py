"""Spaces of Gymnasium and specs of envkit, and the values in them."""
