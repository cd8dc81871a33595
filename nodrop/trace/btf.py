# SPDX-License-Identifier: GPL-2.0-only
"""Where members of the running kernel's structs are, from its type information (BTF)."""

from __future__ import annotations

import struct
from pathlib import Path

VMLINUX = Path("sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_HEADER = struct.Struct("=HBBIIIII")
_TYPE = struct.Struct("=III")
_MEMBER = struct.Struct("=III")
_STRUCT, _UNION = 4, 5
_ALIASES = {8, 9, 10, 11, 18}
"""typedef, volatile, const, restrict, type tag: the type is another one's."""
_EXTRA = {1: 4, 3: 12, 14: 4, 17: 4}
"""Kind -> bytes behind a type: int, array, variable, declaration tag."""
_EACH = {_STRUCT: 12, _UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}
"""Kind -> bytes for each member, enumerator, parameter, variable."""
_LAST_KIND = 19


class BtfError(Exception):
    """The type information is not there, or cannot be understood."""


class Btf:
    """The types of a kernel.

    Args:
        data: a whole /sys/kernel/btf/vmlinux.

    Raises:
        BtfError: it is something else.
    """

    def __init__(self, data: bytes) -> None:
        try:
            magic, _, _, header, types, types_len, strings, strings_len = _HEADER.unpack_from(data)
            if magic != _MAGIC:
                raise BtfError("no BTF of this machine's byte order")
            self._data = data[header + types : header + types + types_len]
            self._strings = data[header + strings : header + strings + strings_len]
            self._at, self._structs = self._scan()
        except struct.error as error:
            raise BtfError("cut off") from error

    def offset(self, name: str, path: str) -> int:
        """Return how many bytes from a struct's begin a member is.

        Args:
            name: of the struct.
            path: the member, with members of members after dots: ``nd_net.net``.

        Raises:
            BtfError: there is no such member, or it is a bit field.
        """
        here = self._structs.get(name)
        if here is None:
            raise BtfError(f"no struct {name}")
        bits = 0
        for word in path.split("."):
            found = self._member(here, word.encode())
            if found is None:
                raise BtfError(f"struct {name} has no {path}")
            bits += found[0]
            here = found[1]
        return bits // 8

    def _scan(self) -> tuple[list[int], dict[str, int]]:
        """Return where each type is, and the number of each struct."""
        at = [0]
        structs: dict[str, int] = {}
        place = 0
        data, end = self._data, len(self._data)
        while place < end:
            name, info, _ = _TYPE.unpack_from(data, place)
            kind = info >> 24 & 0x7F
            if not 1 <= kind <= _LAST_KIND:
                raise BtfError(f"types of kind {kind}")
            if kind == _STRUCT and name:
                structs.setdefault(self._text(name).decode(errors="replace"), len(at))
            at.append(place)
            place += _TYPE.size + _EXTRA.get(kind, 0) + _EACH.get(kind, 0) * (info & 0xFFFFFF)
        return at, structs

    def _text(self, offset: int) -> bytes:
        return self._strings[offset : self._strings.find(b"\0", offset)]

    def _member(self, number: int, word: bytes) -> tuple[int, int] | None:
        """Return the bits from a struct's begin to a member, and its type."""
        if number >= len(self._at):
            raise BtfError(f"no type {number}")
        name, info, other = _TYPE.unpack_from(self._data, self._at[number])
        kind = info >> 24 & 0x7F
        if kind in _ALIASES:
            return self._member(other, word)
        if kind not in (_STRUCT, _UNION):
            return None
        first = self._at[number] + _TYPE.size
        for place in range(first, first + (info & 0xFFFFFF) * _MEMBER.size, _MEMBER.size):
            name, member, bits = _MEMBER.unpack_from(self._data, place)
            width = 0
            if info >> 31:
                bits, width = bits & 0xFFFFFF, bits >> 24
            if name and self._text(name) == word:
                if width or bits % 8:
                    raise BtfError(f"{word.decode()} is a bit field")
                return bits, member
            if not name and (inner := self._member(member, word)):
                return bits + inner[0], inner[1]
        return None


def load(root: Path = Path("/")) -> Btf:
    """Return the running kernel's types.

    Raises:
        BtfError: it has none, or none that can be read.
    """
    try:
        return Btf((root / VMLINUX).read_bytes())
    except OSError as error:
        raise BtfError(error.strerror or "cannot be read") from error
