# SPDX-License-Identifier: GPL-2.0-only
"""Reading the machine: devices and owners, namespaces, installed kernels, threads."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from hosts import device, host, raw
from stubs import before, process, programs, user_ids, write

from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import netns, owners, procfs, read, system
from nodrop.host.netns import Child
from nodrop.host.procfs import Holder
from nodrop.host.read import RawNamespace, build
from nodrop.host.system import InstalledKernel
from nodrop.proc import ask


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


no_descriptor_left = Mock(side_effect=OSError(errno.EMFILE, ""))


def test_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tun = ("/dev/net/tun", "pos:\t0\nflags:\t0100002\niff:\ttun0\n")
    unset = ("/dev/net/tun", "pos:\t0\nflags:\t0100002\n")
    process(tmp_path, 7, {0: ("/dev/null", ""), 3: tun, 4: tun, 5: unset})
    (tmp_path / "7/comm").write_bytes(b"\xffvpn\n")
    process(tmp_path, 12, {3: ("/dev/tap9", ""), 4: ("/dev/vhost-net", ""), 5: ("/gone", "")})
    process(tmp_path, 20, {3: unset, 4: ("/dev/vhost-net", "")})
    process(tmp_path, 21, {3: ("/srv/jail/dev/vhost-net", ""), 4: ("/srv/jail/dev/net/tun", "")})
    process(tmp_path, 22, {3: ("/dev/vhost-vsock", "")})
    (tmp_path / "30").mkdir()  # ended meanwhile
    odd = ("/dev/net/tun", "pos:\t0\niff:\t \x1c\x85\n")
    process(tmp_path, 40, {3: odd, 4: ("/dev/vhost-vsock", "")})
    found, hidden = owners.find(tmp_path)
    assert [(one.pid, one.name, one.tun, one.tap, one.vhost, one.guest) for one in found] == [
        (7, "\udcffvpn", ["tun0", "tun0"], [], 0, ""),
        (12, "qemu-system-x86", [], [9], 1, "a,b"),
        (20, "qemu-system-x86", [], [], 1, ""),
        (21, "qemu-system-x86", [], [], 1, ""),
        (40, "qemu-system-x86", [" \x1c\x85"], [], 0, "a,b"),
    ]
    assert [(one.unset, one.vhost_others) for one in found] == [
        (1, 0),
        (0, 0),
        (1, 0),
        (1, 0),
        (0, 1),
    ]
    assert ([one.pid for one in found if one.links], hidden) == ([7, 12, 40], 0)
    assert owners.find(tmp_path, -1.0) == ([], 7)
    monkeypatch.setattr(owners, "OWNERS_S", -1.0)
    assert owners.find(tmp_path) == ([], 7)
    monkeypatch.setattr(owners, "OWNERS_S", 10.0)
    monkeypatch.setattr(os, "open", no_descriptor_left)
    assert owners.find(tmp_path) == ([], 7)
    monkeypatch.setattr(os, "listdir", no_descriptor_left)
    assert owners.find(tmp_path) == ([], 1)


def test_a_process_with_many_files_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may open /dev/net/tun hundreds of thousands of times."""
    unset = ("/dev/net/tun", "pos:\t0\nflags:\t0100002\n")
    process(tmp_path, 7, dict.fromkeys(range(100), unset))
    process(tmp_path, 8, {3: unset})
    monkeypatch.setattr(time, "monotonic", partial(next, itertools.count()))
    assert owners.find(tmp_path, 50.0) == ([], 2)
    assert owners.find(tmp_path, 200.0)[1] == 0


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
    process(tmp_path, 7, files)
    ((holder,), _) = owners.find(tmp_path)
    # 3 and 7: 4 is also watched for its level, and 6 for space to write.
    assert (len(holder.tun), holder.edge) == (4, [9, "tun0"])
    files[21] = epoll(*((number, level) for number in range(1000, 3000)))
    process(tmp_path, 9, files)
    assert owners.find(tmp_path)[0][1].edge == [9, "tun0", "tun0"]


def test_nothing_waits_for_another_users_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO without a writer stands for memory and files of FUSE: a read of them never returns."""
    edge = "tfd:        3 events: 8000001d data:                3  pos:0 ino:a sdev:5\n"
    tun = ("/dev/net/tun", "pos:\t0\niff:\ttun0\n")
    process(tmp_path, 7, {3: tun, 4: ("anon_inode:[eventpoll]", edge)})
    ((holder,), _) = owners.find(tmp_path)
    assert (holder.guest, holder.edge) == ("a,b", ["tun0"])
    for name in ("cmdline", "fdinfo/4"):
        (tmp_path / "7" / name).unlink()
        os.mkfifo(tmp_path / "7" / name)
    monkeypatch.setattr(procfs, "answers", lambda _: False)
    ((holder,), hidden) = owners.find(tmp_path)
    assert (holder.tun, holder.guest, holder.edge, hidden) == (["tun0"], "", [], 0)


def test_no_file_of_another_user_is_borrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would close it for this process, and FUSE would not answer."""
    query = Mock(return_value=300)
    monkeypatch.setattr(owners, "_device_netns", query)
    monkeypatch.setattr(owners, "_attached", lambda *_: ["tun0"])
    monkeypatch.setattr(os, "readlink", lambda *_, **__: "/dev/net/tun")
    holder = Holder(os.getpid(), "a", os.getuid(), netns=100, tun=["tun0"])
    names = {100: set[str](), 300: {"tun0"}}
    assert owners.ask([holder], names)[0].device_netns == {"tun0": 300}
    query.reset_mock()
    monkeypatch.setattr(procfs, "answers", lambda _: False)
    assert owners.ask([holder], names) == [holder]
    query.assert_not_called()


def test_whose_programs_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fd").mkdir()
    owner = 0
    monkeypatch.setattr(os, "stat", lambda *_, **__: Mock(st_uid=owner))
    fd = os.open(tmp_path / "fd", os.O_RDONLY)

    def answers(*ids: int) -> bool:
        (tmp_path / "status").write_text(user_ids(*ids))
        return procfs.answers(fd)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for owner in (0, 107, 999, 61184, 64055):
        assert answers(owner)
        assert not answers(65534, owner), "set-user-ID"
    for owner in (1000, 60001, 65534, 100000, 1000000):
        assert not answers(owner)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    owner = 1000
    assert answers(1000)
    assert not answers(1000, 0)
    (tmp_path / "status").write_text("Name:\tno IDs\n")
    assert not procfs.answers(fd)
    os.close(fd)


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


def test_output_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", before(tmp_path))
    for script in ("echo '[{'", "echo 'Cannot open netlink socket' >&2; exit 2"):
        programs(tmp_path, {"ip": script})
        with pytest.raises(NodropError):
            read.namespace("")
    # As iproute2 6.1 prints it for hfsc and cbq.
    hfsc = '{"kind":"hfsc","dev":"a{1}","options":{default 1 },"drops":7}'
    cbq = '{"kind":"cbq","dev":"b","options":{rate 1Mbit },"drops":8  borrowed 0 undertime 0}'
    programs(tmp_path, {"tc": f"echo '[{hfsc},{cbq}]'"})
    found = read.tool("tc", "-s", "qdisc")
    assert [(one["dev"], one["options"], one["drops"]) for one in found] == [
        *(("a{1}", {}, 7), ("b", {}, 8))
    ]


def test_sysfs_is_mounted_for_rings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [link for space in raw("spaces").namespaces for link in space.links]
    mounted = Mock(return_value=False)
    monkeypatch.setattr(netns, "own_sys", mounted)
    for kind, count in (("vxlan", 0), ("tun", 1)):
        found = [link for link in links if link["linkinfo"]["info_kind"] == kind]
        monkeypatch.setattr(read, "tool", lambda name, *_, found=found: found * (name == "ip"))
        assert read.namespace("").links == found != []
        assert mounted.call_count == count


def test_mq() -> None:
    recorded = raw("stock")
    leaf = {"kind": "fq_codel", "dev": "ndtest0", "parent": ":1", "options": {}}
    root = {"kind": "mq", "dev": "ndtest0", "root": True, "options": {}, "drops": 7, "qlen": 2}
    recorded.namespaces[0].qdiscs[:] = [root, leaf, dict(leaf, parent=":2")]
    qdisc = device(build(recorded), "ndtest0").qdisc
    assert (qdisc.label, qdisc.drops, qdisc.queued_packets) == ("mq/fq_codel", 7, 2)


def fail(error: Exception) -> None:
    raise error


def test_own_namespace_needs_neither_root_nor_child() -> None:
    for where in (None, os.getpid(), str(os.getpid()), "/proc/self/ns/net"):
        assert netns.run_inside(where, os.getpid) == os.getpid()


def test_errors_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child need not be in another namespace."""
    monkeypatch.setattr(netns, "_same", lambda _: False)
    monkeypatch.setattr(netns, "_enter", lambda *_: None)
    assert netns.run_inside(None, os.getpid) != netns.run_inside("/proc/self/ns/net", os.getpid)
    with pytest.raises(NodropError) as caught:
        netns.run_inside("/proc/self/ns/net", lambda: fail(UnsupportedError("What", "How")))
    assert (caught.value.message, caught.value.hint, caught.value.status) == ("What", "How", 4)
    missing = FileNotFoundError(errno.ENOENT, "gone", "/x")
    with pytest.raises(FileNotFoundError) as raised:
        netns.run_inside("/proc/self/ns/net", lambda: fail(missing))
    assert raised.value.filename == "/x"
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        netns.run_inside("/proc/self/ns/net", lambda: 1 / 0)
    with pytest.raises(NodropError):
        netns.run_inside("/proc/self/ns/net", signal.pause, 0.01)
    with pytest.raises(NodropError, match="sleep did not end"):
        netns.run_inside("/proc/self/ns/net", lambda: ask("sleep", "60"), 0.01)


def test_a_signal_ends_the_child_without_the_callers_handler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It arrives as soon as the child exists."""
    fork, parent = os.fork, os.getpid()

    def fork_and_signal() -> int:
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    before = signal.signal(signal.SIGTERM, lambda *_: (tmp_path / str(os.getpid())).touch())
    try:
        monkeypatch.setattr(os, "fork", fork_and_signal)
        with Child(os.getpid) as child, pytest.raises(NodropError, match="ended early"):
            child.result("ended early")
        assert not list(tmp_path.iterdir())
        os.kill(parent, signal.SIGTERM)
        assert [path.name for path in tmp_path.iterdir()] == [str(parent)]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sys_is_mounted_if_its_namespace_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 1 may be hidden (hidepid), and a user without privileges cannot mount."""
    stat, mounts = os.stat, list[str]()

    def without_first(path: str, **options: bool) -> os.stat_result:
        if path == "/proc/1/ns/net":
            raise PermissionError(errno.EACCES, "hidden", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", without_first)
    monkeypatch.setattr(netns, "_sys_shows", {})
    monkeypatch.setattr(netns, "_mount_sys", lambda _: fail(PermissionError(errno.EPERM, "")))
    assert not netns.own_sys()
    monkeypatch.setattr(netns, "_mount_sys", lambda _: mounts.append("/sys"))
    assert netns.own_sys()
    assert netns.own_sys()
    assert mounts == ["/sys"]


def test_names_pids_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "42").touch()
    assert netns.named() == ["42"]
    for name, path, prefix in (
        ("42", str(tmp_path / "42"), "ip netns exec 42 "),
        (42, "/proc/42/ns/net", "nsenter --net=/proc/42/ns/net "),
        ("43", "/proc/43/ns/net", "nsenter --net=/proc/43/ns/net "),
        ("/run/x", "/run/x", "nsenter --net=/run/x "),
    ):
        assert (str(netns.path_of(name)), netns.prefix(name)) == (path, prefix)
    assert netns.prefix(None) == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", ["nosuch", "", "a\0b", "x" * 300, 4999999, "/etc/passwd", "pipe"])
def test_no_namespace(where: str | int, tmp_path: Path) -> None:
    """Opening a FIFO must not block."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NodropError):
        netns.run_inside(tmp_path / "pipe" if where == "pipe" else where, os.getpid)


RELEASE = "6.12.41+deb13-amd64"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    uname = os.uname()
    fake = os.uname_result((uname.sysname, uname.nodename, RELEASE, uname.version, uname.machine))
    monkeypatch.setattr(os, "uname", lambda: fake)


def kernel(root: Path, release: str, tun: str) -> None:
    write(root / f"lib/modules/{release}/modules.dep", f"kernel/net/core.ko:\n{tun}: x.ko\n")
    write(root / f"boot/vmlinuz-{release}")


@pytest.mark.usefixtures("running")
def test_kernels(tmp_path: Path) -> None:
    kernel(tmp_path, RELEASE, "updates/dkms/tun.ko.xz")
    write(tmp_path / f"lib/modules/{RELEASE}/updates/dkms/nodrop.ko.xz")
    kernel(tmp_path, "6.12.9+deb13-amd64", "kernel/drivers/net/tun.ko.xz")
    kernel(tmp_path, "6.12.41+deb13+1-amd64", "kernel/drivers/net/tun.ko.xz")
    kernel(tmp_path, "6.13.1+deb13-cloud-amd64", "kernel/drivers/net/tun.ko.xz")
    write(tmp_path / f"lib/modules/{RELEASE}/build/Module.symvers")
    write(tmp_path / "var/log/nodrop/6.12.9+deb13-amd64.log", "make: x\nnodrop: no gcc\n")
    found = system.read(tmp_path)
    each = {one.release: one for one in found.kernels}
    assert each[RELEASE] == InstalledKernel(
        RELEASE, image=True, headers=True, nodrop=True, why_not=""
    )
    assert found.running == each[RELEASE]
    assert each["6.12.9+deb13-amd64"].why_not == "no gcc"
    assert not each["6.12.9+deb13-amd64"].nodrop
    # The cloud kernel is another flavour; 41 is more than 9, 41+1 more than 41.
    assert found.newest == each["6.12.41+deb13+1-amd64"]
    assert not each["6.12.41+deb13+1-amd64"].headers


@pytest.mark.usefixtures("running")
def test_kernel_alternatives(tmp_path: Path) -> None:
    kernel(tmp_path, RELEASE, "kernel/drivers/net/ovpn/ovpn.ko.xz")
    assert system.read(tmp_path).in_kernel == ["ovpn"]


def test_containers(tmp_path: Path) -> None:
    empty = system.read(tmp_path)
    assert (empty.container, empty.kernels, empty.tree, empty.livepatch) == ("", [], False, False)
    write(tmp_path / "run/systemd/container", "lxc\n")
    write(tmp_path / "usr/src/nodrop-0.3.0/dkms.conf")
    found = system.read(tmp_path)
    assert (found.container, found.tree) == ("lxc", True)


def thread(
    proc: Path, pid: int, tid: int, name: str, state: str = "S", *, schedstat: bool, flags: int = 0
) -> None:
    fields = [state, *["0"] * 5, str(flags), *["0"] * 4, "150", "50", "0", "0", "20", "-5"]
    fields += [*["0"] * 19, "3", "0", "5", "0"]
    stat = f"{tid} ({name}) {' '.join(fields)}\n"
    for folder in (proc / f"{pid}/task/{tid}", proc / f"{tid}"):
        write(folder / "stat", stat)
        write(folder / "comm", f"{name}\n")
    if schedstat:
        write(proc / f"{pid}/task/{tid}/schedstat", "1500000000 250000000 9\n")


def test_threads(tmp_path: Path) -> None:
    thread(tmp_path, 7, 7, "qemu) R (", schedstat=True)
    thread(tmp_path, 7, 9, "CPU 0/KVM", "R", schedstat=False)
    thread(tmp_path, 7, 10, "vhost-9", schedstat=False, flags=0x4040)
    thread(tmp_path, 30, 30, "vhost-9", schedstat=True, flags=0x208040)
    thread(tmp_path, 31, 31, "vhost-70", schedstat=True, flags=0x208040)
    thread(tmp_path, 32, 32, "vhost-7", schedstat=True)  # a program that chose that name
    found = {one.tid: one for one in procfs.read_threads([7, 4711], tmp_path)}
    assert set(found) == {7, 9, 10, 30}
    assert (found[7].name, found[7].run_s, found[7].wait_s) == ("qemu) R (", 1.5, 0.25)
    assert (found[7].policy, found[7].nice) == (5, -5)
    assert (found[7].state, found[9].state) == ("S", "R")
    assert (found[9].run_s, found[9].wait_s) == (200 / os.sysconf("SC_CLK_TCK"), None)
    assert [(one.pid, one.cpu) for one in found.values() if one.vhost] == [(7, 3), (7, 3)]
    for tid in range(2000, 3100):
        thread(tmp_path, 40, tid, "many", schedstat=False)
    assert len(procfs.read_threads([40], tmp_path)) == 1024
    assert dict(procfs.ready_threads(found.values(), tmp_path)) == {9: 1}
