# SPDX-License-Identifier: GPL-2.0-only
"""Reports of the tools that watch the whole kernel: which are ours."""

from __future__ import annotations

import pytest

from nodrop.guest import kmemleak
from nodrop.lab import races
from nodrop.lab.splats import find_all, find_splats, strip_timestamp

RULE = "=" * 66


def race(*stacks: tuple[str, ...], head: str = "data-race in a / b", how: str = "write") -> str:
    """A report of KCSAN, as a kernel's log has it; how the first access is made."""
    lines = [RULE, f"BUG: KCSAN: {head}", ""]
    for cpu, frames in enumerate(stacks):
        access = "read" if cpu else how
        lines.append(f"{access} to 0xffff888003c3f0a8 of 4 bytes by task 7{cpu} on cpu {cpu}:")
        lines += [f" {frame}" for frame in frames]
        lines.append("")
    lines += ["value changed: 0x00000001 -> 0x00000002", "", "Reported by ... on:", RULE]
    return "".join(f"[   12.{at:06d}] {line}\n" for at, line in enumerate(lines))


OURS = "nodrop_release+0x10/0x200 [nodrop]"
CORE = "dql_completed+0x1/0x90"
SYSCALL = "do_syscall_64+0x4d/0x110"


@pytest.mark.parametrize(
    ("stacks", "foreign"),
    [
        (((CORE, SYSCALL), (CORE, SYSCALL)), True),
        (((OURS, SYSCALL), (CORE, SYSCALL)), False),
        (((CORE, SYSCALL), (OURS, SYSCALL)), False),
        (((CORE, OURS, SYSCALL), (CORE, SYSCALL)), False),
        (((CORE, SYSCALL, SYSCALL, OURS), (CORE, SYSCALL)), True),
        (((OURS, SYSCALL),), False),
        ((("v9fs_read+0x1/0x2 [9p]", SYSCALL), (CORE,)), True),
    ],
)
def test_a_race_is_ours_by_who_makes_the_access(
    stacks: tuple[tuple[str, ...], ...], foreign: bool
) -> None:
    (found,) = find_all(race(*stacks))
    assert (found.kind, found.foreign) == ("KCSAN", foreign)
    assert found.line == "BUG: KCSAN: data-race in a / b"
    assert "value changed" in found.text
    assert bool(find_splats(race(*stacks))) is not foreign


def test_a_marked_access_is_no_mistake() -> None:
    marked = "write (marked)"
    assert find_splats(race((OURS, SYSCALL), (CORE, SYSCALL), how=marked)) == ()
    assert len(find_splats(race((CORE, SYSCALL), (OURS, SYSCALL), how=marked))) == 1
    assert len(find_splats(race((OURS, SYSCALL), (CORE,), how="write (reordered)"))) == 1
    unknown = "race at unknown origin, with read"
    assert len(find_splats(race((OURS, SYSCALL), how=unknown))) == 1
    assert find_splats(race((CORE, SYSCALL), how=unknown)) == ()


def test_each_race_is_a_report() -> None:
    log = race((CORE,), (CORE,)) + race((OURS,), (CORE,)) + race((CORE,), (CORE,))
    assert [one.foreign for one in find_all(log)] == [True, False, True]
    assert len(find_splats(log)) == 1


def test_a_long_stack_is_read_to_its_end() -> None:
    deep = (CORE, *[SYSCALL] * 60)
    (found,) = find_splats(race(deep, (OURS, SYSCALL)))
    assert OURS in found.text


def test_a_frame_that_was_reordered_ends_no_stack_of_another() -> None:
    head = "write (reordered) to 0xffff888003c3f0a8 of 8 bytes by interrupt on cpu 1:"
    lines = [head, f" {CORE}", "  |", "  +-> reordered to: x+0x1/0x2", f" {OURS}"]
    assert races.plain_stacks(lines) == [[""]]


def test_known_races_are_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    log = race((OURS,), (OURS,), head="data-race in tun_old / tun_old")
    assert len(find_splats(log)) == 1
    monkeypatch.setattr(races, "KNOWN", {r"in tun_old / tun_old$": "why"})
    assert find_splats(log) == ()
    assert len(find_splats(race((OURS,), (OURS,)))) == 1


LEAK = """\
unreferenced object 0x0000000061a3c400 (size 256):
  comm "python3", pid 57, jiffies 4294938432
  hex dump (first 32 bytes):
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
  backtrace (crc 8f1e2a):
"""
LEAKED_PACKET = LEAK + "    __alloc_skb+0xb2/0x1d0\n    udp_sendmsg+0x4a1/0xb60\n"
LEAKED_BY_MODULE_THAT_WENT = LEAK + "    kmalloc_noprof+0x9a/0x240\n    0x64a81234\n"
LEAKED_BY_HOSTFS = LEAK + "    __kmalloc_noprof+0xb2/0x1d0\n    hostfs_parse_param+0x4a/0x90\n"


def in_log(text: str) -> str:
    return "".join(f"[   31.250000] {line}\n" for line in text.splitlines())


def test_leaks_are_ours_unless_the_place_is_known() -> None:
    log = in_log(LEAKED_BY_HOSTFS + LEAKED_PACKET + LEAKED_BY_HOSTFS + LEAKED_BY_MODULE_THAT_WENT)
    log += "[   31.3] reboot: Power down\n"
    assert [one.foreign for one in find_all(log)] == [True, False, True, False]
    packet, module = find_splats(log)
    assert packet.text == LEAKED_PACKET.rstrip()
    assert module.text.endswith("0x64a81234")


def test_leaks_in_kmemleaks_own_file() -> None:
    reports = kmemleak.split(LEAKED_PACKET + LEAKED_BY_HOSTFS)
    assert [kmemleak.is_foreign(report) for report in reports] == [False, True]
    assert kmemleak.split("") == []


def test_kmemleak_that_gave_up_is_told() -> None:
    log = "[    3.1] kmemleak: Kernel memory leak detector disabled\n"
    assert [one.kind for one in find_splats(log)] == ["leak"]


def test_kmemleak_that_was_switched_off_has_not_given_up() -> None:
    off = "[    3.1] kmemleak: Kernel memory leak detector disabled\n"
    full = "[    3.2] kmemleak: Cannot allocate a kmemleak_object structure\n"
    asked = f"[    3.0] {kmemleak.OFF}\n"
    assert not find_splats(asked + off)
    assert [one.kind for one in find_splats(off + asked)] == ["leak"]
    assert [one.line for one in find_splats(asked + full + off)] == [strip_timestamp(full.strip())]


def test_kmemleak_that_looks_at_more_than_it_would_has_not_given_up() -> None:
    log = "[    3.1] kmemleak: Cannot allocate a scan area, scanning the full object\n"
    assert not find_splats(log)


def test_a_kernel_without_kmemleak_has_no_leaks() -> None:
    if kmemleak.KNOB.exists():
        pytest.skip("this machine's kernel has it")
    assert kmemleak.leaks() == []
