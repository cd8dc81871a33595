# SPDX-License-Identifier: GPL-2.0-only
"""How the torture's readers judge what they read."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest

from nodrop.guest.torture.programs import Judge
from nodrop.guest.torture.senders import payload
from nodrop.guest.torture.shared import Field, Memory, Wrong


def udp(contents: bytes, *, tap: bool) -> memoryview:
    ethernet = bytes(12) + b"\x08\x00" if tap else b""
    return memoryview(bytearray(ethernet + b"\x45" + bytes(27) + contents))


@pytest.mark.parametrize("tap", [True, False])
def test_the_judge(tap: bool) -> None:
    memory = Memory()
    slot, sender = memory.take(), memory.take()
    judge = Judge(memory, slot, tap=tap, ordered=True)
    for number in (0, 1, 5):
        judge.took(udp(payload(sender, number), tap=tap))
    assert memory.get(slot, Field.WRONG) == 0
    assert memory.get(sender, Field.LAST) == 6
    judge.took(udp(payload(sender, 5), tap=tap))
    assert (memory.get(slot, Field.WRONG), memory.get(slot, Field.WHERE)) == (Wrong.ORDER, 5)
    judge.took(udp(payload(sender, 7)[:-1] + b"\xff", tap=tap))
    assert memory.get(slot, Field.WRONG) == Wrong.CONTENT
    judge.took(memoryview(bytearray(bytes(12) + b"\x88\xb5" + bytes(64))))
    assert (memory.get(slot, Field.COUNT), memory.get(slot, Field.OTHERS)) == (6, 1)


def test_what_is_sent_back_never_waits() -> None:
    """A write that waits for room in the send buffer is woken by nobody."""
    memory = Memory()
    mine, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)
    judge = Judge(memory, memory.take(), tap=False, ordered=True, back_to=full)
    segment = memoryview(bytearray(b"\x45" + bytes(8) + b"\x06" + bytes(30)))
    thread = threading.Thread(target=judge.took, args=[segment], daemon=True)
    thread.start()
    thread.join(60)
    waits = thread.is_alive()
    os.close(mine)
    thread.join(60)
    os.close(full)
    assert not waits
