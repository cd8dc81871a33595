# SPDX-License-Identifier: GPL-2.0-only
"""Changes that break the modules, each with the test of ``make test`` that notices it."""

from __future__ import annotations

from typing import NamedTuple

KUNIT = "KUnit"


class Mutant(NamedTuple):
    """One change.

    Attributes:
        file: below kmod/.
        name: what is broken.
        old: a text that occurs in the file once.
        new: what replaces it.
        noticed_by: KUNIT, a program of proof/programs, or a row of the sweep.
        wider: another change of the file that harms nobody alone: it gives a race time.
    """

    file: str
    name: str
    old: str
    new: str
    noticed_by: str
    wider: tuple[str, str] = ("", "")


FLOW = (
    Mutant(
        "flow/produce.c",
        "the txq is not stopped at the limit",
        "!nodrop_look(q))\n\t\tnodrop_stop(q);",
        "!nodrop_look(q))\n\t\t;",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "a txq that is not bound yet uses the ring",
        "} else if (q->txq != txq) {",
        "} else if (false) {",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "XDP has the whole array",
        "nodrop_held(q) >= q->max + slack ||",
        "",
        "tun_xdp",
    ),
    Mutant(
        "flow/produce.c",
        "the tracepoint names the other cause",
        "trace_nodrop_stop(q, limit < q->max);",
        "trace_nodrop_stop(q, limit >= q->max);",
        "tun_trace",
    ),
    Mutant(
        "flow/consume.c",
        "the consumer does not look at what it sent itself",
        "\treturn nodrop_has_packets(q);\n",
        "\treturn false;\n",
        KUNIT,
    ),
    Mutant(
        "flow/consume.c",
        "an empty ring kicks nobody",
        "\tsmp_store_release(&q->todo, true);\n",
        "\tsmp_store_release(&q->todo, !dry);\n",
        KUNIT,
    ),
    Mutant(
        "flow/consume.c",
        "the txq is not woken",
        "\t\tif (dry || left <= 0)",
        "\t\tif (false)",
        KUNIT,
    ),
    Mutant(
        "flow/nodrop_flow.h",
        "a consumer that finds nothing sleeps",
        "\tif (!packet) {\n\t\tnodrop_check(q, true);",
        "\tif (!packet) {",
        KUNIT,
    ),
    Mutant(
        "tun/wrap.c",
        "a burst that is stopped calls no consumer",
        "\tif (!netdev_xmit_more() || data_race(netif_xmit_stopped(txq)))\n",
        "\tif (!netdev_xmit_more())\n",
        "kind=tun reader=blocking ring=5 sender=gso",
    ),
    Mutant(
        "flow/queue.c",
        "a queue that gets a txq does not wake it",
        "\tnodrop_reopen(q, txq);\n\tnodrop_unlock(q);",
        "\tnodrop_unlock(q);",
        KUNIT,
    ),
    Mutant(
        "flow/queue.c",
        "a destroyed queue is still found",
        "\thash_del_rcu(&q->node);\n",
        "",
        KUNIT,
    ),
    Mutant(
        "flow/guard.c",
        "the stall guard never trips",
        "\t\tWRITE_ONCE(q->stalled, true);",
        "\t\t;",
        "tun_guard",
    ),
    Mutant(
        "flow/guard.c",
        "it wakes the txqs of a device that is down",
        "if (!q->txq || !netif_running(q->txq->dev))",
        "if (!q->txq)",
        KUNIT,
    ),
    Mutant(
        "flow/kick.c",
        "a kick runs nothing",
        "\tif (txq)\n\t\tnodrop_run",
        "\tif (0)\n\t\tnodrop_run",
        KUNIT,
    ),
    Mutant(
        "flow/kick.c",
        "none is waited for",
        "while (smp_load_acquire(&q->kicking))",
        "while (false)",
        KUNIT,
    ),
    Mutant(
        "flow/ring.c",
        "another txqueuelen wakes no txq",
        "\tnodrop_reopen(q, q->txq);\n",
        "",
        KUNIT,
    ),
    Mutant(
        "flow/ring.c",
        "what a detached queue leaves has no bound",
        "nodrop_held(target) + NODROP_SLACK < target->ring->size",
        "true",
        "sec_memory",
    ),
    Mutant(
        "flow/ring.c",
        "the array has no slack",
        "NODROP_ARRAY_MIN) + NODROP_SLACK;",
        "NODROP_ARRAY_MIN);",
        KUNIT,
    ),
    Mutant(
        "flow/limit.c",
        "the limit does not follow the pace",
        "\t\tWRITE_ONCE(q->limit, limit);",
        "\t\t;",
        KUNIT,
    ),
    Mutant(
        "flow/ring.c",
        "another txqueuelen leaves all slots reserved",
        "\tnodrop_keep_one(q);\n",
        "",
        KUNIT,
    ),
)
DRIVERS = (
    Mutant(
        "tun/wrap.c",
        "off by default",
        "static bool nodrop_default = true;",
        "static bool nodrop_default;",
        "tun_switch",
    ),
    Mutant(
        "tun/wrap.c",
        "the kernel empties the qdisc of a queue that leaves",
        "if (!nodrop_tun_keeps_txqs(dev, n))",
        "if (true)",
        "tun_detach",
    ),
    Mutant(
        "tun/lookup.h",
        "a txq leads to another queue within a packet",
        "return __this_cpu_read(nodrop_tun_target) ?: rcu_dereference(*place);",
        "return rcu_dereference(*place);",
        "tun_detach",
        ("\tret = xmit(skb, dev);", "\tmdelay(10);\n\tret = xmit(skb, dev);"),
    ),
    Mutant(
        "tun/ethtool.h",
        "who is held stays so when it is switched off",
        "\tnodrop_tun_bind_all(dev);\n",
        "",
        "tun_switch",
    ),
    Mutant(
        "vhost_net/wrap.c",
        "packets are read past the core",
        "return nodrop_consume_batched(q, packets, n);",
        "return __ptr_ring_consume_batched(q->ring, packets, n);",
        "vhost_swap",
    ),
    Mutant(
        "vhost_net/wrap.c",
        "an ordinary ring is taken for an empty one",
        "return __ptr_ring_consume_batched(ring, packets, n);",
        "return 0;",
        "vhost_mixed",
    ),
)
TAP = (
    Mutant(
        "tap/hold.c",
        "charged frames are dropped at txqueuelen",
        "\tif (!charged && plain >= hold->limit) {",
        "\tif (frames >= hold->limit) {",
        "tap_hold",
    ),
    Mutant(
        "tap/hold.c",
        "other frames use the reserve",
        "\tif (!charged && plain >= hold->limit) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap/hold.c",
        "the kernel's answers are charged",
        "\t    (on && nodrop_hold_is_answer(skb)))",
        "\t    false)",
        "tap_answers",
    ),
    Mutant(
        "tap/hold.h",
        "slots that were not given back count as frames",
        "ring->producer - READ_ONCE(ring->consumer_head);",
        "ring->producer - ring->consumer_tail;",
        "kind=macvtap qdisc=noqueue ring=5 sender=forwarded",
    ),
    Mutant(
        "tap/guard.c",
        "the guard ends when it trips",
        "\thold->armed = !hold->closed && !__ptr_ring_empty(ring);\n",
        "\thold->armed = !hold->closed && !stalled;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/guard.c",
        "a reader that took some and is where it was took nothing",
        "\tu32 taken = nodrop_hold_taken(hold);\n",
        "\tu32 taken = hold->ring->consumer_head == hold->head ? hold->taken :\n"
        "\t\t    nodrop_hold_taken(hold);\n",
        "tap_guard",
    ),
    Mutant(
        "tap/guard.c",
        "it uncharges nothing beyond the array's end",
        "\t       hold->uncharged < nodrop_hold_frames(ring)) {",
        "\t       hold->uncharged < nodrop_hold_frames(ring) &&\n"
        "\t       ring->consumer_head + hold->uncharged < ring->size) {",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "a closed file keeps what its ring holds",
        "\twhile ((skb = ptr_ring_consume(&q->ring)))\n\t\tkfree_skb(skb);\n",
        "\t(void)skb;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "a smaller ring forgets what it holds",
        "\t\tsize = max(size, slots);\n",
        "",
        "tap_limit",
    ),
    Mutant(
        "tap/ethtool.h",
        "a queue's counters are those of another one",
        "\t\tdata += NODROP_HOLD_STATS;\n",
        "",
        "tap_limit",
    ),
)
MUTANTS = (*FLOW, *DRIVERS, *TAP)
