# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the readers' counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest.kforwarder import Counts, Way, rates
from nodrop.guest.ureader import command, switches

STATUS = "Name:\treader\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n"


def counts(packets: int, now_ns: int, idle_ns: int, sleeps: int, switched: int) -> Counts:
    return Counts(
        there=Way(packets, packets * 1500, 1),
        back=Way(packets // 2, packets * 52, 2),
        now_ns=now_ns,
        idle_ns=idle_ns,
        voluntary_switches=sleeps,
        involuntary_switches=switched,
    )


def test_rates_are_those_between_two_moments() -> None:
    first = counts(1000, 5 * 10**9, 10**9, 7, 70)
    last = counts(3000, 7 * 10**9, 10**9 + 5 * 10**8, 17, 90)
    assert rates(first, last) == pytest.approx(
        {
            "forwarded_pps": 1500,
            "reader_idle_share": 0.25,
            "reader_busy_us_per_packet": 500,
            "reader_involuntary_switches_per_s": 10,
            "reader_sleeps_per_s": 5,
        }
    )
    assert last.send_errors == 3


def test_a_forwarder_without_packets_has_rates() -> None:
    idle = counts(0, 10**9, 0, 0, 0)
    assert rates(idle, counts(0, 2 * 10**9, 10**9, 0, 0))["reader_busy_us_per_packet"] == 0


def test_switches_of_all_threads() -> None:
    assert switches([STATUS.format(3, 40), STATUS.format(5, 60)]) == (8, 100)


def test_a_reader_stays_where_it_is_told() -> None:
    free = command(Path("/bin/r"), "tap0", "", cpu=-1, work_ns=5, fifo=False)
    assert free[:2] == ["/bin/r", "--mode"]
    bound = command(Path("/bin/r"), "tap0", "", cpu=1, work_ns=5, fifo=True)
    assert bound[:6] == ["taskset", "--cpu-list", "1", "chrt", "--fifo", "1"]
    assert bound[6:] == free
