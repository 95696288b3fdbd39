"""Writes pages of `envkit replay --html`, and reads what is in them."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from envkit.cli.main import main

SCRIPT = re.compile(
    r'<script type="application/json" id="([^"]+)">(.*?)</script>', re.S
)


def page_of(folder: Path, *options: str) -> Path:
    """Writes the page of a recording; returns its path."""
    page = folder.parent / f"{folder.name}.html"
    assert main(["replay", str(folder), "--html", str(page), *options]) == 0
    return page


def data_of(page: Path) -> tuple[Any, list[Any]]:
    """Returns what is in the page: its story, and its episodes."""
    found = {name: json.loads(text) for name, text in SCRIPT.findall(page.read_text())}
    story = found.pop("overview")
    return story, [found[f"data-{number}"] for number in range(len(found))]


def pixels_in(episode: Any) -> list[Any]:
    """Returns the pictures of an episode in the page."""
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"))
        for png in episode["pictures"]["png"]
    ]
