# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules outlive a DKMS that is cut short, and a removal that goes wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

KMOD = Path(__file__).resolve().parents[2] / "kmod"
KERNEL = "6.12.99-amd64"
ALL = ("nodrop", "tun", "vhost_net", "tap")
STOCK = {
    "tun": "kernel/drivers/net/tun.ko",
    "tap": "kernel/drivers/net/tap.ko",
    "vhost_net": "kernel/drivers/vhost/vhost_net.ko",
}
END = "vermagic"
"""The last word of a whole module here."""

STUBS = {
    "modinfo": f"""case $1 in
    -F) grep '{END}$' "$3" ;;
    -k) for f in "$TREE/modules/$2"/updates/dkms/$4.ko "$TREE/modules/$2"/kernel/*/*/$4.ko; do
        [ ! -e "$f" ] || {{ echo "$f"; exit; }}
        done; exit 1 ;;
    esac""",
    "depmod": 'echo "$1" >>"$TREE/depmod"',
    "df": 'echo Avail; cat "$TREE/free"',
    # A file "packaged" holds the names of packaged files.
    "dpkg-query": """for f in $(cat "$TREE/packaged" 2>/dev/null); do
        case /usr/lib/modules/$KERNEL/$f in $2) echo "linux-image-x:amd64: $f" ;; esac; done""",
}

DKMS = """
# What do_install() and do_uninstall() of DKMS do with files: OF=3.2 moves the kernel's own
# module away and ends when it cannot copy; OF=3.0, on Debian, does neither.
# CUT: the module whose copy is cut short, by a full disk or, with KILL, a signal.
dkms_tree=$TREE/dkms install_tree=$TREE/modules kernelver=$KERNEL arch=x86_64
entry=0.3.0/$kernelver/$arch
tree=$dkms_tree/nodrop stored=$dkms_tree/nodrop/original_module/$kernelver/$arch
link=$tree/kernel-$kernelver-$arch
script() {
    local words
    words=$(. "$tree/0.3.0/source/dkms.conf"; echo "${!1-}")
    [ -z "$words" ] || (cd "$tree/0.3.0/source" && exec "$tree/0.3.0/source/"$words)
}
cd "$install_tree/$kernelver" || exit
if [ "$1" = install ]; then
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
exit 0
"""


class Tree:
    """A DKMS tree with built modules, and a kernel's modules."""

    def __init__(self, place: Path, of: str) -> None:
        self.place, self.of = place, of
        self.kernel = place / "modules" / KERNEL
        for name, text in {**STUBS, "dkms-model": DKMS}.items():
            self.write(f"bin/{name}", f"#!/bin/bash\n{text}\n").chmod(0o755)
        self.write(f"modules/{KERNEL}/modules.order", "".join(f"{p}\n" for p in STOCK.values()))
        for path in STOCK.values():
            self.write(f"modules/{KERNEL}/{path}", f"stock {END}\n")
        self.write("free", "999999\n")
        self.build()

    def write(self, path: str, text: str) -> Path:
        made = self.place / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        return made

    def build(self, modules: tuple[str, ...] = ALL) -> None:
        source = self.place / "dkms/nodrop/0.3.0/source"
        source.mkdir(parents=True, exist_ok=True)
        for name in ("place", "verify"):
            (source / name).unlink(missing_ok=True)
            (source / name).symlink_to(KMOD / name)
        conf = (KMOD / "dkms.conf").read_text().replace("#MODULE_VERSION#", "0.3.0")
        (source / "dkms.conf").write_text(conf)
        for name in modules:
            entry = f"dkms/nodrop/0.3.0/{KERNEL}/x86_64/module/{name}.ko"
            self.write(entry, f"ours, whole {END}\n")

    def run(self, *words: str, cut: str = "", kill: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "TREE": str(self.place),
            "KERNEL": KERNEL,
            "OF": self.of,
            "CUT": cut,
            "KILL": kill,
            "FORCE": "yes" if "--force" in words else "",
            "NODROP_DKMS": str(self.place / "dkms"),
            "NODROP_MODULES": str(self.place / "modules"),
        }
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def dkms(self, what: str, cut: str = "", kill: str = "") -> int:
        return self.run("dkms-model", what, cut=cut, kill=kill).returncode

    def verify(self) -> subprocess.CompletedProcess[str]:
        return self.run(str(KMOD / "verify"), "0.3.0")

    def stock(self) -> subprocess.CompletedProcess[str]:
        return self.run(str(KMOD / "place"), "stock")

    def found(self) -> dict[str, str]:
        """Return whose module the kernel finds: "stock", "ours" or what is left of it."""
        found = {}
        for name, path in STOCK.items():
            ours = self.kernel / f"updates/dkms/{name}.ko"
            file = ours if ours.exists() else self.kernel / path
            found[name] = file.read_text().strip() if file.exists() else "nothing"
        return found

    def all_are(self, text: str) -> bool:
        return set(self.found().values()) == {f"{text} {END}"}


@pytest.fixture(params=["3.0", "3.2"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Tree:
    return Tree(tmp_path, request.param)


def test_in_and_out(tree: Tree) -> None:
    assert tree.dkms("install") == 0
    assert tree.all_are("ours, whole")
    assert (tree.kernel / STOCK["tun"]).exists(), "the kernel's own stays where it was"
    assert tree.verify().returncode == 0
    assert tree.dkms("remove") == 0
    assert tree.stock().stderr == ""
    assert tree.all_are("stock")
    assert not (tree.place / "dkms/nodrop").exists()


@pytest.mark.parametrize("kill", ["", "yes"])
@pytest.mark.parametrize("cut", ["nodrop", "tun", "tap"])
def test_the_kernels_own_outlive_a_cut_copy(tree: Tree, cut: str, kill: str) -> None:
    """Twice, then removal: the second try must not store the first one's leftovers."""
    for _ in range(2):
        tree.dkms("install", cut, kill)
        assert (tree.kernel / STOCK["tun"]).read_text() == f"stock {END}\n"
    tree.dkms("remove")
    assert tree.stock().returncode == 0
    assert tree.all_are("stock")


@pytest.mark.parametrize("kill", ["", "yes"])
def test_after_a_cut_copy_it_installs(tree: Tree, kill: str) -> None:
    tree.dkms("install", "tun", kill)
    assert tree.dkms("install") == 0
    assert tree.all_are("ours, whole")
    assert tree.verify().returncode == 0


def test_verify_clears_what_a_killed_copy_left(tree: Tree) -> None:
    """DKMS calls it built, not installed."""
    tree.dkms("install", "tun", "yes")
    done = tree.verify()
    assert (done.returncode, "built and not installed" in done.stderr) == (1, True)
    assert tree.all_are("stock")
    assert KERNEL in (tree.place / "depmod").read_text()


def test_verify_repairs_what_was_damaged_later(tree: Tree) -> None:
    tree.dkms("install")
    tree.write(f"modules/{KERNEL}/updates/dkms/tun.ko", "ours")
    assert tree.verify().returncode == 0
    assert tree.all_are("ours, whole")


def test_what_an_older_installation_moved_is_put_back(tree: Tree) -> None:
    """It was cut: one is truncated, one is gone, and DKMS has stored both."""
    stored = f"dkms/nodrop/original_module/{KERNEL}/x86_64"
    for name, left in (("tun", "ours\n"), ("tap", None)):
        path = tree.kernel / STOCK[name]
        tree.write(f"{stored}/{name}.ko", path.read_text())
        tree.write(f"{stored}/{name}.ko.origin", f"{path}\n")
        path.unlink()
        if left:
            tree.write(f"modules/{KERNEL}/updates/dkms/{name}.ko", left)
    assert tree.dkms("install") == 0
    assert tree.all_are("ours, whole")
    tree.dkms("remove")
    assert tree.all_are("stock")


def test_no_room(tree: Tree) -> None:
    tree.write("free", "100\n")
    done = tree.run("dkms-model", "install")
    assert done.returncode == 101
    assert "no room for the modules" in done.stderr
    assert tree.all_are("stock")


def test_by_force_without_room(tree: Tree) -> None:
    tree.write("free", "100\n")
    tree.run("dkms-model", "install", "--force", cut="tun")
    assert (tree.kernel / STOCK["tun"]).read_text() == f"stock {END}\n"
    tree.dkms("remove")
    assert tree.stock().stderr == ""
    assert tree.all_are("stock")


def test_a_kernel_that_has_lost_its_own_gets_none(tree: Tree) -> None:
    (tree.kernel / STOCK["tun"]).unlink()
    done = tree.run("dkms-model", "install")
    assert done.returncode == 101
    assert f"--reinstall linux-image-{KERNEL}" in done.stderr


def test_what_its_package_does_not_have_may_be_missing(tree: Tree) -> None:
    (tree.kernel / STOCK["tap"]).unlink()
    tree.write("packaged", f"modules.order\n{STOCK['tun']}\n{STOCK['vhost_net']}\n")
    assert tree.dkms("install") == 0
    tree.dkms("remove")
    assert tree.stock().stderr == ""
    (tree.kernel / STOCK["vhost_net"]).unlink()
    assert "--reinstall linux-image-x)" in tree.stock().stderr


def test_a_missing_tun_is_noticed_after_removal(tree: Tree) -> None:
    tree.dkms("install")
    (tree.kernel / STOCK["tun"]).write_text("")
    tree.dkms("remove")
    done = tree.stock()
    assert done.returncode == 1
    assert f"kernel {KERNEL} has lost its own" in done.stderr
    assert f"--reinstall linux-image-{KERNEL}" in done.stderr


def test_what_was_stored_is_put_back_after_removal(tree: Tree) -> None:
    stored = f"dkms/nodrop/original_module/{KERNEL}/x86_64"
    path = tree.kernel / STOCK["tun"]
    tree.write(f"{stored}/tun.ko", path.read_text())
    tree.write(f"{stored}/tun.ko.origin", f"{path}\n")
    path.unlink()
    assert tree.stock().stderr == ""
    assert tree.all_are("stock")
    assert not (tree.place / "dkms/nodrop/original_module").exists()
    assert KERNEL in (tree.place / "depmod").read_text()


def test_fewer_modules(tree: Tree) -> None:
    """Of a kernel that has vhost_net built in."""
    entry = tree.place / f"dkms/nodrop/0.3.0/{KERNEL}/x86_64/module/vhost_net.ko"
    entry.unlink()
    assert tree.dkms("install") == 0
    assert tree.verify().returncode == 0
    assert tree.found()["tun"] == f"ours, whole {END}"
    assert tree.found()["vhost_net"] == f"stock {END}"


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ("CONFIG_VHOST_NET=m\nCONFIG_TAP=m\n", ALL),
        ("CONFIG_VHOST_NET=y\nCONFIG_TAP=m\n", ("nodrop", "tun", "tap")),
        ("CONFIG_VHOST_NET=m\n", ("nodrop", "tun", "vhost_net")),
        (None, ALL),
    ],
)
def test_dkms_is_told_the_kernels_modules(
    tmp_path: Path, config: str | None, modules: tuple[str, ...]
) -> None:
    if config is not None:
        path = tmp_path / "modules" / KERNEL / "build/.config"
        path.parent.mkdir(parents=True)
        path.write_text(config)
    script = f"""dkms_tree={tmp_path}/dkms install_tree={tmp_path}/modules kernelver={KERNEL}
    . {KMOD}/dkms.conf; echo "${{!BUILT_MODULE_NAME[*]}} ${{!DEST_MODULE_LOCATION[*]}}"
    echo "${{BUILT_MODULE_NAME[*]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    numbers = " ".join(map(str, range(len(modules))))
    assert done.stdout == f"{numbers} {numbers}\n{' '.join(modules)}\n"
