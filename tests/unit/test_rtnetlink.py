# SPDX-License-Identifier: GPL-2.0-only
"""Requests to rtnetlink, in a network namespace of the test's own."""

from __future__ import annotations

import errno
import socket

import pytest
from namespace import in_namespace

from nodrop.guest.netlink import attribute, attributes
from nodrop.guest.rtnetlink import UP, Rtnetlink

LO = "lo"


def test_attributes_are_padded_and_read_again() -> None:
    data = attribute(3, b"lo\0") + attribute(13, b"abcd")
    assert len(data) % 4 == 0
    assert list(attributes(data)) == [(3, b"lo\0"), (13, b"abcd")]
    assert list(attributes(b"\0\0\0\0")) == []


def missing() -> None:
    with Rtnetlink() as net, pytest.raises(OSError, match="No such device") as failed:
        net.index("nothing0")
    assert failed.value.errno == errno.ENODEV


def changed() -> None:
    with Rtnetlink() as net:
        index = net.index(LO)
        assert index == socket.if_nametoindex(LO)
        net.set_flags(index, UP, UP)
        net.add_address(index, "198.18.0.1", "198.18.0.2")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"hello", ("198.18.0.1", 9))
        assert net.stats(index).tx_packets >= 1
        net.set_txqueuelen(index, 7)
        net.replace_qdisc(index, "pfifo 10")
        assert net.queued(index) == 0
        net.replace_qdisc(index, "noqueue")
        net.replace_qdisc(index, "default")
        net.replace_qdisc(index, "default")
        net.set_flags(index, 0, UP)
        with pytest.raises(OSError, match="No such file"):
            net.replace_qdisc(index, "nonsense")


def test_a_device_that_is_missing() -> None:
    in_namespace(missing)


def test_a_device_is_changed() -> None:
    in_namespace(changed)
