# SPDX-License-Identifier: GPL-2.0-only
"""The model of recorded machines."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hosts import device, host, raw
from stubs import before, programs

from nodrop.errors import NodropError
from nodrop.host import netns, owners, read
from nodrop.host.procfs import Holder
from nodrop.host.read import RawNamespace, build


def test_namespaces_and_owners() -> None:
    found = host("spaces")
    assert found.tun.built_in
    assert found.default_qdisc == ""
    assert device(found, "mq0").queues == 3
    assert [owner.queues for owner in device(found, "mq0").owners] == [3]
    assert len({device(found, label).owners[0].pid for label in ("tun0", "blue/tun0")}) == 2
    assert device(found, "red/moved0").owners == device(found, "blue/tun0").owners
    assert (device(found, "gone0").owners, device(found, "gone0").carrier) == ((), False)
    vxlan = device(found, "vx0")
    assert (vxlan.tunnel, vxlan.driver, vxlan.owners, vxlan.queue) == (True, None, (), ())


def fake_process(proc: Path, pid: int, files: dict[int, tuple[str, str]]) -> None:
    folder = proc / str(pid)
    for name in ("fd", "fdinfo", "ns"):
        (folder / name).mkdir(parents=True)
    (folder / "comm").write_text("qemu-system-x86\n")
    (folder / "cgroup").write_text("0::/\n")
    (folder / "cmdline").write_text("qemu\0-name\0guest=a,,b,debug-threads=on\0-m\0\0")
    (folder / "ns/net").write_text("")
    for number, (target, info) in files.items():
        (folder / "fd" / str(number)).symlink_to(target)
        (folder / "fdinfo" / str(number)).write_text(info)


def no_descriptor_left(*_: object) -> None:
    raise OSError(errno.EMFILE, "")


def test_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tun = ("/dev/net/tun", "pos:\t0\nflags:\t0100002\niff:\ttun0\n")
    unset = ("/dev/net/tun", "pos:\t0\nflags:\t0100002\n")
    fake_process(tmp_path, 7, {0: ("/dev/null", ""), 3: tun, 4: tun, 5: unset})
    (tmp_path / "7/comm").write_bytes(b"\xffvpn\n")
    fake_process(tmp_path, 12, {3: ("/dev/tap9", ""), 4: ("/dev/vhost-net", ""), 5: ("/gone", "")})
    fake_process(tmp_path, 20, {3: unset, 4: ("/dev/vhost-net", "")})
    (tmp_path / "30").mkdir()  # ended meanwhile
    odd = ("/dev/net/tun", "pos:\t0\niff:\t \x1c\x85\n")
    fake_process(tmp_path, 40, {3: odd, 4: ("/dev/vhost-vsock", "")})
    found, hidden = owners.find(tmp_path)
    assert [(one.pid, one.name, one.tun, one.tap, one.vhost, one.guest) for one in found] == [
        (7, "\udcffvpn", ["tun0", "tun0"], [], 0, ""),
        (12, "qemu-system-x86", [], [9], 1, "a,b"),
        (40, "qemu-system-x86", [" \x1c\x85"], [], 0, "a,b"),
    ]
    assert (hidden, found[2].vhost_others) == (0, 1)
    monkeypatch.setattr(os, "open", no_descriptor_left)
    assert owners.find(tmp_path) == ([], 5)
    monkeypatch.setattr(os, "listdir", no_descriptor_left)
    assert owners.find(tmp_path) == ([], 1)


def test_files_watched_for_edges(tmp_path: Path) -> None:
    def epoll(*watched: tuple[int, int]) -> tuple[str, str]:
        line = "tfd: {:8d} events: {:8x} data: {:16x}  pos:0 ino:a sdev:5\n"
        lines = [line.format(file, events, file) for file, events in watched]
        return "anon_inode:[eventpoll]", "pos:\t0\nflags:\t02\n" + "".join(lines)

    edge, level, out = 0x8000001D, 0x19, 0x8000001C
    tun = ("/dev/net/tun", "pos:\t0\niff:\ttun0\n")
    files = {3: tun, 4: tun, 5: tun, 6: tun, 7: ("/dev/tap9", ""), 8: ("/dev/null", "")}
    files[20] = epoll((3, edge), (4, edge), (5, level), (8, edge))
    files[21] = epoll(*((number, level) for number in range(1000, 3000)), (4, level))
    files[22] = epoll((6, out), (7, edge))
    fake_process(tmp_path, 7, files)
    ((holder,), _) = owners.find(tmp_path)
    # 3 and 7: 4 is also watched for its level, and 6 for space to write.
    assert (len(holder.tun), holder.edge) == (4, [9, "tun0"])
    files[21] = epoll(*((number, level) for number in range(1000, 3000)))
    fake_process(tmp_path, 9, files)
    assert owners.find(tmp_path)[0][1].edge == [9, "tun0", "tun0"]


def test_only_ambiguous_names_are_queried() -> None:
    def unclear(holder: Holder, *others: Holder, names: dict[int, set[str]]) -> list[str]:
        return next(owners.unclear([holder, *others], names))

    here = Holder(1, "a", 0, netns=100, tun=["tun0"])
    there = Holder(2, "b", 0, netns=200, tun=["tun0"])
    assert unclear(here, there, names={100: {"tun0"}, 200: {"tun0"}}) == []
    # Its own namespace has no such device: it was moved.
    assert unclear(there, here, names={100: {"tun0"}, 200: set()}) == ["tun0"]
    # Two processes have this name open in one namespace: one device may have been moved.
    assert unclear(here, replace(here, pid=3), names={100: {"tun0"}}) == ["tun0"]
    # A namespace that was not read: query only if the device has no other holder.
    assert unclear(there, here, names={100: {"tun0"}}) == []
    assert unclear(there, names={100: {"tun0"}}) == ["tun0"]


def test_unreadable_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = raw("spaces")
    clock = [0.0]

    def inside(_path: str, name: str, seconds: float) -> RawNamespace:
        if name == "full":
            no_descriptor_left()
        clock[0] += seconds if name == "slow" else 0
        return recorded.namespaces[0]

    spaces = [netns.Namespace(name, name, 0) for name in ("full", "a", "slow", "b", "c\udcff")]
    monkeypatch.setattr(netns, "find", lambda: spaces)
    monkeypatch.setattr(read, "_inside", inside)
    monkeypatch.setattr(read, "_machine", lambda *_: recorded.machine)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    found = read.read(everywhere=True)
    assert (len(found.namespaces), list(found.unread), found.unreached) == (3, ["full"], 2)
    assert build(found).unreached == 2


@pytest.mark.parametrize("script", ["echo '[{'", "echo 'Cannot open netlink socket' >&2; exit 2"])
def test_failing_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    programs(tmp_path, {"ip": script})
    monkeypatch.setenv("PATH", before(tmp_path))
    with pytest.raises(NodropError):
        read.namespace("")


def test_text_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As iproute2 6.1 prints it for hfsc and cbq."""
    hfsc = '{"kind":"hfsc","dev":"a{1}","options":{default 1 },"drops":7}'
    cbq = '{"kind":"cbq","dev":"b","options":{rate 1Mbit },"drops":8  borrowed 0 undertime 0}'
    programs(tmp_path, {"tc": f"echo '[{hfsc},{cbq}]'"})
    monkeypatch.setenv("PATH", before(tmp_path))
    found = read.tool("tc", "-s", "qdisc")
    assert [(one["dev"], one["options"], one["drops"]) for one in found] == [
        *(("a{1}", {}, 7), ("b", {}, 8))
    ]


def test_sysfs_is_mounted_for_rings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [link for space in raw("spaces").namespaces for link in space.links]
    mounted: list[str] = []
    monkeypatch.setattr(netns, "own_sys", lambda: mounted.append("/sys"))
    for kind, count in (("vxlan", 0), ("tun", 1)):
        found = [link for link in links if link["linkinfo"]["info_kind"] == kind]
        monkeypatch.setattr(read, "tool", lambda name, *_, found=found: found * (name == "ip"))
        assert read.namespace("").links == found != []
        assert len(mounted) == count


def test_mq() -> None:
    recorded = raw("stock")
    leaf = {"kind": "fq_codel", "dev": "ndtest0", "parent": ":1", "options": {}}
    root = {"kind": "mq", "dev": "ndtest0", "root": True, "options": {}, "drops": 7, "qlen": 2}
    recorded.namespaces[0].qdiscs[:] = [root, leaf, dict(leaf, parent=":2")]
    qdisc = device(build(recorded), "ndtest0").qdisc
    assert (qdisc.label, qdisc.drops, qdisc.queued_packets) == ("mq/fq_codel", 7, 2)
