# SPDX-License-Identifier: GPL-2.0-only
"""Finds where a module that was built to be covered tells that it is executed.

User-Mode Linux is built with -mcmodel=large: a function has the address that it calls in a
register or on its stack, and calls it from there at each branch. So its code is followed line by
line to see where that address is. Where code jumps about, a place may be missed; who finds one
that was passed adds it.
"""

from __future__ import annotations

import re

CALLED = "__sanitizer_cov_trace_pc"
_SECTION = re.compile(r"^Disassembly of section (\S+):$")
_FUNCTION = re.compile(r"^[0-9a-f]+ <(\S+)>:$")
_RELOCATION = re.compile(rf"^\s+[0-9a-f]+: R_X86_64_\w+\s+{CALLED}(?:[-+]0x[0-9a-f]+)?$")
_INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\s+(\S+)(?:\s+(.*?))?\s*$")
_REGISTER = re.compile(r"%[er]?(ax|bx|cx|dx|si|di|bp|sp)|%(?:(a|b|c|d)[hl])|%(r\d+)[dwb]?")
_MADE = ("_sub_I_", "_sub_D_")
"""How functions begin that KASAN adds."""
_LOST_AT_CALLS = ("ax", "cx", "dx", "si", "di", "r8", "r9", "r10", "r11")
_WRITE_NOTHING = ("cmp", "test", "push", "bt", "j", "nop", "ret", "pop", "ud2", "call")
"""How the names of instructions begin that leave all as it is; pop: the end of a function, behind
which another part of it follows."""


def _location(operand: str) -> str:
    """Return a name for a register of any width; other operands name themselves."""
    match = _REGISTER.fullmatch(operand)
    if not match:
        return operand
    return match[1] or (f"{match[2]}x" if match[2] else match[3])


def _operands(text: str) -> list[str]:
    return [_location(word) for word in re.split(r",(?![^(]*\))", text.split(" <")[0]) if word]


class _Follower:
    """Follows the code of a section.

    Attributes:
        holds: the registers and stack slots with the address of CALLED.
        places: offset -> function, of what was found.
    """

    def __init__(self) -> None:
        self.holds: set[str] = set()
        self.places: dict[int, str] = {}
        self.function = ""
        self._last: tuple[str, list[str]] = ("", [])
        self._called = False

    def instruction(self, offset: int, name: str, text: str) -> None:
        """Account for the next instruction."""
        if self._called:
            self.places[offset] = self.function
        self._called = False
        operands = _operands(text)
        self._last = (name, operands)
        if name.startswith("call"):
            self._called = (
                bool(operands)
                and operands[0].startswith("*")
                and (_location(operands[0][1:]) in self.holds)
            )
            self.holds.difference_update(_LOST_AT_CALLS)
        elif name.startswith("mov") and len(operands) == 2 and operands[0] in self.holds:
            self.holds.add(operands[1])
        elif operands and not name.startswith(_WRITE_NOTHING):
            self.holds.discard(operands[-1])

    def relocation(self) -> None:
        """The last instruction has the address of CALLED in it."""
        name, operands = self._last
        if name.startswith("call"):
            self._called = True
        elif name.startswith("mov") and len(operands) == 2:
            self.holds.add(operands[1])

    def begins(self, function: str) -> None:
        """Another function follows."""
        self.function = function
        self.holds.clear()


def find_places(listing: str) -> dict[str, dict[int, str]]:
    """Return section -> offset behind each call of CALLED -> function.

    Args:
        listing: what ``objdump --disassemble --reloc --no-show-raw-insn`` prints of a module.
    """
    found: dict[str, dict[int, str]] = {}
    follower = _Follower()
    for line in listing.splitlines():
        if match := _INSTRUCTION.match(line):
            if _RELOCATION.match(line):
                follower.relocation()
            elif not match[2].startswith("R_X86_64"):
                follower.instruction(int(match[1], 16), match[2], match[3] or "")
        elif match := _FUNCTION.match(line):
            follower.begins(match[1])
        elif match := _SECTION.match(line):
            follower = _Follower()
            found[match[1]] = follower.places
    return {
        section: kept
        for section, places in found.items()
        if (kept := {at: name for at, name in places.items() if not name.startswith(_MADE)})
    }
