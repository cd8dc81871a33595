# SPDX-License-Identifier: GPL-2.0-only
"""Mutants that the tests of macvtap and ipvtap must notice."""

from __future__ import annotations

from mutant import Mutant

HOLD, GUARD, WRAP = "tap/hold.c", "tap/guard.c", "tap/wrap.c"

TAP = (
    Mutant(
        "tap price: nobody pays",
        HOLD,
        "\tif (skb->destructor != sock_wfree || skb_shared(skb) ||\n",
        "\tif (true || skb_shared(skb) ||\n",
        "tap_hold",
    ),
    Mutant(
        "tap price: a socket is not charged for what its frame costs",
        HOLD,
        "\trefcount_add(price, &sk->sk_wmem_alloc);\n",
        "",
        "tap_hold",
    ),
    Mutant(
        "tap reserve: nobody gets it",
        HOLD,
        "\tif (over && !can) {",
        "\tif (over) {",
        "tap_hold",
    ),
    Mutant(
        "tap reserve: everybody gets it",
        HOLD,
        "\tif (over && !can) {",
        "\tif (false) {",
        "tap_hold",
    ),
    Mutant(
        "tap limit: a send buffer without a limit is one",
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
        "\t\tskb_orphan(skb);\n",
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
        "tap guard: a reader that works is gone, too",
        GUARD,
        "\tif (head != hold->head) {",
        "\tif (false) {",
        "tap_guard",
    ),
    Mutant(
        "tap guard: a reader that comes back is gone",
        GUARD,
        "\t\tWRITE_ONCE(hold->gone, false);\n",
        "\t\treturn;\n",
        "tap_guard",
    ),
    Mutant(
        "tap end: the ring is left to the socket's end",
        WRAP,
        "\tnodrop_hold_purge(nodrop_tap_hold(q));\n",
        "",
        "tap_guard",
    ),
    Mutant(
        "tap resize: the reserve is forgotten",
        WRAP,
        "\treturn nodrop_ptr_ring_resize(rings, n, nodrop_hold_size(size),",
        "\treturn nodrop_ptr_ring_resize(rings, n, size,",
        "tap_events",
    ),
)
