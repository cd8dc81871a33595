# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules survive an interrupted DKMS, and a removal that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from stubs import Done, programs, run, write

DKMS = Path(__file__).resolve().parents[3] / "dkms"
KERNEL = "6.12.99-amd64"
ALL = ("nodrop", "tun", "vhost_net", "tap")
STOCK = {
    "tun": "kernel/drivers/net/tun.ko",
    "tap": "kernel/drivers/net/tap.ko",
    "vhost_net": "kernel/drivers/vhost/vhost_net.ko",
}
TREE = "var/lib/dkms"
STORED = f"{TREE}/nodrop/original_module/{KERNEL}/x86_64"
END = "vermagic"
"""The last word of an intact module here."""

STUBS = {
    "modinfo": f"""case $1 in
    -F) if [ $2 = nodrop ]; then grep ^ours "$3"; else grep '{END}$' "$3"; fi ;;
    -k) for f in "$NODROP_ROOT/lib/modules/$2"/{{updates/dkms,kernel/*/*}}/$4.ko; do
        [ ! -e "$f" ] || {{ echo "$f"; exit; }}
        done; exit 1 ;;
    esac""",
    "depmod": 'echo "$1" >>"$NODROP_ROOT/depmod"',
    "df": 'echo Avail; cat "$NODROP_ROOT/free"',
    # A file "packaged" holds the names of packaged files.
    "dpkg-query": """for f in $(cat "$NODROP_ROOT/packaged" 2>/dev/null); do
        case /usr/lib/modules/$KERNEL/$f in $2) echo "linux-image-x:amd64: $f" ;; esac; done""",
    # A model of DKMS's do_install() and do_uninstall(): OF=3.2 moves the kernel's own
    # module away and stops if it cannot copy; OF=3.0, on Debian, does neither.
    # CUT: the module whose copy is interrupted, by a full disk or, with KILL, a signal.
    "dkms-model": """
dkms_tree=$NODROP_ROOT/var/lib/dkms install_tree=$NODROP_ROOT/lib/modules
kernelver=$KERNEL arch=x86_64
entry=0.3.0/$kernelver/$arch
tree=$dkms_tree/nodrop stored=$dkms_tree/nodrop/original_module/$kernelver/$arch
link=$tree/kernel-$kernelver-$arch
conf() { . "$tree/0.3.0/source/dkms.conf"; }
script() {
    local words
    words=$(conf; echo "${!1-}")
    [ -z "$words" ] || (cd "$tree/0.3.0/source" && exec "$tree/0.3.0/source/"$words)
}
fits() {
    local kernelver='' arch='' # as in 3.0
    [ "$(conf; echo "$AUTOINSTALL")" ]
}
cd "$install_tree/$kernelver" || exit
[ "$1" != autoinstall ] || { action=$1 fits && [ ! -e "$link" ]; } || exit 0
if [ "$1" != remove ]; then
    script PRE_INSTALL || [ "$FORCE" ] || exit 101
    for m in nodrop tun vhost_net tap; do
        [ -e "$tree/$entry/module/$m.ko" ] || continue
        if [ "$OF" = 3.2 ] && [ ! -L "$link" ]; then
            for f in updates/dkms/$m.ko $(find . -name $m.ko); do
                [ -f "$f" ] || continue
                mkdir -p "$stored"
                mv -f "$f" "$stored/"
                readlink -m "$f" >"$stored/$m.ko.origin"
                break
            done
        fi
        mkdir -p updates/dkms
        if [ "$m" = "$CUT" ]; then
            echo ours >updates/dkms/$m.ko
            [ -z "$KILL" ] || exit 137
            [ "$OF" = 3.0 ] || exit 6
        else
            cp "$tree/$entry/module/$m.ko" updates/dkms/
        fi
    done
    ln -sfn "$entry" "$link"
    script POST_INSTALL
else
    if [ "$(readlink -f "$link")" = "$tree/$entry" ]; then
        for m in nodrop tun vhost_net tap; do
            ! grep -qs vermagic updates/dkms/$m.ko || rm updates/dkms/$m.ko
            [ ! -e "$stored/$m.ko.origin" ] ||
                mv -f "$stored/$m.ko" "$(cat "$stored/$m.ko.origin")"
        done
        rm -f "$link"
        script POST_REMOVE
        rm -rf "$tree/original_module"
    fi
    rm -rf "$tree/0.3.0"
fi
exit 0""",
}


class Tree:
    """A DKMS tree with built modules, and a kernel's module tree."""

    def __init__(self, place: Path, of: str) -> None:
        self.place, self.of = place, of
        self.kernel = place / "lib/modules" / KERNEL
        programs(place / "bin", STUBS)
        write(self.kernel / "modules.order", "".join(f"{path}\n" for path in STOCK.values()))
        for path in STOCK.values():
            write(self.kernel / path, f"stock {END}\n")
        write(place / "free", "999999\n")
        self.build()

    def build(self) -> None:
        source = self.place / TREE / "nodrop/0.3.0/source"
        source.mkdir(parents=True)
        (source / "dkms").symlink_to(DKMS)
        conf = (DKMS / "dkms.conf").read_text().replace("#MODULE_VERSION#", "0.3.0")
        (source / "dkms.conf").write_text(conf)
        for name in ALL:
            write(source.parent / f"{KERNEL}/x86_64/module/{name}.ko", f"ours, whole {END}\n")

    def _run(self, *words: str | Path, cut: str = "", kill: bool = False, force: str = "") -> Done:
        how = {"OF": self.of, "CUT": cut, "KILL": "yes" if kill else "", "FORCE": force}
        return run(self.place / "bin", *words, NODROP_ROOT=self.place, KERNEL=KERNEL, **how)

    def install(self, cut: str = "", *, kill: bool = False, force: str = "") -> int:
        return self._run("dkms-model", "install", cut=cut, kill=kill, force=force).returncode

    def autoinstall(self) -> int:
        return self._run("dkms-model", "autoinstall").returncode

    def verify(self) -> int:
        return self._run(DKMS / "place", "verify", "0.3.0").returncode

    def stock(self) -> int:
        """Check that the kernel finds its own modules; fail if stderr and the status disagree."""
        done = self._run(DKMS / "place", "stock")
        assert bool(done.stderr) is bool(done.returncode)
        return done.returncode

    def remove(self) -> int:
        self._run("dkms-model", "remove")
        return self.stock()

    def store(self, name: str) -> None:
        """Move a stock module away, as an older DKMS does."""
        path = self.kernel / STOCK[name]
        write(self.place / STORED / f"{name}.ko", path.read_text())
        write(self.place / STORED / f"{name}.ko.origin", f"{path}\n")
        path.unlink()

    def found(self) -> dict[str, str]:
        """Return the contents of the modules that the kernel finds."""
        found = {}
        for name, path in STOCK.items():
            ours = self.kernel / f"updates/dkms/{name}.ko"
            file = ours if ours.exists() else self.kernel / path
            found[name] = file.read_text().strip() if file.exists() else "nothing"
        return found

    def all_are(self, text: str) -> bool:
        return set(self.found().values()) == {f"{text} {END}"}

    def listed(self) -> bool:
        return KERNEL in (self.place / "depmod").read_text()


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
