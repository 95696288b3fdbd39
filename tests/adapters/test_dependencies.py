from __future__ import annotations

import pytest

from envkit.adapters.dependencies import require
from envkit.errors import MissingDependencyError


def test_a_package_that_is_installed_is_not_imported():
    assert require("this", needed_by="Poetry", extra="test") is None


def test_a_package_that_is_missing_is_known_to_the_error():
    with pytest.raises(MissingDependencyError) as caught:
        require("no_such_package", needed_by="This test", extra="test")

    assert (
        "This test needs the package no_such_package, which is not installed. "
        'pip install "envkit[test]"'
    ) == str(caught.value)
    assert ("no_such_package", "test") == (caught.value.package, caught.value.extra)


def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "some_library").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(MissingDependencyError):
        require("some_library", needed_by="This test", extra="test")
