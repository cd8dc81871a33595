# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.sweep``, as root in a guest: run rows, and print those that fail."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from guestlib.drivers import Drivers, device_flags, modules, tap_modules
from guestlib.environment import LEAST_S, Environment, GuestError, prepare_system, wait_until
from lab.variant import OURS, Variant
from proof.commands import add_sweep_options
from proof.sweep.oracle import Oracle, Result, Violation, comparable, compare
from proof.sweep.readers import EVENTS, NEEDS_READER, Background, Readers, Tally
from proof.sweep.rows import Row, choose, parse, shrink
from proof.sweep.senders import KINDS, RowSender
from proof.sweep.topology import Bystander, Dut, Lab, laboratory

ONES = 8
"""Packets to send one by one."""
PROBES = 20
"""Packets to send one by one at the end: more than the slots that a ring returns at a time."""
FLOOD, FLOOD_MOST = 300, 1000
"""Packets of a flood, and the most to add for a long ring."""
SHRINK_S = 120.0
"""Time limit for shrinking a row, s: each missing packet costs a minute."""


@contextmanager
def loaded(driver: str) -> Iterator[None]:
    """Load a driver's modules for the block.

    Raises:
        GuestError: a module cannot be loaded or unloaded.
    """
    drivers = Drivers(Environment.from_environ().modules, late_guard=True)
    variant = Variant(driver)
    tap = driver if variant in OURS else "stock"
    drivers.load([*tap_modules(tap)[:5], *modules(variant, variant)[1:]])
    yield
    drivers.unload()


class Sweep:
    """Run rows with the loaded driver.

    Args:
        ours: whether it is nodrop's.
    """

    def __init__(self, lab: Lab, bystander: Bystander, *, ours: bool) -> None:
        self._lab, self._bystander, self._ours = lab, bystander, ours
        self._tally = Tally()
        self.last = ""

    def run(self, row: Row) -> Result:
        # Mark the row in the kernel's log, for splats.
        with suppress(OSError):
            Path("/dev/kmsg").write_text(f"sweep: {row}\n", encoding="ascii")
        seen = Result()
        started = time.monotonic()
        self._tally.clear()
        try:
            with Dut(row, self._lab) as dut, KINDS[row.sender](dut) as sender:
                readers = Readers(dut, self._tally)
                try:
                    oracle = Oracle(dut, sender, readers, self._tally, ours=self._ours)
                    try:
                        self._try(row, dut, sender, readers, oracle)
                    finally:
                        seen.sent = sender.sent
                        seen.lost = seen.sent - oracle.came()
                finally:
                    readers.stop()
        except (Violation, AssertionError, GuestError, OSError) as error:
            seen.wrong = seen.wrong or (str(error) if isinstance(error, Violation) else repr(error))
        seen.seconds = time.monotonic() - started
        return seen

    def _fails(self, row: Row) -> bool:
        wrong = self.run(row).wrong
        self.last = wrong or self.last
        return bool(wrong)

    def shrunk(self, row: Row) -> Row:
        """Return a failing row, as plain as SHRINK_S allows; ``last`` is its violation."""
        end = time.monotonic() + SHRINK_S
        return shrink(row, lambda other: time.monotonic() < end and self._fails(other))

    def _try(self, row: Row, dut: Dut, sender: RowSender, readers: Readers, oracle: Oracle) -> None:
        def event() -> None:
            EVENTS[row.event](dut, readers)

        mortal = row.event == "killed"
        if row.pace != "burst":
            readers.start(mortal=mortal)
            sender.begin()
        if row.pace == "one":
            for number in range(ONES):
                if number == ONES // 2:
                    event()
                oracle.arrives(f"packet {number}")
        elif row.pace == "burst":
            self._burst(row, sender)
            if row.event not in NEEDS_READER:
                event()
            self._others()
            readers.start(mortal=mortal)
            if row.event in NEEDS_READER:
                event()
        else:
            self._flood(row, sender, oracle, event)
        self._others()
        oracle.settle()
        oracle.check()
        for number in range(PROBES):
            oracle.arrives(f"final packet {number}")
        oracle.settle()

    def _others(self) -> None:
        if not self._bystander.delivers():
            raise Violation("a packet to another device does not arrive")

    @staticmethod
    def _burst(row: Row, sender: RowSender) -> None:
        while sender.sent <= row.slots:
            if not wait_until(sender.send):
                raise Violation(f"the burst ends at {sender.sent}")

    @staticmethod
    def _flood(row: Row, sender: RowSender, oracle: Oracle, event: Callable[[], None]) -> None:
        count = FLOOD + min(row.slots, FLOOD_MOST)
        stop = threading.Event()

        def send() -> None:
            while sender.sent < count and not stop.is_set():
                sender.send()

        flood = Background(send)
        try:
            if not wait_until(lambda: sender.sent > count // 2 or flood.ended()):
                raise Violation(f"the sender is blocked: {oracle.state()}")
            event()
            if not wait_until(flood.ended):
                raise Violation(f"the sender stays blocked: {oracle.state()}")
            if flood.error:
                raise flood.error
        finally:
            stop.set()
            flood.join(LEAST_S)


def run_all(
    rows: Sequence[Row], drivers: Sequence[str], report: Callable[[str], None], most: int
) -> int:
    """Run rows with each driver, and compare the comparable ones; return the number of failures.

    Args:
        drivers: "nodrop", "stock", or both in this order: then stock runs only comparable rows; or
            another one.
        report: called with lines to print.
        most: failures after which to stop.
    """
    prepare_system()
    failed = 0
    found: dict[Row, Result] = {}
    for driver in drivers:
        again = driver == "stock" and len(drivers) > 1
        flags = device_flags(Variant(driver))
        with loaded(driver), laboratory(flags) as lab, Bystander() as bystander:
            sweep = Sweep(lab, bystander, ours=driver == "nodrop")
            for row in [row for row in rows if not again or (comparable(row) and row in found)]:
                seen = sweep.run(row)
                report(f"# {driver} {seen.seconds:.2f} s, {seen.lost} of {seen.sent} lost: {row}")
                if again:
                    wrong = compare(found[row], seen)
                else:
                    wrong = seen.wrong
                    found[row] = seen
                if not wrong:
                    continue
                failed += 1
                report(f"FAILED {driver}: {wrong}\n  --row '{row}'")
                if not again and (small := sweep.shrunk(row)) != row:
                    report(f"  shrunk: {sweep.last}\n  --row '{small}'")
                if failed >= most:
                    return failed
    return failed


def main(argv: list[str]) -> int:
    """Run a seed's rows, or the given ones; return 1 if a row fails."""
    parser = argparse.ArgumentParser(prog="python -m proof.sweep", description=__doc__)
    add_sweep_options(parser)
    given = parser.parse_args(argv)
    try:
        rows = [parse(text) for text in given.row or ()]
        first, parts = (int(word) for word in given.part.split("/"))
    except ValueError as error:
        parser.error(str(error))
    rows = rows or choose(given.seed)[first - 1 :: parts]
    drivers = ("nodrop", "stock") if given.driver == "both" else (given.driver,)
    started = time.monotonic()
    failed = run_all(rows * given.times, drivers, lambda line: print(line, flush=True), given.most)
    print(f"{len(rows)} rows, {failed} failed, {time.monotonic() - started:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
