"""`SignedStates`: states that clients keep, and that only their own session reads.

A state is plain data with a signature, so that it is opaque to the client, and nothing
that a client has made is ever read as a state.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from envkit.provenance import PlainDataError, dumped, from_plain, loaded, to_plain

__all__ = ["SignedStates"]

_KEY, _SIGNATURE = 32, 16


class SignedStates:
    """Writes and reads the states of one session.

    Example:
        >>> states = SignedStates()
        >>> states.load(states.dump({"place": (1, 2)}))
        {'place': (1, 2)}
        >>> SignedStates().load(states.dump(1))
        Traceback (most recent call last):
        ValueError: it was not made by this session of the server, and no other is read
    """

    def __init__(self) -> None:
        """Draws the key of a session."""
        self._key = secrets.token_bytes(_KEY)

    def dump(self, state: Any) -> bytes:
        """Returns a state with its signature.

        Raises:
            NotImplementedError: The state is not plain data.
        """
        try:
            text = dumped(to_plain(state, "state")).encode()
        except PlainDataError as error:
            raise NotImplementedError(
                f"The state of this environment does not leave its server: {error} "
                "Nothing that is pickled goes over a network."
            ) from error
        return self._signature(text) + text

    def load(self, token: bytes) -> Any:
        """Returns the state that `dump` has written.

        Raises:
            ValueError: Something else has written it.
        """
        signature, text = token[:_SIGNATURE], token[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(text)):
            raise ValueError(
                "it was not made by this session of the server, and no other is read"
            )
        return from_plain(loaded(text))

    def _signature(self, text: bytes) -> bytes:
        return hmac.new(self._key, text, hashlib.sha256).digest()[:_SIGNATURE]
