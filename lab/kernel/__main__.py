# SPDX-License-Identifier: GPL-2.0-only
"""``python -m lab.kernel``: build a kernel if it is missing, and print where its parts are."""

from __future__ import annotations

import argparse
import sys

from lab.kernel import ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from nodrop.progress import Progress
from nodrop.signals import guarded

PARTS = ("linux", "release", "source", "objtree", "build_id", "package")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lab.kernel", description=__doc__)
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="perf")
    parser.add_argument("--modules", action="store_true", help="build its modules, too")
    parser.add_argument("part", choices=PARTS, nargs="?", help="print only this")
    options = parser.parse_args()
    with Progress() as progress:
        kernel = ensure_kernel(progress, options.flavour)
        if options.modules:
            ensure_artifacts(kernel, progress)
    for part in [options.part] if options.part else PARTS:
        value = getattr(kernel, part)
        print(value if options.part else f"{part}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
