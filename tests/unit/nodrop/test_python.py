# SPDX-License-Identifier: GPL-2.0-only
"""What the command runs on: Python from 3.9 on, its standard library, and a single file."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from schema import validate

from lab.sources import REPOSITORY
from nodrop.screen import nagios_text

SCRIPTS = ("dkms/prove", "dkms/settle")
SOURCES = [*REPOSITORY.glob("nodrop/**/*.py"), *(REPOSITORY / script for script in SCRIPTS)]
KNOWN = {*sys.stdlib_module_names, "nodrop"} - {"tomllib"}
TOO_NEW = {
    *("contextlib.aclosing", "contextlib.chdir", "datetime.UTC", "enum.StrEnum"),
    *("inspect.get_annotations", "itertools.pairwise", "types.NoneType", "types.UnionType"),
    *("typing.ParamSpec", "typing.Self", "typing.TypeAlias", "typing.TypeGuard"),
}
"""Some of what 3.9 lacks. In scripts/lint, mypy knows all that 3.10 lacks."""
KEYWORDS = {"zip": {"strict"}, "dataclass": {"kw_only", "slots"}}
TYPES = {"None", "bool", "bytes", "dict", "float", "int", "list", "str", "tuple"}
EVERYTHING = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import nodrop
for module in pkgutil.walk_packages(nodrop.__path__, "nodrop."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from nodrop.doctor import fixes
from nodrop.errors import UnsupportedError
from nodrop.host import livepatch
try:
    livepatch.build("6.1.0", None, None, print)
except UnsupportedError:
    print(fixes.command("--version"))
"""
"""Import all modules, refuse to build any, and print a command line as doctor does."""


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Return all nodes below one, without annotations, which are not evaluated."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield child
                yield from evaluated(child)


def too_new(node: ast.AST) -> bool:
    """Return whether Python 3.9 lacks what a node needs; so does a module outside Python's own."""
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] not in KNOWN for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        return f"{node.module}".split(".")[0] not in KNOWN or not TOO_NEW.isdisjoint(names)
    if isinstance(node, ast.Call):
        refused = KEYWORDS.get(ast.unparse(node.func), set())
        return any(keyword.arg in refused for keyword in node.keywords)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = {ast.unparse(side).partition("[")[0] for side in (node.left, node.right)}
        return not TYPES.isdisjoint(sides)
    return False


def test_nothing_too_new() -> None:
    assert len(SOURCES) > 40
    found = {}
    for path in SOURCES:
        tree = ast.parse(path.read_bytes(), str(path), feature_version=(3, 9))
        if wrong := [ast.unparse(node) for node in evaluated(tree) if too_new(node)]:
            found[path.name] = wrong
    assert found == {}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "nodrop.pyz"
    subprocess.run([REPOSITORY / "packaging/lay", "zipapp", path], check=True)
    return path


@pytest.mark.parametrize("python", [sys.executable, "python3.9"])
def test_one_file(python: str, file: Path) -> None:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, capture_output=True, text=True, cwd=file.parent, env=environment, timeout=60
        )

    # pyenv's shims need a version.
    environment = {**os.environ, "PYENV_VERSION": python.removeprefix("python")}
    code = "import sys; print(sys.executable)"
    interpreter = run(python, "-c", code).stdout.strip() if shutil.which(python) else ""
    if not interpreter:
        pytest.skip(f"{python} is not installed")
    version = run(interpreter, "-I", file.name, "--version").stdout
    assert version == f"nodrop {(REPOSITORY / 'kmod/VERSION').read_text()}"
    for words in ("status", "doctor", "report", "top --count 1 --interval 0.1", "export"):
        done = run(interpreter, "-I", file.name, "-j", *words.split())
        assert done.returncode in (0, 3), done.stderr
        validate(words.split()[0], json.loads(done.stdout))
    environment["PATH"] = ""
    named = run(interpreter, "-I", "-c", EVERYTHING, file.name)
    assert named.returncode == 0, named.stderr
    assert run("/bin/sh", "-c", f"cd / && {named.stdout}").stdout == version


def test_old_python() -> None:
    def run(*words: str) -> tuple[int, list[str], list[str]]:
        code = "import sys; sys.version_info = (3, 6, 8); import nodrop.start"
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    status, out, err = run("doctor")
    assert (status, out, len(err)) == (4, [], 1)
    status, out, err = run("doctor", "--nagios")
    assert (status, len(out), err) == (3, 1, [])
    assert out[0].startswith(nagios_text(3, ""))
