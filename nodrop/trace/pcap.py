# SPDX-License-Identifier: GPL-2.0-only
"""libpcap's filters, and pcapng files, for the headers of dropped packets."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.trace.headers import BYTES, Packet

_LIBRARIES = ("libpcap.so.0.8", "libpcap.so.1")
"""Names of libpcap in Debian and elsewhere."""
_DLT_RAW = 12
"""The packets begin with an IP header. In files this is _LINKTYPE_RAW."""
_LINKTYPE_RAW = 101
_NETMASK_UNKNOWN = 0xFFFFFFFF


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


class _PacketHeader(ctypes.Structure):
    _fields_ = (
        *(("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)),
        *(("captured", ctypes.c_uint32), ("length", ctypes.c_uint32)),
    )


def pcap_filter(expression: str) -> Callable[[Packet], bool]:
    """Return whether a packet matches an expression of pcap-filter(7), by libpcap.

    Raises:
        UnsupportedError: libpcap is not installed.
        UsageError: the expression is wrong, or needs a link-layer header.
    """
    pcap = _libpcap()
    handle = pcap.pcap_open_dead(_DLT_RAW, BYTES)
    program = _Program()
    text = expression.encode(errors="surrogateescape")
    if pcap.pcap_compile(handle, ctypes.byref(program), text, 1, _NETMASK_UNKNOWN) != 0:
        why = pcap.pcap_geterr(handle).decode(errors="replace")
        raise UsageError(f"--filter: libpcap refuses '{expression}': {why}.")

    def matches(packet: Packet) -> bool:
        header = _PacketHeader(0, 0, len(packet.header), packet.length)
        size = pcap.pcap_offline_filter(ctypes.byref(program), ctypes.byref(header), packet.header)
        return bool(packet.header and size)

    return matches


def _libpcap() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            pcap = ctypes.CDLL(name)
        except OSError:
            continue
        pcap.pcap_open_dead.restype = ctypes.c_void_p
        pcap.pcap_geterr.restype = ctypes.c_char_p
        pcap.pcap_geterr.argtypes = (ctypes.c_void_p,)
        pcap.pcap_compile.argtypes = (
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
            *(ctypes.c_int, ctypes.c_uint32),
        )
        pcap.pcap_offline_filter.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
        return pcap
    raise UnsupportedError("--filter needs libpcap.", "apt install libpcap0.8")


class PacketFile:
    """A pcapng file of headers, each with the reason of the drop as its comment.

    Every method raises NodropError if the file cannot be written.

    Attributes:
        packets: number of packets in the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.packets = 0
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        with self._failures():
            self._file = Path(path).open("wb")  # noqa: SIM115
        section = struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1)
        nanoseconds = _option(9, b"\x09") + _option(0)
        interface = struct.pack("=HHI", _LINKTYPE_RAW, 0, BYTES) + nanoseconds
        self._put(_block(0x0A0D0D0A, section) + _block(1, interface))

    def write(self, packet: Packet, reason: str) -> None:
        high, low = divmod(packet.time_ns + self._offset_ns, 1 << 32)
        body = struct.pack("=5I", 0, high, low, len(packet.header), packet.length)
        comment = _option(1, reason.encode()) + _option(0) if reason else b""
        self._put(_block(6, body + _padded(packet.header) + comment))
        self.packets += 1

    def close(self) -> None:
        with self._failures():
            self._file.close()

    def _put(self, data: bytes) -> None:
        with self._failures():
            self._file.write(data)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NodropError(f"{self.path} cannot be written: {error.strerror}.") from error


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + size + body + size


def _option(code: int, value: bytes = b"") -> bytes:
    """Return an option of a block; code 0 ends the options."""
    return struct.pack("=HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
