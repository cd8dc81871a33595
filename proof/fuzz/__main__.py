# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.fuzz``, as root in a guest: run programs until the first finding."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

from guestlib.drivers import Drivers, tap_modules
from guestlib.environment import LEAST_S, Environment, GuestError, prepare_system
from lab.splats import find_splats
from lab.variant import Variant
from proof.commands import CANNOT_RUN, FOUND, RUNNING, add_fuzz_options
from proof.fuzz.execute import execute
from proof.fuzz.generate import program_of
from proof.leaks import Leaks

GUARD = Path("/sys/module/nodrop/parameters/guard_ms")
TRACE = Path("/sys/kernel/tracing/events/nodrop/enable")
RCU = Path("/sys/module/rcutree/parameters")
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


def main(argv: list[str]) -> int:
    """Run programs in this guest."""
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz", description=__doc__)
    add_fuzz_options(parser)
    return work(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
