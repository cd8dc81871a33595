# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules survive an interrupted DKMS, and a removal that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from dkms_tree import ALL, END, KERNEL, STOCK, STORED, TREE, Tree
from stubs import write


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path, "3.2")


@pytest.mark.parametrize("of", ["3.0", "3.2"])
def test_install_and_remove(tmp_path: Path, of: str) -> None:
    tree = Tree(tmp_path, of)
    assert tree.install() == 0
    assert tree.all_are("ours, whole")
    assert (tree.kernel / STOCK["tun"]).exists(), "the kernel's own stays where it was"
    assert tree.verify() == 0
    assert tree.remove() == 0
    assert tree.all_are("stock")
    assert not (tree.place / TREE / "nodrop").exists()


@pytest.mark.parametrize(
    ("of", "cut", "kill"),
    [("3.0", "tun", False), ("3.0", "nodrop", True), ("3.2", "tap", False), ("3.2", "tun", True)],
)
def test_interrupted_copy(tmp_path: Path, of: str, cut: str, kill: bool) -> None:
    """Twice: the second attempt must not store the first one's leftovers."""
    tree = Tree(tmp_path, of)
    for _ in range(2):
        tree.install(cut, kill=kill)
        assert (tree.kernel / STOCK["tun"]).read_text() == f"stock {END}\n"
    assert tree.remove() == 0
    assert tree.all_are("stock")
    # For DKMS it is then built, not installed. DKMS 3.0 continues, and verify repairs it.
    tree.build()
    tree.install(cut, kill=kill)
    left_out = kill or of == "3.2"
    assert tree.verify() == left_out
    assert tree.all_are("stock" if left_out else "ours, whole")
    assert tree.listed()
    tree.install(cut, kill=kill)
    assert tree.install() == 0
    assert tree.all_are("ours, whole")
    assert tree.verify() == 0


def test_verify_repairs_what_was_damaged_later(tree: Tree) -> None:
    tree.install()
    write(tree.kernel / "updates/dkms/tun.ko", "ours")
    assert tree.verify() == 0
    assert tree.all_are("ours, whole")


def test_modules_moved_by_an_older_installation_are_restored(tree: Tree) -> None:
    """After an interruption: one is truncated, one is missing, and DKMS has stored both."""
    tree.store("tun")
    tree.store("tap")
    write(tree.kernel / "updates/dkms/tun.ko", "ours\n")
    assert tree.install() == 0
    assert tree.all_are("ours, whole")
    assert tree.remove() == 0
    assert tree.all_are("stock")


@pytest.mark.parametrize("origin", [STOCK["tun"], "", None])
def test_stored_modules_are_restored_after_removal(tree: Tree, origin: str | None) -> None:
    """Also if DKMS was killed before it recorded the module's origin."""
    tree.store("tun")
    note = tree.place / STORED / "tun.ko.origin"
    note.write_text(f"{tree.kernel / origin}\n" if origin else "")
    if origin is None:
        note.unlink()
    assert tree.stock() == 0
    assert tree.all_are("stock")
    assert not (tree.place / TREE / "nodrop/original_module").exists()
    assert tree.listed()


@pytest.mark.parametrize(
    ("root", "path"), [("lib/modules", "extra/tun.ko"), ("usr/lib/modules", "updates/dkms/tun.ko")]
)
def test_other_packages_modules_are_restored(tree: Tree, root: str, path: str) -> None:
    """Anywhere below the kernel's module directory, by any path to it."""
    (tree.place / "usr").symlink_to(".")
    stored = write(tree.place / STORED / "tun.ko", f"theirs {END}\n")
    write(stored.with_name("tun.ko.origin"), f"{tree.place}/{root}/{KERNEL}/{path}\n")
    assert tree.stock() == 0
    assert (tree.kernel / path).read_text() == f"theirs {END}\n"
    assert not (tree.place / TREE / "nodrop/original_module").exists()


def test_modules_of_unknown_origin_are_kept_and_reported(tree: Tree) -> None:
    stored = write(tree.place / STORED / "wg.ko", f"theirs {END}\n")
    assert tree.stock() == 1
    write(stored.with_name("wg.ko.origin"), f"{tree.place}/other/wg.ko\n")
    assert tree.stock() == 1
    assert stored.exists()
    assert not (tree.place / "other").exists()


def test_a_driver_of_another_package_stays(tree: Tree) -> None:
    """It is in DKMS's folder, too."""
    theirs = write(tree.kernel / "updates/dkms/tun.ko", f"theirs {END}\n")
    assert tree.install() == 101
    assert tree.verify() == 1
    assert tree.remove() == 0
    write(theirs.with_name("nodrop.ko"), f"ours, whole {END}\n")
    assert tree.stock() == 0
    assert list(theirs.parent.iterdir()) == [theirs]


def test_kernel_names_with_a_common_prefix(tree: Tree) -> None:
    """One's link does not stand for the other."""
    tree.install()
    other = tree.place / "lib/modules" / KERNEL.partition("-")[0]
    write(other / "modules.order")
    write(other / "kernel/drivers/net/veth.ko")
    left = write(other / "updates/dkms/nodrop.ko", f"ours, whole {END}\n")
    assert tree.stock() == 0
    assert not left.exists()
    assert tree.all_are("ours, whole")
    (tree.kernel / STOCK["tun"]).unlink()
    tree.remove()
    assert tree.stock() == 1, "the longer name's missing module is reported"


@pytest.mark.parametrize(
    ("packaged", "before", "install", "after", "status"),
    [
        # Without nodrop, missing modules are not reported.
        ("", "tun tap", None, "", 0),
        ("", "tun tap modules.order", None, "", 0),
        # The kernel's package lists its modules; one that it never had is not missed.
        ("tun", "tap", None, "", 0),
        ("tun", "tap", None, "tun", 1),
        ("tun", "tap", None, "damaged", 1),
        ("tun vhost_net", "tap", 0, "", 0),
        ("tun vhost_net", "tap", 0, "vhost_net", 1),
        # A kernel without a tun of its own gets none.
        ("", "tun", 101, "", 1),
        ("", "", 0, "damaged", 1),
        # The modules that it had are then unknown.
        ("", "", 0, "modules.order", 1),
        ("", "modules.order", 101, "", 1),
    ],
)
def test_missing_modules_of_the_kernel(
    tree: Tree, packaged: str, before: str, install: int | None, after: str, status: int
) -> None:
    """A kernel's modules are gone before nodrop is installed, or before it is removed."""
    if packaged:
        files = [STOCK[name] for name in packaged.split()]
        write(tree.place / "packaged", "\n".join(["modules.order", *files, ""]))
    for name in before.split():
        (tree.kernel / STOCK.get(name, name)).unlink()
    if install is not None:
        assert tree.install() == install
    for name in after.split():
        if name == "damaged":
            (tree.kernel / STOCK["tun"]).write_text("")
        else:
            (tree.kernel / STOCK.get(name, name)).unlink()
    assert (tree.stock() if install is None else tree.remove()) == status


def test_other_dkms_tree(tree: Tree) -> None:
    """DKMS's settings name it; verify and stock get no argument for it."""
    tree.install()
    (tree.place / TREE).rename(tree.place / "var/lib/other")
    write(tree.place / "etc/dkms/framework.conf", 'dkms_tree="${dkms_tree%/*}/other"\n')
    write(tree.kernel / "updates/dkms/tun.ko", "ours")
    assert tree.verify() == 0
    assert tree.stock() == 0
    assert tree.all_are("ours, whole")


def test_no_room(tree: Tree) -> None:
    write(tree.place / "free", "100\n")
    assert tree.install() == 101
    assert tree.all_are("stock")
    tree.install("tun", force="yes")
    assert (tree.kernel / STOCK["tun"]).read_text() == f"stock {END}\n"
    assert tree.remove() == 0
    assert tree.all_are("stock")


def test_a_kernels_package_succeeds_without_room(tree: Tree) -> None:
    """DKMS skips the kernel; nothing that was copied in part stays, and what is installed does."""
    tree.install("tun", kill=True)
    write(tree.place / "free", "100\n")
    assert tree.autoinstall() == 0
    assert tree.all_are("stock")
    assert tree.listed()
    write(tree.place / "free", "999999\n")
    assert tree.autoinstall() == 0
    write(tree.place / "free", "100\n")
    assert tree.autoinstall() == 0
    assert tree.all_are("ours, whole")


def test_fewer_modules(tree: Tree) -> None:
    """For a kernel with vhost_net built in."""
    (tree.place / TREE / f"nodrop/0.3.0/{KERNEL}/x86_64/module/vhost_net.ko").unlink()
    assert tree.install() == 0
    assert tree.verify() == 0
    assert tree.found() == {
        "tun": f"ours, whole {END}",
        "tap": f"ours, whole {END}",
        "vhost_net": f"stock {END}",
    }


@pytest.fixture
def beside(tree: Tree) -> Tree:
    """A kernel with tun built in."""
    built = tree.place / TREE / f"nodrop/0.3.0/{KERNEL}/x86_64/module"
    (built / "tun.ko").rename(built / "nodrop_tun.ko")
    (tree.kernel / STOCK["tun"]).unlink()
    order = tree.kernel / "modules.order"
    order.write_text(order.read_text().replace(f"{STOCK['tun']}\n", ""))
    return tree


def at_boot(tree: Tree) -> bool:
    file = tree.place / "etc/modules-load.d/zz-nodrop.conf"
    return file.exists() and "nodrop_tun" in file.read_text().splitlines()


def test_loaded_at_boot_while_a_kernel_has_it(beside: Tree) -> None:
    assert beside.install() == 0
    ours = beside.kernel / "updates/dkms"
    assert sorted(file.stem for file in ours.iterdir()) == sorted({*ALL, "nodrop_tun"} - {"tun"})
    assert at_boot(beside)
    other = beside.place / "lib/modules/6.8.0-51-generic/updates/dkms"
    write(other / "nodrop_tun.ko.zst")
    assert beside.remove() == 0
    assert not ours.exists()
    assert at_boot(beside)
    (other / "nodrop_tun.ko.zst").unlink()
    assert beside.stock() == 0
    assert not at_boot(beside)


@pytest.mark.parametrize("kill", [False, True])
def test_not_loaded_at_boot_after_an_interruption(beside: Tree, kill: bool) -> None:
    beside.install()
    assert at_boot(beside)
    (beside.place / TREE / f"nodrop/kernel-{KERNEL}-x86_64").unlink()
    beside.install("nodrop_tun", kill=kill)
    assert beside.verify() == 1
    assert not at_boot(beside)


def test_a_file_of_the_user_stays(tree: Tree) -> None:
    file = write(tree.place / "etc/modules-load.d/zz-nodrop.conf", "tun\n")
    assert tree.install() == 0
    assert tree.remove() == 0
    assert file.read_text() == "tun\n"
