# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.tunnels.steps [--step STEP] --out DIR``: instructions a packet, by tunnel.

Boots an x86 kernel for each step of the series in QEMU, which counts instructions, so neither the
host's speed nor its load matters. Each step's rows go to DIR/STEP.jsonl; the table is of all steps
in DIR.
"""

from __future__ import annotations

import argparse
import json
import sys
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
from proof.tunnels.cost import MEASURED
from proof.tunnels.x86 import STEPS, ensure_x86

TIMEOUT_S = 60.0
"""Of a guest with KVM; multiplied for emulation."""


def measure(step: str, out: Path, progress: Progress) -> None:
    """Boot a step's kernel, measure, and write its rows.

    Raises:
        NodropError: the kernel cannot be built, or the measurement failed.
    """
    kernel = ensure_x86(step, progress)
    with progress.step(f"Count instructions ({step})", len(MEASURED)) as shown:
        run = qemu.run(
            kernel,
            ["python3", "-m", "proof.tunnels.cost"],
            out=out / "guest",
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
        raise NodropError(f"The measurement of {step} failed.", proc.tail(run.output or run.log))
    (out / f"{step}.jsonl").write_text(run.output + "\n", encoding="utf-8")
    qemu_program = proc.require("qemu-system-x86_64", "qemu-system-x86")
    meta = {
        "source": ensure_source(progress).package,
        "patches": fingerprint(STEPS[step]),
        "qemu": proc.run([qemu_program, "--version"], timeout=TIMEOUT_S).output.splitlines()[0],
    }
    (out / f"{step}.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def table(out: Path) -> str:
    """Return the table of a directory's rows, in Markdown.

    Raises:
        NodropError: there are none of the clean kernel.
    """
    costs: dict[str, dict[str, float]] = {}
    for step in STEPS:
        file = out / f"{step}.jsonl"
        if not file.exists():
            continue
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        costs[step] = {
            kind: median(row["instructions"] for row in rows if row["kind"] == kind)
            for kind in MEASURED
        }
    if "clean" not in costs:
        raise NodropError(f"{out} has no rows of the clean kernel.", "Measure the step clean.")
    others = [step for step in costs if step != "clean"]
    lines = [f"| tunnel | clean | {' | '.join(others)} |", f"|---|{'--:|' * len(costs)}"]
    for kind in MEASURED:
        clean = costs["clean"][kind]
        cells = (f"{costs[step][kind]:.0f} ({clean / costs[step][kind]:.3f})" for step in others)
        lines.append(f"| {kind} | {clean:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Measure one step or all; print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m proof.tunnels.steps", description=__doc__)
    parser.add_argument("--step", choices=STEPS, action="append", help="only this step (all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        for step in given.step or STEPS:
            measure(step, given.out, progress)
    text = table(given.out)
    (given.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
