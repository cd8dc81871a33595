# SPDX-License-Identifier: GPL-2.0-only
"""Small BPF programs, instruction by instruction, by bpf(2); all descriptors are closed on exit."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nodrop.guest.failure import Unsupported

SYSCALLS = {"x86_64": 321, "aarch64": 280}
MAP_CREATE, PROG_LOAD, LINK_CREATE = 0, 5, 28
SOCKET_FILTER, XDP = 1, 6
ATTACH_XDP = 37
XDP_DRV_MODE = 4
ARRAY = 2
XDP_PASS, XDP_TX = 2, 3
REDIRECT = 23
_EXPECTED_ATTACH_AT = 68
"""Where the attributes of BPF_PROG_LOAD say it."""
MAP_LOOKUP = 1
"""Helpers by their numbers in linux/bpf.h."""


def insn(code: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0) -> bytes:
    """Encode one instruction."""
    return struct.pack("<BBhi", code, src << 4 | dst, off, imm)


def mov(dst: int, imm: int) -> bytes:
    """Set a register to a number."""
    return insn(0xB7, dst, imm=imm)


def call(helper: int) -> bytes:
    """Call a helper of the kernel."""
    return insn(0x85, imm=helper)


EXIT = insn(0x95)


def answer(value: int) -> bytes:
    """A program that always returns the same."""
    return mov(0, value) + EXIT


def redirect(index: int) -> bytes:
    """An XDP program that sends all to the device of an index."""
    return mov(1, index) + mov(2, 0) + call(REDIRECT) + EXIT


def every_second(array: int, value: int) -> bytes:
    """A program that returns 0 and a value in turn; it counts in an array."""
    return b"".join(
        (
            insn(0x62, 10, off=-4, imm=0),  # *(u32 *)(fp - 4) = 0
            insn(0x18, 1, 1, imm=array) + insn(0),  # r1 = map
            insn(0xBF, 2, 10),  # r2 = fp
            insn(0x07, 2, imm=-4),  # r2 -= 4
            call(MAP_LOOKUP),
            insn(0x55, 0, off=2),  # if r0 != NULL skip the next two
            mov(0, value),
            EXIT,
            insn(0x79, 1, 0),  # r1 = *r0
            insn(0x07, 1, imm=1),
            insn(0x7B, 0, 1),  # *r0 = r1
            insn(0x57, 1, imm=1),  # r1 &= 1
            mov(0, 0),
            insn(0x15, 1, off=1),  # if r1 == 0 skip one
            mov(0, value),
            EXIT,
        )
    )


def _bpf(command: int, attributes: bytes) -> int:
    try:
        number = SYSCALLS[platform.machine()]
    except KeyError:
        raise Unsupported("the number of bpf(2) is not known here") from None
    libc = ctypes.CDLL(None, use_errno=True)
    data = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = int(libc.syscall(number, command, data, 128))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf command {command}: {os.strerror(code)}")
    return result


@contextmanager
def array() -> Iterator[int]:
    """A map of one number."""
    fd = _bpf(MAP_CREATE, struct.pack("<IIII", ARRAY, 4, 8, 1))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def program(kind: int, code: bytes, attach: int = 0) -> Iterator[int]:
    """A loaded program; its descriptor.

    Args:
        attach: what it is going to be attached to, for the kinds that have to know.
    """
    text = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(8192)

    def load(log_bytes: int) -> int:
        attributes = struct.pack(
            "<IIQQIIQ",
            kind,
            len(code) // 8,
            ctypes.addressof(text),
            ctypes.addressof(licence),
            1 if log_bytes else 0,
            log_bytes,
            ctypes.addressof(log) if log_bytes else 0,
        )
        attributes = attributes.ljust(_EXPECTED_ATTACH_AT, b"\0")
        return _bpf(PROG_LOAD, attributes + struct.pack("<I", attach))

    try:
        # A log that is too short is an error of its own.
        fd = load(0)
    except OSError as error:
        with suppress(OSError):
            os.close(load(len(log)))
        raise AssertionError(f"{error}: {log.value.decode()[-500:]}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def link(fd: int, attach: int, where: bytes, target: int = 0) -> int:
    """Attach a program; return the descriptor that keeps it there.

    Args:
        where: what is asked for with this kind of link.
    """
    return _bpf(LINK_CREATE, struct.pack("<IIII", fd, target, attach, 0) + where)


@contextmanager
def xdp(device: str, code: bytes) -> Iterator[None]:
    """An XDP program that runs in a device's driver."""
    with program(XDP, code) as fd:
        index = socket.if_nametoindex(device)
        link = _bpf(LINK_CREATE, struct.pack("<IIII", fd, index, ATTACH_XDP, XDP_DRV_MODE))
        try:
            yield
        finally:
            os.close(link)
