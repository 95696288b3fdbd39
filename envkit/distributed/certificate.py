"""Makes a certificate for a pool, so that its links can be encrypted."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from pathlib import Path

__all__ = ["NoCertificateError", "own_certificate"]

# Seconds that the program may take; it usually needs some milliseconds.
_PATIENCE = 60.0
_CONFIG = "[req]\nprompt = no\ndistinguished_name = name\n[name]\nCN = envkit pool\n"
# The dates mean nothing: workers know the certificate by its hash.
_COMMAND = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
    "-days 3650 -config config -keyout key -out certificate"
)


class NoCertificateError(OSError):
    """No certificate could be made; the message says why."""


def own_certificate() -> ssl.SSLContext:
    """Returns a server's context with a new key and certificate.

    Both pass through temporary files that only this user can read.

    Raises:
        NoCertificateError: The program that makes them is missing, or fails.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="envkit-") as folder:
            Path(folder, "config").write_text(_CONFIG, "ascii")
            subprocess.run(
                _COMMAND.split(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_PATIENCE,
                # Ctrl-C must reach only the waiting program.
                start_new_session=True,
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
            context.load_cert_chain(f"{folder}/certificate", f"{folder}/key")
            return context
    except FileNotFoundError as error:
        raise NoCertificateError("the openssl program is not installed") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NoCertificateError(
            f"the openssl program failed: {said[-1] if said else error}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCertificateError(f"it could not be made: {error}") from error
