# SPDX-License-Identifier: GPL-2.0-only
"""Imports a Python program without a suffix, such as those of ``scripts``."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def load(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path = SCRIPTS) -> ModuleType:
    """Return a program as a module, for the duration of a test."""
    loader = SourceFileLoader(f"script_{name.replace('-', '_')}", str(folder / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module
