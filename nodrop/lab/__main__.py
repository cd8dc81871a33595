# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.lab COMMAND ...``: run one command in a guest, by hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nodrop import lab
from nodrop.errors import FAILED, NodropError
from nodrop.kernel import ensure_artifacts, ensure_kernel
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.kernel.kconfig import FLAVOURS
from nodrop.lab import qemu, roots
from nodrop.lab.roots import kernel_names
from nodrop.progress import Progress
from nodrop.signals import INTERRUPTED, interrupt_on_signals


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the guest command's exit status, or 1 on a splat."""
    parser = argparse.ArgumentParser(prog="python -m nodrop.lab", description=__doc__)
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="perf")
    parser.add_argument("--debian", choices=kernel_names(), help="Debian's own kernel, in QEMU")
    parser.add_argument("--out", type=Path, default=Path("out/lab"), help="kept files (out/lab)")
    parser.add_argument("--cpus", type=int, default=2, help="virtual CPUs (2)")
    parser.add_argument("--memory", default="2G", help="the guest's memory (2G)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds (60)")
    parser.add_argument("--log", action="store_true", help="print the kernel's log at the end")
    parser.add_argument("--bare", action="store_true", help="without nodrop's modules and programs")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("name a command to run in the guest, for example: ip link")
    interrupt_on_signals()
    try:
        result = run_debian(options, command) if options.debian else run_uml(options, command)
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    if options.log:
        print(result.log, file=sys.stderr)
    for splat in result.splats:
        print(f"The kernel complained ({splat.kind}):\n{splat.text}", file=sys.stderr)
    return result.status or (FAILED if result.splats else 0)


def run_uml(options: argparse.Namespace, command: list[str]) -> lab.GuestRun:
    """Run a command in User-Mode Linux, with nodrop's modules and programs."""
    with Progress() as progress:
        kernel = ensure_kernel(progress, options.flavour)
        artifacts = None if options.bare else ensure_artifacts(kernel, progress)
    return lab.run(
        kernel,
        command,
        out=options.out,
        artifacts=artifacts,
        cpus=options.cpus,
        memory=options.memory,
        timeout=options.timeout,
        on_line=_print,
    )


def run_debian(options: argparse.Namespace, command: list[str]) -> lab.GuestRun:
    """Run a command under a Debian kernel, in a bare Debian root."""
    with Progress() as progress:
        kernel = roots.ensure_kernel(options.debian, progress)
    return qemu.run(
        kernel,
        command,
        out=options.out,
        share=[REPOSITORY],
        cpus=options.cpus,
        memory=options.memory,
        timeout=options.timeout,
        on_line=_print,
    )


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
