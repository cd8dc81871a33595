# SPDX-License-Identifier: GPL-2.0-only
"""Kept qdiscs of TUN and TAP devices: which have one, and the service that gives it to new devices.

libvirt sets noqueue after it has created a device, and after udev has handled that. It may then
set a shaper (<bandwidth>), for which it deletes the root qdisc and adds another. Between these two
a qdisc of ours would make it fail. So the service waits until a device has not changed for a
while, though not for ever, and replaces nothing but noqueue.
"""

from __future__ import annotations

import errno
import os
import re
import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import settings
from nodrop.host.rtnetlink import Events, Link, Requests

FILE = "etc/nodrop-qdisc.conf"
KIND = "fq_codel"
TARGET_MS, INTERVAL_MS = 30, 300
"""Of KIND. With its usual 5 ms, the more TCP flows there are, the smaller are their packets, and
the more packets the reader has to take for the same bytes."""
WORDS = f"{KIND} target {TARGET_MS}ms interval {INTERVAL_MS}ms"
"""KIND and its options for tc."""
_TCA_TARGET, _TCA_INTERVAL = 1, 3
OPTIONS = {KIND: {_TCA_TARGET: TARGET_MS * 1000, _TCA_INTERVAL: INTERVAL_MS * 1000}}
"""Kind -> TCA_FQ_CODEL_TARGET and TCA_FQ_CODEL_INTERVAL, us."""
HANDLE = 0x6E640000
"""Of our qdiscs (6e64:), which shows that they are ours."""
SERVICE = "nodrop-qdisc.service"
CALM_S = 0.3
"""Time without a change after which a device's qdisc is replaced, seconds."""
MOST_CHANGING_S = 3.0
"""Time after which it is replaced although the device still changes, seconds."""
RETRY_S = 5.0
"""Time after which kept settings that could not be read are read again, and not before, seconds."""
_LINE = re.compile(rf"(?P<kind>{KIND}|off) (?P<pattern>\S+)")
_INACTIVE = 3
"""Exit status of 'systemctl is-active'; others are its own failures."""
_UNITS = tuple(f"{folder}/systemd/system" for folder in ("etc", "usr/local/lib", "usr/lib", "lib"))


class QdiscRules:
    """The file with the kept settings. If several match a device, the last one applies.

    Args:
        root: parent of ``etc``, ``run`` and ``usr``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        file = root / FILE
        # Otherwise a regular file would replace the link.
        self.file = Path(os.path.realpath(file)) if file.is_symlink() else file
        self._root = root

    def read(self) -> dict[str, bool]:
        """Return name or pattern -> whether noqueue is replaced, in the file's order.

        Raises:
            NodropError: the file has other lines than nodrop's.
        """
        lines = settings.read_lines(self.file, _LINE)
        return {match["pattern"]: match["kind"] == KIND for match in lines}

    def lines(self, kept: Mapping[str, bool]) -> list[str]:
        return [f"{KIND if on else 'off'} {pattern}" for pattern, on in kept.items()]

    def keep(self, names: Sequence[str], on: bool | None) -> None:
        """Change the file atomically; None forgets the names.

        Raises:
            NodropError: permission is missing, or the file has other lines than nodrop's.
        """
        with settings.locked(self.file, self._root):
            lines = self.lines(settings.changed(self.read(), names, on))
            settings.write_lines(self.file, lines)

    def service(self) -> bool | None:
        """Return whether the service is enabled; None: systemd cannot start it here."""
        known = any((self._root / folder / SERVICE).exists() for folder in _UNITS)
        if not (known and (self._root / "run/systemd/system").is_dir()):
            return None
        wants = self._root / "etc/systemd/system/multi-user.target.wants"
        return (wants / SERVICE).is_symlink()

    def active(self) -> bool | None:
        """Return whether the service runs; it may be enabled, and stopped. None: not known."""
        with suppress(NodropError):
            status = proc.ask("systemctl", "is-active", "--quiet", SERVICE).returncode
            return {0: True, _INACTIVE: False}.get(status)
        return None

    def obstacle(self) -> str:
        """Return why new devices get no kept qdisc: "netns", "disabled" or "dead"; "": unknown."""
        if settings.elsewhere():
            return "netns"
        if not (enabled := self.service()):
            return "" if enabled is None else "disabled"
        return "dead" if self.active() is False else ""


def kind_for(link: Link) -> str:
    """Return the qdisc for a link: with a single one, all its queues would share a lock."""
    return "mq" if link.tx_queues > 1 else KIND


def require_here() -> None:
    """Raise UnsupportedError in a network namespace whose devices do not get kept qdiscs."""
    if settings.elsewhere():
        raise UnsupportedError(
            "Qdiscs are kept in the machine's own network namespace only.",
            "Use 'nodrop set --now DEV qdisc fq_codel'.",
        )


def keep(log: Callable[[str], None], root: Path = Path("/")) -> None:
    """Give devices of this network namespace their kept qdiscs, for ever.

    Args:
        log: called with a line for each change and each new failure.
        root: parent of ``etc``.

    Raises:
        NodropError: the kept settings cannot be read at the start. Later, devices wait for them.
    """
    QdiscRules(root).read()
    due: dict[int, float] = {}
    latest: dict[int, float] = {}
    failure, retry = "", 0.0

    def postpone(indexes: Iterable[int]) -> None:
        now = time.monotonic()
        for index in indexes:
            calm = min(now + CALM_S, latest.setdefault(index, now + MOST_CHANGING_S))
            due[index] = max(calm, retry)

    with Events() as events, Requests() as requests:
        postpone(_all(requests))
        while True:
            wait = max(min(due.values()) - time.monotonic(), 0) if due else None
            if select.select([events], [], [], wait)[0]:
                changed = events.read()
                if changed is None:
                    log("events were lost: all devices are checked")
                    changed = _all(requests)
                postpone(changed)
            calm = [index for index, at in due.items() if at <= time.monotonic()]
            if not calm:
                continue
            for index in calm:
                del due[index]
                latest.pop(index, None)
            try:
                kept = QdiscRules(root).read()
            except NodropError as error:
                if str(error) != failure:
                    log(str(error))
                failure, retry = str(error), time.monotonic() + RETRY_S
                due.update(dict.fromkeys([*calm, *due], retry))
            else:
                failure = ""
                _give(requests, calm, kept, log)


def _all(requests: Requests) -> set[int]:
    return {link.ifindex for link in requests.links() if link.kind == "tun"}


def _give(
    requests: Requests,
    indexes: Sequence[int],
    kept: Mapping[str, bool],
    log: Callable[[str], None],
) -> None:
    for index in indexes:
        link = None
        try:
            link = requests.link(index)
            if link.kind != "tun" or link.qdisc != "noqueue":
                continue
            if settings.applied(kept, link.name):
                kind = kind_for(link)
                requests.replace_root(index, kind, HANDLE, OPTIONS.get(kind))
                log(f"{link.name}: {kind} in place of noqueue")
        except OSError as error:
            if error.errno != errno.ENODEV:
                lacks = error.errno == errno.ENOENT
                why = f"this kernel lacks sch_{KIND}" if lacks else error.strerror
                log(f"{link.name if link else index}: not changed: {why}")
