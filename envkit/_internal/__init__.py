"""Helpers that are no feature of their own: texts, arguments, threads, lazy names."""
