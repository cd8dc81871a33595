# SPDX-License-Identifier: GPL-2.0-only
"""Digests of what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import source
from lab.cli import main


@pytest.mark.parametrize("name", source.TREES)
def test_digest_depends_on_code_only(name: str, tmp_path: Path) -> None:
    code = """x = "/* \\" // */"; // '"'\n"""
    for tree in source.TREES:
        (tmp_path / tree).mkdir(parents=True)
        (tmp_path / tree / "file.c").write_text(code)
    before = source.digest(tmp_path)
    (tmp_path / "README.md").write_text("another")
    (tmp_path / name / "file.c").write_text(f"/* it's\n * new */\n\n{code}")
    (tmp_path / name / "file.mod.c").write_text("of a build")
    (tmp_path / name / "tests").mkdir()
    (tmp_path / name / "tests/test_file.py").write_text("a test")
    assert source.digest(tmp_path) == before
    (tmp_path / name / "file.c").write_text(code.replace(" // ", " "))
    assert source.digest(tmp_path) not in (before, "")
    (tmp_path / "guestlib/traffic").rename(tmp_path / "other")
    assert source.digest(tmp_path) == ""
    assert source.describe_source()["digest"] == source.digest()


def test_patches_and_named_files_count(tmp_path: Path) -> None:
    named = tmp_path / "Makefile"
    patch = tmp_path / "series/flow/0001.patch"
    patch.parent.mkdir(parents=True)
    digests = set()
    for file in (named, patch, named, patch):
        named.touch()
        with file.open("a") as changed:
            changed.write("x")
        digests.add(source.digest(tmp_path, ["series", "Makefile"]))
    assert len(digests) == 4


def test_digest_of_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digest"]) == 0
    assert capsys.readouterr().out == f"{source.digest()}\n"
    assert main(["digest", str(tmp_path)]) == 1
