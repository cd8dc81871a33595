# SPDX-License-Identifier: GPL-2.0-only
"""Mutants that the tests of macvtap and ipvtap must notice."""

from __future__ import annotations

from mutant import Mutant

HOLD, GUARD, WRAP, HEADER = "tap/hold.c", "tap/guard.c", "tap/wrap.c", "tap/hold.h"

TAP = (
    Mutant(
        "tap reserve: no frame may use it",
        HOLD,
        "\tif (!charged && plain >= hold->limit) {",
        "\tif (frames >= hold->limit) {",
        "tap_hold",
    ),
    Mutant(
        "tap reserve: all frames may use it",
        HOLD,
        "\tif (!charged && plain >= hold->limit) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap bound: charged frames take the others' slots",
        HOLD,
        "\tif (beyond && frames - plain >= NODROP_HOLD_MOST) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap bound: charged frames have it below txqueuelen, too",
        HOLD,
        "\tif (beyond && frames - plain >= NODROP_HOLD_MOST) {",
        "\tif (charged && frames - plain >= NODROP_HOLD_MOST) {",
        "tap_limit",
    ),
    Mutant(
        "tap count: slots that were not given back hold frames",
        HEADER,
        "ring->producer - READ_ONCE(ring->consumer_head);",
        "ring->producer - ring->consumer_tail;",
        "tap_limit",
    ),
    Mutant(
        "tap count: a ring without a free slot is empty",
        HEADER,
        "(!frames && !__ptr_ring_empty(ring))",
        "false",
        "tap_limit",
    ),
    Mutant(
        "tap count: a queue's counters are those of another one",
        "tap/ethtool.h",
        "\t\tdata += NODROP_HOLD_STATS;\n",
        "",
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
        "tap charged: no socket is",
        HOLD,
        "\t       skb->sk->sk_kern_sock;",
        "\t       true;",
        "tap_hold",
    ),
    Mutant(
        "tap charged: TCP's segments are not",
        HOLD,
        "\treturn skb->sk->sk_protocol == IPPROTO_TCP &&\n",
        "\treturn false &&\n",
        "tap_hold",
    ),
    Mutant(
        "tap charged: acknowledgments are",
        HOLD,
        "\t       !skb_is_tcp_pure_ack(skb) &&\n",
        "",
        "tap_hold",
    ),
    Mutant(
        "tap charged: twice, in a ring that is full",
        HOLD,
        "\terr = __ptr_ring_produce(ring, skb);\n",
        "\tif (charged && frames >= limit) {\n"
        "\t\trefcount_add(skb->truesize, &skb->sk->sk_wmem_alloc);\n"
        "\t\tskb->truesize *= 2;\n"
        "\t}\n"
        "\terr = __ptr_ring_produce(ring, skb);\n",
        "tap_hold",
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
        "tap hooks: frames go into the ring past us",
        "tap/hooks.h",
        "#define ptr_ring_produce(ring, skb) nodrop_tap_produce(ring, skb)\n",
        "",
        "tap_hold",
    ),
    Mutant(
        "tap guard: drops are not told from others",
        HOLD,
        "nodrop_hold_stalls(hold) ? NODROP_HOLD_DROP_GUARD :",
        "false ? NODROP_HOLD_DROP_GUARD :",
        "tap_guard",
    ),
    Mutant(
        "tap guard: trips when it is off",
        GUARD,
        "\tif (!ms || head != hold->head)",
        "\tif (head != hold->head)",
        "tap_guard",
    ),
    Mutant(
        "tap guard: stops at the array's end",
        GUARD,
        "\t       hold->uncharged < nodrop_hold_frames(ring)) {",
        "\t       hold->uncharged < nodrop_hold_frames(ring) &&\n"
        "\t       hold->head + hold->uncharged < ring->size) {",
        "tap_guard",
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
        "\tif (!ms || head != hold->head)",
        "\tif (!ms)",
        "tap_guard",
    ),
    Mutant(
        "tap guard: it ends when it trips",
        GUARD,
        "\thold->armed = !hold->closed && !__ptr_ring_empty(ring);\n",
        "\thold->armed = !hold->closed && !stalled;\n",
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
        "tap end: the ring's frames go as if they had been read",
        WRAP,
        "\twhile ((skb = ptr_ring_consume(&q->ring)))\n\t\tkfree_skb(skb);\n",
        "\twhile ((skb = ptr_ring_consume(&q->ring)))\n\t\tconsume_skb(skb);\n",
        "tap_events",
    ),
    Mutant(
        "tap resize: what is queued is forgotten",
        WRAP,
        "\t\tsize = max(size, slots);\n",
        "",
        "tap_limit",
    ),
)
