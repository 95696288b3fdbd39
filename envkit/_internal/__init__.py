"""Helpers without a feature of their own: texts, arguments, threads, lazy names."""
