# SPDX-License-Identifier: GPL-2.0-only
"""The checks of the machine, with and without a finding."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from doctor_changes import (
    BESIDE,
    BUILT_IN,
    DOWN,
    DROPPED,
    FULL,
    LATER,
    LIVE,
    NEWER,
    NODROP_KERNEL,
    OFF,
    STALE,
    TREE,
    VHOST,
    Change,
    Row,
    assert_verdicts,
    both,
    changed,
    checks_of,
    every,
    files,
    kernels,
    later,
    machine,
    modules,
    system,
    tap,
    verdicts,
)
from hosts import NAME

from nodrop.doctor import machine as machine_checks


def beside(loaded: str) -> Change:
    """nodrop_tun is on disk, with build ID bb, and loaded with this one."""

    def change(data: dict[str, Any]) -> None:
        path = "updates/dkms/nodrop_tun.ko"
        file = {"name": "nodrop_tun", "path": path, "loaded": loaded, "on_disk": "bb"}
        unused = [{**one, "loaded": ""} for one in data["system"]["modules"]]
        data["system"]["modules"] = [*unused, file]

    return change


QUIET = every(both(DROPPED, 0), both("qdiscs.0.drops", 0))
KLP = system(livepatches={"klp_7": ["tun"]})
RULE = system(rules={"nd*": True})
QDISC = system(qdisc_rules={"nd*": True})
BEFORE = every(both("flags", {NAME: {}}), both("stats", {NAME: {}}))
"""The device was opened before nodrop_tun was loaded."""


MACHINE: list[Row] = [
    ("kept-settings", "nodrop", [RULE, OFF], "warn"),
    ("kept-settings", "nodrop", [RULE], "ok"),
    ("kept-settings", "nodrop", [RULE, OFF, both("name", "blue")], "ok"),
    ("kept-settings", "nodrop", [RULE, later(f"flags.{NAME}.nodrop", -1)], "ok"),
    ("kept-settings", "nodrop", [RULE, system(obstacle="udev")], "warn"),
    ("kept-settings", "stock", [RULE], "warn"),
    ("kept-settings", "stock", [system(rules_unread="The file has other lines.")], "skipped"),
    ("kept-qdiscs", "noqueue", [QDISC], "warn"),
    ("kept-qdiscs", "noqueue", [DOWN, QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [both("name", "blue"), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [tap(), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [both("qdiscs.0.kind", "fq_codel", first=1), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [QDISC, system(qdisc_rules={"nd*": True, NAME: False})], "ok"),
    ("kept-qdiscs", "noqueue", [QDISC, system(qdisc_obstacle="netns")], None),
    ("kept-qdiscs", "noqueue", [system(qdisc_rules={"nd*": False})], None),
    ("kept-qdiscs", "nodrop", [QDISC], "ok"),
    ("kept-qdiscs", "nodrop", [QDISC, system(qdisc_obstacle="disabled")], "warn"),
    ("kept-qdiscs", "stock", [QDISC, system(qdisc_obstacle="dead")], "warn"),
    ("kept-qdiscs", "stock", [system(qdisc_rules_unread="It has other lines.")], "skipped"),
    ("driver-stock", "stock", [], "warn"),
    ("driver-stock", "stock", [QUIET], "note"),
    ("headers-missing", "stock", [QUIET, kernels({"headers": False})], "note"),
    ("headers-missing", "stock", [QUIET, TREE, kernels({"headers": False})], "warn"),
    ("kernel-pending", "stock", [QUIET, NEWER], "note"),
    ("kernel-pending", "nodrop", [QUIET, kernels({"nodrop": True}, LATER)], "warn"),
    ("default-qdisc", "nodrop", [QUIET, files(default_qdisc="pfifo_fast")], "note"),
    ("driver-stock", "stock", [BUILT_IN], "warn"),
    ("driver-stock", "stock", [BUILT_IN, files(vhost="10:238")], "warn"),
    ("driver-stock", "nodrop", [BESIDE], "ok"),
    ("driver-stock", "nodrop", [VHOST, BESIDE], None),
    ("module-old", "nodrop", [NODROP_KERNEL, VHOST, BESIDE, modules("bb", of="vhost")], "warn"),
    ("built-in-open", "nodrop", [VHOST, BESIDE, BEFORE], None),
    ("driver-stock", "stock", [NODROP_KERNEL], None),
    ("driver-stock", "nodrop", [], "ok"),
    ("module-old", "stock", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules("aa")], "ok"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules(None)], "skipped"),
    ("module-old", "stock", [NODROP_KERNEL, BUILT_IN, beside(loaded="")], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, BESIDE, beside(loaded="bb")], "ok"),
    ("module-old", "nodrop", [NODROP_KERNEL, BESIDE, beside(loaded="cc")], "warn"),
    ("built-in-open", "nodrop", [BESIDE, BEFORE], "warn"),
    ("built-in-open", "nodrop", [BESIDE], "ok"),
    ("built-in-open", "stock", [BUILT_IN], None),
    ("module-old", "stock", [NODROP_KERNEL, STALE, KLP], "warn"),
    ("module-old", "stock", [NODROP_KERNEL, modules("bb", of="tun"), KLP], "ok"),
    ("module-old", "stock", [modules("bb", of="tun"), KLP], "warn"),
    ("livepatch-other", "stock", [NODROP_KERNEL, KLP], "warn"),
    ("livepatch-other", "stock", [KLP], "note"),
    ("livepatch-other", "stock", [system(livepatch=True)], "ok"),
    ("livepatch-other", "stock", [], None),
    ("module-old", "nodrop", [LIVE, NODROP_KERNEL, STALE], None),
    ("default-off", "nodrop", [files(default="N")], "warn"),
    ("default-off", "nodrop", [], "ok"),
    ("default-off", "stock", [], None),
    ("guard-off", "nodrop", [files(guard_ms="0")], "warn"),
    ("guard-off", "nodrop", [], "ok"),
    ("livepatch-moving", "nodrop", [LIVE, machine(livepatch="moving")], "warn"),
    ("livepatch-moving", "nodrop", [LIVE], "ok"),
    ("livepatch-and-package", "nodrop", [LIVE, NODROP_KERNEL], "warn"),
    ("livepatch-and-package", "nodrop", [LIVE], "ok"),
    ("livepatch-and-package", "nodrop", [NODROP_KERNEL], None),
    ("headers-missing", "stock", [kernels({"headers": False})], "warn"),
    ("headers-missing", "stock", [], "ok"),
    ("headers-missing", "nodrop", [kernels({"headers": False})], None),
    ("not-built", "stock", [TREE], "warn"),
    ("not-built", "stock", [kernels({"why_not": "no gcc"}), TREE], "warn"),
    ("not-built", "nodrop", [kernels({"nodrop": True}, {"release": "7.4.1"}), TREE], "warn"),
    ("not-built", "nodrop", [NODROP_KERNEL, TREE], "ok"),
    ("not-built", "stock", [], None),
    ("kernel-pending", "stock", [NEWER], "warn"),
    ("kernel-pending", "stock", [kernels({}, {"release": "7.3.3"})], "ok"),
    ("default-qdisc", "nodrop", [FULL, files(default_qdisc="pfifo_fast")], "warn"),
    ("default-qdisc", "nodrop", [files(default_qdisc=None)], "skipped"),
]


@pytest.mark.parametrize("check", sorted({*checks_of(machine_checks)} - {"namespaces"}))
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert_verdicts(MACHINE, check, None)


def test_all_modules_that_differ_are_named() -> None:
    """Also beside the kernel's own vhost_net, which keeps nodrop_tun from new opens."""
    beside_it = [NODROP_KERNEL, VHOST, BESIDE]
    for changes in ([NODROP_KERNEL, STALE], [*beside_it, STALE]):
        data = changed("nodrop", *changes)
        (result,) = verdicts(data, "module-old", None)
        for module in data["system"]["modules"]:
            assert module["name"] in result.seen
    (result,) = verdicts(
        changed("nodrop", *beside_it, modules("bb", of="vhost")), "module-old", None
    )
    assert "not those on disk" not in result.seen
