# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab fuzz``: fuzz nodrop's modules in one guest after another.

It stops at the first finding, and prints the command that repeats the program. In each guest it
starts ``python -m proof.fuzz``, which runs programs until the first finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from guestlib.drivers import Drivers, tap_modules
from guestlib.environment import LEAST_S, Environment, GuestError, prepare_system
from lab import uml
from lab.commands import refuse_json
from lab.guest import DiedAtBoot, GuestDied, GuestTimeout, results_directory
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from lab.kernel.kconfig import FLAVOURS
from lab.sources import REPOSITORY
from lab.splats import find_splats
from lab.variant import Variant
from nodrop.errors import NodropError
from nodrop.proc import tail
from nodrop.progress import Progress
from proof.fuzz.execute import execute
from proof.fuzz.generate import program_of
from proof.leaks import Leaks

FOUND, CANNOT_RUN = 1, 2
"""Exit statuses."""
GUEST_S = 240.0
"""Lifetime of a guest; the next one is of another kind, and has fresh memory."""
EACH = 1_000_000
"""Program numbers reserved for each guest."""
GRACE_S = 150.0
"""Added to a guest's timeout: boot, the last program, the leak check, rmmod."""
AGAIN = "nodrop-lab fuzz"
GUARD = Path("/sys/module/nodrop/parameters/guard_ms")
TRACE = Path("/sys/kernel/tracing/events/nodrop/enable")
RCU = Path("/sys/module/rcutree/parameters")
RUNNING = "running.txt"
"""File in LAB_OUT with the current program, written before the program starts."""
KINDS = ("tun", "guard", "stock-vhost", "tap")
"""Of guests. tun: the guard never trips, so that a stopped queue is found. guard: it trips soon;
tracepoints are on. stock-vhost: the stock, unaware vhost_net. tap: nodrop's tap with macvtap."""
_ROUND = 200
"""Programs before the first sample of the memory."""
_REPORT_S = 10.0
_AGAIN = 5
"""How often a program is repeated before its pending packets are a finding."""


class Log:
    """The kernel's log from its construction on."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)

    def complaint(self) -> str:
        """Return the splats since the last call; "": none."""
        lines: list[str] = []
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
                lines += record.partition(";")[2].splitlines()[:1]
            except BlockingIOError:
                return "\n".join(splat.text for splat in find_splats(lines))
            except BrokenPipeError:
                continue  # Overwritten records: read on.


def use(kind: str, modules: Path) -> Drivers:
    drivers = Drivers(modules)
    if kind == "tap":
        drivers.load(tap_modules("nodrop"))
        return drivers
    drivers.use(Variant.NODROP, vhost=Variant.STOCK if kind == "stock-vhost" else Variant.NODROP)
    GUARD.write_text("20" if kind == "guard" else "0")
    TRACE.write_text("1" if kind == "guard" else "0")
    return drivers


def fuzz(
    seed: int, first: int, most: int, seconds: float, words: str = ""
) -> tuple[str, Counter[str]]:
    """Run a seed's programs.

    Args:
        words: prefix of the options that repeat a program.
        first: number of the first program.
        most: limit; 0: none.
        seconds: duration.

    Returns:
        The finding, or "", and how often each call succeeded; under "" the number of programs.
    """
    log, done, leaks = Log(), Counter[str](), Leaks()
    reported_s, end = time.monotonic(), time.monotonic() + seconds
    running = Environment.from_environ().out / RUNNING
    for number in count(first):
        program = program_of(seed, number)
        text = "".join(f"r{at} = {call}\n" for at, call in enumerate(program))
        again = f"{words}--seed {seed} --first {number} --programs 1"
        running.write_text(f"# {again}\n{text}", encoding="utf-8")
        results, pending = execute(program)
        if found := log.complaint():
            return found, done
        # Packets may only have been late: give each repetition LEAST_S.
        again_pending = (execute(program, settle_s=LEAST_S).pending > 0 for _ in range(_AGAIN))
        if pending and (times := sum(again_pending)):
            return f"stuck: {pending} bytes not read, in {times} of {_AGAIN} repetitions", done
        done[""] += 1
        done.update(c.name for c, result in zip(program, results, strict=True) if result >= 0)
        if done[""] % _ROUND == 0:
            leaks.round_ends()
        if time.monotonic() >= end or done[""] == most:
            return leaks.end(), done
        if time.monotonic() - reported_s >= _REPORT_S:
            reported_s = time.monotonic()
            print(f"# {done['']} programs, {len(done) - 1} kinds of calls", flush=True)
    raise AssertionError


def work(given: argparse.Namespace) -> int:
    """Run programs in this guest; return FOUND after a finding, CANNOT_RUN, or 0."""
    try:
        prepare_system()
        # Deleting a device waits for several grace periods: make them short.
        for name in ("jiffies_till_first_fqs", "jiffies_till_next_fqs"):
            with suppress(OSError):
                (RCU / name).write_text("0")
        drivers = use(given.kind, Environment.from_environ().modules)
        wanted = (given.seed, given.first, given.programs, given.seconds)
        found, done = fuzz(*wanted, f"--kind {given.kind} ")
    except (GuestError, OSError) as error:
        print(f"fuzz: {error}", file=sys.stderr, flush=True)
        return CANNOT_RUN
    if not found:
        try:
            drivers.unload()
        except GuestError as error:
            found = f"modules: {error}"
    print(f"{done['']} programs, {done.total()} calls of {len(done) - 1} kinds", flush=True)
    print(f"FOUND {found}" if found else "nothing found", flush=True)
    return FOUND if found else 0


def run_guest(
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--kind", choices=KINDS, help="of guest; each in turn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="program (0)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="limit (none)")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of ``nodrop-lab fuzz``."""
    parser = commands.add_parser("fuzz", description="Fuzz nodrop's modules in guests.")
    add_arguments(parser)
    parser.add_argument("--flavour", choices=tuple(FLAVOURS), default="kasan")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run guests until the first finding (exit status 1) or until the time is over."""
    refuse_json(given)
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
            return FOUND
    print("Nothing was found.")
    return 0


def main(argv: list[str]) -> int:
    """Run programs in this guest."""
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz", description=__doc__)
    add_arguments(parser)
    return work(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
