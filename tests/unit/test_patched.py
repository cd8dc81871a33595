# SPDX-License-Identifier: GPL-2.0-only
"""Patched source trees: complete or not there, and the tree they come from stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.kernel import kconfig
from nodrop.kernel import patched as module
from nodrop.kernel.source import Source
from nodrop.progress import Progress

PATCH = """\
--- a/net/one.c
+++ b/net/one.c
@@ -1,2 +1,2 @@
 first
-second
+another
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv("NODROP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    tree = tmp_path / "linux"
    (tree / "net").mkdir(parents=True)
    (tree / "net/one.c").write_text("first\nsecond\n")
    (tree / "net/two.c").write_text("as it was\n")
    (tmp_path / "some").mkdir()
    (tmp_path / "some/0001-another.patch").write_text(PATCH)
    return Source(tree, "linux-source 1 (here)", "0" * 64)


def patched(source: Source, *folders: str) -> Source:
    with Progress() as progress:
        return module.ensure_patched(source, folders, progress)


def test_a_patch_changes_the_copy_only(source: Source) -> None:
    copy = patched(source, "some")
    assert copy.tree == module.tree_of(source, ("some",))
    assert (copy.tree / "net/one.c").read_text() == "first\nanother\n"
    assert (source.tree / "net/one.c").read_text() == "first\nsecond\n"
    assert (copy.tree / "net/two.c").samefile(source.tree / "net/two.c")


def test_other_patches_are_another_tree(source: Source) -> None:
    before = patched(source, "some").tree
    path = module.REPOSITORY / "some/0001-another.patch"
    path.write_text(PATCH.replace("another", "third"))
    after = patched(source, "some").tree
    assert after != before
    assert (after / "net/one.c").read_text() == "first\nthird\n"


def test_a_patch_that_does_not_fit_is_named_and_leaves_nothing(source: Source) -> None:
    path = module.REPOSITORY / "some/0002-wrong.patch"
    path.write_text(PATCH.replace("first", "zeroth"))
    with pytest.raises(NodropError, match=r"0002-wrong\.patch does not fit linux-source 1"):
        patched(source, "some")
    assert not module.tree_of(source, ("some",)).exists()


def test_no_patches(source: Source) -> None:
    assert patched(source) == source
    assert module.fingerprint(()) == ""
    with pytest.raises(NodropError, match="no patches in nowhere"):
        patched(source, "nowhere")


@pytest.mark.usefixtures("source")
def test_patches_come_in_their_order_and_without_the_cover_letter() -> None:
    folder = module.REPOSITORY / "some"
    for name in ("0000-cover-letter.patch", "0010-c.patch", "0002-b.patch", "README"):
        (folder / name).write_text("")
    names = [path.name for path in module.patches(("some",))]
    assert names == ["0001-another.patch", "0002-b.patch", "0010-c.patch"]


@pytest.mark.parametrize("flavour", list(kconfig.PATCHES))
def test_each_flavour_with_patches_has_some(flavour: str) -> None:
    assert flavour in kconfig.FLAVOURS
    assert module.patches(kconfig.PATCHES[flavour])
