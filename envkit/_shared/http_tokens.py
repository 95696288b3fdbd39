"""The token in a request's headers: `token_in`."""

from __future__ import annotations

import base64
from collections.abc import Mapping

__all__ = ["token_in"]


def token_in(headers: Mapping[str, str]) -> bytes | None:
    """Returns the token in the header `Authorization`; `None` if there is none.

    Users of a library's client often cannot set headers, but a name and a password in
    their address become a header of the scheme `Basic`; the token is its password.
    Browsers add that header to requests from other sites' pages too, but these also
    name their site.

    Example:
        >>> token_in({"authorization": "Bearer 1gXZUsz"})
        b'1gXZUsz'
        >>> token_in({"authorization": "Basic dG9rZW46MWdYWlVzeg=="})
        b'1gXZUsz'
    """
    header: str = headers.get("authorization", "")
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1")
    if scheme.lower() != "basic" or "origin" in headers:
        return None
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except ValueError:  # also binascii.Error
        return None
