"""The commands: `envkit COMMAND ...`, or `python -m envkit COMMAND ...`."""
