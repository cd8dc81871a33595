# SPDX-License-Identifier: GPL-2.0-only
"""Quote command lines so that they can be pasted into a shell, whatever names they contain."""

from __future__ import annotations

import shlex


def quote(word: str) -> str:
    """Return a word quoted for a shell; unprintable characters become ``$'\\x1b'``."""
    if word.isprintable():
        return shlex.quote(word)
    parts = []
    for one in word.encode(errors="surrogateescape"):
        plain = 0x20 <= one < 0x7F and one not in b"'\\"
        parts.append(chr(one) if plain else f"\\x{one:02x}")
    return f"$'{''.join(parts)}'"


def join(*words: str) -> str:
    """Return words quoted as one command line."""
    return " ".join(map(quote, words))
