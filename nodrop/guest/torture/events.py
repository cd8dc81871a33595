# SPDX-License-Identifier: GPL-2.0-only
"""The events of a device's life, each by one or two system calls.

An event may return what undoes it.
"""

from __future__ import annotations

import errno
import fcntl
import struct
import time
from contextlib import ExitStack
from pathlib import Path

from nodrop.guest import bpf
from nodrop.guest.rtnetlink import UP
from nodrop.guest.torture.chaos import Chaos, Undo
from nodrop.guest.torture.plan import IN_KERNEL, PROGRAMS, Event, Mode
from nodrop.guest.torture.readers import KernelThread, VhostReader
from nodrop.guest.torture.victim import NAME, QUEUES
from nodrop.host import ethtool

TUNSETOFFLOAD, TUNSETSNDBUF, TUNSETTXFILTER = 0x400454D0, 0x400454D4, 0x400454D1
TUNSETSTEERINGEBPF, TUNSETFILTEREBPF = 0x800454E0, 0x800454E1
NO_PROGRAM = -1
SIZES = (0, 1, 2, 3, 5, 16, 17, 31, 32, 33, 63, 64, 65, 100, 500, 1000, 2000)
QDISCS = ("pfifo 5", "pfifo 1000", "fq_codel", "htb", "default")
QUEUES_QDISCS = (*QDISCS[:-1] * 4, "mq")
"""A qdisc for each queue is seldom made: it takes a second."""
LIMITS = (1, 100, 1500, 3000, 10_000, 100_000)
"""Of a txq, bytes."""
NO_LIMIT = 1879048192
"""DQL_MAX_LIMIT."""
OFFLOADS = (0, 1, 3, 5, 7)
"""TUN_F_CSUM and what goes with it."""
SNDBUFS = (1, 2000, 100_000, 2**31 - 1)
PARAMETERS = {
    "nodrop": Path("/sys/module/tun/parameters/nodrop"),
    "guard_ms": Path("/sys/module/nodrop/parameters/guard_ms"),
}
NOBODY = struct.pack("HH6s", 0, 1, b"\x02\0\0\0\0\x77")
EVERYBODY = struct.pack("HH", 0, 0)
"""struct tun_filter: one address that no packet has; none, which lets all pass."""
WRITES = 8


class Events(Chaos):
    """The events, each a method named after its kind."""

    # Nothing, and a look

    def _calm(self, _event: Event) -> None:
        """Nothing is wrong with the device, and all readers read: packets must come."""
        self.undo_all()
        self.balance.moves()

    def _stats(self, _event: Event) -> None:
        self.victim.counters()
        ethtool.private_flags(NAME)

    # Readers

    def _pause(self, event: Event) -> Undo | None:
        queue = self.queue(event)
        reader = queue.reader
        if reader is None:
            return self.idle()
        self.about(reader)
        reader.pause()
        return lambda: reader.resume() if queue.attached else None

    def _gone(self, event: Event) -> None:
        """All of them take nothing for longer than the guard waits."""
        readers = [queue.reader for queue in self.victim.attached() if queue.reader]
        for reader in readers:
            reader.pause()
        time.sleep(self.victim.plan.guard_ms / 1000 * (0.5, 1.5, 3)[event.value % 3])
        for reader in readers:
            reader.resume()

    def _swap(self, event: Event) -> None:
        self._other_reader(event, kill=False)

    def _kill(self, event: Event) -> None:
        self._other_reader(event, kill=True)

    def _other_reader(self, event: Event, *, kill: bool) -> None:
        queue = self.queue(event)
        if not queue.attached or not queue.reader:
            self.idle()
            return
        if kill and isinstance(queue.reader, KernelThread):
            # Nobody can kill it.
            self.idle()
            return
        reader, queue.reader = queue.reader, None
        self.about(reader)
        reader.kill() if kill else reader.stop()
        queue.kind = self.pick(event, self._kinds())
        self.victim.start(queue)

    def _kinds(self) -> list[str]:
        """Return the kinds of readers that the round may have."""
        plan = self.victim.plan
        if plan.flood:
            return list(IN_KERNEL)
        others = set(plan.readers) - set(PROGRAMS)
        return [*PROGRAMS, *sorted(others)]

    def _vhost_pause(self, event: Event) -> Undo | None:
        reader = self.queue(event).reader
        return self._pause(event) if isinstance(reader, VhostReader) else self.idle()

    def _vhost_swap(self, event: Event) -> Undo | None:
        queue = self.queue(event)
        reader = queue.reader
        if not isinstance(reader, VhostReader) or not queue.attached:
            return self.idle()
        self.about(reader)
        reader.swap(away=True)
        return lambda: reader.swap(away=False) if queue.attached else None

    # Queues

    def _detach(self, event: Event) -> Undo | None:
        queue = self.queue(event)
        if not queue.attached or len(self.victim.attached()) < 2:
            return self.idle()
        if queue.reader:
            self.about(queue.reader)
        self.victim.detach(queue)
        return lambda: self.victim.attach(queue)

    def _close(self, event: Event) -> Undo | None:
        """One of several; or the only one, and then all that waits for it is lost."""
        queue = self.queue(event)
        several = self.victim.plan.shape.several
        if queue.device is None or (several and self.victim.attached() in ([], [queue])):
            return self.idle()
        if queue.reader:
            self.about(queue.reader)
        if not several:
            # Without a queue there is nobody to ask for it.
            self.undo_all()
        kill = event.value >> 32 & 1 and self.victim.plan.mode is not Mode.REBIRTH
        self.victim.close(queue, kill=bool(kill))

        def undo() -> None:
            if queue.device is None:
                self.victim.open(queue)
                self.victim.start(queue)

        return undo

    def _steer(self, event: Event) -> Undo:
        program = self.pick(event, self.tools.programs.steer)
        self.ioctl(TUNSETSTEERINGEBPF, struct.pack("i", program))
        return lambda: self.ioctl(TUNSETSTEERINGEBPF, struct.pack("i", NO_PROGRAM))

    # The device

    def _txqueuelen(self, event: Event) -> None:
        self.net.set_txqueuelen(self.victim.index, self.pick(event, SIZES))

    def _down(self, _event: Event) -> Undo:
        self.net.set_flags(self.victim.index, 0, UP)
        return lambda: self.net.set_flags(self.victim.index, UP, UP)

    def _carrier(self, _event: Event) -> Undo:
        self.victim.carrier(False)
        return lambda: self.victim.carrier(True)

    def _namespace(self, _event: Event) -> None:
        self.net.move(self.victim.index, self.tools.away_fd)
        index = self.tools.away.index(NAME)
        self.tools.away.set_flags(index, UP, UP)
        self.tools.away.move(index, self.tools.here_fd)
        self.victim.configure()

    def _rebirth(self, event: Event) -> None:
        self.victim.remake(delete=bool(event.value & 1))
        self.undo_here()

    def _offload(self, event: Event) -> None:
        for queue in self.victim.attached()[:1]:
            fcntl.ioctl(queue.fd, TUNSETOFFLOAD, self.pick(event, OFFLOADS))

    def _sndbuf(self, event: Event) -> None:
        self.ioctl(TUNSETSNDBUF, struct.pack("i", self.pick(event, SNDBUFS)))

    def _limit(self, event: Event) -> Undo | None:
        number = event.value % len(self.victim.queues)
        file = QUEUES / f"tx-{number}" / "byte_queue_limits/limit_max"
        if not file.exists():
            return self.idle()
        file.write_text(str(self.pick(event, LIMITS)))

        def undo() -> None:
            if file.exists():
                file.write_text(str(NO_LIMIT))

        return undo

    def _write(self, _event: Event) -> None:
        if self.program:
            # They come back, if the program is of that kind.
            self.balance.written += WRITES
        self.victim.write(WRITES)

    # What senders pass, or do not pass

    def _qdisc(self, event: Event) -> None:
        several = self.victim.plan.shape.several
        words = self.pick(event, QUEUES_QDISCS if several else QDISCS)
        try:
            self.net.replace_qdisc(self.victim.index, words)
        except OSError as error:
            # For queues that nobody has yet mq makes pfifo_fast, of which there is none of size 0.
            if (words, error.errno) != ("mq", errno.ENOMEM):
                raise

    def _noqueue(self, _event: Event) -> Undo:
        self.net.replace_qdisc(self.victim.index, "noqueue")
        return lambda: self.net.replace_qdisc(self.victim.index, self.victim.plan.qdisc)

    def _filter(self, _event: Event) -> Undo:
        self.ioctl(TUNSETFILTEREBPF, struct.pack("i", self.tools.programs.none))
        return lambda: self.ioctl(TUNSETFILTEREBPF, struct.pack("i", NO_PROGRAM))

    def _txfilter(self, _event: Event) -> Undo | None:
        if not self.victim.plan.shape.tap:
            return self.idle()
        self.ioctl(TUNSETTXFILTER, NOBODY)
        return lambda: self.ioctl(TUNSETTXFILTER, EVERYBODY)

    def _xdp(self, event: Event) -> Undo | None:
        """A program lets what is written pass, or sends it back into the ring."""
        if not self.victim.plan.shape.tap or self.program:
            return self.idle()
        code = bpf.answer(self.pick(event, (bpf.XDP_PASS, bpf.XDP_TX)))
        stack = ExitStack()
        stack.enter_context(bpf.xdp(NAME, code))
        self.program = stack

        def undo() -> None:
            stack.close()
            self.program = None

        return undo

    def _flag(self, _event: Event) -> Undo:
        ethtool.set_private_flag(NAME, "nodrop", False)
        return lambda: ethtool.set_private_flag(NAME, "nodrop", True)

    def _default(self, _event: Event) -> Undo:
        PARAMETERS["nodrop"].write_text("N")

        def undo() -> None:
            PARAMETERS["nodrop"].write_text("Y")

        return undo
