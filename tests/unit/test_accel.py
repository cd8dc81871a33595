# SPDX-License-Identifier: GPL-2.0-only
"""KVM is used where it works, not where it only seems to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.lab import accel

KERNEL = Path("/nowhere/vmlinuz")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NODROP_CACHE", str(tmp_path))
    monkeypatch.delenv("NODROP_ACCEL", raising=False)
    monkeypatch.setattr("os.access", lambda *_: True)
    return tmp_path


def hello(monkeypatch: pytest.MonkeyPatch, *, works: bool) -> list[Path]:
    asked: list[Path] = []

    def says_hello(vmlinuz: Path) -> bool:
        asked.append(vmlinuz)
        return works

    monkeypatch.setattr(accel, "_says_hello", says_hello)
    return asked


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("works", [True, False])
def test_kvm_is_tried_once(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    asked = hello(monkeypatch, works=works)
    wanted = accel.KVM if works else accel.TCG
    assert accel.choose(KERNEL) is wanted
    assert accel.choose(KERNEL) is wanted
    assert asked == [KERNEL]


def test_another_boot_another_try(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hello(monkeypatch, works=False)
    (cache / "kvm.json").write_text(json.dumps({"boot": "another", "works": True}))
    assert accel.choose(KERNEL) is accel.TCG
    assert len(asked) == 1


@pytest.mark.usefixtures("cache")
def test_no_access_no_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hello(monkeypatch, works=True)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert accel.choose(KERNEL) is accel.TCG
    assert asked == []


@pytest.mark.usefixtures("cache")
def test_guests_that_change_their_code_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    hello(monkeypatch, works=False)
    assert accel.choose(KERNEL, code_changes=True) is accel.TCG_IN_TURNS
    monkeypatch.setenv("NODROP_ACCEL", "kvm")
    assert accel.choose(KERNEL, code_changes=True) is accel.KVM


@pytest.mark.usefixtures("cache")
def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    hello(monkeypatch, works=False)
    monkeypatch.setenv("NODROP_ACCEL", "kvm")
    assert accel.choose(KERNEL) is accel.KVM
    monkeypatch.setenv("NODROP_ACCEL", "xen")
    with pytest.raises(NodropError, match="kvm or tcg"):
        accel.choose(KERNEL)
