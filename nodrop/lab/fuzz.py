# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.lab.fuzz``: fuzzes nodrop's modules in one guest after another.

It ends with the first finding, and prints the command that runs the same program again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nodrop.errors import FAILED, NodropError
from nodrop.guest.fuzz.run import KINDS, RUNNING
from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.kernel.kconfig import FLAVOURS
from nodrop.lab import uml
from nodrop.lab.hearing import DiedAtBoot, GuestDied, GuestTimeout, results_folder
from nodrop.proc import tail
from nodrop.progress import Progress
from nodrop.signals import INTERRUPTED, interrupt_on_signals

GUEST_S = 240.0
"""How long a guest lives; the next one is of another kind, and has fresh memory."""
EACH = 1_000_000
"""Numbers of programs that a guest may use up."""
GRACE_S = 150.0
"""What a guest may take beyond its time: boot, the last program, leaks, modules that go."""
CANNOT_RUN = 2


def run_guest(
    kernel: Kernel, artifacts: Artifacts, words: Sequence[str], seconds: float, out: Path
) -> str:
    """Run ``python -m nodrop.guest.fuzz`` in a guest; return what was found, or "".

    Raises:
        NodropError: it cannot be run.
    """
    argv = [sys.executable, "-m", "nodrop.guest.fuzz", *words, "--seconds", f"{seconds:.1f}"]
    (out / RUNNING).unlink(missing_ok=True)
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
        return f"{error.message}\n{error.hint}"
    if ended.status == CANNOT_RUN:
        raise NodropError("The fuzzer cannot run.", tail(ended.output))
    if ended.splats:
        return "\n".join(splat.text for splat in ended.splats)
    return tail(ended.output) if ended.status else ""


def fuzz(
    kernel: Kernel, artifacts: Artifacts, given: argparse.Namespace, out: Path
) -> tuple[str, int]:
    """Run guests until something is found or the time is over; return it, and the guest's kind."""
    end = time.monotonic() + given.seconds
    left, number = given.seconds, 0
    while left > 0:
        kind = number % len(KINDS) if given.kind is None else given.kind
        words = ["--seed", given.seed, "--kind", kind, "--first", given.first + number * EACH]
        words += ["--programs", given.programs]
        found = run_guest(kernel, artifacts, [*map(str, words)], min(GUEST_S, left), out)
        if found or given.programs:
            return found, kind
        left, number = end - time.monotonic(), number + 1
    return "", 0


def report(found: str, kind: int, flavour: str, out: Path) -> str:
    """Return what was found, by which program, and the command that runs it again."""
    try:
        program = (out / RUNNING).read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"FOUND before the first program:\n{found}"
    which = program.partition("\n")[0].removeprefix("# ")
    again = f"python -m nodrop.lab.fuzz --flavour {flavour} --kind {kind} {which} --programs 1"
    return f"FOUND:\n{found}\n{program}Again: {again}"


def main(argv: Sequence[str]) -> int:
    """Run it; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m nodrop.lab.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="kasan")
    kinds = range(len(KINDS))
    parser.add_argument("--kind", type=int, choices=kinds, help="of guest; each in turn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="program (0)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="so many only")
    given = parser.parse_args(argv)
    interrupt_on_signals()
    try:
        out = results_folder(Path("out/fuzz", given.flavour))
        with Progress() as progress:
            kernel = ensure_kernel(progress, given.flavour)
            artifacts = ensure_artifacts(kernel, progress)
        found, kind = fuzz(kernel, artifacts, given, out)
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    print(report(found, kind, given.flavour, out) if found else "Nothing was found.")
    return FAILED if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
