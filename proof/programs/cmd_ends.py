#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Every command's failures: no permission, no such device or namespace, or it disappears."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from command import FINE, NOBODY, Ran, as_json, command, start
from devices import NAME, tun
from harness import check, equal, repeating, run, soon

from guestlib.namespaces import namespaces
from guestlib.process import ip_batch
from guestlib.tundev import IFF_TAP, TunDevice

OFF = ("backpressure", "off")
READS = (
    ("status",),
    ("top", "--count", "1", "--interval", "0.1"),
    ("doctor", "--all", "--seconds", "0.1"),
    ("export",),
)
"""The commands that only read, in their shortest run."""


def names_privilege(ran: Ran) -> None:
    """Fail unless a run names the missing privilege."""
    check("root" in ran.stderr or "CAP_" in ran.stderr, f"no privilege is named: {ran.stderr}")


def case_ordinary_user() -> None:
    """A command shows what the user may read, and names what is missing, and the privilege."""
    with tun(20), namespaces("ndfar"):
        for words in READS:
            ran = command("-j", *words, user=NOBODY, status=FINE)
            check(NAME in ran.stdout, f"{words}: {NAME} is not shown: {ran.stdout}")
            names_privilege(command("-n", "ndfar", *words, user=NOBODY, status=1))
        names_privilege(command("status", user=NOBODY))
        for denied in (("drops", NAME), ("set", "--now", NAME, *OFF), ("set", "--default", *OFF)):
            names_privilege(command(*denied, user=NOBODY, status=1))
        command("set", "--now", "--dry-run", NAME, *OFF, user=NOBODY)
        (device,) = as_json("status")["devices"]
        equal(device["backpressure"], True, "backpressure")
        everywhere = as_json("status", "-A", user=NOBODY)
        check("CAP_SYS_ADMIN" in everywhere["unread_namespaces"]["ndfar"], "ndfar is not reported")
        check(everywhere["hidden_processes"] > 0, "no hidden processes")
        equal(everywhere["devices"][0]["owners"], [], "owners that the user cannot see")
        ran = command("export", "--out", "/nodrop.prom", status=1, user=NOBODY)
        check("/nodrop.prom: Permission denied" in ran.stderr, ran.stderr)


def case_unknown() -> None:
    with tun(20):
        for words, end in (*((one, ()) for one in (*READS, ("drops",))), (("set", "--now"), OFF)):
            netns = ["-n", "ndnix", *words, *([NAME] if len(words) == 1 or end else []), *end]
            here = command("-j", *words, "ndnix", *end, status=1)
            for ran in (here, command(*netns, status=1)):
                check("ndnix" in ran.stderr, f"{words}: no name in '{ran.stderr}'")
                equal(ran.stdout, "", f"{words}: stdout")
        command("drops", status=2)
        command("drops", "lo", "--seconds", "-1", status=2)
        command("set", "--now", NAME, "lo", *OFF, status=1)


@contextmanager
def devices_come_and_go() -> Iterator[None]:
    """Create and delete devices again and again during the block, at least four times."""
    done: list[None] = []

    def create_and_delete() -> None:
        """One of two devices is in a namespace that is deleted, too."""
        with namespaces("ndgone"), TunDevice("ndgo0", IFF_TAP), TunDevice("ndgo1", IFF_TAP):
            ip_batch(["link set dev ndgo0 up", "link set dev ndgo1 netns ndgone"])
        done.append(None)

    with repeating(create_and_delete):
        yield
        soon(lambda: len(done) > 3, lambda: f"only {len(done)} repetitions")


def check_reads(*words: str) -> None:
    """Run all commands that only read at once, each in its own process; all must show NAME."""
    for process in [start("-j", *what, *words) for what in READS]:
        out, err = process.communicate()
        check(process.returncode in FINE and NAME in out, f"{process.returncode}: {err}{out}")
        check("Traceback" not in err and "mistake" not in err, err)


def case_devices_and_namespaces_come_and_go() -> None:
    with tun(20), devices_come_and_go():
        check_reads("-A")


def case_target_disappears() -> None:
    """A run that races with the deletion succeeds or fails, and never crashes."""
    with devices_come_and_go():
        runs = [start(*words, "ndgo0") for words in READS]
        runs += [start("-n", "ndgone", *words) for words in READS[:2]]
        for process in runs:
            _, err = process.communicate()
            check(process.returncode in (1, *FINE), f"{process.returncode}: {err}")
            check("Traceback" not in err and "mistake" not in err, err)


run()
