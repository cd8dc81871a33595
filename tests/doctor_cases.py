# SPDX-License-Identifier: GPL-2.0-only
"""Machines that were recorded for doctor, what is changed in them, and what it says then."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodrop.doctor.examine import examine
from nodrop.doctor.finding import Verdict
from nodrop.doctor.sample import Record

RECORDED = Path(__file__).parent / "unit/doctor"
NAME = "ndtest0"
Change = Callable[[dict[str, Any]], None]

KERNEL = {"release": "7.3.4", "image": True, "headers": True, "nodrop": False, "why_not": ""}


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    # The guests see files of the machine they run on, which may be a container's.
    found["system"]["container"] = ""
    found["system"]["kernels"] = [dict(KERNEL)]
    found["system"]["distribution"] = "debian"
    found["system"]["headers_version"] = "7.3.4-1"
    found["system"]["source_ready"] = True
    return found


def verdict(data: dict[str, Any], check: str, device: str | None = None) -> Verdict | None:
    findings = examine(Record.from_json(data).look())
    found = [one.verdict for one in findings if (one.id, one.device) == (check, device)]
    assert len(found) <= 1
    return found[0] if found else None


def spaces(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [data[when]["namespaces"][0] for when in ("before", "after")]


def link(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            space["links"][0].update(copy.deepcopy(words))

    return change


def flags(*names: str) -> Change:
    return link(flags=list(names))


def inner(place: Any, keys: list[str]) -> Any:
    for key in keys:
        place = place[int(key) if key.isdigit() else key]
    return place


def later(path: str, amount: int) -> Change:
    """The second sample shows so much more."""

    def change(data: dict[str, Any]) -> None:
        *keys, last = path.split(".")
        inner(spaces(data)[1], keys)[last] += amount

    return change


def both(path: str, value: Any) -> Change:
    """Both samples, below their namespace, have a value at a place."""

    def change(data: dict[str, Any]) -> None:
        *keys, last = path.split(".")
        for space in spaces(data):
            inner(space, keys)[last] = value

    return change


def machine(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[when]["machine"].update(copy.deepcopy(words))

    return change


def files(**words: str | None) -> Change:
    """Files of the machine, by the last part of their path; None: not there."""

    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            there = data[when]["machine"]["files"]
            for name, value in words.items():
                path = PATHS[name]
                there.pop(path, None)
                if value is not None:
                    there[path] = value

    return change


PATHS = {
    "default_qdisc": "proc/sys/net/core/default_qdisc",
    "guard_ms": "sys/module/nodrop/parameters/guard_ms",
    "default": "sys/module/tun/parameters/nodrop",
    "initstate": "sys/module/tun/initstate",
    "version": "sys/module/tun/version",
    "holders": "sys/module/nodrop/holders",
    "vhost": "sys/class/misc/vhost-net/dev",
    "vhost_version": "sys/module/vhost_net/version",
}


def system(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["system"].update(copy.deepcopy(words))

    return change


def kernels(*each: dict[str, Any]) -> Change:
    return system(kernels=[{**KERNEL, **one} for one in each])


def owner(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[when]["machine"]["holders"][0].update(words)

    return change


def nobody(data: dict[str, Any]) -> None:
    machine(holders=[])(data)
    flags("UP")(data)


def busy(data: dict[str, Any]) -> None:
    """The first thread of the reader runs all the time."""
    for when in ("threads_before", "threads_after"):
        data[when] = data[when][:1]
    data["threads_after"][0]["run_s"] = data["threads_before"][0]["run_s"] + 60.0


def waits(data: dict[str, Any]) -> None:
    """The first thread of the reader waits for a third of the time."""
    seconds = spaces(data)[1]["time_s"] - spaces(data)[0]["time_s"]
    data["threads_before"][0]["wait_s"] = 1.0
    data["threads_after"][0]["wait_s"] = 1.0 + seconds / 3


def off(data: dict[str, Any]) -> None:
    both(f"flags.{NAME}.nodrop", False)(data)


def upstream(data: dict[str, Any]) -> None:
    both(f"sysfs.{NAME}.tun_flags", "0x1081")(data)


def live(data: dict[str, Any]) -> None:
    files(version=None, default=None, holders="nodrop_live")(data)
    machine(livepatch="in")(data)


def vhost(data: dict[str, Any]) -> None:
    owner(vhost=1)(data)
    # The kernel's own has a version, too.
    files(vhost="10:238", vhost_version="0.0.1")(data)


def vhost_nodrop(data: dict[str, Any]) -> None:
    vhost(data)
    files(vhost_version="0.3.0", holders="tun vhost_net")(data)


def stale(data: dict[str, Any]) -> None:
    for one in data["system"]["modules"]:
        one.update(loaded="aa", on_disk="bb")


def same(data: dict[str, Any]) -> None:
    for one in data["system"]["modules"]:
        one.update(loaded="aa", on_disk="aa")


def tunnel(mtu: int = 1450, dropped: int = 0) -> Change:
    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            one = space["links"][0]
            one["linkinfo"] = {"info_kind": "vxlan", "info_data": {"link": "eth0"}}
            one["mtu"] = mtu
            one["stats64"]["tx"]["dropped"] = dropped
            space["mtus"]["eth0"] = 1500
            space["qdiscs"][0].update(kind="pfifo", drops=0)

    return change


def guard_is_quiet(data: dict[str, Any]) -> None:
    """The ring stays as full as it was, and nobody tells of the guard."""
    first, second = (space["stats"][NAME] for space in spaces(data))
    for name in ("tx0_guard_trips", "tx0_drop_guard"):
        second[name] = first[name]
    first["tx0_ring"] = second["tx0_ring"] = 5


def ring_is_empty(data: dict[str, Any]) -> None:
    both(f"stats.{NAME}.tx0_ring", 0)(data)


def guard_and_ring_are_quiet(data: dict[str, Any]) -> None:
    guard_is_quiet(data)
    ring_is_empty(data)


NODROP_KERNEL = kernels({"nodrop": True})
NEWER = kernels({}, {"release": "7.3.10"})
FOREIGN = later(f"stats.{NAME}.tx0_drop_foreign", 5)
VNET = both("links.0.linkinfo.info_data.vnet_hdr", True)
MULTI = both("links.0.linkinfo.info_data.multi_queue", True)
TSO = both("offloads.ndtest0", {"tso": True, "tx_checksum": True})
NO_TSO = both("offloads.ndtest0", {"tso": False, "tx_checksum": True})
TWO = both("links.0.linkinfo.info_data.numqueues", 2)
FULL = later("qdiscs.0.drops", 50)
WIREGUARD = owner(name="wireguard-go")

# Check, recorded machine, what is changed, what comes out of it, what is said.
MACHINE: list[tuple[str, str, list[Change], str | None, str]] = [
    ("driver-stock", "stock", [], "warn", "not installed"),
    ("driver-stock", "stock", [files(initstate=None)], "warn", "built into"),
    ("driver-stock", "stock", [NODROP_KERNEL], None, ""),
    ("driver-stock", "nodrop", [], "ok", "0.3.0"),
    ("module-old", "stock", [NODROP_KERNEL, stale], "warn", "still the kernel's own"),
    ("module-old", "nodrop", [NODROP_KERNEL, stale], "warn", "older nodrop"),
    ("module-old", "nodrop", [stale], "warn", "was removed"),
    ("module-old", "nodrop", [NODROP_KERNEL, same], "ok", ""),
    ("module-old", "nodrop", [live, NODROP_KERNEL, stale], None, ""),
    ("default-off", "nodrop", [files(default="N")], "warn", "do not ask"),
    ("default-off", "nodrop", [], "ok", ""),
    ("default-off", "stock", [], None, ""),
    ("guard-off", "nodrop", [files(guard_ms="0")], "warn", "guard_ms is 0"),
    ("guard-off", "nodrop", [], "ok", "1000 ms"),
    ("livepatch-moving", "nodrop", [live, machine(livepatch="moving")], "warn", "waits for"),
    ("livepatch-moving", "nodrop", [live], "ok", ""),
    ("livepatch-and-package", "nodrop", [live, NODROP_KERNEL], "warn", "as well"),
    ("livepatch-and-package", "nodrop", [live], "ok", ""),
    ("livepatch-and-package", "nodrop", [NODROP_KERNEL], None, ""),
    ("vhost-driver", "nodrop", [files(vhost="10:238")], "warn", "kernel's own"),
    ("vhost-driver", "nodrop", [vhost], "fail", "kernel's own"),
    ("vhost-driver", "nodrop", [vhost_nodrop], "ok", ""),
    ("headers-missing", "stock", [kernels({"headers": False})], "warn", "7.3.4 are missing"),
    ("headers-missing", "stock", [], "ok", ""),
    ("headers-missing", "nodrop", [kernels({"headers": False})], None, ""),
    ("source-mismatch", "stock", [system(source_ready=False)], "warn", "none is installed"),
    ("source-mismatch", "stock", [system(headers_version="")], "warn", "no Debian package"),
    ("source-mismatch", "stock", [system(distribution="arch")], "warn", "another system"),
    ("source-mismatch", "stock", [], "ok", "7.3.4-1"),
    ("not-built", "stock", [system(tree=True)], "warn", "running kernel 7.3.4"),
    ("not-built", "stock", [kernels({"why_not": "no gcc"}), system(tree=True)], "warn", "no gcc"),
    (
        "not-built",
        "nodrop",
        [kernels({"nodrop": True}, {"release": "7.3.10"}), system(tree=True)],
        "warn",
        "newest kernel 7.3.10",
    ),
    ("not-built", "nodrop", [NODROP_KERNEL, system(tree=True)], "ok", "built for 7.3.4"),
    ("not-built", "stock", [], None, ""),
    ("kernel-pending", "stock", [NEWER], "warn", "7.3.10 is installed and 7.3.4 runs"),
    ("kernel-pending", "stock", [system(reboot_required=True)], "warn", "reboot"),
    ("kernel-pending", "stock", [kernels({}, {"release": "7.3.3"})], "ok", ""),
    ("container-rights", "stock", [system(container="lxc", net_admin=False)], "warn", "lxc"),
    ("container-rights", "stock", [system(container="lxc", net_admin=True)], "ok", ""),
    (
        "container-rights",
        "stock",
        [system(container="lxc", net_admin=False), machine(root=False)],
        "skipped",
        "needs root",
    ),
    ("default-qdisc", "nodrop", [files(default_qdisc="pfifo_fast")], "warn", "pfifo_fast"),
    ("default-qdisc", "nodrop", [files(default_qdisc="fq")], "ok", "fq"),
    ("default-qdisc", "nodrop", [files(default_qdisc=None)], "skipped", "first network namespace"),
]

DEVICE: list[tuple[str, str, list[Change], str | None, str]] = [
    ("ring-drops", "stock", [], "fail", "on the way to its reader"),
    ("ring-drops", "nodrop", [], "ok", ""),
    ("ring-drops", "noqueue", [], "fail", "(noqueue "),
    ("ring-drops", "stuck", [], "fail", "/s)"),
    ("ring-dropped", "nodrop", [both("links.0.stats64.tx.dropped", 7)], "warn", "dropped 7"),
    ("ring-dropped", "nodrop", [], "ok", "never"),
    ("ring-dropped", "stock", [], None, ""),
    ("no-ring", "stock", [link(txqlen=0)], "fail", "no slot"),
    ("no-ring", "stock", [], "ok", ""),
    ("big-ring", "stock", [link(txqlen=1000)], "warn", "pritunl"),
    ("big-ring", "stock", [link(txqlen=4096)], "warn", "Open5GS"),
    ("big-ring", "stock", [link(txqlen=10000)], "warn", "mahimahi"),
    ("big-ring", "stock", [link(txqlen=2000)], "warn", "more than usual"),
    ("big-ring", "stock", [link(txqlen=500)], "ok", "500"),
    ("big-ring", "nodrop", [link(txqlen=10000)], "ok", "byte queue limit"),
    ("big-ring", "nodrop", [link(txqlen=10000), off], "warn", "mahimahi"),
    ("vhost-stock", "nodrop", [vhost], "warn", "kernel's own vhost_net"),
    ("vhost-stock", "nodrop", [vhost, FOREIGN], "fail", "drops"),
    ("vhost-stock", "nodrop", [vhost_nodrop], "ok", ""),
    ("vhost-stock", "nodrop", [], None, ""),
    ("ring-foreign", "nodrop", [FOREIGN], "fail", "wakes no sender"),
    ("ring-foreign", "nodrop", [], "ok", ""),
    ("upstream-flag", "stock", [upstream, both("qdiscs.0.kind", "noqueue")], "warn", "no qdisc"),
    ("upstream-flag", "stock", [upstream], "warn", "although"),
    ("upstream-flag", "stock", [], None, ""),
    ("nodrop-off", "nodrop", [off], "warn", "is off"),
    ("nodrop-off", "nodrop", [], "ok", ""),
    ("rx-drops", "stock", [later("links.0.stats64.rx.dropped", 9)], "warn", "/s of what"),
    ("rx-drops", "stock", [both("links.0.stats64.rx.dropped", 9)], "ok", "9 packets"),
    ("offloads", "stock", [WIREGUARD, TSO], "warn", "without IFF_VNET_HDR"),
    ("offloads", "stock", [WIREGUARD, VNET, NO_TSO], "warn", "TSO is off"),
    ("offloads", "stock", [WIREGUARD, VNET, TSO], "ok", ""),
    ("offloads", "stock", [owner(name="openvpn"), NO_TSO], None, ""),
    ("noqueue", "noqueue", [], "fail", "noqueue"),
    ("noqueue", "nodrop", [both("qdiscs.0.kind", "noqueue")], "warn", "noqueue"),
    ("noqueue", "nodrop", [], "ok", ""),
    ("noqueue", "noqueue", [flags("POINTOPOINT")], None, ""),
    ("bufferbloat", "nodrop", [], "warn", "20000 packets"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.options.limit", 100)], "ok", "100 packets"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.kind", "fq_codel")], "ok", "fq_codel"),
    ("bufferbloat", "stock", [], None, ""),
    ("qdisc-drops", "nodrop", [FULL], "warn", "pfifo drops"),
    ("qdisc-drops", "nodrop", [FULL, both("qdiscs.0.kind", "fq_codel")], "ok", "at work"),
    ("qdisc-drops", "nodrop", [], "ok", "since it was set up"),
    ("no-reader", "stock", [nobody], "warn", "nobody has it open"),
    ("no-reader", "stock", [], "ok", "python"),
    ("no-reader", "stock", [nobody, flags("POINTOPOINT")], None, ""),
    ("reader-stuck", "stuck", [], "fail", "does not read"),
    ("reader-stuck", "stuck", [guard_is_quiet], "fail", "5 packets wait"),
    ("reader-stuck", "stuck", [ring_is_empty], "fail", "the guard lets"),
    ("reader-stuck", "stuck", [guard_and_ring_are_quiet], "ok", "takes packets"),
    ("reader-stuck", "stock", [], "ok", "takes packets"),
    ("reader-stuck", "nodrop", [], "ok", "takes packets"),
    ("guard-tripped", "stuck", [], "warn", "once, and is now"),
    ("guard-tripped", "nodrop", [], "ok", ""),
    ("guard-tripped", "stock", [], None, ""),
    ("reader-starved", "starved", [], "fail", "SCHED_IDLE"),
    ("reader-starved", "nodrop", [], "ok", ""),
    ("reader-starved", "stock", [waits], "warn", "waits for a CPU"),
    ("reader-starved", "stock", [], "ok", ""),
    ("reader-saturated", "nodrop", [busy], "warn", "100% of one CPU"),
    ("reader-saturated", "stock", [], "ok", ""),
    ("single-queue", "nodrop", [busy], "warn", "made for one queue"),
    ("single-queue", "nodrop", [busy, MULTI], "warn", "has one queue only"),
    ("single-queue", "nodrop", [busy, TWO], "ok", "2 queues"),
    ("single-queue", "nodrop", [busy, system(cpus=1)], "ok", ""),
    ("single-queue", "nodrop", [], "ok", ""),
    ("tunnel-drops", "stock", [tunnel(), later("links.0.stats64.tx.dropped", 3)], "fail", "drops"),
    ("tunnel-drops", "stock", [tunnel(dropped=3)], "warn", "dropped 3"),
    ("tunnel-drops", "stock", [tunnel()], "ok", ""),
    ("tunnel-mtu", "stock", [tunnel(mtu=1500)], "warn", "only 1450 fit"),
    ("tunnel-mtu", "stock", [tunnel()], "ok", ""),
    ("tunnel-qdisc-drops", "stock", [tunnel(), FULL], "warn", "pfifo drops"),
    ("tunnel-qdisc-drops", "stock", [tunnel()], "ok", ""),
]

CASES = [(None, *case) for case in MACHINE] + [(NAME, *case) for case in DEVICE]
