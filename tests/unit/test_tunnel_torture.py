# SPDX-License-Identifier: GPL-2.0-only
"""The torture of tunnels, as far as it needs no kernel of its own."""

from __future__ import annotations

import socket
import struct
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from tunnels.faults import FAULTS, Fault, broken

from nodrop.guest.netlink import attributes
from nodrop.guest.tunnels.torture import encrypt, events, filters, hammer, place, slabs
from nodrop.guest.tunnels.torture.__main__ import parse
from nodrop.guest.tunnels.torture.chaos import KINDS
from nodrop.guest.tunnels.torture.plan import Ending, Event, rounds
from nodrop.guest.tunnels.torture.traffic import Counts
from nodrop.guest.tunnels.torture.victims import VICTIMS
from nodrop.kernel.patched import patches

MAKERS = {**events.KINDS, **encrypt.KINDS}


def test_the_same_seed_gives_the_same_plan() -> None:
    kinds = sorted(KINDS)
    assert list(islice(rounds(7, kinds), 5)) == list(islice(rounds(7, kinds), 5))
    assert list(islice(rounds(7, kinds), 5)) != list(islice(rounds(8, kinds), 5))


def test_a_plan_has_everything_in_it_sooner_or_later() -> None:
    plans = list(islice(rounds(1, sorted(KINDS)), 60))
    happened = {event.kind for plan in plans for bout in plan.bouts for event in bout}
    assert happened == set(KINDS)
    assert {plan.ending for plan in plans} == set(Ending)
    for flag in ("apart", "hammer", "icmp", "cryptd"):
        assert {getattr(plan, flag) for plan in plans} == {True, False}
    numbers = [event.number for plan in plans for bout in plan.bouts for event in bout]
    assert numbers == list(range(1, len(numbers) + 1))


def test_only_a_tunnel_apart_ends_with_its_namespace() -> None:
    for plan in islice(rounds(3, sorted(KINDS)), 200):
        assert plan.apart or plan.ending is not Ending.APART


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", VICTIMS)
def test_an_event_is_commands_whatever_it_chooses(name: str, kind: str) -> None:
    for value in (0, 1, 2, 3, 0x1FF, 0x10203, (1 << 48) - 1):
        act = MAKERS[name](Event(1, name, value, 0, 0), VICTIMS[kind])
        assert act.do
        for command in (*act.do, *act.undo):
            assert "{" not in command.words, command
            assert command.netns in (place.NEAR, place.FAR, events.HOME)
            assert command.program in ("ip", "tc")


def test_what_lasts_is_undone() -> None:
    lasting = set(MAKERS) - {"flush_cache", "neigh"}
    for name in lasting:
        act = MAKERS[name](Event(1, name, 1, 0, 0), VICTIMS["vxlan"])
        assert act.undo or act.heal, name


def test_a_tunnels_own_parameters_are_taken_back() -> None:
    for kind, victim in VICTIMS.items():
        if victim.changes:
            assert "remote" in victim.changes[-1], kind
            assert "6.9" not in victim.changes[-1], kind
            assert "6::9" not in victim.changes[-1], kind


def test_lines_tells_which_command_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(argv)
        told = "RTNETLINK answers: No such device\nCommand failed -:2\n"
        return subprocess.CompletedProcess(argv, 1, "", told)

    monkeypatch.setattr(subprocess, "run", run)
    failed = place.lines("ndnear", ["link show", "link delete x"])
    assert failed == ["link delete x: RTNETLINK answers: No such device"]
    assert seen == [["ip", "-n", "ndnear", "-force", "-batch", "-"]]


def test_lines_keeps_the_families_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, str]] = []

    def run(argv: list[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(("-6" in argv, input))
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert place.lines("ndnear", ["rule flush", "-6 rule flush", "-6 rule show"]) == []
    assert seen == [(False, "rule flush\n"), (True, "rule flush\nrule show\n")]


def test_a_route_by_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nametoindex", lambda _: 5)
    body = hammer.route(False, hammer.UNICAST, 2, mtu=600)
    assert body[1] == 32
    found = dict(attributes(body[12:]))
    assert found[1] == socket.inet_aton(place.THERE4)
    assert found[5] == socket.inet_aton(place.GATE4[2])
    assert found[4] == struct.pack("=I", 5)
    assert dict(attributes(found[8])) == {2: struct.pack("=I", 600), 1: struct.pack("=I", 4)}
    assert 5 not in dict(attributes(hammer.route(True, hammer.BLACKHOLE, 0)[12:]))


@pytest.mark.parametrize("data", [b"\x45\x00\x00\x1c" + bytes(16), bytes(range(21))])
def test_checksum_of_what_has_its_checksum_is_zero(data: bytes) -> None:
    data += bytes(len(data) % 2)
    assert hammer.checksum(data + struct.pack("!H", hammer.checksum(data))) == 0


def test_counts_are_seen_by_all() -> None:
    counts = Counts(2)
    counts.put(0, 3, 1)
    counts.put(1, 4, 0)
    assert counts.of(1) == 4
    assert counts.sums() == (7, 1)


def test_grown_tells_by_how_much() -> None:
    start = {"rtable": 3, "xfrm_dst": 1}
    assert slabs.grown(start, {"rtable": 3, "xfrm_dst": 0}) == {}
    assert slabs.grown(start, {"rtable": 5, "xfrm_dst": 1}) == {"rtable": 2}


def test_slabs_are_read_from_slabinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "slabinfo"
    info.write_text("slabinfo - version: 2.1\n# name\nrtable 7 20 1\nkmalloc-8 9 9 9\n")
    monkeypatch.setattr(slabs, "SLABINFO", info)
    assert slabs.counts() == {"rtable": 7}
    monkeypatch.setattr(slabs, "SLABINFO", tmp_path / "none")
    assert slabs.counts() == {}


def test_rules_are_of_the_kernels_form(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[tuple[int, int, bytes]]] = []
    monkeypatch.setattr(filters, "_transact", lambda _netns, wanted: sent.append(wanted))
    for what in filters.RULES:
        filters.add("ndnear", what, six=False, late=True)
    assert [len(wanted) for wanted in sent] == [3] * len(filters.RULES)
    chains = [dict(attributes(wanted[1][2][4:])) for wanted in sent]
    assert [chain[7] for chain in chains] == [b"filter\0"] * 3 + [b"route\0"]


def test_the_command_line() -> None:
    (settings,) = parse(["--type", "sit", "--seed", "7", "--events", "esp,nested"])
    assert (settings.kind, settings.seed) == ("sit", 7)
    assert settings.only == {"esp", "nested"}
    assert [each.kind for each in parse(["--type", "all"])] == list(VICTIMS)
    with pytest.raises(SystemExit):
        parse(["--type", "carrier-pigeon"])


SERIES = [path.read_text() for path in patches(("tunnels/series",))]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_in_what_the_series_has_written(fault: Fault) -> None:
    parts = [part for text in SERIES for part in text.split("diff --git ")[1:]]
    ours = "".join(part for part in parts if f"b/{fault.file}\n" in part)
    if not ours:
        pytest.skip("the kernel's own text")
    written = {line[1:].strip() for line in ours.splitlines() if line[:1] in "+ "}
    assert all(line.strip() in written for line in fault.old.splitlines()[1:-1])
    assert fault.kind in VICTIMS


def test_a_fault_is_there_for_a_while(tmp_path: Path) -> None:
    fault = Fault("n", "a.c", "old", "new", "sit")
    (tmp_path / "elsewhere").write_text("an old text")
    (tmp_path / "a.c").hardlink_to(tmp_path / "elsewhere")
    with broken(fault, tmp_path):
        assert (tmp_path / "a.c").read_text() == "an new text"
        assert (tmp_path / "elsewhere").read_text() == "an old text"
    assert (tmp_path / "a.c").read_text() == "an old text"
    twice = Fault("n", "b.c", "old", "new", "sit")
    (tmp_path / "b.c").write_text("old old")
    with pytest.raises(ValueError, match="not once"), broken(twice, tmp_path):
        pass
