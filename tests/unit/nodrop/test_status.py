# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop status`` of recorded machines."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hosts import ALL, device, host, raw, recorded
from schema import answer

from nodrop import cli, screen
from nodrop.commands import status
from nodrop.host import procfs
from nodrop.host.model import Device

Capture = pytest.CaptureFixture[str]


def cells(one: Device, *, hidden: bool = False) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in status.row(one, hidden=hidden)]


def test_json_matches_the_schema(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in ALL:
        recorded(monkeypatch, raw(name))
        shown = answer(capsys, "status")
        assert shown["devices"]
        ours = {"nodrop": (20, None, 4120)}.get(name, (None, None, None))
        queues = [queue for one in shown["devices"] for queue in one["queue"]]
        assert [queues[0][key] for key in ("limit_packets", "pace_ns", "stalled_ms")] == [*ours]
        assert queues[0]["counters"].get("taken") == (17 if name == "nodrop" else None)


@pytest.mark.parametrize(
    ("kind", "up", "hidden", "unknown"),
    [
        ("macvtap", True, False, False),
        ("macvtap", True, True, True),
        ("tap", True, False, True),
        ("tap", False, True, True),
        ("tap", False, False, False),
    ],
)
def test_unknown_owner(kind: str, up: bool, hidden: bool, unknown: bool) -> None:
    """A macvtap's carrier is the lower device's; a device that is down has none."""
    one = device(host("stock"), "ndtest0")
    made = replace(one, kind=kind, owners=(), queues=0, carrier=up, up=up)
    remarks = status.remarks(replace(host("stock"), hidden_processes=int(hidden)), [made])
    assert any("inspected" in line for line in remarks) is (unknown and hidden)
    assert (cells(made, hidden=hidden)[3] == "?") is unknown


def test_names(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def names_of(*names: str) -> list[tuple[Any, Any]]:
        devices = answer(capsys, "status", *names)["devices"]
        return [(one["netns"], one["name"]) for one in devices]

    recorded(monkeypatch, raw("spaces"))
    assert names_of("tun0") == [(None, "tun0"), ("blue", "tun0")]
    assert names_of("red/moved0", "vx0") == [(None, "vx0"), ("red", "moved0")]
    assert cli.main(["status", "nix"]) == 1
    machine = raw("spaces")
    for space in machine.namespaces:
        for link in space.links:
            if link["ifname"] == "tun0":
                link["altnames"] = ["a-longer-name-of-tun0", "other0"]
    recorded(monkeypatch, machine)
    assert names_of("a-longer-name-of-tun0") == [(None, "tun0"), ("blue", "tun0")]
    assert names_of("blue/other0") == [("blue", "tun0")]
    recorded(monkeypatch, replace(raw("stock"), namespaces=[]))
    assert cli.main(["status"]) == 0


ID = "0123456789abcdef" * 4
VM = "machine-qemu\\x2d1\\x2dmyvm.scope"
PLACES = f"""
0::/system.slice/x.slice/openvpn@a.service              openvpn@a.service - -
0::/system.slice/a.service/sub/ssh.service              a.service - -
9:cpu:/|1:name=systemd:/x.slice/_cpu.x.service|0::/     cpu.x.service - -
0::/../system.slice/a:b.service                         a:b.service - -
0::/user@7.service/libpod-{ID}.scope         user@7.service/libpod-{ID}.scope podman:{ID} -
3:memory:/docker/{ID}                                   - docker:{ID} -
0::/x.slice/docker-{ID}.scope/a                         docker-{ID}.scope docker:{ID} -
0::/kubepods/burstable/pod1/{ID}                        - kubepods:{ID} -
0::/kubepods.slice/p.slice/crio-{ID}.scope/a            crio-{ID}.scope kubepods:{ID} -
0::/kubepods-pod1_2.slice:cri-containerd:{ID}           - kubepods:{ID} -
4:pids:/lxc/web|0::/lxc.monitor.web                     - lxc:web -
0::/lxc.payload.w\x1b/a.slice/docker-{ID}.scope         - lxc:w\x1b -
0::/machine.slice/{VM}/libvirt/emulator                 {VM} - my_vm
0::/machine/qemu-1-other.libvirt-qemu/emulator          - - other
:|::|0:||\udcff:a:\udcff/lxc/                           - - my_vm
"""


def test_units_containers_and_virtual_machines() -> None:
    for line in PLACES.strip().split("\n"):
        text, *words = line.split()
        expected = procfs.Cgroup(*(None if word == "-" else word for word in words))
        guest = "my_vm" if expected.vm else ""
        assert procfs.cgroup(text.replace("|", "\n"), guest) == expected
    assert procfs.cgroup("0::/a.service (deleted)\n").unit == "a.service"


def test_vhost_workers_and_odd_names(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    worker = {"name": "vhost-7", "tid": 9, "cpu": 3}
    odd = {"name": "\\udc80\U0001f4a9\udcff\x1b", "cgroup": "0::/lxc/\x1b\udcff\n"}
    some: tuple[dict[str, Any], ...] = ({}, {"vhost_others": 1}, {"tap": [4711]})
    for words in some:
        machine = raw("stock")
        holders = machine.machine.holders
        holders[0] = replace(holders[0], vhost=1, workers=[worker], **{**odd, **words})
        recorded(monkeypatch, machine)
        owner = answer(capsys, "status", "ndtest0")["devices"][0]["owners"][0]
        assert owner["name"] == "\\udc80\U0001f4a9\\xff\x1b"
        assert owner["container"] == "lxc:\x1b\\xff"
        known = {"device_known": not words, "queue": None if words else 0}
        assert owner["vhost_workers"] == [{**worker, **known}]
        assert cli.main(["status"]) == 0
        assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_columns_without_values_are_left_out_first(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """On a narrow terminal, whatever their importance: the stock driver counts no stops."""
    recorded(monkeypatch, raw("stock"))
    for width, has in ((200, True), (79, False)):
        console = screen.Screen(sys.stdout, False, width)
        monkeypatch.setattr(screen, "console", lambda _arguments, shown=console: shown)
        assert cli.main(["status"]) == 0
        (titles,) = [
            line for line in capsys.readouterr().out.splitlines() if line.startswith("DEVICE")
        ]
        assert ("STOPS" in titles, "QDISC-DROPS" in titles) == (has, True)


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["tun0"], ["blue/tun0", "tun0"]),
        (["t*0"], ["blue/tun0", "tun0"]),
        (["blue/t?n0", "mq[0-9]"], ["blue/tun0", "mq0"]),
    ],
)
def test_patterns(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], labels: list[str]
) -> None:
    recorded(monkeypatch, raw("spaces"))
    shown = answer(capsys, "status", "-A", *words)["devices"]
    assert sorted(f"{one['netns'] or ''}/{one['name']}".lstrip("/") for one in shown) == labels
    assert cli.main(["status", "-A", "tun0", "z*"]) == 1
