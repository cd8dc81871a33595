# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.tunnels.parts [--kernel KERNEL] --out DIR``: instructions a packet, by part.

Boots an x86 kernel without the series, one with it, and one with a switch for each of its parts,
in QEMU, which counts instructions, so neither the host's speed nor its load matters. Each kernel's
rows go to DIR/KERNEL.jsonl; the table is of all rows in DIR.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from lab import accel, qemu
from lab.kernel.linux_source import ensure_source
from lab.kernel.patched import REPOSITORY, fingerprint
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress
from nodrop.signals import guarded
from proof.tunnels.cost import MEASURED, VARIANTS
from proof.tunnels.x86 import PATCHES, ensure_x86

TIMEOUT_S = 60.0
"""Of a guest with KVM; multiplied for emulation."""


def measure(name: str, out: Path, progress: Progress) -> None:
    """Boot a kernel, measure, and write its rows.

    Raises:
        NodropError: the kernel cannot be built, or the measurement failed.
    """
    kernel = ensure_x86(name, progress)
    with (
        tempfile.TemporaryDirectory() as guest,
        progress.step(f"Count instructions ({name})") as shown,
    ):
        run = qemu.run(
            kernel,
            ["python3", "-m", "proof.tunnels.cost", name],
            out=Path(guest),
            share=[REPOSITORY, kernel.files],
            cpus=1,
            timeout=TIMEOUT_S,
            how=accel.TCG_ICOUNT,
            env={
                "NODROP_MODULES": str(kernel.files),
                "NODROP_BIN": "",
                "PYTHONPATH": str(REPOSITORY),
            },
            on_line=lambda line: shown.update(line),
        )
    if run.status or run.splats:
        raise NodropError(f"The measurement on {name} failed.", proc.tail(run.output or run.log))
    (out / f"{name}.jsonl").write_text(run.output + "\n", encoding="utf-8")
    qemu_program = proc.require("qemu-system-x86_64", "qemu-system-x86")
    meta = {
        "source": ensure_source(progress).package,
        "patches": fingerprint(PATCHES[name]),
        "qemu": proc.run([qemu_program, "--version"], timeout=TIMEOUT_S).output.splitlines()[0],
    }
    (out / f"{name}.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def table(out: Path) -> str:
    """Return the table of a directory's rows, in Markdown: medians and ratios.

    The ratio of "series" is "clean" to it, that of a part "none" to it.

    Raises:
        NodropError: a kernel's rows are missing.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for name in PATCHES:
        file = out / f"{name}.jsonl"
        if not file.exists():
            raise NodropError(f"{out} has no rows of the kernel {name}.", "Measure it first.")
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found.setdefault((row["kind"], row["variant"]), []).append(row["instructions"])
    names = ("clean", "series", *VARIANTS)
    lines = [f"| tunnel | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for kind in MEASURED:
        clean, series, none, *others = (median(found[kind, name]) for name in names)
        cells = [
            f"{clean:.0f}",
            f"{series:.0f} ({clean / series:.3f})",
            f"{none:.0f}",
            *(f"{one:.0f} ({none / one:.3f})" for one in others),
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Measure one kernel or all; print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m proof.tunnels.parts", description=__doc__)
    parser.add_argument("--kernel", choices=PATCHES, action="append", help="only this one (all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        for name in given.kernel or PATCHES:
            measure(name, given.out, progress)
    text = table(given.out)
    (given.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
