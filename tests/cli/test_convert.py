"""`envkit convert` where there is nothing to convert, or nothing to convert it with."""

from __future__ import annotations

import sys

import pytest

from envkit.cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs/catch"],
        ["runs/catch", "runs/again"],
        ["minari:catch-v0"],
        ["minari:catch-v0", "--minari=other-v0"],
        ["minari:catch-v0", "runs/again", "--minari=other-v0"],
        ["runs/catch", "runs/again", "--minari=other-v0"],
    ],
)
def test_it_takes_a_recording_or_a_dataset(arguments, capsys):
    assert 2 == main(["convert", *arguments])

    assert (
        "envkit convert: convert takes a recording and --minari ID, or minari:ID and "
        "the directory of a recording.\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["runs/catch", "--minari=catch-v0"], "Writing"),
        (["minari:catch-v0", "runs/again"], "Reading"),
    ],
)
def test_without_minari_it_says_how_to_install_it(arguments, what, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "minari", None)

    assert 2 == main(["convert", *arguments])

    assert (
        f"envkit convert: {what} a dataset of Minari needs the package minari, which "
        "is not installed. "
        'pip install "minari[hdf5]>=0.5.4" "gymnasium>=1.0" "pillow>=10"\n'
    ) == capsys.readouterr().err
