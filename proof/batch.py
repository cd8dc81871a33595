# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m proof.batch PROGRAM[::CASE...] ...``: run test programs one after the other.

Many programs share a guest where a boot takes longer than a test. Each program's output and
exit status go to files named after it in LAB_OUT. A mark in the kernel's log shows where
each program begins.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from guestlib.environment import scaled
from nodrop import proc

TIMEOUT_S = 300.0
MARK = "nodrop-lab: begins:"
"""Precedes a program's name in the kernel's log."""

TIMED_OUT, KILLED = 124, 128
"""Exit status after a timeout, as for timeout(1), and the base of 128 plus a signal's number."""


def run_one(program: Path, cases: list[str], out: Path) -> int:
    """Run one program and write its output and status; return the status."""
    with suppress(OSError), Path("/dev/kmsg").open("w", encoding="ascii") as log:
        log.write(f"{MARK} {program.name}\n")
    output = out / f"{program.name}.output"
    limit = scaled(TIMEOUT_S)
    status = proc.run([program, *cases], timeout=limit, log=output, keep=1, late=TIMED_OUT).status
    if status == TIMED_OUT:
        with output.open("a", encoding="utf-8") as sink:
            sink.write(f"# stopped after {limit:.0f} s\n")
    if status < 0:
        status = 128 - status
    (out / f"{program.name}.status").write_text(f"{status}\n", encoding="ascii")
    return status


def main(argv: list[str]) -> int:
    """Run the programs until one times out or is killed; return 0 if all were run."""
    out = Path(os.environ["LAB_OUT"])
    for word in argv:
        name, *cases = word.split("::")
        program = Path(name)
        started = time.monotonic()
        status = run_one(program, cases, out)
        seconds = time.monotonic() - started
        print(f"{program.name}: exit status {status}, {seconds:.0f} s", flush=True)
        if status == TIMED_OUT or status >= KILLED:
            # Such a program may still hold resources that the others need.
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
