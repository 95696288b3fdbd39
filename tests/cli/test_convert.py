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
        "envkit convert: Pass either a recording and --minari ID, or minari:ID and "
        "the directory of the new recording.\n"
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


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    pytest.importorskip("minari", reason="minari is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize("name", ["cp", "a b", "cp-v"])
def test_an_id_without_a_version_gets_a_suggestion(name, tmp_path, capsys):
    path = str(tmp_path / "cp")
    assert 0 == main(["record", "Catch", "-o", path])
    capsys.readouterr()

    assert 2 == main(["convert", path, "--minari", name])

    assert (
        "envkit convert: The id of a dataset must be a name and a version, such as "
        f"'catch/random-v0', got {name!r}.\n"
    ) == capsys.readouterr().err


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["convert", "minari:catch-v0", "again"], "--download"),
        (["describe", "minari:catch-v0"], "--arg download=True"),
    ],
)
def test_a_remote_dataset_is_downloaded_with_an_option(arguments, hint, capsys):
    assert 2 == main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"envkit {arguments[0]}: Dataset catch-v0 not found locally")
    assert line.endswith(f"Use {hint} to download the dataset.")
