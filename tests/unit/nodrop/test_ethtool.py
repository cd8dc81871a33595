# SPDX-License-Identifier: GPL-2.0-only
"""The ethtool ioctl, with a fake kernel."""

from __future__ import annotations

import ctypes
import errno
import struct

import pytest

from nodrop.host import ethtool

STATS, FLAGS = 1, 2


class FakeDevice:
    """One device, "tun0"."""

    def __init__(self) -> None:
        self.strings: dict[int, list[str]] = {STATS: ["tx0_stops", "tx0_wakes"], FLAGS: ["nodrop"]}
        self.values = [7, 1 << 40]
        self.flags = 1
        self.operations = True
        self.gone = False
        """The last queue is detached during the request."""
        self.strict = 0
        """Number of times that it returns nothing, alternately names and values."""

    def ioctl(self, _sock: object, number: int, request: bytes) -> int:
        assert number == 0x8946
        name, address = struct.unpack("16sP16x", request)
        if name.rstrip(b"\0") != b"tun0":
            raise OSError(errno.ENODEV, "No such device")
        if not self.operations:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        self.answer(address)
        return 0

    def refuses(self) -> bool:
        self.strict -= 1
        return self.strict >= 0

    def answer(self, address: int) -> None:
        def peek(at: int) -> int:
            return ctypes.c_uint32.from_address(address + at).value

        def poke(at: int, data: bytes) -> None:
            ctypes.memmove(address + at, data, len(data))

        match peek(0):
            case 0x37:
                kind = peek(8).bit_length() - 1
                there = kind in self.strings
                poke(8, struct.pack("=QI", there << kind, len(self.strings.get(kind, []))))
            case 0x1B:
                names = [] if self.refuses() else self.strings[peek(4)]
                poke(8, struct.pack("=I", len(names)))
                poke(12, b"".join(name.encode().ljust(32, b"\0") for name in names))
            case 0x1D:
                if self.gone:
                    raise OSError(errno.EOPNOTSUPP, "Operation not supported")
                count = 0 if self.refuses() else len(self.values)
                poke(4, struct.pack(f"=I{count}Q", count, *self.values[:count]))
            case 0x27:
                poke(4, struct.pack("=I", self.flags))
            case 0x28:
                self.flags = peek(4)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    made = FakeDevice()
    monkeypatch.setattr("fcntl.ioctl", made.ioctl)
    return made


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"tx0_stops": 7, "tx0_wakes": 1 << 40}),
        ({"strings": {FLAGS: ["nodrop"]}}, {}),
        ({"operations": False}, {}),
        # A queue is attached or detached between names and values; or the last one is detached.
        ({"values": [7]}, {"tx0_stops": 7}),
        ({"values": [7, 8, 9, 10]}, {"tx0_stops": 7, "tx0_wakes": 8}),
        ({"gone": True}, {}),
        # Kernels that return no entry if the number has changed.
        ({"strict": 2}, {"tx0_stops": 7, "tx0_wakes": 1 << 40}),
        ({"strict": 1000}, {}),
        ({"strings": {STATS: ["x" * 31, "y" * 32]}}, {"x" * 31: 7, "y" * 32: 1 << 40}),
    ],
)
def test_stats(kernel: FakeDevice, change: dict[str, object], expected: dict[str, int]) -> None:
    for name, value in change.items():
        setattr(kernel, name, value)
    assert ethtool.stats("tun0") == expected


def test_one_socket_for_all(kernel: FakeDevice) -> None:
    """A result contains nothing of the buffer's previous content."""
    with ethtool.Socket() as sock:
        assert len(ethtool.stats("tun0", sock)) == 2
        kernel.strings[STATS], kernel.values = ["tx1_stops"], [3]
        assert ethtool.private_flags("tun0", sock) == {"nodrop": True}
        assert ethtool.stats("tun0", sock) == {"tx1_stops": 3}
        del kernel.strings[STATS]
        assert ethtool.stats("tun0", sock) == {}


def test_private_flags(kernel: FakeDevice) -> None:
    kernel.strings[FLAGS] = ["legacy", "nodrop"]
    kernel.flags = 0b01
    assert ethtool.private_flags("tun0") == {"legacy": True, "nodrop": False}
    ethtool.set_private_flag("tun0", "nodrop", True)
    assert kernel.flags == 0b11
    ethtool.set_private_flag("tun0", "nodrop", False)
    assert kernel.flags == 0b01
    with pytest.raises(OSError) as raised:  # noqa: PT011
        ethtool.set_private_flag("tun0", "other", True)
    assert raised.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("name", ["nosuch", "", "x" * 16])
def test_no_such_device(kernel: FakeDevice, name: str) -> None:
    assert kernel.operations
    with pytest.raises(OSError) as raised:  # noqa: PT011
        ethtool.stats(name)
    assert raised.value.errno == errno.ENODEV
    assert raised.value.filename == name
