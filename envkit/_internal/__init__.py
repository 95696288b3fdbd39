"""Shared helpers: texts, arguments, threads, lazy names."""
