# SPDX-License-Identifier: GPL-2.0-only
"""The proof's commands: ``nodrop-lab sweep``, ``fuzz``. They boot the guests that do the work."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from lab import uml
from lab.commands import refuse_json
from lab.guest import DiedAtBoot, GuestDied, GuestTimeout, results_directory
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from lab.sources import REPOSITORY
from nodrop.commands.common import progress
from nodrop.errors import FAILED, NodropError
from nodrop.proc import tail

OPTIONS = ("seed", "part", "times", "driver", "most")
"""Of the sweep, passed on to the guest."""
FOUND, CANNOT_RUN = 1, 2
"""Exit statuses."""
GUEST_S = 240.0
"""Lifetime of a guest; the next one is of another kind, and has fresh memory."""
EACH = 1_000_000
"""Program numbers reserved for each guest."""
GRACE_S = 150.0
"""Added to a guest's timeout: boot, the last program, the leak check, rmmod."""
RUNNING = "running.txt"
"""File in LAB_OUT with the current program, written before the program starts."""
KINDS = ("tun", "guard", "stock-vhost", "tap")
"""Of guests. tun: the guard never trips, so that a stopped queue is found. guard: it trips soon;
tracepoints are on. stock-vhost: the stock, unaware vhost_net. tap: nodrop's tap with macvtap."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = commands.add_parser(
        "sweep",
        description="Test combinations of devices, readers and senders with real packets.",
    )
    add_sweep_options(sweep)
    sweep.add_argument("--flavour", choices=tuple(FLAVOURS), default="debug")
    sweep.set_defaults(run=run_sweep)
    fuzz = commands.add_parser(
        "fuzz",
        description="Fuzz nodrop's modules in one guest after another, until the first finding, "
        "and print the command that repeats its program.",
    )
    add_fuzz_options(fuzz)
    fuzz.add_argument("--flavour", choices=tuple(FLAVOURS), default="kasan")
    fuzz.set_defaults(run=run_fuzz)


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command and of its program in the guest."""
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the rows (1)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every Nth row from K on")
    parser.add_argument("--row", action="append", metavar="ROW", help="a row; may be repeated")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="repeat each row (1)")
    parser.add_argument(
        "--driver",
        choices=("nodrop", "stock", "both", "upstream", "series"),
        default="both",
        help="both: nodrop's, then stock's for rows to compare (both)",
    )
    parser.add_argument("--most", type=int, default=5, metavar="N", help="failures to stop at (5)")


def run_sweep(given: argparse.Namespace) -> int:
    """Run the sweep in a guest; return its exit status, or 1 after a splat."""
    refuse_json(given)
    words = [f"--{name}={getattr(given, name)}" for name in OPTIONS]
    words += [f"--row={row}" for row in given.row or ()]
    with progress(given) as steps:
        kernel = ensure_kernel(steps, given.flavour)
        artifacts = ensure_artifacts(kernel, steps)
    with tempfile.TemporaryDirectory(prefix="nodrop-sweep-") as out:
        ended = uml.run(
            kernel,
            [sys.executable, "-m", "proof.sweep", *words],
            out=Path(out),
            artifacts=artifacts,
            timeout=None,
            env={"PYTHONPATH": str(REPOSITORY)},
            on_line=print,
        )
    for splat in ended.splats:
        print(f"Kernel splat ({splat.kind}):\n{splat.text}", file=sys.stderr)
    return ended.status or (FAILED if ended.splats else 0)


def add_fuzz_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command and of its program in the guest."""
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--kind", choices=KINDS, help="of guest; each in turn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="program (0)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="limit (none)")


def run_fuzz(given: argparse.Namespace) -> int:
    """Run guests until the first finding (exit status 1) or until the time is over."""
    refuse_json(given)
    end = time.monotonic() + given.seconds
    out = results_directory(Path("out/fuzz", given.flavour))
    with progress(given) as steps:
        kernel = ensure_kernel(steps, given.flavour)
        artifacts = ensure_artifacts(kernel, steps)
    for number in count():
        left = given.seconds if number == 0 else end - time.monotonic()
        if left <= 0 or (number and given.programs):
            break
        kind = given.kind or KINDS[number % len(KINDS)]
        print(f"guest {number}: {kind}", flush=True)
        words = ["--seed", given.seed, "--kind", kind, "--first", given.first + number * EACH]
        words = [*map(str, words), "--programs", str(given.programs)]
        if found := run_fuzzer(kernel, artifacts, words, min(GUEST_S, left), out):
            which = next((line[2:] for line in found.splitlines() if line[:4] == "# --"), "")
            print(f"FOUND:\n{found}Again: nodrop-lab fuzz --flavour {given.flavour} {which}")
            return FOUND
    print("Nothing was found.")
    return 0


def run_fuzzer(
    kernel: Kernel, artifacts: Artifacts, words: Sequence[str], seconds: float, out: Path
) -> str:
    """Run the fuzzer in a guest; return the finding and its program, or "".

    Raises:
        NodropError: the fuzzer cannot be run.
    """
    argv = [sys.executable, "-m", "proof.fuzz", *words, "--seconds", f"{seconds:.1f}"]
    (out / RUNNING).write_text("# before the first program\n")
    try:
        ended = uml.run(
            kernel,
            argv,
            out=out,
            artifacts=artifacts,
            timeout=seconds + GRACE_S,
            env={"PYTHONPATH": str(REPOSITORY)},
            on_line=lambda line: print(f"  {line}", flush=True),
        )
    except DiedAtBoot:
        raise
    except (GuestDied, GuestTimeout) as error:
        found = f"{error.message}\n{error.hint}"
    else:
        if ended.status == CANNOT_RUN:
            raise NodropError("The fuzzer cannot run.", tail(ended.output))
        found = "\n".join(splat.text for splat in ended.splats)
        found = found or (tail(ended.output) if ended.status else "")
    return f"{found}\n{(out / RUNNING).read_text(encoding='utf-8')}" if found else ""
