# SPDX-License-Identifier: GPL-2.0-only
"""What kmod/flow and the patches of series/flow have in common is the same text.

The table of series/flow/REVIEW.md pairs the functions. A pair without a reason must have the same
body, a pair with one must not.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERIES = ROOT / "series/flow"
HEADER = "drivers/net/tun_backpressure.h"
ADDED_TO = "net/core/dev.c"
ROW = re.compile(r"^\| (`\w.*`|-) \| (`\w.*`|-) \| (.*?) ?\|$", re.MULTILINE)
_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(r"(\w+)\([^{]*\)$")
_SAME = (
    # A module parameter here is a constant there.
    (r"READ_ONCE\(nodrop_(\w+_us)\)", lambda m: f"TUN_BP_{m[1].upper()}"),
    (r"\b(?:nodrop|tun_bp)_", "flow_"),
    (r"\b(?:NODROP|TUN_BP)_", "FLOW_"),
    (r"\b(?:bp|qdisc)\b", "q"),
    (r"\b(\d+)U\b", r"\1"),
    (r"\s+", ""),
)


def functions(text: str) -> dict[str, str]:
    """Return the functions that C code in the kernel's style defines, name: body."""
    text = _COMMENTS.sub("", text)
    found = {}
    for match in re.finditer(r"^(\w[^;{}#]*\))\s*\n\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        head = _HEAD.search(" ".join(match[1].split()))
        assert head, match[1]
        found[head[1]] = match[2]
    return found


def normal(body: str) -> str:
    """Return a body without what may differ: layout, and how each side names the same."""
    for pattern, new in _SAME:
        body = re.sub(pattern, new, body)
    return body


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The functions that the patches add, of the header as it is after the last one."""
    tree = tmp_path_factory.mktemp("tree")
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    added = []
    for patch in sorted(SERIES.glob("000[1-9]*.patch")):
        subprocess.run(
            ["git", "apply", f"--include={HEADER}", patch], cwd=tree, check=True, env=env
        )
        _, _, diff = patch.read_text(encoding="utf-8").partition(f"\n+++ b/{ADDED_TO}\n")
        lines = diff.partition("\ndiff --git ")[0].splitlines()
        added += [line[1:] for line in lines if line.startswith(("+", " "))]
    return functions((tree / HEADER).read_text(encoding="utf-8")) | functions("\n".join(added))


@pytest.fixture(scope="module")
def module() -> dict[str, str]:
    files = sorted((ROOT / "kmod/flow").glob("*.[ch]"))
    found = [functions(path.read_text(encoding="utf-8")) for path in files]
    return {name: body for some in found for name, body in some.items()}


def table() -> list[tuple[list[str], list[str], str]]:
    """Return the rows: functions of the series, of the module, why they differ."""
    rows = ROW.findall((SERIES / "REVIEW.md").read_text(encoding="utf-8"))
    return [(re.findall(r"\w+", there), re.findall(r"\w+", here), why) for there, here, why in rows]


def test_knows_a_change() -> None:
    old = "\treturn clamp(limit / 4, 1U, NODROP_BATCH);\n"
    assert normal(old) == normal("return clamp(limit / 4, 1,\n\t TUN_BP_BATCH);")
    for new in ("limit / 2", "1U, TUN_BP_SHORT"):
        assert normal(old) != normal(old.replace("limit / 4", new).replace("1U, NODROP_BATCH", new))


def test_each_function_is_in_the_table(series: dict[str, str], module: dict[str, str]) -> None:
    rows = table()
    assert Counter(name for there, _, _ in rows for name in there) == Counter([*series])
    assert Counter(name for _, here, _ in rows for name in here) == Counter([*module])


def test_pairs(series: dict[str, str], module: dict[str, str]) -> None:
    wrong = []
    for there, here, why in table():
        same = [normal(series[name]) for name in there] == [normal(module[name]) for name in here]
        if same == bool(why):
            wrong.append(f"{there} and {here}: {'the same' if same else 'differ'}")
    assert wrong == []
