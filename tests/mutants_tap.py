# SPDX-License-Identifier: GPL-2.0-only
"""Mutants that the tests of macvtap and ipvtap must notice."""

from __future__ import annotations

from mutant import Mutant

HOLD, GUARD, WRAP = "tap/hold.c", "tap/guard.c", "tap/wrap.c"

TAP = (
    Mutant(
        "tap reserve: no frame may use it",
        HOLD,
        "\tif (!charged && plain >= limit) {",
        "\tif (frames >= limit) {",
        "tap_hold",
    ),
    Mutant(
        "tap reserve: all frames may use it",
        HOLD,
        "\tif (!charged && plain >= limit) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap bound: charged frames take the others' slots",
        HOLD,
        "\tif (charged && frames >= limit && frames - plain >= NODROP_HOLD_MOST) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap bound: charged frames have it below txqueuelen, too",
        HOLD,
        "\tif (charged && frames >= limit && frames - plain >= NODROP_HOLD_MOST) {",
        "\tif (charged && frames - plain >= NODROP_HOLD_MOST) {",
        "tap_limit",
    ),
    Mutant(
        "tap count: slots that were not given back hold frames",
        HOLD,
        "\tframes = nodrop_hold_frames(ring);",
        "\tframes = ring->producer - ring->consumer_tail;",
        "tap_limit",
    ),
    Mutant(
        "tap count: charged frames take the place of others",
        HOLD,
        "\thold->plain += !charged;",
        "\thold->plain++;",
        "tap_limit",
    ),
    Mutant(
        "tap count: lost when the ring grows",
        HOLD,
        "\tfor (i = 0; old && i <= hold->mask; i++) {",
        "\tfor (i = 0; false; i++) {",
        "tap_limit",
    ),
    Mutant(
        "tap charged: the kernel's answers are",
        HOLD,
        "\t    (on && nodrop_hold_is_answer(skb)))",
        "\t    false)",
        "tap_limit",
    ),
    Mutant(
        "tap charged: a send buffer without a limit is one",
        HOLD,
        "\treturn READ_ONCE(sk->sk_sndbuf) <= NODROP_HOLD_SNDBUF_MAX;",
        "\treturn true;",
        "tap_hold",
    ),
    Mutant(
        "tap segments: those behind a dropped one are not counted",
        WRAP,
        "lost = n + 1;",
        "lost = 0;",
        "tap_hold",
    ),
    Mutant(
        "tap guard: sockets stay charged",
        GUARD,
        "\t\tnodrop_hold_uncharge(hold);\n",
        "",
        "tap_guard",
    ),
    Mutant(
        "tap guard: what comes later is charged",
        HOLD,
        "\t\tskb_orphan(skb);\n",
        "\t\t;\n",
        "tap_guard",
    ),
    Mutant(
        "tap guard: a reader that works stalls, too",
        GUARD,
        "\tif (!ms || ring->consumer_head != hold->head)",
        "\tif (!ms)",
        "tap_guard",
    ),
    Mutant(
        "tap guard: a reader that comes back stalls",
        GUARD,
        "\t\tWRITE_ONCE(hold->stalled, false);\n",
        "\t\treturn;\n",
        "tap_guard",
    ),
    Mutant(
        "tap end: the ring is left to the socket's end",
        WRAP,
        "\twhile ((skb = ptr_ring_consume(&q->ring)))\n\t\tkfree_skb(skb);\n",
        "\t(void)skb;\n",
        "tap_guard",
    ),
    Mutant(
        "tap resize: the reserve is forgotten",
        WRAP,
        "\treturn nodrop_ptr_ring_resize(rings, n, size, ",
        "\treturn nodrop_ptr_ring_resize(rings, n, txqueuelen, ",
        "tap_events",
    ),
)
