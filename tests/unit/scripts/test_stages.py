# SPDX-License-Identifier: GPL-2.0-only
"""scripts/stages.py, which runs the stages of `make test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from stages import Stage, report, run
out = Path(sys.argv[2])
(out / "repeated.txt").touch()
signals = "sleep 1; kill -INT $PPID; " if sys.argv[3] == "interrupt" else ""
stages = (
    Stage("background", 3600, ("sleep", sys.argv[4]), background=True),
    Stage("tests", 3600, ("sh", "-c", f"echo hello; {signals}sleep {sys.argv[4]}")),
    Stage("last", 3600, ("true",), needs="background"),
)
with (out / "log.txt").open("wb") as log:
    report(run(stages, out, log), 1.0, out)
"""


def outcomes(out: Path, how: str, seconds: str) -> dict[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(SCRIPTS), str(out), how, seconds]
    # Its output has no reader.
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
    assert process.returncode == 0
    result = json.loads((out / "result.json").read_text())
    return {stage["name"]: stage["outcome"] for stage in result["stages"]}


def test_all_stages_run_with_a_closed_pipe(tmp_path: Path) -> None:
    assert set(outcomes(tmp_path, "", "0").values()) == {"passed"}
    assert "hello\n" in (tmp_path / "log.txt").read_text()


def test_interrupt_ends_background_stages(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "interrupt", "3000") == {
        "background": "failed",
        "tests": "interrupted",
        "last": "not run",
    }
