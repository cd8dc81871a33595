# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.instructions [--kernel K] [--only AXIS] [--out DIR] | --table DIR``.

Count the instructions that a packet through a TUN costs with each driver, on a Debian kernel. QEMU
counts them, so neither the host's speed nor its load matters.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from bench import provenance, rundir
from bench.commands import shared
from bench.guest.costcases import AXES
from bench.report import costs
from bench.report.files import MARKDOWN_NAME, META_NAME, read_rows
from lab import accel, bootable
from lab.debian import Setup, ensure_machine, ensure_packages
from lab.roots import kernel_names
from lab.variant import COMPARED, Variant
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress
from nodrop.signals import guarded

TIMEOUT_S = 20.0
"""Time limit of one repetition with KVM, seconds; multiplied by the accelerator's ``slow``."""
TIMES = 5


def measure(
    kernel: str, times: int, out: Path, progress: Progress, axes: Sequence[str] = tuple(AXES)
) -> None:
    """Boot the kernel, measure, and write raw data and metadata to ``out``.

    Args:
        times: how often to repeat everything.
        axes: keys of costcases.AXES to measure.

    Raises:
        NodropError: the measurement failed.
    """
    rundir.refuse_data(out)
    guest = ensure_machine(kernel, Setup.INSTALLED, ensure_packages(progress), progress)
    variants = [v for v in COMPARED if v is not Variant.UPSTREAM or kernel in bootable.UPSTREAM]
    command = ["python3", "-m", "bench.guest.instructions", str(times)]
    command += [",".join(axes), *variants]
    done = count(1)
    with progress.step(
        f"Count instructions on {guest.kernel.release}", len(variants) * times
    ) as step:
        run = guest.run(
            command,
            out=out,
            timeout=TIMEOUT_S * (1 + times),
            how=accel.TCG_ICOUNT,
            cpus=1,
            on_line=lambda line: step.update(line, done=next(done)),
        )
    if run.status or run.splats:
        hint = proc.tail(run.output or run.log)
        raise NodropError(f"The measurement on {kernel} failed.", hint)
    qemu = proc.require("qemu-system-x86_64", "qemu-system-x86")
    meta = {
        "schema": 1,
        "time": provenance.now_utc(),
        "kernel": {"name": kernel, "release": guest.kernel.release},
        "qemu": proc.run([qemu, "--version"], timeout=TIMEOUT_S).output.splitlines()[0],
        "machine": provenance.describe_machine(),
        "source": provenance.describe_source(),
        "times": times,
        "axes": list(axes),
    }
    (out / META_NAME).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def write_table(out: Path) -> str:
    """Write the table of a directory's raw data, and return it.

    Raises:
        NodropError: the data are missing or cannot be trusted.
    """
    results, meta = read_rows(out)
    costs.check(results)
    table = costs.markdown(results, meta)
    (out / MARKDOWN_NAME).write_text(table, encoding="utf-8")
    return table


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("--kernel", default="7.3", choices=kernel_names(), help="(7.3)")
    parser.add_argument("--only", choices=AXES, help="measure this axis only")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", type=Path, help="results directory (out/instructions-TIME)")
    place.add_argument("--table", type=Path, help="redo the table of this directory")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Measure, then print and write the table."""
    arguments = _arguments(argv)
    axes = [arguments.only] if arguments.only else list(AXES)
    out = arguments.table or arguments.out or shared.default_out("instructions")
    if not arguments.table:
        with Progress() as progress:
            measure(arguments.kernel, TIMES, out, progress, axes)
    print(f"{write_table(out)}\nData and table: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
