# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.kernel import Kernel, artifacts, ensure_artifacts
from nodrop.kernel.artifacts import content_hash
from nodrop.progress import Progress


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow/queue.c").write_text("one\n", encoding="utf-8")
    (tmp_path / "prepare").write_text("#!/bin/sh\n", encoding="utf-8")
    return tmp_path


def test_same_content_same_hash(tree: Path) -> None:
    before = content_hash(tree)
    (tree / "flow/queue.c").write_text("one\n", encoding="utf-8")
    assert content_hash(tree) == before


def test_content_name_and_mode_count(tree: Path) -> None:
    seen = {content_hash(tree)}
    (tree / "flow/queue.c").write_text("two\n", encoding="utf-8")
    seen.add(content_hash(tree))
    (tree / "flow/queue.c").rename(tree / "flow/other.c")
    seen.add(content_hash(tree))
    (tree / "prepare").chmod(0o755)
    seen.add(content_hash(tree))
    assert len(seen) == 4


def test_products_of_a_build_do_not_count(tree: Path) -> None:
    before = content_hash(tree)
    (tree / "flow/queue.o").write_bytes(b"object")
    (tree / "flow/.queue.o.cmd").write_text("x", encoding="utf-8")
    assert content_hash(tree) == before


def test_incomplete_clone_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "REPOSITORY", tmp_path)
    kernel = Kernel(tmp_path, "7.3.4", tmp_path, tmp_path, "id", "package")
    with pytest.raises(NodropError, match="holds no Makefile"):
        ensure_artifacts(kernel, Progress(quiet=True))
