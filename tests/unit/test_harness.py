# SPDX-License-Identifier: GPL-2.0-only
"""What the tests in a guest rely on: a sender that failed has not finished."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SELFTESTS = Path(__file__).resolve().parents[1] / "selftests"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, which wants to know where the guest's modules are."""
    monkeypatch.setenv("NODROP_MODULES", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("harness", SELFTESTS / "harness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sends(harness: ModuleType, monkeypatch: pytest.MonkeyPatch, most: int) -> Any:
    """Return a sender of five packets whose network goes after so many."""
    sent: list[int] = []

    class Socket(harness.socket.socket):  # type: ignore[misc, name-defined]
        def sendto(self, *_: object) -> int:
            if len(sent) == most:
                raise OSError(101, "Network is unreachable")
            sent.append(1)
            return 64

    monkeypatch.setattr(harness.socket, "socket", Socket)
    return harness.Sender(5)


def test_a_sender_that_has_sent_all_has_finished(
    harness: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = sends(harness, monkeypatch, 5)
    assert sender.finished(5)
    assert sender.sent == 5


def test_a_sender_that_failed_has_not_finished(
    harness: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = sends(harness, monkeypatch, 3)
    assert not sender.finished(5)
    assert not sender.stop()
    assert "# the sender to port 9 ended after 3 packets: OSError(101" in capsys.readouterr().out
