# SPDX-License-Identifier: GPL-2.0-only
"""The first moments of the command."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from nodrop import start
from nodrop.signals import INTERRUPTED


def test_interrupt_while_loading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(_name: str) -> ModuleType:
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "interrupt_on_signals", lambda: None)
    monkeypatch.setattr(importlib, "import_module", load)
    assert start.main() == INTERRUPTED
    assert capsys.readouterr().err == "nodrop: interrupted\n"
