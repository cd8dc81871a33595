# SPDX-License-Identifier: GPL-2.0-only
"""``python tests/tunnels/table.py``: docs/tunnels.md's table of the kernel's own tests.

Reads ``out/kselftests``, which ``test_kselftests.py`` leaves.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nodrop.guest.kselftest import EXIT_STATUS, SKIPPED, STOPPED

_GOOD = frozenset(("ok", "OK", "PASS"))
_ASIDE = frozenset(("SKIP", "XFAIL"))


def told(results: Sequence[Sequence[str]]) -> str:
    """Return what a test said, in few words."""
    status = results[-1][1]
    counts = Counter(
        "passed" if outcome in _GOOD else "skipped" if outcome in _ASIDE else "failed"
        for name, outcome in results
        if name != EXIT_STATUS
    )
    words = [f"{counts[what]} {what}" for what in ("passed", "failed", "skipped") if counts[what]]
    if not words:
        words = ["passed" if status == "0" else "skipped" if status == SKIPPED else "failed"]
    if status == STOPPED:
        words.append("stopped")
    return ", ".join(words)


def rows(folder: Path) -> list[str]:
    """Return the table's lines."""
    lines = ["| test | without | with the series | |", "|---|---|---|---|"]
    for path in sorted(folder.glob("*.json")):
        both = json.loads(path.read_text(encoding="utf-8"))
        same = "the same" if both["stock"] == both["series"] else "**differs**"
        lines.append(f"| `{path.stem}` | {told(both['stock'])} | {told(both['series'])} | {same} |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows(Path(sys.argv[1] if len(sys.argv) > 1 else "out/kselftests"))))
