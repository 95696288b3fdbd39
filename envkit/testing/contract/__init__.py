"""What an environment promises, one small function for each promise.

`envkit.testing.check_environment` is the door; its table in `envkit.testing.checks`
lists the functions, their names and which of them rest on which. Each takes a `Trial`,
which makes environments and plays them, and returns if the promise is kept, raises
`Broken` if it is not, or raises `Skipped` if it cannot be looked at here.
"""
