# SPDX-License-Identifier: GPL-2.0-only
"""The sources of this clone: where they are, digests of them, and git.

Imports only nodrop and Python's standard library: scripts/checks.py runs without a virtual
environment.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

REPOSITORY = Path(__file__).resolve().parents[1]
GIT_TIMEOUT_S = 60.0

_PRODUCTS = {".o", ".ko", ".cmd", ".pyc", ".order", ".symvers"}
_QUOTED_OR_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL
)
_SHELL = re.compile(rb"#.*\b(ba)?sh\b")
"""The first line of a shell script, or of a part of one, which has a note for shellcheck."""
_SHELL_COMMENT = re.compile(rb"^[ \t]*#( .*)?\n", re.MULTILINE)


def digest(files: Iterable[tuple[str, bytes]]) -> str:
    """Return a digest of files' names and contents, in their order."""
    total = hashlib.sha256()
    for name, content in files:
        total.update(f"{name}\0".encode())
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def content_hash(*trees: Path) -> str:
    """Return a digest of names, modes and contents: of files, and all sources in directories."""
    return digest(
        (f"{tree.name}/{path.relative_to(tree)}\0{path.stat().st_mode & 0o111}", path.read_bytes())
        for tree in trees
        for path in ([tree] if tree.is_file() else sorted(tree.rglob("*")))
        if not any(part.startswith(".") for part in path.relative_to(tree).parts)
        and path.suffix not in _PRODUCTS
        and path.is_file()
    )


def without_comments(text: str) -> str:
    """Return C code without comments, blank lines and trailing spaces."""
    code = _QUOTED_OR_COMMENT.sub(lambda match: match[1] or " ", text)
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def code(path: Path) -> bytes:
    """Return a file's content, of C, Python, TOML and shell without comments."""
    content = path.read_bytes()
    if path.suffix in (".c", ".h"):
        return without_comments(content.decode()).encode()
    interpreter = content.partition(b"\n")[0]
    if path.suffix == ".py" or (interpreter.startswith(b"#!") and b"python" in interpreter):
        return ast.unparse(ast.parse(content)).encode()
    if path.suffix == ".toml":
        return repr(tomllib.loads(content.decode())).encode()
    return _SHELL_COMMENT.sub(b"", content) if _SHELL.match(content) else content


def git(*arguments: str) -> str:
    """Run git in this clone; return its output, or "" if it fails or is not installed."""
    try:
        done = proc.run(["git", "-C", str(REPOSITORY), *arguments], timeout=GIT_TIMEOUT_S)
    except NodropError:
        return ""
    return "" if done.status else done.output
