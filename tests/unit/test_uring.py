# SPDX-License-Identifier: GPL-2.0-only
"""The sweep's ring of io_uring, on a pipe."""

from __future__ import annotations

import ctypes
import os

import pytest

from nodrop.guest.sweep import uring


def test_reads_and_cancels() -> None:
    if not uring.available():
        pytest.skip("no io_uring here")
    reader, writer = os.pipe()
    buffers = [ctypes.create_string_buffer(16) for _ in range(2)]
    with uring.Uring(4) as ring:
        for tag in range(2):
            ring.read(reader, ctypes.addressof(buffers[tag]), 16, tag)
        os.write(writer, b"first")
        assert ring.submit(1)
        ((tag, got),) = ring.answers()
        assert (got, buffers[tag].value) == (5, b"first")
        ring.cancel_all()
        seen: dict[int, int] = {}
        while len(seen) < 2:
            ring.submit(1)
            seen |= dict(ring.answers())
        assert seen == {uring.CANCEL: 1, 1 - tag: -125}
    os.close(reader)
    os.close(writer)
