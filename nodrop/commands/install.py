# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install --live`` and ``nodrop uninstall --live``: the running drivers, and back."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from nodrop import proc
from nodrop.commands import common
from nodrop.errors import NodropError, UsageError
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.livepatch import Livepatch
from nodrop.progress import Progress

BUILD_TIMEOUT_S = 600.0
_KMOD = REPOSITORY / "kmod"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    add = commands.add_parser(
        "install",
        help="make the running drivers lossless",
        description="Make the running kernel's tun and vhost_net lossless by a livepatch, with "
        "all sessions open. Until the next boot. docs/livepatch.md says what is dangerous.",
    )
    source = add.add_mutually_exclusive_group()
    source.add_argument("--source", type=Path, metavar="DIR", help="the running kernel's source")
    source.add_argument("--built", type=Path, metavar="DIR", help="where the modules were built")
    remove = commands.add_parser(
        "uninstall",
        help="make the running drivers stock again",
        description="Take the livepatch out of the running kernel, with all sessions open.",
    )
    for parser, run in ((add, run_install), (remove, run_uninstall)):
        parser.add_argument("--live", action="store_true", help="by a livepatch")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.add_argument(
            "--timeout", type=common.seconds, default=60.0, help="of each way, seconds (60)"
        )
        parser.set_defaults(run=run)


def run_install(arguments: argparse.Namespace) -> int:
    """Make the running drivers lossless."""
    _by_livepatch(arguments)
    patch = Livepatch()
    patch.require()
    if patch.enabled and patch.settled:
        print("The running drivers are lossless already.")
        return 0
    kernel = os.uname().release
    if arguments.dry_run:
        if not arguments.built:
            print(
                f"build nodrop.ko and nodrop_live.ko for kernel {kernel}, and check that they fit"
            )
        print("insmod nodrop.ko\ninsmod nodrop_live.ko")
        print(f"wait up to {arguments.timeout:g} s until all tasks run it, or take it out again")
        return 0
    _require_root()
    with Progress(quiet=arguments.quiet) as progress, ExitStack() as stack:
        folder = arguments.built
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodrop-live-")))
            with progress.step(f"Build the livepatch for {kernel}") as step:
                build(kernel, arguments.source, folder, step.update)
        with progress.step("Patch the running drivers") as step:
            patch.enter(folder, arguments.timeout, step.update)
    print("The running drivers are lossless until the next boot, or 'nodrop uninstall --live'.")
    return 0


def run_uninstall(arguments: argparse.Namespace) -> int:
    """Make the running drivers stock again."""
    _by_livepatch(arguments)
    patch = Livepatch()
    if not patch.present and not patch.loaded("nodrop_live"):
        print("There is no livepatch in the running kernel.")
        return 0
    if arguments.dry_run:
        print("disable the livepatch nodrop_live")
        print(f"wait up to {arguments.timeout:g} s until no task runs it")
        print("rmmod nodrop_live\nrmmod nodrop, when nothing else uses it")
        return 0
    _require_root()
    with Progress(quiet=arguments.quiet) as progress, progress.step("Restore the drivers") as step:
        patch.leave(arguments.timeout, step.update)
    print("The running drivers are stock again.")
    return 0


def build(kernel: str, source: Path | None, out: Path, tell: Callable[[str], None]) -> None:
    """Build the livepatch for an installed kernel and check that it fits.

    Args:
        kernel: its release.
        source: its source; None: what kmod/source finds.
        out: an empty folder; gets the modules.
        tell: called with each line of output.

    Raises:
        NodropError: it cannot be built, or does not fit; the text says why.
    """
    if source is None:
        if not (_KMOD / "source").exists():
            raise NodropError("The kernel's source is not known.", "Give it by --source DIR.")
        source = out / "source"
        _make([_KMOD / "source", kernel, source], tell)
    modules = Path("/lib/modules") / kernel
    words = [f"KSRC={source}", f"KOBJ={modules / 'build'}", f"LIVE={modules / 'kernel'}"]
    _make(["make", "-C", _KMOD, *words, f"OUT={out}"], tell)


def _make(argv: list[str | Path], tell: Callable[[str], None]) -> None:
    done = proc.run(argv, timeout=BUILD_TIMEOUT_S, on_line=tell)
    if done.status != 0:
        said = [line for line in done.output.splitlines() if line.startswith("nodrop: ")]
        reason = "\n".join(said) or proc.tail(done.output, 12)
        raise NodropError("The livepatch cannot be built; the drivers are what they were.", reason)


def _by_livepatch(arguments: argparse.Namespace) -> None:
    if not arguments.live:
        raise UsageError(
            "Say --live: this command changes the running drivers only.",
            "'make install' and 'make uninstall' are for the ones that are loaded at boot.",
        )


def _require_root() -> None:
    if os.geteuid() != 0:
        raise NodropError("Only root can change the running drivers.", "Run this as root.")
