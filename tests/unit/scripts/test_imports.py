# SPDX-License-Identifier: GPL-2.0-only
"""What may import what (docs/design.md, Source layout), and no cycles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

LAYERS = {
    "nodrop": set(),
    "lab": {"nodrop"},
    "guestlib": {"lab", "nodrop"},
    "bench": {"bench.guest", "lab", "nodrop"},
    "bench.guest": {"bench", "guestlib", "lab", "nodrop"},
    "proof": {"guestlib", "lab", "nodrop"},
    "tunnels": {"guestlib", "lab", "nodrop"},
}
"""Packages, and others that they may import. A subpackage named here is one of its own."""


def package(module: str) -> str:
    """Return the key of LAYERS that a module belongs to, '' if there is none."""
    return max(
        (name for name in LAYERS if f"{module}.".startswith(f"{name}.")), default="", key=len
    )


def imports() -> dict[str, set[str]]:
    """Return the modules of LAYERS that each of them imports.

    Imports in functions and for types count, too: they hide a cycle, and do not break it.
    """
    modules: dict[str, ast.Module] = {}
    for name in {name.partition(".")[0] for name in LAYERS}:
        for path in (REPOSITORY / name).rglob("*.py"):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            modules[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_bytes())
    assert len(modules) > 100
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                found[name].update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {one if one in modules else f"{node.module}" for one in names}
    return found


def test_imports_have_no_cycle() -> None:
    # Modules of Python itself form no cycle. The error names the modules of the cycle.
    TopologicalSorter(imports()).prepare()


def test_packages_import_only_lower_ones() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if package(other) not in {"", package(name), *LAYERS[package(name)]}
    ]
    assert not wrong
