"""Tokens, passwords and certificates, read from the files that options name."""

from __future__ import annotations

import argparse
import ssl

from envkit._shared.secret_files import SecretFileError, check_token, secret_in
from envkit._shared.server_secret import TokensFile

__all__ = [
    "VNC_LENGTH",
    "add_password",
    "add_tls",
    "check_contradiction",
    "password_in",
    "tls_in",
    "token_in",
    "tokens_in",
    "unread",
]

# VNC compares this many characters of a password. Shorter than six can be guessed.
VNC_LENGTH, _LEAST_LENGTH = 8, 6


def add_password(parser: argparse._ActionsContainer) -> None:
    """Adds the options for the password of viewers."""
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="a file with the password for viewers; VNC compares only "
        f"{VNC_LENGTH} characters (default: a random one, printed)",
    )
    parser.add_argument(
        "--no-password",
        action="store_true",
        help="require no password; every account on this machine can then watch and "
        "play",
    )


def add_tls(parser: argparse._ActionsContainer) -> None:
    """Adds the options for the certificate."""
    parser.add_argument(
        "--cert", metavar="FILE", help="a certificate for TLS (default: no TLS)"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="the certificate's private key (default: the one in the --cert file)",
    )


def check_contradiction(arguments: argparse.Namespace, first: str, other: str) -> None:
    """Raises if two options that contradict each other were given."""
    if getattr(arguments, first) and getattr(arguments, other):
        options = " and ".join(f"--{one.replace('_', '-')}" for one in (first, other))
        raise ValueError(f"{options} contradict each other: leave one out.")


def token_in(option: str, path: str | None) -> bytes | None:
    """Returns the token in a file; `None` without a file."""
    token = _secret(option, path)
    if token is not None:
        check_token(token)
    return token


def tokens_in(option: str, path: str | None) -> TokensFile | None:
    """Returns the tokens in a file; `None` without a file."""
    try:
        return None if path is None else TokensFile(path, option)
    except SecretFileError:
        raise
    except OSError as error:
        raise unread(option, path, error) from error


def password_in(option: str, path: str | None) -> str | None:
    """Returns the password in a file; `None` without a file."""
    secret = _secret(option, path)
    if secret is None:
        return None
    if len(secret) < _LEAST_LENGTH:
        raise ValueError(
            f"{option} must have a password of at least {_LEAST_LENGTH} characters, of "
            f"which VNC compares {VNC_LENGTH}; {path!r} has {len(secret)}."
        )
    return secret.decode("utf-8", "replace")


def tls_in(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Returns the TLS context; `None` without a certificate."""
    if cert is None:
        if key is not None:
            raise ValueError("--key needs --cert, the certificate that it belongs to.")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for option, path in (("--cert", cert), ("--key", key)):
        try:
            if path is not None:
                open(path, "rb").close()
        except OSError as error:
            raise unread(option, path, error) from error
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise ValueError(
            f"--cert={cert} must be a certificate, and --key={key or cert} the private "
            f"key that belongs to it, both as PEM: {error.reason or error}."
        ) from error
    return context


def _secret(option: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return secret_in(path, option)
    except SecretFileError:
        raise
    except OSError as error:
        raise unread(option, path, error) from error


def unread(option: str, path: object, error: OSError) -> ValueError:
    """Returns the error for a file that cannot be read."""
    return ValueError(
        f"{option} must be a file that can be read, got {path!r}: "
        f"{error.strerror or error}."
    )
