# SPDX-License-Identifier: GPL-2.0-only
"""The repairs that doctor names."""

from __future__ import annotations

import shlex
import shutil

import pytest
from doctor_changes import (
    BESIDE,
    BUILT_IN,
    NEWER,
    QUEUES,
    STALE,
    TAP_DROPS,
    TREE,
    Change,
    asleep,
    both,
    changed,
    every,
    files,
    kernels,
    owner,
    system,
    tap,
    verdicts,
    waits,
)
from hosts import NAME

from nodrop import cli
from nodrop.doctor import fixes


@pytest.mark.parametrize("path", ["/usr/bin/nodrop", None])
@pytest.mark.parametrize(
    ("check", "changes", "line"),
    [("driver-stock", [], "{} install"), ("module-old", [STALE], "{} reload")],
)
def test_fix_runs_here_and_the_livepatch_is_last(
    monkeypatch: pytest.MonkeyPatch, path: str | None, check: str, changes: list[Change], line: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: path)
    start = "nodrop" if path else "python3 -m nodrop"
    release = "6.12.90+deb13.1-amd64"
    installed = kernels({"nodrop": bool(changes), "release": release})
    patched = system(livepatch=True, release=release)
    (result,) = verdicts(changed("stock", *changes, installed, patched), check, None)
    assert result.commands[0] == line.format(start)
    assert result.fix[-1].startswith("#")
    assert result.fix[-1].endswith(f"{start} livepatch load")


def test_the_package_of_the_command_alone_installs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixes, "_CLONE", False)
    for check, changes in (("driver-stock", []), ("kernel-pending", [NEWER])):
        (result,) = verdicts(changed("stock", *changes), check, None)
        assert not [line for line in result.commands if "nodrop" in line]
        assert any("nodrop-dkms" in line for line in result.fix)
    (result,) = verdicts(changed("stock", TREE), "driver-stock", None)
    assert result.commands[0].endswith("nodrop install")


def test_commands_for_odd_names_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/nodrop")
    odd = every(both("links.0.ifname", "--ph"), both("qdiscs.0.dev", "--ph"))
    flags = both("flags", {"--ph": {"nodrop": False}})
    for more, label in (([], "--ph"), ([both("name", "-x")], "-x/--ph")):
        (result,) = verdicts(changed("nodrop", odd, flags, *more), "nodrop-off", label)
        _, *words = shlex.split(result.commands[0])
        arguments = cli.parser().parse_args(words)
        assert (arguments.operands[0], arguments.netns or "") == ("--ph", label[:-5])


def test_no_livepatch_beside_a_built_in_tun() -> None:
    release = "6.12.90-generic"
    patched = [system(livepatch=True, release=release), kernels({"release": release})]
    for changes, offered in (([], True), ([BUILT_IN], False)):
        (result,) = verdicts(changed("stock", *changes, *patched), "driver-stock", None)
        assert ("livepatch" in "\n".join(result.fix)) is offered


LATE = [tap(), files(tap_guard_ms="2000"), both(f"stats.{NAME}.rx0_guard_trips", 1)]
STOCK_TAP = [tap(on=None), TAP_DROPS]
RESTART = ["systemctl stop -- -a.service", "systemctl start -- -a.service"]
MORE_CPU = ["renice -n -5 -p 64", "systemctl set-property -- -a.service CPUWeight=1000"]
TXQUEUELEN = f"ip link set dev {NAME} txqueuelen 500"
FQ_CODEL = f"tc qdisc replace dev {NAME} root fq_codel target 30ms interval 300ms"


@pytest.mark.parametrize(
    ("check", "name", "changes", "commands"),
    [
        ("noqueue", "noqueue", [], [f"nodrop set {NAME} qdisc fq_codel"]),
        ("bufferbloat", "nodrop", [], [FQ_CODEL]),
        # Each queue gets a qdisc.
        ("bufferbloat", "nodrop", QUEUES, [f"tc qdisc replace dev {NAME} root mq"]),
        # A shaper is not replaced.
        ("delay", "nodrop", [], [FQ_CODEL]),
        ("delay", "nodrop", [both("qdiscs.0.kind", "htb")], []),
        ("delay", "nodrop", [both("qdiscs.0.kind", "fq_codel")], []),
        ("guard-tripped", "nodrop", LATE, ["echo 10000 >/sys/module/tap/parameters/guard_ms"]),
        # A stopped reader is continued.
        ("reader-stuck", "stuck", [asleep("T")], ["kill -CONT 64"]),
        ("reader-stuck", "stuck", [asleep()], ["cat /proc/64/status /proc/64/wchan"]),
        ("nodrop-off", "stock", [tap(on="N")], ["echo Y >/sys/module/tap/parameters/nodrop"]),
        ("ring-drops", "stock", [BUILT_IN, system(livepatch=True)], ["nodrop install"]),
        ("ring-drops", "stock", [BUILT_IN, files(vhost="10:238")], []),
        ("ring-drops", "stock", [system(distribution="arch")], []),
        ("ring-drops", "stock", [BESIDE, owner(cgroup="0::/-a.service\n")], RESTART),
        ("reader-starved", "stock", [waits, owner(cgroup="0::/-a.service\n")], MORE_CPU),
        ("big-ring", "stock", [BESIDE, both("links.0.txqlen", 1000)], [TXQUEUELEN]),
        # A container has no command that helps.
        ("ring-drops", "stock", [*STOCK_TAP, system(container="docker")], []),
    ],
)
def test_commands(
    check: str,
    name: str,
    changes: list[Change],
    commands: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (result,) = verdicts(changed(name, *changes), check)
    assert list(result.commands) == commands


def test_tap_is_replaced_with_its_users() -> None:
    (result,) = verdicts(changed("stock", *STOCK_TAP), "ring-drops")
    assert "modprobe -r macvtap ipvtap tap" in result.fix


@pytest.mark.parametrize(
    ("where", "prefix"),
    [("blue", "ip netns exec blue"), ("4711", "nsenter --net=/proc/4711/ns/net")],
)
def test_fix_is_for_the_namespace(where: str, prefix: str) -> None:
    data = changed("nodrop", both("name", where))
    (result,) = verdicts(data, "bufferbloat", f"{where}/{NAME}")
    assert result.fix == (f"{prefix} {FQ_CODEL}",)
    (result,) = verdicts(changed("noqueue", both("name", where)), "noqueue", f"{where}/{NAME}")
    assert result.fix[0].endswith(f"nodrop -n {where} set --now {NAME} qdisc fq_codel")
