# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.guest.taps``: flood ingress paths to a tap; print a line for each flood."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import asdict

from bench.guest.runner import append_result
from guestlib.drivers import TAP_DRIVERS, Drivers, tap_modules
from guestlib.environment import Environment
from guestlib.failure import GuestError
from guestlib.prepare import prepare_system
from guestlib.taps import measure
from guestlib.taps.ingress import WAYS

COLUMNS = ("sent", "delivered", "lost", "full_ring", "backlog", "freed", "counted", "errors")


def parser() -> argparse.ArgumentParser:
    """Return the program's arguments."""
    words = argparse.ArgumentParser(prog="python -m bench.guest.taps", description=__doc__)
    words.add_argument("--drivers", nargs="+", choices=TAP_DRIVERS, default=["stock"])
    words.add_argument("--pairs", type=int, default=1, help="repetitions; drivers alternate")
    words.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    words.add_argument("--readers", nargs="+", choices=measure.READERS, default=["read", "vhost"])
    words.add_argument("--sockets", nargs="+", type=int, default=[1])
    words.add_argument("--rings", nargs="+", type=int, default=[0], help="0: the kernel's default")
    words.add_argument("--work-us", type=int, default=50, help="the reader's time per packet, us")
    words.add_argument(
        "--pinned", action="store_true", help="sockets on CPU 0, the reader on CPU 1"
    )
    words.add_argument("--seconds", type=float, default=1.0, help="how long to send")
    return words


def main(argv: list[str]) -> int:
    """Measure every combination in pairs; return 1 if one of them fails."""
    options = parser().parse_args(argv)
    environment = Environment.from_environ()
    modules = Drivers(environment.modules)
    prepare_system()
    print(
        f"{'driver':6} {'way':11} {'reader':6} {'ring':>4} {'socks':>5} "
        + " ".join(f"{name:>9}" for name in COLUMNS)
        + f" {'longest':>9} {'held':>4}",
        flush=True,
    )
    cases = itertools.product(
        range(options.pairs), options.ways, options.readers, options.rings, options.sockets
    )
    for pair, way, reader, ring, count in cases:
        flood = measure.Flood(
            way=way,
            reader=reader,
            sockets=count,
            ring=ring,
            work_us=options.work_us,
            seconds=options.seconds,
            pinned=options.pinned,
        )
        # The drivers take turns in being first.
        for driver in options.drivers[:: -1 if pair % 2 else 1]:
            words = f"{driver:6} {way:11} {reader:6} {ring:4} {count:5}"
            try:
                modules.load(tap_modules(driver))
                seen = measure.run(flood, environment)
                modules.unload()
            except GuestError as error:
                print(f"{words} {error}", flush=True)
                return 1
            found = asdict(seen) | {"lost": seen.sent - seen.delivered}
            numbers = " ".join(f"{found[name]:9}" for name in COLUMNS)
            print(f"{words} {numbers} {seen.longest_ms:7.0f}ms {seen.held:4}", flush=True)
            if seen.driver:
                moved = {name: value for name, value in seen.driver.items() if value}
                print(f"  {json.dumps(moved)}", flush=True)
            found["counters"] = found.pop("driver")
            line = {"driver": driver, "pair": pair, **asdict(flood), **found}
            append_result(environment.out / "taps.jsonl", line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
