# SPDX-License-Identifier: GPL-2.0-only
"""Boots a Debian kernel in QEMU, runs one command in it, and returns the result.

The guest's root is a Debian system: an image, layers over it (with nodrop's packages, for example)
and a writable one in memory. Shared directories of the host appear at their own paths, read-only.
There is no network.

QEMU uses KVM if it works on this host, else emulation (TCG). That /dev/kvm exists proves little: if
the host is itself a virtual machine, a guest may hang early in its boot. So KVM is tried once, with
a kernel that only has to panic.
"""

from __future__ import annotations

import lzma
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab import guest
from lab.guest import GuestRun, Terminal
from lab.roots import DebianKernel
from nodrop import proc
from nodrop.errors import NodropError

INIT = Path(__file__).with_name("debian-init")
BUSYBOX = Path("/bin/busybox")
WANTED = ("virtio_pci", "virtio_blk", "squashfs", "overlay", "9pnet_virtio", "9p")
"""Modules that the guest's root needs; those built into the kernel are skipped."""

PACK_TIMEOUT_S = 60.0
TRIAL_S = 6.0
"""Time limit of the trial, seconds; a host with working KVM needs half a second."""


@dataclass(frozen=True)
class Accel:
    """Options of QEMU that select an accelerator.

    Attributes:
        options: on QEMU's command line.
        slow: roughly how many times slower a program runs than on the host.
    """

    options: tuple[str, ...]
    slow: float


KVM = Accel(("-accel", "kvm", "-cpu", "host"), 1.0)
# Debian 6.12 and later do not boot with the cmpxchg16b that QEMU 7.2 emulates.
TCG = Accel(("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"), 10.0)
# One thread for all CPUs. With a thread for each, QEMU 7.2 was seen to execute a breakpoint that
# the kernel had already removed from its code (docs/testing.md).
TCG_SINGLE_THREAD = Accel(("-accel", "tcg,thread=single", "-cpu", "max,-cx16"), 10.0)
# One instruction takes one nanosecond of guest time and one tick of the TSC, whatever the host
# does meanwhile. For one CPU; an idle CPU waits in real time.
TCG_ICOUNT = Accel((*TCG_SINGLE_THREAD.options, "-icount", "shift=0,sleep=on"), 20.0)
# Pointer authentication by QEMU's own hash: the architecture's takes most of a guest's time.
TCG_ARM64 = Accel(
    ("-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on"), 10.0
)


def run(
    kernel: DebianKernel,
    argv: Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    layers: Sequence[Path] = (),
    share: Sequence[Path] = (),
    cpus: int = 2,
    memory: str = "2G",
    timeout: float | None = 120.0,
    env: Mapping[str, str] | None = None,
    code_changes: bool = False,
    how: Accel | None = None,
    on_line: Callable[[str], None] | None = None,
    terminal: Terminal | None = None,
) -> GuestRun:
    """Boot a Debian kernel, run ``argv`` in it as root, and wait for its end.

    Arguments that are not listed here are those of :func:`lab.uml.run`.

    Args:
        argv: the command; found in the guest's root or in a shared directory.
        out: also gets the kernel log, as kernel.log.
        layers: squashfs images to put over the kernel's root, topmost last.
        share: directories of the host, visible at the same paths, read-only.
        timeout: seconds with KVM; multiplied by the accelerator's ``slow`` otherwise.
        code_changes: the guest patches its own kernel code continuously.
        how: the accelerator; None: the best one for this host.
    """
    if not argv:
        raise ValueError("no command for the guest")
    out = guest.results_directory(out)
    disks = [kernel.root.image, *layers]
    share = [folder.resolve() for folder in share]
    arm64 = kernel.architecture == "arm64"
    if not how:
        how = TCG_ARM64 if arm64 else choose_accel(kernel.vmlinuz, code_changes=code_changes)
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LAB_OUT": str(out),
        "LAB_SLOW": f"{how.slow:g}",
        **dict(env or {}),
    }

    def boot() -> GuestRun:
        with (
            tempfile.TemporaryDirectory(prefix="nodrop-qemu-") as scratch,
            guest.socket_pairs() as (ours, theirs),
        ):
            names = (f"vd{chr(ord('a') + i)}" for i in range(len(disks)))
            own = {
                "LAB_DISKS": " ".join(names),
                "LAB_SHARE": " ".join(map(str, share)),
                "LAB_CWD": str(share[0] if share else "/"),
                "LAB_PATH": guest.PATH,
            }
            text = guest.plan(argv, {**environment, **own}, terminal)
            shell = kernel.root.path / "bin/busybox" if arm64 else BUSYBOX
            memory_disk = pack_initramfs(
                kernel.modules, WANTED, INIT, Path(scratch), plan=text, busybox=shell
            )
            command = [
                *(proc.require("setpriv", "util-linux"), "--pdeathsig", "KILL", "--"),
                proc.require(*(_QEMU_ARM64 if arm64 else _QEMU)),
                *how.options,
                *("-smp", str(cpus), "-m", memory),
                *("-nodefaults", "-display", "none", "-no-reboot", "-no-user-config"),
                *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"),
                *_serial([end.fileno() for end in theirs], pci=arm64),
                *("-kernel", str(kernel.vmlinuz), "-initrd", str(memory_disk)),
                *("-append", " ".join(_COMMAND_LINE)),
                *_disks(disks),
                *_folders(share, out),
            ]
            with guest.start(command, theirs) as process:
                return guest.collect(
                    process,
                    ours,
                    timeout=None if timeout is None else timeout * how.slow,
                    slow=how.slow,
                    on_line=on_line,
                    keep=out / "kernel.log",
                    terminal=terminal,
                )

    return guest.boot_with_retry(boot, observed=bool(terminal or on_line))


_QEMU = ("qemu-system-x86_64", "qemu-system-x86")
_QEMU_ARM64 = ("qemu-system-aarch64", "qemu-system-arm")
"""Program and Debian's package of it."""
_COMMAND_LINE = (
    "console=ttyS0",
    "loglevel=7",
    "oops=panic",
    "panic=-1",  # at once: a dead guest must not linger
    "nowatchdog",  # a virtual CPU that the host suspends for long is no lockup
    "rcupdate.rcu_cpu_stall_timeout=120",  # nor a stall
    "mitigations=off",  # slow under emulation, and no test needs them
    "module.sig_enforce=0",
)


def _disks(images: Sequence[Path]) -> Iterator[str]:
    for i, image in enumerate(images):
        yield "-drive"
        yield f"if=none,id=disk{i},format=raw,readonly=on,file={_escape(image)}"
        yield from ("-device", f"virtio-blk-pci,drive=disk{i}")


def _folders(share: Sequence[Path], out: Path) -> Iterator[str]:
    tagged = {f"share{i},readonly=on": path for i, path in enumerate(share)} | {"results": out}
    for tag, path in tagged.items():
        yield from ("-virtfs", f"local,path={_escape(path)},security_model=none,mount_tag={tag}")


def _serial(fds: Sequence[int], *, pci: bool) -> Iterator[str]:
    for i, fd in enumerate(fds):
        yield from ("-chardev", f"socket,id=line{i},fd={fd}")
        yield from (
            ("-device", f"pci-serial,chardev=line{i}") if pci else ("-serial", f"chardev:line{i}")
        )


def _escape(path: Path) -> str:
    """Escape commas, which separate QEMU's options."""
    return str(path).replace(",", ",,")


def choose_accel(vmlinuz: Path, *, code_changes: bool = False) -> Accel:
    """Return the accelerator: LAB_ACCEL if set, else KVM if it works, else TCG.

    Args:
        vmlinuz: the kernel for the KVM trial.
        code_changes: the guest patches its own kernel code continuously.

    Raises:
        NodropError: LAB_ACCEL is neither kvm nor tcg.
    """
    wanted = os.environ.get("LAB_ACCEL", "")
    if wanted not in ("", "kvm", "tcg"):
        raise NodropError(f"LAB_ACCEL is {wanted!r}.", "It may be kvm or tcg.")
    if wanted == "kvm" or (not wanted and _kvm_works(vmlinuz)):
        return KVM
    return TCG_SINGLE_THREAD if code_changes else TCG


@cache
def _kvm_works(vmlinuz: Path) -> bool:
    """Try KVM, once per process: a guest that hangs costs TRIAL_S."""
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and _panics_as_expected(vmlinuz)


def _panics_as_expected(vmlinuz: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix="nodrop-kvm-") as scratch:
        log = Path(scratch) / "log"
        command = [
            proc.require(*_QEMU),
            *KVM.options,
            *("-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(vmlinuz), "-append", "console=ttyS0 panic=-1"),
            *("-serial", f"file:{log}"),
        ]
        # The kernel finds no root file system and panics, which is all that it has to do.
        with suppress(NodropError):
            proc.run(command, timeout=TRIAL_S)
        return log.exists() and "Kernel panic" in log.read_text(errors="replace")


def load_order(dep: str, wanted: Sequence[str]) -> list[str]:
    """Return the files of modules and of their dependencies, in load order.

    Args:
        dep: the text of modules.dep.
        wanted: names of modules; names without a file are skipped.
    """
    needs = dict(line.split(":", 1) for line in dep.splitlines() if ":" in line)
    files = {module_name(path): path for path in needs}
    order: list[str] = []
    for name in wanted:
        if path := files.get(name):
            # modules.dep lists the module to load first last.
            order += [*reversed(needs[path].split()), path]
    return list(dict.fromkeys(order))


def module_name(path: str) -> str:
    """Return the name by which the kernel knows a module's file."""
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def pack_initramfs(
    modules: Path,
    wanted: Sequence[str],
    init: Path,
    scratch: Path,
    *,
    plan: str = "",
    busybox: Path = BUSYBOX,
) -> Path:
    """Build an initramfs with busybox; return its file.

    Args:
        modules: the kernel's directory in /lib/modules.
        wanted: names of modules; those built into the kernel are skipped.
        init: the script to start; it finds the modules in /lab, in the order of /lab/modules.
        scratch: an empty directory for the file.
        plan: /lab/plan.
        busybox: a statically linked one of the kernel's architecture.
    """
    if not busybox.exists():
        raise NodropError(
            f"{busybox} is missing.", "Install it with: apt-get install busybox-static"
        )
    tree = scratch / "initramfs"
    for folder in ("bin", "lab"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(busybox, tree / "bin")
    (tree / "bin/sh").symlink_to("busybox")
    shutil.copy(init, tree / "init")
    (tree / "init").chmod(0o755)
    order = load_order((modules / "modules.dep").read_text(encoding="utf-8"), wanted)
    for path in order:
        (tree / "lab" / f"{module_name(path)}.ko").write_bytes(_plain(modules / path))
    names = "".join(f"{module_name(path)}.ko\n" for path in order)
    (tree / "lab/modules").write_text(names, encoding="utf-8")
    (tree / "lab/plan").write_text(plan, encoding="utf-8")
    result = scratch / "initramfs.gz"
    proc.require("cpio", "cpio")
    script = "find . -mindepth 1 | sort | cpio --create --format=newc --quiet | gzip -1"
    packed = proc.run(
        ["bash", "-o", "pipefail", "-c", f'{script} >"$0"', result],
        cwd=tree,
        timeout=PACK_TIMEOUT_S,
    )
    if packed.status != 0:
        raise NodropError("Cannot pack a guest's initramfs.", packed.output)
    return result


def _plain(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
