# SPDX-License-Identifier: GPL-2.0-only
"""Small BPF programs, assembled by hand and loaded by bpf(2); descriptors are closed on exit."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

BPF = 280 if os.uname().machine == "aarch64" else 321
"""The system call's number."""
PROG_LOAD, LINK_CREATE = 5, 28
SOCKET_FILTER, XDP = 1, 6
ATTACH_XDP = 37
XDP_DRV_MODE = 4
XDP_TX = 3
REDIRECT = 23
"""bpf_redirect(): a helper's number in linux/bpf.h."""
_PORT_AT = 14 + 20 + 2
"""Offset of UDP's destination port in an Ethernet frame, bytes."""


def insn(code: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0) -> bytes:
    return struct.pack("<BBhi", code, src << 4 | dst, off, imm)


def mov(dst: int, imm: int) -> bytes:
    return insn(0xB7, dst, imm=imm)


EXIT = insn(0x95)


def returns(value: int) -> bytes:
    return mov(0, value) + EXIT


def redirect(index: int) -> bytes:
    """Return an XDP program that redirects every frame to the device of an index."""
    return mov(1, index) + mov(2, 0) + insn(0x85, imm=REDIRECT) + EXIT


def all_but(port: int, value: int) -> bytes:
    """Return a socket filter: 0 for frames to a UDP port, a value for all others."""
    load = insn(0xBF, 6, 1) + insn(0x28, imm=_PORT_AT)
    return load + insn(0x15, 0, off=2, imm=port) + returns(value) + returns(0)


def _bpf(command: int, attributes: bytes) -> int:
    data = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = int(ctypes.CDLL(None, use_errno=True).syscall(BPF, command, data, 128))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf command {command}: {os.strerror(code)}")
    return result


@contextmanager
def program(kind: int, code: bytes) -> Iterator[int]:
    """Load a program for the block; yield its descriptor."""
    text = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    places = ctypes.addressof(text), ctypes.addressof(licence)
    fd = _bpf(PROG_LOAD, struct.pack("<IIQQ", kind, len(code) // 8, *places))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def xdp(device: str, code: bytes) -> Iterator[None]:
    """Attach an XDP program to a device for the block, in driver mode."""
    with program(XDP, code) as fd:
        index = socket.if_nametoindex(device)
        link = _bpf(LINK_CREATE, struct.pack("<IIII", fd, index, ATTACH_XDP, XDP_DRV_MODE))
        try:
            yield
        finally:
            os.close(link)
