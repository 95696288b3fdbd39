"""The entry that the layout asks for: metadata is in pyproject.toml."""

from setuptools import setup

setup()  # Everything about the package is in pyproject.toml.
