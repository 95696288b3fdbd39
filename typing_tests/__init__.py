"""A user's code in ten shapes, for mypy: `make types` checks it.

`assert_type` says what an editor is to know. A line that ends in `type: ignore` with an
error's code is a mistake that mypy has to find: if it does not, it complains about the
comment.
"""
