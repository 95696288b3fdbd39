"""The scheme `vnc:`, which an entry point names."""

from __future__ import annotations

from envkit.extend import Scheme

# It needs nothing that is not there.
VNC = Scheme("envkit.desktop.desktop:load", extra="vnc", address="//localhost:5900")
