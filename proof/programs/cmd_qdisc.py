#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop set DEV qdisc`` and its service, with libvirt's order of events."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from command import NOBODY, REPOSITORY, as_json, command, start
from harness import check, equal, run
from vnet import becomes, qdisc, tap, tc

from guestlib.environment import time_limit
from guestlib.namespaces import namespaces
from guestlib.process import ip_batch, tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TAP, TunDevice

FILE = Path("/etc/nodrop-qdisc.conf")
UNIT = REPOSITORY / "packaging/systemd/nodrop-qdisc.service"
LONGER_S = time_limit(1.5)
"""The service waits for less until it changes a device."""


@contextmanager
def service(*words: str, by: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Keep settings, and run the service, by another program, for the block."""
    command("set", *words, "qdisc", "fq_codel")
    process = start("keep-qdiscs", by=by)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=time_limit(20))
        for line in (out + err).splitlines():
            print(f"# {line}")
        FILE.unlink(missing_ok=True)
        equal(process.returncode, 130, "exit status of the service")


def times(name: str) -> tuple[int, int]:
    """Return target and interval of a device's fq_codel, ms."""
    (found,) = json.loads(tool(["tc", "-j", "qdisc", "show", "dev", name, "root"]))
    options = found["options"]
    return round(options["target"] / 1000), round(options["interval"] / 1000)


def case_starts_and_hotplug() -> None:
    with ExitStack() as stack:
        stack.enter_context(tap("vnet0"))
        stack.enter_context(service("vnet*", "tap*"))
        becomes("vnet0", "fq_codel")
        equal(qdisc("vnet0"), ("fq_codel", "6e64:"), "a device that was there first")
        equal(times("vnet0"), (30, 300), "its target and interval, ms")
        stack.enter_context(tap("vnet1"))
        stack.enter_context(tap("tap0a1b2c3d-4e"))
        stack.enter_context(tap("vnet2", IFF_MULTI_QUEUE))
        becomes("vnet1", "fq_codel")
        becomes("tap0a1b2c3d-4e", "fq_codel")
        becomes("vnet2", "mq")
        tc("replace dev vnet1 root noqueue")
        becomes("vnet1", "fq_codel")


def case_with_the_rights_of_the_service() -> None:
    (found,) = re.findall(r"^AmbientCapabilities=(.*)$", UNIT.read_text(), re.MULTILINE)
    rights = ",".join(["-all", *(f"+{one.removeprefix('CAP_').lower()}" for one in found.split())])
    options = [f"--{what}={rights}" for what in ("bounding-set", "inh-caps", "ambient-caps")]
    user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    with service("vnet*", by=("setpriv", *user, *options)), tap("vnet0"):
        becomes("vnet0", "fq_codel")


def case_only_noqueue_and_only_matching_devices() -> None:
    command("set", "vnet*", "qdisc", "fq_codel")
    with ExitStack() as stack:
        stack.enter_context(namespaces("ndblue"))
        stack.enter_context(service("vnet*"))
        command("set", "vnet9", "qdisc", "off")
        stack.enter_context(tap("vnet9"))
        stack.enter_context(tap("other0"))
        stack.enter_context(TunDevice("vnet3", IFF_TAP))
        tc("add dev vnet3 root handle 7: pfifo")
        stack.enter_context(TunDevice("vnet4", IFF_TAP))
        ip_batch(["link set dev vnet4 up", "link add vnet5 type dummy", "link set dev vnet5 up"])
        stack.callback(ip_batch, ["link delete vnet5"])
        tc("replace dev vnet5 root noqueue")
        stack.enter_context(TunDevice("vnet6", IFF_TAP))
        ip_batch(["link set dev vnet6 netns ndblue"])
        tool(["tc", "-n", "ndblue", "qdisc", "replace", "dev", "vnet6", "root", "noqueue"])
        before = {name: qdisc(name) for name in ("vnet9", "other0", "vnet3", "vnet4", "vnet5")}
        stack.enter_context(tap("vnet1"))
        becomes("vnet1", "fq_codel")
        time.sleep(LONGER_S)
        equal({name: qdisc(name) for name in before}, before, "the other devices")
        equal(qdisc("vnet6", "ndblue")[0], "noqueue", "a device of another namespace")


def case_bandwidth() -> None:
    """libvirt deletes the root qdisc and adds a shaper: this must not fail, and stays."""
    with service("vnet*"):
        for pause_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1):
            with tap("vnet0"):
                time.sleep(pause_s)
                tc("del dev vnet0 root")
                time.sleep(pause_s)
                tc("add dev vnet0 root handle 1: htb default 1")
                time.sleep(LONGER_S / 3)
                equal(qdisc("vnet0"), ("htb", "1:"), f"after pauses of {pause_s} s")


def case_lost_events() -> None:
    with service("vnet*") as process, TunDevice("other0", IFF_TAP):
        with tap("vnet0"):
            becomes("vnet0", "fq_codel")
        os.kill(process.pid, signal.SIGSTOP)
        for number in range(20):
            ip_batch([f"link set dev other0 mtu {1000 + number + at}" for at in range(100)])
        with tap("vnet1"):
            os.kill(process.pid, signal.SIGCONT)
            becomes("vnet1", "fq_codel")
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(2)]
        check("lost" in lines[1], f"no events were lost: {lines}")


def case_at_once() -> None:
    with tap("vnet0"), tap("vnet1", IFF_MULTI_QUEUE):
        planned = as_json("set", "--dry-run", "--now", "vnet0", "qdisc", "fq_codel")["actions"]
        data = as_json("set", "--now", "vnet*", "qdisc", "fq_codel")
        got = {one["name"]: (one["was"], one["now"]) for one in data["devices"]}
        wanted = {"vnet0": ("noqueue", "fq_codel"), "vnet1": ("noqueue", "mq")}
        equal((got, data["kept"], FILE.exists()), (wanted, None, False), "with --now")
        equal((qdisc("vnet0")[0], qdisc("vnet1")[0]), ("fq_codel", "mq"), "the qdiscs")
        equal(times("vnet0"), (30, 300), "target and interval, ms")
        check("target 30ms interval 300ms" in planned[0], f"planned: {planned}")
        tc("replace dev vnet1 root handle 5: pfifo")
        command("set", "vnet*", "qdisc", "off")
        equal(qdisc("vnet0")[0], "noqueue", "ours is removed at once")
        equal(qdisc("vnet1"), ("pfifo", "5:"), "another's stays")
        command("set", "vnet*", "qdisc", "default")
        equal(FILE.exists(), False, "the file without settings")
        command("set", "--now", "nosuch", "qdisc", "fq_codel", status=1)
        command("set", "--now", "lo", "qdisc", "fq_codel", status=1)
        command("set", "vnet0", "qdisc", "pfifo", status=2)


run()
