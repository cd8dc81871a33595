# SPDX-License-Identifier: GPL-2.0-only
"""Programs that replace those of the machine in a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def programs(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        write(folder / name, f"#!/bin/bash\n{text}\n").chmod(0o755)


def before(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


def run(bin_: Path, *words: str | Path, **environment: str | Path) -> Done:
    """Run a program with that PATH and only this environment."""
    env = {"PATH": before(bin_), **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
