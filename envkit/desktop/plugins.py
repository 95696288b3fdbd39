"""The scheme `vnc:`, which an entry point names."""

from __future__ import annotations

from envkit.extend import Scheme

# Both packages are optional: Pillow is for JPEG, websockets for browsers.
VNC = Scheme(
    "envkit.desktop.desktop:load",
    title="desktops behind a VNC server",
    page="desktop",
    extra="vnc",
    requires=("pillow>=10", "websockets>=15"),
    address="//localhost:5900",
)
