# SPDX-License-Identifier: GPL-2.0-only
"""What of our modules was executed: places of how many, and functions by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.guest.fuzz.cover import MODULES, Places
from nodrop.lab.places import find_places

_OBJDUMP = ("objdump", "--disassemble", "--reloc", "--no-show-raw-insn")
_TIMEOUT_S = 120.0


@dataclass
class Module:
    """The code of a module that tells when it is executed.

    Attributes:
        places: section -> offset -> the function that it is in.
    """

    name: str
    places: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def functions(self) -> set[str]:
        """The functions that have such places."""
        return {name for section in self.places.values() for name in section.values()}


@dataclass(frozen=True)
class Reached:
    """How much of a module was executed.

    Attributes:
        places: that were passed, of how many; one that was passed and not found before counts.
        functions: that were entered, of how many.
        missed: the functions that were not, by name.
    """

    places: tuple[int, int]
    functions: tuple[int, int]
    missed: tuple[str, ...]


def read_modules(folder: Path) -> list[Module]:
    """Read the modules that were built to tell what they execute.

    Args:
        folder: NODROP_MODULES of covered artifacts.

    Raises:
        NodropError: one of them tells nothing.
    """
    modules = []
    for name in MODULES:
        path = folder / "nodrop" / f"{name}.ko"
        listing = proc.run([*_OBJDUMP, path], timeout=_TIMEOUT_S).output
        modules.append(Module(name, find_places(listing)))
        if not modules[-1].places:
            raise NodropError(f"{path} was not built to tell what it executes.")
    return modules


def merge(parts: Iterable[Places]) -> dict[str, dict[str, set[int]]]:
    """Return what was executed in any of several guests."""
    total: dict[str, dict[str, set[int]]] = {}
    for part in parts:
        for module, sections in part.items():
            for section, offsets in sections.items():
                total.setdefault(module, {}).setdefault(section, set()).update(offsets)
    return total


def reached(module: Module, passed: Mapping[str, set[int]]) -> Reached:
    """Return how much of a module was executed."""
    names: set[str] = set()
    places = count = 0
    for section in module.places.keys() | passed.keys():
        known, hit = module.places.get(section, {}), passed.get(section, set())
        places += len(hit)
        count += len(hit | known.keys())
        names |= {known[offset] for offset in hit & known.keys()}
    functions = module.functions
    return Reached(
        places=(places, count),
        functions=(len(names), len(functions)),
        missed=tuple(sorted(functions - names)),
    )
