# SPDX-License-Identifier: GPL-2.0-only
"""A model of DKMS, with nodrop's modules built for a kernel."""

from __future__ import annotations

from pathlib import Path

from stubs import Done, programs, run, write

from nodrop.host.modules import MODULES, REPLACED

DKMS = Path(__file__).resolve().parents[1] / "dkms"
KERNEL = "6.12.99-amd64"
ALL = ("nodrop", *REPLACED)
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
    for m in $NAMES; do
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
        for m in $NAMES; do
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
        how["NAMES"] = " ".join(reversed(MODULES))
        return run(self.place / "bin", *words, NODROP_ROOT=self.place, KERNEL=KERNEL, **how)

    def install(self, cut: str = "", *, kill: bool = False, force: str = "") -> int:
        return self._run("dkms-model", "install", cut=cut, kill=kill, force=force).returncode

    def autoinstall(self) -> int:
        return self._run("dkms-model", "autoinstall").returncode

    def verify(self) -> int:
        return self._run(DKMS / "hooks", "verify", "0.3.0").returncode

    def stock(self) -> int:
        """Check that the kernel finds its own modules; fail if stderr and the status disagree."""
        done = self._run(DKMS / "hooks", "stock")
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
