# SPDX-License-Identifier: GPL-2.0-only
"""The digest that results name their source by."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.bench import machine, source


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in source.TREES:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file.c").write_text("x")
    return tmp_path


@pytest.mark.parametrize("name", source.TREES)
def test_it_is_that_of_the_contents(name: str, tree: Path) -> None:
    before = source.digest(tree)
    assert len(before) == source.LENGTH
    (tree / ".git").mkdir()
    (tree / "README.md").write_text("another")
    assert source.digest(tree) == before
    (tree / name / "file.c").write_text("y")
    assert source.digest(tree) != before


def test_a_tree_without_source_has_none(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert source.main([str(tree)]) == 0
    assert capsys.readouterr().out == f"{source.digest(tree)}\n"
    (tree / "traffic").rename(tree / "other")
    assert source.digest(tree) == ""
    assert source.main([str(tree)]) == 1
    assert "lacks one of kmod, traffic, nodrop/guest" in capsys.readouterr().err
    assert source.main(["a", "b"]) == 2


def test_results_have_it() -> None:
    assert machine.describe_source()["digest"] == source.digest()
