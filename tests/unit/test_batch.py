# SPDX-License-Identifier: GPL-2.0-only
"""Several test programs in one guest: each is accounted for by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest import batch
from nodrop.lab.hearing import GuestRun
from nodrop.lab.selftests import read_batch, split_log
from nodrop.lab.splats import find_splats

GOOD = "#!/bin/sh\nprintf 'KTAP version 1\\n1..1\\nok 1 works\\n'\n"
BAD = "#!/bin/sh\nprintf 'KTAP version 1\\n1..1\\nnot ok 1 fails\\n'; exit 1\n"


def program(place: Path, name: str, text: str) -> Path:
    path = place / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def whole(log: str = "") -> GuestRun:
    return GuestRun(0, log, "", find_splats(log.splitlines()), 1.0)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.setenv("NODROP_OUT", str(folder))
    return folder


def test_each_program_has_its_report(tmp_path: Path, out: Path) -> None:
    programs = [program(tmp_path, "good", GOOD), program(tmp_path, "bad", BAD)]
    assert batch.main([str(path) for path in programs]) == 0
    good, bad = read_batch(programs, out, whole())
    assert good.ok
    assert good.cases[0][0] == "works"
    assert bad.failed == ("fails",)


def test_a_program_that_hangs_is_stopped(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "TIMEOUT_S", 0.2)
    hangs = program(tmp_path, "hangs", "#!/bin/sh\necho 'KTAP version 1'; sleep 60\n")
    batch.main([str(hangs), str(program(tmp_path, "good", GOOD))])
    first, second = read_batch([hangs, tmp_path / "good"], out, whole())
    assert first.run.status == batch.TIMED_OUT
    assert not first.ok
    assert second.ok


def test_a_guest_that_dies_keeps_what_it_told(tmp_path: Path, out: Path) -> None:
    programs = [program(tmp_path, "good", GOOD), program(tmp_path, "never", GOOD)]
    batch.main([str(programs[0])])
    good, never = read_batch(programs, out, None)
    assert good.ok
    assert not never.ok
    assert "the guest ended before this program did" in never.complaints


LOG = """\
[    1.000000] booted
[    2.000000] nodrop-lab: begins: good
[    3.000000] tun: fine
[    4.000000] nodrop-lab: begins: bad
[    5.000000] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 f+0x1/0x2
"""


def test_the_kernels_log_is_told_apart(tmp_path: Path, out: Path) -> None:
    parts = split_log(LOG)
    assert list(parts) == ["", "good", "bad"]
    assert "tun: fine" in parts["good"]
    programs = [program(tmp_path, "good", GOOD), program(tmp_path, "bad", GOOD)]
    batch.main([str(path) for path in programs])
    good, bad = read_batch(programs, out, whole(LOG))
    assert good.ok
    assert any(complaint.startswith("WARNING") for complaint in bad.complaints)
