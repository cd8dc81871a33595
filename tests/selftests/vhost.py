# SPDX-License-Identifier: GPL-2.0-only
"""A vhost-net client without a virtual machine: it receives and throws away.

The layouts are those of linux/vhost.h and linux/virtio_ring.h.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import threading

SET_FEATURES = 0x4008AF00
SET_OWNER = 0xAF01
SET_MEM_TABLE = 0x4008AF03
SET_VRING_NUM = 0x4008AF10
SET_VRING_ADDR = 0x4028AF11
SET_VRING_BASE = 0x4008AF12
SET_VRING_KICK = 0x4008AF20
SET_VRING_CALL = 0x4008AF21
NET_SET_BACKEND = 0x4008AF30

F_VIRTIO_NET_HDR = 1 << 27
DESC_F_WRITE = 2
RX, TX = 0, 1
SLOTS = 256
BUFFER = 2048
RING_BYTES = 16384
"""One ring: descriptors, then the available ring, then the used ring."""
AVAIL, USED = SLOTS * 16, 8192


class VhostClient:
    """Keeps the receive ring of vhost-net filled; a context manager.

    Args:
        tap_fd: an attached TAP whose packets are to be taken.
    """

    def __init__(self, tap_fd: int) -> None:
        self.packets = 0
        self._tap_fd = tap_fd
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> VhostClient:
        self._memory = mmap.mmap(-1, 2 * RING_BYTES + SLOTS * BUFFER)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._fd = os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(self._fd, SET_OWNER)
        fcntl.ioctl(self._fd, SET_FEATURES, struct.pack("Q", F_VIRTIO_NET_HDR))
        table = struct.pack("IIQQQQ", 1, 0, base, len(self._memory), base, 0)
        fcntl.ioctl(self._fd, SET_MEM_TABLE, table)
        self._events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]
        self._offer(base)
        for ring in (RX, TX):
            start = base + ring * RING_BYTES
            self._set(SET_VRING_NUM, ring, SLOTS)
            self._set(SET_VRING_BASE, ring, 0)
            where = struct.pack("IIQQQQ", ring, 0, start, start + USED, start + AVAIL, 0)
            fcntl.ioctl(self._fd, SET_VRING_ADDR, where)
            self._set(SET_VRING_KICK, ring, self._events[ring])
            self._set(SET_VRING_CALL, ring, self._events[2 + ring])
        for ring in (RX, TX):
            self._set(NET_SET_BACKEND, ring, self._tap_fd)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        for ring in (RX, TX):
            self._set(NET_SET_BACKEND, ring, -1)
        for fd in (self._fd, *self._events):
            os.close(fd)

    def _set(self, request: int, ring: int, value: int) -> None:
        fcntl.ioctl(self._fd, request, struct.pack("Ii", ring, value))

    def _offer(self, base: int) -> None:
        """Give all buffers to the receive ring."""
        for slot in range(SLOTS):
            buffer = base + 2 * RING_BYTES + slot * BUFFER
            struct.pack_into("QIHH", self._memory, slot * 16, buffer, BUFFER, DESC_F_WRITE, 0)
            struct.pack_into("H", self._memory, AVAIL + 4 + slot * 2, slot)
        struct.pack_into("HH", self._memory, AVAIL, 0, SLOTS)

    def _run(self) -> None:
        seen = 0
        while not self._stop.wait(0.001):
            used = struct.unpack_from("H", self._memory, USED + 2)[0]
            while seen != used:
                slot = struct.unpack_from("I", self._memory, USED + 4 + seen % SLOTS * 8)[0]
                avail = (seen + SLOTS) % SLOTS
                struct.pack_into("H", self._memory, AVAIL + 4 + avail * 2, slot)
                seen = (seen + 1) & 0xFFFF
                self.packets += 1
            struct.pack_into("H", self._memory, AVAIL + 2, (seen + SLOTS) & 0xFFFF)
            os.eventfd_write(self._events[RX], 1)
