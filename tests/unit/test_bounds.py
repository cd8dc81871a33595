# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bounds: which upper bounds on elapsed time it finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from script import load

DEADLINE = "end = time.monotonic() + 5\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("process.wait(5)", [1]),
        ("run(words,\n    timeout=5)", [2]),
        ("LIMIT_S = 5.0\nsocket.settimeout(2 * LIMIT_S)", [2]),
        ("thread.join(stretched(5))", [1]),
        ("signal.alarm(5)", [1]),
        ("check(time.monotonic() - started < 5)", [1]),
        ("took = time.perf_counter() - started\nassert 0 < took < 5", [2]),
        (f"{DEADLINE}while waits() and time.monotonic() < end: pass", [1]),
        (f"{DEADLINE}check(time.monotonic() < end)", [1]),
        ("process.wait(5)  # bound: it is to run out", []),
        ("# bound: it is to run out\nprocess.wait(5)", []),
        # A minute, what nobody can know, and what bounds nothing.
        ("process.wait(60)", []),
        ("process.wait(patience(5))", []),
        ("signal.alarm(0)", []),
        ("', '.join(words)", []),
        ("took = time.monotonic() - started\nassert took >= 5", []),
        (f"{DEADLINE}while time.monotonic() < end: work()", []),
        ("while not stop.wait(5): work()", []),
    ],
)
def test_what_is_found(
    text: str,
    found: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    status = load("bounds", monkeypatch).main([str(path)])
    lines = [int(line.split(":")[1]) for line in capsys.readouterr().out.split("\n") if line]
    assert (lines, status) == (found, bool(found))
