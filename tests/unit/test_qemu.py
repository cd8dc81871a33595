# SPDX-License-Identifier: GPL-2.0-only
"""Guests in QEMU that die: before their command began they are started again, later not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop import proc
from nodrop.lab import accel, again, initramfs, qemu
from nodrop.lab.hearing import DiedAtBoot, GuestDied, GuestRun
from nodrop.lab.roots import DebianKernel, Root

DONE = GuestRun(status=0, log="", output="", splats=(), seconds=1.0)


@contextmanager
def nothing(*_: object) -> Iterator[None]:
    yield None


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slow: float, ends: list[GuestRun | Exception]
) -> tuple[GuestRun | Exception, int]:
    """Run a guest whose boots end so; what came of it, and how many boots were left."""

    def hear(*_args: object, **_words: object) -> GuestRun:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    how = accel.Accel("tcg", ("-accel", "tcg"), slow)
    monkeypatch.setattr(accel, "choose", lambda *_args, **_words: how)
    monkeypatch.setattr(initramfs, "pack", lambda *_: tmp_path)
    monkeypatch.setattr(proc, "require", lambda *_: "true")
    monkeypatch.setattr(qemu, "start", nothing)
    monkeypatch.setattr(qemu, "hear", hear)
    kernel = DebianKernel("6.12", "6.12.0", Root(tmp_path, tmp_path, "key", "bookworm"))
    try:
        return qemu.run(kernel, ["true"], out=tmp_path), len(ends)
    except GuestDied as error:
        return error, len(ends)


def test_a_boot_that_died_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(again.VARIABLE, raising=False)
    boots: list[GuestRun | Exception] = [DiedAtBoot("int3"), DONE]
    assert run(monkeypatch, tmp_path, 10.0, boots) == (DONE, 0)
