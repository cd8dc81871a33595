# SPDX-License-Identifier: GPL-2.0-only
"""Reads the machine again and again, and seldom what takes long: owners, namespaces, modules."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from nodrop.errors import NodropError
from nodrop.host import namespaces, netns
from nodrop.host.again import Again
from nodrop.host.raw import Raw, RawMachine, RawNamespace
from nodrop.host.read import machine
from nodrop.host.stay import Inside

SELDOM = 10
"""Every so many looks, all is read anew: who has devices open, drivers, flags, namespaces."""


class Watch:
    """A machine that is looked at again and again; a context manager.

    Args:
        where: a network namespace: name, pid, or file; None: the one that this runs in.
        everywhere: all that there are.
    """

    def __init__(self, where: str | None = None, *, everywhere: bool = False) -> None:
        self._where = where
        self._everywhere = everywhere
        self._looks = 0
        self._own: Again | None = None
        self._others: dict[int, Inside] = {}
        self._empty: dict[int, RawNamespace] = {}
        self._unread: dict[str, str] = {}
        self._machine: RawMachine | None = None
        self._known: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for inode in list(self._others):
            self._drop(inode)

    def look(self) -> Raw:
        """Read the machine.

        Raises:
            NodropError: the one namespace is not there (any more), may not be entered, or
                iproute2 is missing.
        """
        whole = self._looks % SELDOM == 0
        self._looks += 1
        if whole:
            self._find()
        for inode in [inode for inode, space in self._others.items() if space.gone]:
            self._drop(inode)
        if self._where is not None and not (self._others or self._own):
            # Says that it is gone, unless it came back: then it is another one.
            self._find()
        spaces = self._read(whole)
        found = {(space.inode, link["ifindex"]) for space in spaces for link in space.links}
        # Somebody has opened a new device.
        if whole or self._machine is None or found - self._known:
            self._machine = machine(spaces)
        self._known = found
        return Raw(self._machine, spaces, dict(self._unread))

    def _find(self) -> None:
        """Start to watch namespaces that were not there before."""
        own = _inode()
        if self._where is not None and not (self._others or self._own):
            inode = int(netns.run_inside(self._where, _inode))
            if inode != own:
                self._others[inode] = Inside(self._where, self._where)
        if self._others and not self._everywhere:
            return
        self._own = self._own or Again(self._where or "")
        if not self._everywhere:
            return
        self._unread.clear()
        ours = {space.pid for space in self._others.values()}
        found = {space.inode: space for space in namespaces.find(without=ours)}
        for inode in set(self._others) - set(found):
            self._drop(inode)
        for inode in set(found) - set(self._others) - {own}:
            self._others[inode] = Inside(found[inode].path, found[inode].name)

    def _read(self, whole: bool) -> list[RawNamespace]:
        asked = [inode for inode in self._others if whole or inode not in self._empty]
        for inode in asked:
            self._others[inode].ask(whole=whole)
        spaces = [self._own.read(whole=whole)] if self._own else []
        for inode in asked:
            try:
                space = self._others[inode].answer()
            except NodropError as error:
                if not self._everywhere:
                    raise
                self._unread[self._others[inode].name] = error.message
                self._drop(inode)
                continue
            spaces.append(space)
            self._empty.pop(inode, None)
            if not space.links:
                self._empty[inode] = space
        # Empty ones are not asked again before the next time that all is read.
        return spaces

    def _drop(self, inode: int) -> None:
        self._empty.pop(inode, None)
        self._others.pop(inode).close()


def _inode() -> int:
    return netns.own()
