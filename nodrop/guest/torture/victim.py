# SPDX-License-Identifier: GPL-2.0-only
"""The device that is punished, its queues, and who reads them."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.rtnetlink import NOARP, UP, Rtnetlink
from nodrop.guest.slow import patience
from nodrop.guest.torture.crew import Crew
from nodrop.guest.torture.plan import Round, Shape
from nodrop.guest.torture.readers import KernelThread, ProgramReader, Reader, VhostReader
from nodrop.guest.torture.senders import HERE, THERE
from nodrop.guest.tundev import IFF_MULTI_QUEUE, IFF_TAP, IFF_TUN, TunDevice
from nodrop.host import ethtool

NAME = "ndtorture0"
IFF_ATTACH_QUEUE, IFF_DETACH_QUEUE = 0x0200, 0x0400
TUNSETPERSIST, TUNSETQUEUE, TUNSETCARRIER = 0x400454CB, 0x400454D9, 0x400454E2
VHOST_SLOTS = 64
QUEUES = Path("/sys/class/net", NAME, "queues")
GONE_S = patience(10.0)


class Queue:
    """An open tun file, and who reads it.

    Attributes:
        kind: of its next reader.
        attached: it belongs to the device.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.device: TunDevice | None = None
        self.reader: Reader | None = None
        self.attached = False

    @property
    def fd(self) -> int:
        """The tun file.

        Raises:
            GuestError: it is closed.
        """
        if self.device is None:
            raise GuestError("a queue is closed and was asked for its file")
        return self.device.fd


class Victim:
    """The device of a round; a context manager.

    Args:
        plan: what it is.
        uring: whether there is io_uring here; "poll" takes its place where there is none.

    Attributes:
        readers: all there were, those that have ended too.
        index: the device's.
        remade: how often the device went and came again.
        closed: how often a queue was closed.
        unclaimed: the driver's drop_unclaimed, of queues that were closed.
    """

    def __init__(
        self,
        plan: Round,
        crew: Crew,
        net: Rtnetlink,
        environment: Environment,
        *,
        uring: bool,
    ) -> None:
        self.plan = plan
        self.net = net
        self.index = 0
        self.remade = self.closed = self.unclaimed = 0
        self.queues = [Queue(kind) for kind in plan.readers]
        self.readers: list[Reader] = []
        self._crew = crew
        self._environment = environment
        self._uring = uring
        self._counters = ethtool.Counters()
        flags = IFF_TAP if plan.shape.tap else IFF_TUN
        self._flags = flags | (IFF_MULTI_QUEUE if plan.shape.several else 0)

    def __enter__(self) -> Self:
        try:
            self.make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for queue in self.queues:
            if queue.reader:
                with suppress(GuestError, OSError):
                    queue.reader.kill()
        self._close_all()

    def make(self) -> None:
        """Make the device and start its readers."""
        for queue in self.queues:
            self.open(queue)
        self.configure()
        for queue in self.queues:
            self.start(queue)

    def configure(self) -> None:
        """Give the device its qdisc, its ring and its address, and bring it up."""
        self.index = self.net.index(NAME)
        self.net.replace_qdisc(self.index, self.plan.qdisc)
        self.net.set_txqueuelen(self.index, self.plan.ring)
        flags = NOARP if self.plan.shape.tap else 0
        self.net.set_flags(self.index, flags, flags)
        # So that TCP's packets are what their senders and the qdisc count.
        self.net.set_gso_max_segs(self.index, 1)
        with suppress(FileExistsError):
            self.net.add_address(self.index, HERE, THERE)
        self.net.set_flags(self.index, UP, UP)

    def open(self, queue: Queue) -> None:
        """Open a queue; the first one makes the device, which then stays.

        io_uring lets go of a killed reader's file in the background, and until then a device of
        one queue has it.
        """
        deadline = time.monotonic() + GONE_S
        while queue.device is None:
            try:
                queue.device = TunDevice(NAME, self._flags).__enter__()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        queue.attached = True
        fcntl.ioctl(queue.fd, TUNSETPERSIST, 1)

    def close(self, queue: Queue, *, kill: bool) -> None:
        """Close a queue.

        Args:
            kill: its reader has it open to the last, and is killed.
        """
        self._look()
        self.closed += 1
        device, queue.device, queue.attached = queue.device, None, False
        reader, queue.reader = queue.reader, None
        if reader and not kill:
            reader.stop()
        if device:
            device.close()
        if reader and kill:
            reader.kill()

    def start(self, queue: Queue) -> None:
        """Start a reader of a queue's kind; it must have none."""
        kind = queue.kind
        if kind == "uring" and not self._uring:
            kind = "poll"
        if kind == "kernel":
            queue.reader = KernelThread(queue.fd, tap=self.plan.shape.tap)
        elif kind == "vhost":
            queue.reader = VhostReader(self._environment, queue.fd, VHOST_SLOTS)
        else:
            queue.reader = ProgramReader(
                self._crew,
                kind,
                queue.fd,
                tap=self.plan.shape.tap,
                ordered=not self.plan.shape.several,
                reflect="tcp" in self.plan.senders,
            )
        self.readers.append(queue.reader)

    def attach(self, queue: Queue) -> None:
        """Give a queue that was detached back to the device."""
        if queue.device and not queue.attached:
            self._set_queue(queue, IFF_ATTACH_QUEUE)
            queue.attached = True
            if isinstance(queue.reader, VhostReader):
                queue.reader.swap(away=False)
            elif queue.reader:
                queue.reader.resume()

    def detach(self, queue: Queue) -> None:
        """Take a queue from the device; its file stays open."""
        if queue.attached:
            if isinstance(queue.reader, KernelThread):
                queue.reader.pause()
            self._set_queue(queue, IFF_DETACH_QUEUE)
            queue.attached = False

    @staticmethod
    def _set_queue(queue: Queue, what: int) -> None:
        fcntl.ioctl(queue.fd, TUNSETQUEUE, struct.pack("16xH22x", what))

    def attached(self) -> list[Queue]:
        """Return the queues that belong to the device."""
        return [queue for queue in self.queues if queue.attached]

    def carrier(self, on: bool) -> None:
        """Set the carrier; without a queue there is nobody to set it."""
        for queue in self.attached()[:1]:
            fcntl.ioctl(queue.fd, TUNSETCARRIER, struct.pack("i", on))

    def restore(self) -> None:
        """Bring everything back to where it was at the round's start, but for its settings."""
        for queue in self.queues:
            if queue.device is None:
                self.open(queue)
            self.attach(queue)
            if queue.reader is None:
                self.start(queue)
            else:
                queue.reader.resume()
        self.carrier(True)
        self.net.set_flags(self.index, UP, UP)

    def remake(self, *, delete: bool) -> None:
        """Let the device go under load, and make it anew.

        Args:
            delete: the administrator deletes it, while its readers read. Somebody must where
                nobody has it open: it is persistent.
        """
        self._look()
        if delete or not any(queue.device for queue in self.queues):
            self.net.delete(self.index)
        for queue in self.queues:
            if queue.reader:
                queue.reader.stop()
                queue.reader = None
        self._close_all()
        deadline = time.monotonic() + GONE_S
        while self.exists():
            if time.monotonic() > deadline:
                raise GuestError(f"{NAME} does not go")
            time.sleep(0.001)
        self.remade += 1
        self.make()

    def exists(self) -> bool:
        """Whether the device is there, in this namespace."""
        try:
            self.net.index(NAME)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return False
        return True

    def _close_all(self) -> None:
        for queue in self.queues:
            if queue.device:
                # A queue that is detached has no device to say it to; nor has one without.
                with suppress(OSError):
                    fcntl.ioctl(queue.fd, TUNSETPERSIST, 0)
        for queue in self.queues:
            if queue.device:
                queue.device.close()
            queue.device, queue.attached = None, False

    def delivered(self) -> int:
        """Return how many packets the device says were read from it since it was made."""
        return self.net.stats(self.index).tx_packets

    def counters(self) -> dict[str, int]:
        """Return the driver's counters, of the queues that are attached now."""
        return self._counters.read(NAME)

    def _look(self) -> None:
        """Remember what must not be, before a queue goes with its counters."""
        for name, value in self.counters().items():
            if name.endswith("_drop_unclaimed"):
                self.unclaimed += value

    def ring(self) -> int:
        """Return how many packets are in the rings."""
        return sum(value for name, value in self.counters().items() if name.endswith("_ring"))

    def inflight(self) -> int:
        """Return how many bytes are charged to the byte limits and not completed."""
        files = QUEUES.glob("tx-*/byte_queue_limits/inflight")
        return sum(int(file.read_text()) for file in files)

    def write(self, packets: int) -> None:
        """Write packets into the device that nobody takes, as an application does."""
        if self.plan.shape is Shape.TAP or self.plan.shape is Shape.TAP_QUEUES:
            packet = bytes.fromhex("020000000002 020000000003 88b5") + bytes(64)
        else:
            packet = b"\x60" + bytes(60)
        for queue in self.attached()[:1]:
            for _ in range(packets):
                with suppress(OSError):
                    # Only a write that may not wait goes through the driver's own XDP.
                    os.pwritev(queue.fd, [packet], -1, os.RWF_NOWAIT)
