# SPDX-License-Identifier: GPL-2.0-only
"""No module imports itself, directly or through others."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_imports_have_no_cycle() -> None:
    """Imports in functions and for types count, too: they hide a cycle, and do not break it."""
    modules: dict[str, ast.Module] = {}
    for path in REPOSITORY.glob("[nlbp]*/**/*.py"):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        if parts[0] in ("nodrop", "lab", "bench", "proof"):
            modules[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_bytes())
    assert len(modules) > 200
    imports: dict[str, set[str | None]] = {name: set() for name in modules}
    for name, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                imports[name].update(one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{one.name}" for one in node.names}
                imports[name] |= {one if one in modules else node.module for one in names}
    # Modules of Python itself form no cycle. The error names the modules of the cycle.
    TopologicalSorter(imports).prepare()
