# SPDX-License-Identifier: GPL-2.0-only
"""Guests as seen from the host: their channels, their ends, second boots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import stubs

from lab import guest, qemu
from lab.guest import GuestRun
from lab.kernel.apt import parse_suites
from lab.roots import sources_of
from lab.splats import find_splats
from nodrop.errors import NodropError
from proof import batch
from proof.selftests import read_batch, split_log

DONE, FAILED = GuestRun(0, "", "", (), 1.0), GuestRun(1, "", "", (), 1.0)
PRINTED = GuestRun(0, "", "ok 1 one\nnot ok 2 two", (), 1.0)
LOGGED = GuestRun(0, "[    1.20] ok 1 one\n[   17.290000]     not ok 2 two", "", (), 1.0)
BEGINS = f"echo {guest.START_LINE} >&{{0}}; "
ENDS = "echo 0 >&{2}; "
SLEEPS = "exec sleep 600"


def collect(script: str) -> GuestRun:
    with guest.socket_pairs() as (ours, theirs):
        command = ["bash", "-c", script.format(*(end.fileno() for end in theirs))]
        with guest.start(command, theirs) as process:
            return guest.collect(process, ours, timeout=60.0)


@pytest.mark.parametrize(
    ("script", "short", "kind"),
    [
        ("echo boots >&{0}; " + SLEEPS, "BOOT_S", guest.BootTimeout),
        (BEGINS + ENDS + SLEEPS, "POWER_OFF_S", guest.StuckAtPowerOff),
        # A splat is a result.
        (BEGINS + "echo 'BUG: bad' >&{0}; " + ENDS + SLEEPS, "POWER_OFF_S", guest.GuestTimeout),
        ("echo boots >&{0}", "BLOCKED_S", guest.DiedAtBoot),
        (BEGINS, "BLOCKED_S", guest.GuestDied),
    ],
)
def test_how_guests_end(
    script: str, short: str, kind: type[NodropError], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (short, "BLOCKED_S"):
        monkeypatch.setattr(guest, name, 0.3)
    with pytest.raises(kind) as caught:
        collect(script)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("ends", "observed", "left", "comes"),
    [
        ([guest.DiedAtBoot, DONE], False, 0, DONE),
        ([guest.BootTimeout, DONE], False, 0, DONE),
        ([guest.DiedAtBoot] * 3, False, 1, guest.DiedAtBoot),
        ([guest.GuestDied, DONE], False, 1, guest.GuestDied),
        ([guest.GuestTimeout, DONE], False, 1, guest.GuestTimeout),
        ([guest.StuckAtPowerOff("", "", DONE), FAILED], False, 0, FAILED),
        ([guest.StuckAtPowerOff("", "", FAILED), DONE], False, 1, FAILED),
        ([guest.StuckAtPowerOff("", "", DONE), FAILED], True, 1, DONE),
        ([guest.StuckAtPowerOff("", "", PRINTED), DONE], False, 1, PRINTED),
        ([guest.StuckAtPowerOff("", "", LOGGED), DONE], False, 1, LOGGED),
    ],
)
def test_boot_is_retried_once(
    ends: list[object], observed: bool, left: int, comes: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(guest.REPEATS, raising=False)
    ends = list(ends)

    def boot() -> GuestRun:
        end = ends.pop(0)
        if isinstance(end, GuestRun):
            return end
        raise end if isinstance(end, NodropError) else end("It ended.")  # type: ignore[operator]

    if isinstance(comes, GuestRun):
        assert guest.boot_with_retry(boot, observed=observed) is comes
    else:
        with pytest.raises(comes):  # type: ignore[call-overload]
            guest.boot_with_retry(boot, observed=observed)
    assert len(ends) == left


@pytest.mark.parametrize("works", [True, False])
def test_accelerator(works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_ACCEL", raising=False)
    monkeypatch.setattr("os.access", lambda *_: True)
    monkeypatch.setattr(qemu, "_panics_as_expected", lambda _: works)
    kernel = tmp_path / "vmlinuz"
    assert qemu.choose_accel(kernel) is (qemu.KVM if works else qemu.TCG)
    assert qemu.choose_accel(kernel, code_changes=True) is (
        qemu.KVM if works else qemu.TCG_SINGLE_THREAD
    )
    monkeypatch.setenv("LAB_ACCEL", "xen")
    with pytest.raises(NodropError):
        qemu.choose_accel(kernel)


def program(place: Path, name: str, text: str) -> Path:
    stubs.programs(place, {name: f"echo 'KTAP version 1'; echo 1..1; {text or ':'}"})
    return place / name


LOG = """\
[    1.000000] booted
[    2.000000] nodrop-lab: begins: good
[    3.000000] tun: fine
[    4.000000] nodrop-lab: begins: bad
[    5.000000] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 f+0x1/0x2
"""


def test_results_of_programs_in_one_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("LAB_OUT", str(out))
    programs = [
        program(tmp_path, "good", "echo ok 1 works"),
        program(tmp_path, "bad", "echo not ok 1 fails; exit 1"),
        program(tmp_path, "hangs", "sleep 60"),
    ]
    assert batch.main([str(path) for path in programs[:2]]) == 0
    monkeypatch.setattr(batch, "TIMEOUT_S", 0.3)
    assert batch.main([str(programs[2])]) == batch.TIMED_OUT
    whole = GuestRun(0, "", "", (), 1.0)
    good, bad, hangs = read_batch(programs, out, whole)
    assert (good.ok, bad.failed, hangs.run.status) == (True, ("fails",), batch.TIMED_OUT)
    # A splat counts against the program that ran; a program that never ran has failed.
    assert list(split_log(LOG)) == ["", "good", "bad"]
    logged = GuestRun(0, LOG, "", find_splats(LOG.splitlines()), 1.0)
    good, bad = read_batch(programs[:2], out, logged)
    assert (good.ok, len(bad.complaints)) == (True, 1)
    early = replace(logged, log="\n".join((LOG.splitlines()[-1], LOG)))
    good, bad = read_batch(programs[:2], out, early)
    assert (len(good.complaints), len(bad.complaints)) == (1, 1)
    (never,) = read_batch([program(tmp_path, "never", "")], out, None)
    assert not never.ok


URIS = """\
'http://one.test/debian/dists/bookworm/InRelease' one.test_debian_dists_bookworm_InRelease 0
'http://one.test/debian/dists/bookworm-updates/InRelease' x 0
'http://two.test/debian-security/dists/bookworm-security/InRelease' y 0
'https://three.test/apt/dists/nodistro/InRelease' z 0
"""


def test_apt_sources_of_a_root() -> None:
    machines = parse_suites(URIS, "bookworm")
    assert parse_suites(URIS.replace("bookworm", "stable"), "bookworm") == machines
    lines = sources_of(machines, "bookworm", "trixie", backports=True)
    assert all("[signed-by=/" in line for line in lines)
    assert [line.split("] ")[1] for line in lines] == [
        "http://one.test/debian trixie-backports main",
        "http://one.test/debian trixie main",
        "http://one.test/debian trixie-updates main",
        "http://two.test/debian-security trixie-security main",
    ]
