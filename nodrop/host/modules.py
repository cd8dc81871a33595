# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's modules and those they replace: on disk, loaded, in use, and what is to be restarted.

The scripts of ``dkms`` run this without the rest of the command: ``packaging/lay`` lists what it
imports.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.host import owners, procfs
from nodrop.host.procfs import Holder
from nodrop.proc import ask, join
from nodrop.screen import clean

BESIDE = "nodrop_tun"
"""nodrop's tun for a kernel whose own is built in (CONFIG_TUN=y), which stays beside it."""
TUNS = ("tun", BESIDE)
"""Names of nodrop's tun; a kernel has one of them."""
REPLACED = ("vhost_net", "tap", "tun")
MODULES = (*REPLACED, BESIDE, "nodrop")
"""In the order in which they are unloaded."""
TOOL_TIMEOUT_S = 1800.0
"""Of update-initramfs, on a slow machine."""
USERS_S = 60.0
"""Time limit for finding the users of devices, seconds. Without it a user could delay root."""
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What :func:`content` raises."""
_NOTE = b"".join(n.to_bytes(4, sys.byteorder) for n in (4, 20, 3)) + b"GNU\0"
"""The head of the ELF note with the build ID."""
_IN_INITRD = re.compile(rf"/({'|'.join(MODULES)})\.ko")
IFF_BACKPRESSURE, IFF_PERSIST = 0x0080, 0x0800
"""Flags of a TUN or TAP device: its application requested backpressure from Linux 7.3's own driver;
it exists without a process."""


@dataclass(frozen=True)
class ModuleFile:
    """A module's build IDs, loaded and on disk; "": not there, None: not known.

    A build ID changes with every change of the code. Versions do not, and modpost's srcversion
    does not cover the kernel's own tun.c.
    """

    name: str
    path: str
    loaded: str | None
    on_disk: str | None

    @property
    def stale(self) -> bool:
        """Whether the loaded module differs from the one on disk."""
        return bool(self.loaded and self.on_disk is not None and self.loaded != self.on_disk)


@dataclass(frozen=True)
class User:
    """A process that has a device node of the modules open."""

    name: str
    pid: int
    cgroup: procfs.Cgroup


def installed(root: Path, release: str) -> bool:
    """Return whether a kernel loads nodrop's modules from the next load on.

    Args:
        root: parent of ``lib``.
        release: kernel release; "*": any kernel's.
    """
    return any((root / "lib/modules").glob(f"{release}/updates/**/nodrop.ko*"))


def sources(root: Path) -> bool:
    """Return whether nodrop's sources for DKMS are installed; ``root``: parent of ``usr``."""
    return any((root / "usr/src").glob("nodrop-*/dkms.conf"))


def driver(root: Path) -> str | None:
    """Return the loaded tun: "stock", "live" or "nodrop"; None: none.

    Args:
        root: parent of ``sys``.
    """
    modules = root / "sys/module"
    if any((modules / name / "parameters/nodrop").exists() for name in TUNS):
        return "nodrop"
    if not (modules / "tun").exists():
        return "stock" if tun_built_in(root) else None
    return "live" if (root / "sys/kernel/livepatch/nodrop_live").exists() else "stock"


def loaded_now(which: str | None) -> str:
    """Return a sentence about the loaded tun, which :func:`driver` has returned."""
    names = {None: "no tun", "stock": "the stock tun", "live": "the stock tun, livepatched"}
    name = names.get(which, "nodrop's tun")
    return f"Loaded now: {name}."


def tun_built_in(root: Path) -> bool:
    """Return whether the running kernel's own tun is built in, so that it has no directory.

    Args:
        root: parent of ``sys``.
    """
    return (root / "sys/class/misc/tun").exists() and not (root / "sys/module/tun").exists()


def other_livepatches(root: Path) -> dict[str, list[str]]:
    """Return the livepatches besides nodrop's -> those of REPLACED that they patch.

    modprobe loads the kernel's own module in place of nodrop's then: ``dkms/modprobe.conf``.

    Args:
        root: parent of ``sys``.
    """
    patches: dict[str, list[str]] = {}
    for name in REPLACED:
        for folder in sorted((root / "sys/kernel/livepatch").glob(f"*/{name}")):
            if folder.parent.name != "nodrop_live":
                patches.setdefault(folder.parent.name, []).append(name)
    return patches


def read(root: Path, release: str, names: Sequence[str] = MODULES) -> list[ModuleFile]:
    """Return the modules of a kernel.

    Args:
        root: parent of ``lib`` and ``sys``.
    """
    return [_read(root, release, name) for name in names]


def _read(root: Path, release: str, name: str) -> ModuleFile:
    folder = root / "lib/modules" / release
    path = file_of(folder, name)
    loaded: str | None = ""
    if (root / "sys/module" / name / "initstate").exists():
        loaded = None
        with suppress(OSError):
            note = root / "sys/module" / name / "notes/.note.gnu.build-id"
            loaded = _build_id(note.read_bytes())
    on_disk: str | None = "" if folder.is_dir() else None
    if path:
        on_disk = _file_id(folder / path)
    return ModuleFile(name, path, loaded, on_disk)


def file_of(folder: Path, module: str) -> str:
    """Return the file that a load takes, relative to a kernel's directory; "": none."""
    with suppress(OSError), (folder / "modules.dep").open(errors="replace") as file:
        for line in file:
            path = line.partition(":")[0]
            if path.rpartition("/")[2].partition(".ko")[0].replace("-", "_") == module:
                return path
    return ""


def content(path: Path) -> bytes:
    """Return a module's content, decompressed.

    Raises:
        UNREADABLE: it cannot be read, or is damaged, or the program zstd is missing.
    """
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        done = subprocess.run(["zstd", "-qdc", path], capture_output=True, check=False)
        if done.returncode != 0:
            raise EOFError(f"{path} cannot be decompressed: {done.stderr!r}")
        return done.stdout
    return path.read_bytes()


def _file_id(path: Path) -> str | None:
    with suppress(*UNREADABLE):
        return _build_id(content(path))
    return None


def _build_id(data: bytes) -> str | None:
    start = data.find(_NOTE)
    if start < 0:
        return None
    return data[start + len(_NOTE) : start + len(_NOTE) + 20].hex()


def to_load(files: Iterable[ModuleFile]) -> bool:
    """Return whether nodrop_tun is on disk and not loaded: nothing loads it when it is needed."""
    return any(file.name == BESIDE and file.path and file.loaded == "" for file in files)


def replaceable(
    files: Iterable[ModuleFile], patches: Mapping[str, Sequence[str]]
) -> list[ModuleFile]:
    """Return the modules that a load may replace: those that no other livepatch patches."""
    patched = {name for names in patches.values() for name in names}
    return [file for file in files if file.name not in patched]


def by_unit(users: Iterable[User]) -> tuple[str, str]:
    """Return the units to restart, for a shell, and the other processes: ``qemu(7), vpn(9)``."""
    units, others = dict[str, None](), dict[str, None]()
    for user in users:
        if unit := user.cgroup.service:
            units[unit] = None
        else:
            others[f"{user.name}({user.pid})"] = None
    return join(*units), ", ".join(others)


def to_exchange(files: Iterable[ModuleFile]) -> tuple[list[str], str]:
    """Return the modules to unload, in order, and the one to load then ("": none).

    macvtap and ipvtap use tap: it stays unless it differs from the one on disk.

    Args:
        files: of all MODULES.
    """
    known = list(files)
    present = [file for file in known if file.loaded != ""]
    loaded = [file.name for file in present if file.name != "tap" or file.stale]
    beside = [file for file in known if file.name == BESIDE and (file.path or file.loaded != "")]
    if not beside:
        return loaded, "tun"
    return loaded, BESIDE if beside[0].path else ""


def restart(
    files: Sequence[ModuleFile], users: Iterable[User], persistent: Iterable[str], reload: str = ""
) -> tuple[str, ...]:
    """Return shell commands that replace the loaded modules by those on disk.

    Args:
        files: of all MODULES.
        users: processes that have devices open.
        persistent: labels of devices that exist without a process.
        reload: the command line of 'nodrop reload'; "": it is not installed.
    """
    loaded, load = to_exchange(files)
    units, others = by_unit(users)
    lines = []
    if others:
        lines.append(f"# stop {others}, and start it again at the end")
    if labels := sorted(persistent):
        lines.append(f"# delete the persistent devices: {', '.join(labels)}")
    if reload:
        return (*lines, reload)
    if units:
        lines.append(f"systemctl stop -- {units}")
    if "tap" in loaded:
        lines.append("# this deletes all macvtap and ipvtap devices: create them again afterwards")
        lines.append("modprobe -r macvtap ipvtap")
    if loaded:
        lines.append(f"rmmod {' '.join(loaded)}")
    if load:
        lines.append(f"modprobe {load}")
    if units:
        lines.append(f"systemctl start -- {units}")
    return tuple(lines)


def settle(root: Path = Path("/")) -> None:
    """Let the running kernel use the modules on disk, after nodrop was installed or removed.

    Unload modules that are unused, so that the next use loads those on disk, and print what to
    restart for the others. Load nodrop_tun, which no use loads. Rebuild initial RAM disks that
    contain them, and restore /dev/net/tun, which disappears with the module. Problems are
    printed: none undoes an installation.

    Args:
        root: parent of ``boot``, ``dev``, ``lib``, ``proc`` and ``sys``.
    """
    _rebuild_initrds(root)
    with suppress(OSError):
        # In a chroot, the running kernel belongs to another system.
        if not os.path.samefile("/", root / "proc/1/root"):
            return
        _replace_loaded(root)
        if not (root / "dev/net/tun").is_char_device():
            _run("modprobe", "-q", "tun")


def _rebuild_initrds(root: Path) -> None:
    if not (shutil.which("update-initramfs") and shutil.which("lsinitramfs")):
        return
    for image in sorted((root / "boot").glob("initrd.img-*")):
        kernel = image.name.removeprefix("initrd.img-")
        if not _IN_INITRD.search(_run("lsinitramfs", str(image)).stdout):
            continue
        if _run("update-initramfs", "-u", "-k", kernel).returncode != 0:
            _note(
                f"{image} contains a tun module and could not be rebuilt: "
                f"run 'update-initramfs -u -k {kernel}'"
            )


def _replace_loaded(root: Path) -> None:
    release = os.uname().release
    files = read(root, release)
    patches = other_livepatches(root) if installed(root, release) else {}
    for name, patched in patches.items():
        _note(
            f"the livepatch {name} patches the kernel's own {' and '.join(patched)}: while it is "
            "loaded, modprobe loads that driver and not nodrop's"
        )
    if not any(file.stale for file in files) and not to_load(files):
        return
    # While it is loaded, the kernel refuses another tun.ko: do not unload tun.
    if (root / "sys/kernel/livepatch/nodrop_live").is_dir():
        _note(
            "the running drivers are patched (nodrop livepatch load) and stay so. Run 'nodrop "
            "livepatch unload' before tun is unloaded: while the livepatch is loaded, the kernel "
            "loads no tun but the one that was patched."
        )
        return
    if any(file.stale for file in files):
        for name in _to_unload(root, files):
            # Not by modprobe, which only unloads modules that it finds on disk.
            if _references(root, name) == 0:
                _run("rmmod", name)
        files = read(root, release)
    stale = [file.name for file in replaceable(files, patches) if file.stale]
    if not stale and not to_load(files):
        return
    holders = device_holders(root)
    if to_load(files):
        _load_beside(root, holders, in_vain="vhost_net" in stale)
    if not stale:
        return
    counts = ", ".join(f"{name} {_references(root, name)}" for name in stale)
    _note(
        f"{' and '.join(stale)}: loaded and in use, so not replaced yet (reference counts: "
        f"{counts}). The modules on disk replace them at a reboot, or by:"
    )
    users, persistent = users_of(holders), list(_persistent(root, stale))
    if not users and not persistent:
        _note("    # stop their users: none is visible here")
    there = any((root / f"usr/{folder}bin/nodrop").exists() for folder in ("", "local/"))
    for line in restart(files, users, persistent, "nodrop reload" if there else ""):
        _note(f"    {line}")


def _load_beside(root: Path, holders: Iterable[Holder], *, in_vain: bool) -> None:
    """Load nodrop_tun, and print what keeps the built-in tun: who has it open, persistent devices.

    That tun also gets the new opens of a namespace with such a device, and all of them while the
    kernel's own vhost_net is loaded (``in_vain``).
    """
    units, others = by_unit(users_of(holder for holder in holders if holder.tun or holder.unset))
    persistent = ", ".join(sorted(_persistent(root, [BESIDE])))
    done = _run("modprobe", BESIDE)
    if not (root / "sys/module" / BESIDE).is_dir():  # modprobe succeeds: dkms/modprobe.conf
        _note(f"{BESIDE} cannot be loaded, so tun drops as before: {done.stderr.strip()}")
        return
    if in_vain:
        _note("until the kernel's own vhost_net is replaced, the built-in tun gets all new opens")
        return
    if units or others:
        commands = units and f"'systemctl stop -- {units}', then 'systemctl start -- {units}'"
        _note(
            f"{BESIDE} serves what is opened from now on. Devices that were opened before stay "
            "with the built-in tun, and drop, until all their programs have been stopped, and "
            f"started again: {' and '.join(filter(None, (others, commands)))}"
        )
    if persistent:
        _note(
            f"the built-in tun also gets what is opened while its persistent devices exist: delete "
            f"{persistent} and create them again, or reboot"
        )


def _to_unload(root: Path, files: Iterable[ModuleFile]) -> tuple[str, ...]:
    """Return the modules to unload if they are unused.

    A new driver needs the core that it was built with, so if the old core is in use, both drivers
    stay. macvtap and ipvtap, which use tap, always do: unloading them would delete their devices,
    in other namespaces, too.
    """
    core_is_old = any(file.name == "nodrop" and file.stale for file in files)
    own_users = (
        ("vhost_net", ()),
        *((name, ("vhost_net",)) for name in TUNS),
        ("nodrop", ("vhost_net", *TUNS)),
    )
    used = any(_other_references(root, name, users) for name, users in own_users)
    return ("tap",) if core_is_old and used else MODULES


def _other_references(root: Path, name: str, own: Iterable[str]) -> int:
    """Return a module's reference count without those of these modules."""
    holders = root / "sys/module" / name / "holders"
    return (_references(root, name) or 0) - sum((holders / module).exists() for module in own)


def _references(root: Path, name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int((root / "sys/module" / name / "refcnt").read_text())
    return None


def device_holders(root: Path) -> list[Holder]:
    """Return the processes that have a device node of the modules open.

    Print if there may be others.

    Args:
        root: parent of ``proc``.
    """
    holders, hidden = owners.find(root / "proc", USERS_S)
    if hidden:
        many = "es" if hidden > 1 else ""
        _note(f"{hidden} process{many} could not be inspected: more may use the devices")
    return holders


def users_of(holders: Iterable[Holder]) -> list[User]:
    return [
        User(clean(holder.name), holder.pid, procfs.cgroup(holder.cgroup, holder.guest))
        for holder in holders
    ]


def _persistent(root: Path, stale: Iterable[str]) -> Iterator[str]:
    """Yield devices that exist without a process: IFF_PERSIST, and all macvtap and ipvtap."""
    classes = root / "sys/class"
    if "tap" in stale:
        for node in (*classes.glob("macvtap/*"), *classes.glob("ipvtap/*")):
            yield node.resolve().parents[1].name
    if {*TUNS} & {*stale}:
        names = (file.parent.name for file in classes.glob("net/*/tun_flags"))
        yield from (name for name in names if tun_flags(name, root) & IFF_PERSIST)


def tun_flags(device: str, root: Path = Path("/")) -> int:
    """Return the flags of a TUN or TAP device; 0: not known.

    Args:
        root: parent of ``sys``.
    """
    with suppress(OSError, ValueError):
        return int((root / "sys/class/net" / device / "tun_flags").read_text(), 16)
    return 0


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the machine; its failure shows in what is read afterwards."""
    try:
        return ask(*argv, timeout=TOOL_TIMEOUT_S)
    except NodropError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def _note(text: str) -> None:
    # Names of processes and devices may contain terminal escapes.
    print(f"nodrop: {clean(text)}", file=sys.stderr)
