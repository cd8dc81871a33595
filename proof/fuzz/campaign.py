# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.fuzz.campaign``: fuzz nodrop's modules in one guest after another.

It stops at the first finding, and prints the command that repeats the program.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from lab import uml
from lab.channels import DiedAtBoot, GuestDied, GuestTimeout, results_directory
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.artifacts import REPOSITORY
from lab.kernel.kconfig import FLAVOURS
from nodrop.errors import FAILED, NodropError
from nodrop.proc import tail
from nodrop.progress import Progress
from nodrop.signals import guarded
from proof.fuzz.worker import KINDS, RUNNING

GUEST_S = 240.0
"""Lifetime of a guest; the next one is of another kind, and has fresh memory."""
EACH = 1_000_000
"""Program numbers reserved for each guest."""
GRACE_S = 150.0
"""Added to a guest's timeout: boot, the last program, the leak check, rmmod."""
CANNOT_RUN = 2
AGAIN = "python -m proof.fuzz.campaign"


def run_guest(
    kernel: Kernel, artifacts: Artifacts, words: Sequence[str], seconds: float, out: Path
) -> str:
    """Run the fuzzer in a guest; return the finding and its program, or "".

    Raises:
        NodropError: the fuzzer cannot be run.
    """
    argv = [sys.executable, "-m", "proof.fuzz.worker", *words, "--seconds", f"{seconds:.1f}"]
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


def main(argv: Sequence[str]) -> int:
    """Run guests until the first finding (exit status 1) or until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="kasan")
    parser.add_argument("--kind", choices=KINDS, help="of guest; each in turn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="program (0)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="limit (none)")
    given = parser.parse_args(argv)
    end = time.monotonic() + given.seconds
    out = results_directory(Path("out/fuzz", given.flavour))
    with Progress() as progress:
        kernel = ensure_kernel(progress, given.flavour)
        artifacts = ensure_artifacts(kernel, progress)
    for number in count():
        left = given.seconds if number == 0 else end - time.monotonic()
        if left <= 0 or (number and given.programs):
            break
        kind = given.kind or KINDS[number % len(KINDS)]
        print(f"guest {number}: {kind}", flush=True)
        words = ["--seed", given.seed, "--kind", kind, "--first", given.first + number * EACH]
        words = [*map(str, words), "--programs", str(given.programs)]
        if found := run_guest(kernel, artifacts, words, min(GUEST_S, left), out):
            which = next((line[2:] for line in found.splitlines() if line[:4] == "# --"), "")
            print(f"FOUND:\n{found}Again: {AGAIN} --flavour {given.flavour} {which}")
            return FAILED
    print("Nothing was found.")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(partial(main, sys.argv[1:])))
