# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m guestlib.kselftest FOLDER PROGRAM [ARGUMENT ...]``: run a kernel selftest.

Writes ``kselftest.json`` in LAB_OUT: name and outcome of each result, and the exit status.
The caller compares those of two kernels.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from guestlib.environment import time_limit
from nodrop import proc

RESULTS_NAME = "kselftest.json"
EXIT_STATUS = "exit status"
"""Name of the last result."""
STOPPED = "stopped"
"""Outcome of a test that timed out."""
_LATE = 1000
SKIPPED = "4"
"""Exit status of a skipped kernel selftest."""
PASSED = frozenset({"ok", "OK", "PASS", "[+]", "0"})
"""Outcomes of a result that passed, or of the exit status."""
_RESULT = re.compile(
    r"^\s*(?:#\s+)*(?P<ok>not ok|ok)\s+\d+\s*(?:- )?(?P<name>[^#]*)(?P<why># *(?:SKIP|XFAIL))?"
)
_WORDS = re.compile(r"^\s*(?P<name>.*?)[\s.:]*\[\s*(?P<ok>OK|PASS|FAIL|FAILED|XFAIL|SKIP)\s*\]\s*$")
_SENTENCE = re.compile(r"^\s*(?P<ok>PASS|FAIL|SKIP):\s*(?P<name>.*)$")
_STEP = re.compile(r"^(?P<ok>\[\+\]) (?P<name>NS\d): ")
"""A step of WireGuard's test, in a namespace; the test ends at the first failure."""
_COUNT = re.compile(r"\s*\((?:received )?\d+/\d+\)")
"""Packet counts in the name of a result; they vary."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def parse(text: str) -> list[tuple[str, str]]:
    """Return the name and outcome (ok, FAIL, SKIP ...) of each result in a test's output."""
    outcomes = []
    for line in text.splitlines():
        plain = _COLOUR.sub("", line)
        kinds = (_RESULT, _WORDS, _SENTENCE, _STEP)
        match = next(filter(None, (kind.match(plain) for kind in kinds)), None)
        if not match:
            continue
        why = match.groupdict().get("why")
        name = _COUNT.sub("", match["name"]).strip()
        outcomes.append((name, why.strip("# ") if why else match["ok"]))
    return outcomes


def results(argv: Sequence[str], folder: Path, seconds: float) -> tuple[list[tuple[str, str]], str]:
    """Run a test; return its results, the exit status as the last one, and its output.

    Args:
        seconds: timeout; then the test and its children are killed.
    """
    done = proc.run(argv, cwd=folder, timeout=time_limit(seconds), late=_LATE)
    status = STOPPED if done.status == _LATE else str(done.status)
    return [*parse(done.output), (EXIT_STATUS, status)], done.output


def main(argv: list[str]) -> int:
    """Run one test; return 0 whatever its results are."""
    folder, program, *arguments = argv
    path = Path(folder, program)
    seconds = float(os.environ.get("LAB_KSELFTEST_SECONDS", "120"))
    command = ["bash", f"./{path.name}"] if path.suffix == ".sh" else [str(path)]
    started = time.monotonic()
    outcomes, text = results([*command, *arguments], path.parent, seconds)
    out = Path(os.environ["LAB_OUT"])
    (out / "kselftest.output").write_text(text, encoding="utf-8")
    summary = {"results": outcomes, "seconds": round(time.monotonic() - started, 1)}
    (out / RESULTS_NAME).write_text(json.dumps(summary) + "\n", encoding="utf-8")
    print(f"{program}: {len(outcomes) - 1} results, {EXIT_STATUS} {outcomes[-1][1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
