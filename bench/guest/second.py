# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.guest.second``: a fast guest's throughput beside a slow one.

One socket floods the fast guest. In half of the measurements, other sockets send to a guest that
sleeps after each packet, and so uses little CPU. Prints a line of JSON for each measurement, in the
order alone, beside, beside, alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from bench.guest.runner import append_result
from guestlib.drivers import TAP_DRIVERS, Drivers, tap_modules
from guestlib.environment import Environment
from guestlib.prepare import prepare_system
from guestlib.process import Service, in_netns, parse_last_json
from guestlib.taps.ingress import ADDRESS, SECOND_ADDRESS, SENDERS, second_tap, topology
from guestlib.taps.linktap import LinkTap
from guestlib.taps.measure import rx_dropped
from guestlib.timing import time_limit
from guestlib.vhost_client import VhostClient

ORDER = (False, True, True, False)
"""Whether the slow guest also gets packets."""
FILL_S = 0.4
"""Head start of the slow guest's senders, seconds: its ring is full by then."""


@dataclass(frozen=True)
class Case:
    """Parameters of both guests and their senders.

    Attributes:
        way: the ingress path, a key of ingress.SENDERS.
        reader: of both guests, "read" or "vhost".
        sockets: how many send to the slow guest.
        rest_us: the slow guest's sleep after each packet, us.
        rate: packets/s of each of these sockets; 0: unlimited.
        size: UDP payload, bytes.
        seconds: how long to measure the fast guest.
    """

    way: str
    reader: str
    sockets: int = 16
    rest_us: int = 1000
    rate: int = 200
    size: int = 1000
    seconds: float = 1.0


@contextmanager
def reading(
    case: Case, tap: LinkTap, rest_us: int, environment: Environment
) -> Iterator[Callable[[], int]]:
    """Read a tap during the block; yield a function that stops and returns the packet count."""
    rest_ns = 1000 * rest_us
    if case.reader == "vhost":
        with VhostClient(environment, tap.fd, rest_ns=rest_ns) as client:
            yield lambda: client.end().packets
        return
    words = [str(environment.bin / "tun_reader"), "--tap", "--fd", str(tap.fd)]
    words += ["--rest-ns", str(rest_ns)]
    with Service(words, pass_fds=[tap.fd]) as program:
        yield lambda: int(parse_last_json(program.stop(), "tun_reader")["packets"])


def sending(
    case: Case, address: str, sockets: int, rate: int, seconds: float, environment: Environment
) -> Service:
    """Return the service that sends from sockets to an address."""
    words = [str(environment.bin / "udp_sender"), "--dest", address, "--size", str(case.size)]
    words += ["--senders", str(sockets), "--rate", str(rate), "--seconds", str(seconds)]
    return Service(in_netns(SENDERS[case.way], words), announces=False)


def phase(
    case: Case, slow: LinkTap, fast: LinkTap, beside: bool, environment: Environment
) -> dict[str, float]:
    """Measure the fast guest once; return packet counts, and rates as ``_pps``."""
    wait = time_limit(case.seconds + 10)
    with ExitStack() as stack:
        fast_read = stack.enter_context(reading(case, fast, 0, environment))
        others = None
        if beside:
            slow_read = stack.enter_context(reading(case, slow, case.rest_us, environment))
            before = rx_dropped()
            length = case.seconds + FILL_S
            others = stack.enter_context(
                sending(case, ADDRESS, case.sockets, case.rate, length, environment)
            )
            time.sleep(FILL_S)
        with sending(case, SECOND_ADDRESS, 1, 0, case.seconds, environment) as program:
            sent = parse_last_json(program.finish(wait), "udp_sender")
        found = {
            "fast_pps": fast_read() / case.seconds,
            "fast_sent": int(sent["sent"]),
            "fast_dropped": rx_dropped(fast.name),
        }
        if others:
            reported = parse_last_json(others.finish(wait), "udp_sender")
            found |= {
                "slow_sent": int(reported["sent"]),
                "slow_read": slow_read(),
                "slow_dropped": rx_dropped() - before,
                "slow_held": int(reported["held_at_the_end"]),
            }
        return found


def parser() -> argparse.ArgumentParser:
    """Return the program's arguments."""
    words = argparse.ArgumentParser(prog="python -m bench.guest.second", description=__doc__)
    words.add_argument("--driver", choices=TAP_DRIVERS, default="stock")
    words.add_argument("--ways", nargs="+", choices=tuple(SENDERS), default=list(SENDERS))
    words.add_argument("--readers", nargs="+", choices=("read", "vhost"), default=["read", "vhost"])
    words.add_argument("--repetitions", type=int, default=3, help="of the four measurements")
    return words


def main(argv: list[str]) -> int:
    """Measure every combination."""
    options = parser().parse_args(argv)
    environment = Environment.from_environ()
    prepare_system()
    Drivers(environment.modules).load(tap_modules(options.driver))
    for way, reader in itertools.product(options.ways, options.readers):
        case = Case(way, reader)
        for repetition in range(options.repetitions):
            with topology(way) as slow, second_tap(way) as fast:
                for beside in ORDER:
                    line = {
                        "driver": options.driver,
                        "repetition": repetition,
                        "beside": beside,
                        **asdict(case),
                        **phase(case, slow, fast, beside, environment),
                    }
                    append_result(environment.out / "second.jsonl", line)
                    print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
