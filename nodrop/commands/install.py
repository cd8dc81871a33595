# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``nodrop uninstall``: nodrop's modules on disk, by dkms/install.

The installer replaces this process, so that it gets the signals, and prints everything itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError, UsageError

PACKAGE = "nodrop-dkms"
INSTALLER = "dkms/install"
ROOT = Path("/")
REPOSITORY = Path(__file__).resolve().parents[2]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of both commands."""
    add = commands.add_parser(
        "install",
        description="Build and install nodrop's modules for the running kernel, which loads them "
        "instead of its own from the next load on. 'nodrop livepatch load' patches the running "
        "drivers instead.",
    )
    add.add_argument("--source", type=Path, metavar="DIR", help="source tree of the kernel")
    add.add_argument("--kernel", metavar="RELEASE", help="another kernel, or 'all'")
    remove = commands.add_parser(
        "uninstall",
        description="Remove nodrop's modules, so that every kernel loads its own again.",
    )
    for parser, run in ((add, _install), (remove, _uninstall)):
        parser.add_argument("--dry-run", action="store_true", help="print the commands only")
        parser.set_defaults(run=run)


def _install(arguments: argparse.Namespace) -> int:
    installer, source = REPOSITORY / INSTALLER, arguments.source
    if source is not None and not source.is_dir():
        raise NodropError(f"There is no directory {source}.", "--source needs a source tree.")
    if not (REPOSITORY / "packaging/lay").exists() or packaged():
        installers = list((ROOT / "usr/src").glob(f"nodrop-*/{INSTALLER}"))
        if not installers:
            raise UnsupportedError(
                f"The sources of nodrop's modules are missing; the package {PACKAGE} has them.",
                f"Run 'apt install ./{PACKAGE}_*_all.deb', which 'make deb' builds in a clone, or "
                "'make install' in a clone.",
            )
        installer = max(installers, key=lambda path: path.stat().st_mtime)
    options = [] if source is None else ["-s", str(source.absolute())]
    if arguments.kernel is not None:
        options += ["-k", arguments.kernel]
    return _become(arguments, installer, *options)


def _uninstall(arguments: argparse.Namespace) -> int:
    if packaged():
        raise UnsupportedError(
            f"The package {PACKAGE} installed the modules.",
            f"Run 'apt purge {PACKAGE}', which also reports what to restart.",
        )
    if not (REPOSITORY / INSTALLER).exists():
        raise NodropError("This copy of nodrop has no installer.", "Use 'make uninstall'.")
    return _become(arguments, REPOSITORY / INSTALLER, "-u")


def packaged() -> bool:
    """Return whether the package has a file here, which no other installation has."""
    return (ROOT / "usr/lib/modprobe.d/zz-nodrop.conf").exists()


def _become(arguments: argparse.Namespace, installer: Path, *options: str) -> int:
    if arguments.json:
        raise UsageError("The installer prints no JSON.", "Run it without -j.")
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    try:
        os.execv(installer, [str(installer), *(["-n"] if arguments.dry_run else []), *options])
    except OSError as error:
        raise NodropError(f"{installer} cannot be run: {error.strerror}.") from error
