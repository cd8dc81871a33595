# SPDX-License-Identifier: GPL-2.0-only
"""Each patch of series/, with those before it: applies, compiles without a report; its style.

Of tunnels/patches the style only: their kernels are built for tunnels/tests.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import on_terminal

from lab.kernel import Kernel, ensure_kernel, series
from lab.kernel.source import patches
from lab.sources import REPOSITORY

PATCHES = series.all_patches()
STYLED = [
    *PATCHES,
    *patches([f"tunnels/patches/{name}" for name in ("fixes", "id", "references", "cache")]),
]
LIMIT_S = 300.0
ADDED = 600
"""Lines that series/flow may add without selftests and documentation."""
TRAILER = re.compile(
    r"^(?:From|Date|Signed-off-by|Co-developed-by|Reviewed-by|Acked-by|Tested-by|"
    r"Reported-by|Suggested-by|Cc): ",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def kernel(request: pytest.FixtureRequest) -> Kernel:
    with on_terminal(request) as progress:
        return ensure_kernel(progress, "debug")


@pytest.mark.parametrize("number", range(1, len(PATCHES) + 1))
def test_compiles(kernel: Kernel, number: int, tmp_path: Path) -> None:
    assert series.compiled(kernel, PATCHES[:number], tmp_path) == []


@pytest.mark.parametrize("patch", STYLED, ids=[path.name[:30] for path in STYLED])
def test_style(kernel: Kernel, patch: Path, tmp_path: Path) -> None:
    argv: list[str | Path] = [
        *("perl", kernel.source / "scripts/checkpatch.pl", "--root", kernel.source),
        *("--strict", "--no-signoff", "--max-line-length=80", "-q"),
        # MAINTAINERS has drivers/net/tun*; "From:" is missing on purpose; the source has no git.
        *("--ignore", "FILE_PATH_CHANGES,FROM_SIGN_OFF_MISMATCH,UNKNOWN_COMMIT_ID", patch),
    ]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path, check=False
    )
    assert done.stdout.strip() == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("patch", STYLED, ids=[path.name[:30] for path in STYLED])
def test_form(patch: Path) -> None:
    text = patch.read_text(encoding="utf-8")
    message = text.partition("\n---\n")[0]
    assert text.startswith("Subject: [PATCH ")
    assert TRAILER.findall(message) == []
    subject, _, body = message.partition("\n\n")
    assert len(re.sub(r"Subject: \[.*?\] |\n", "", subject)) <= 75
    # The subject of the commit in a Fixes: is not wrapped.
    prose = [line for line in body.splitlines() if not line.startswith("Fixes: ")]
    assert max(map(len, prose)) <= 75


def test_kernel_doc(kernel: Kernel, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    series.patched(kernel.source, tree, PATCHES, [])
    argv: list[str | Path] = [
        kernel.source / "scripts/kernel-doc",
        "-none",
        "-Wall",
        tree / "net/core/dev.c",
    ]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    # The file has others, of functions that the series does not change.
    assert [line for line in done.stderr.splitlines() if "netif_tx_wake_queue_on" in line] == []


def test_added_lines() -> None:
    added = 0
    for path in sorted((REPOSITORY / "series/flow").glob("0*.patch")):
        name = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("+++ b/"):
                name = line[6:]
            elif line.startswith("+") and not name.startswith(("Documentation/", "tools/")):
                added += 1
    assert 0 < added <= ADDED
