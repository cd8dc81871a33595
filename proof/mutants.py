# SPDX-License-Identifier: GPL-2.0-only
"""Mutants: changes that break the modules, each with the test of ``make test`` that catches it."""

from __future__ import annotations

from typing import NamedTuple

KUNIT = "KUnit"


class Mutant(NamedTuple):
    """One change to the modules.

    Attributes:
        file: relative to kmod/.
        name: the fault.
        old: text that occurs exactly once in the file.
        new: its replacement.
        caught_by: KUNIT, a program of proof/programs, or a row of the sweep.
        delay: a second change of the file, harmless alone, that widens a race window.
    """

    file: str
    name: str
    old: str
    new: str
    caught_by: str
    delay: tuple[str, str] = ("", "")


FLOW = (
    Mutant(
        "flow/produce.c",
        "the sender does not stop the txq at the limit",
        "!nodrop_look(q))\n\t\tnodrop_stop(q);",
        "!nodrop_look(q))\n\t\t;",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "an unbound txq uses the ring",
        "} else if (q->txq != txq) {",
        "} else if (false) {",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "XDP frames fill the whole array",
        "nodrop_held(q) >= end ||",
        "",
        "tun_xdp",
    ),
    Mutant(
        "flow/produce.c",
        "XDP frames starve the qdisc",
        "\t\tend = min(end, nodrop_xdp_share(q));\n",
        "\t\tnodrop_xdp_share(q);\n",
        "tun_xdp",
    ),
    Mutant(
        "flow/produce.c",
        "a sender past the qdisc does not run it",
        "nodrop_waits(nodrop_qdisc(txq))))",
        "false))",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "the tracepoint reports the wrong cause",
        "trace_nodrop_stop(q, limit < q->max);",
        "trace_nodrop_stop(q, limit >= q->max);",
        "tun_trace",
    ),
    Mutant(
        "flow/consume.c",
        "the consumer ignores packets that its own qdisc run sent",
        "\treturn nodrop_has_packets(q);\n",
        "\treturn false;\n",
        KUNIT,
    ),
    Mutant(
        "flow/consume.c",
        "an empty ring causes no kick",
        "\tsmp_store_release(&q->todo, true);\n",
        "\tsmp_store_release(&q->todo, !dry);\n",
        KUNIT,
    ),
    Mutant(
        "flow/consume.c",
        "the consumer does not wake the txq",
        "\t\tif (dry || left <= 0)",
        "\t\tif (false)",
        KUNIT,
    ),
    Mutant(
        "flow/nodrop_flow.h",
        "a consumer of an empty ring does not check for a stop",
        "\tif (!packet) {\n\t\tnodrop_check(q, true);",
        "\tif (!packet) {",
        KUNIT,
    ),
    Mutant(
        "tun/wrap.c",
        "a stop does not end a burst",
        "\tbool more = netdev_xmit_more() && ret == NETDEV_TX_OK;\n\n"
        "\t/* A race with a wake is harmless: one notification more, or later. */\n"
        "\tif (!more || data_race(netif_xmit_stopped(txq)))\n",
        "\tif (!netdev_xmit_more())\n",
        "kind=tun reader=blocking ring=5 sender=gso",
    ),
    Mutant(
        "flow/queue.c",
        "binding a queue does not wake its txq",
        "\tnodrop_reopen(q, txq);\n\tnodrop_unlock(q);",
        "\tnodrop_unlock(q);",
        KUNIT,
    ),
    Mutant(
        "flow/queue.c",
        "a destroyed queue stays in the hash table",
        "\thash_del_rcu(&q->node);\n",
        "",
        KUNIT,
    ),
    Mutant(
        "flow/guard.c",
        "a lowered guard_ms waits for the old one",
        "\tms = min(ms, NODROP_GUARD_LONG_MS);\n",
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
        "the stall guard wakes the txqs of a device that is down",
        "if (!q->txq || !netif_running(q->txq->dev))",
        "if (!q->txq)",
        KUNIT,
    ),
    Mutant(
        "flow/kick.c",
        "a kick does not run the qdisc",
        "\tif (txq)\n\t\tnodrop_run",
        "\tif (0)\n\t\tnodrop_run",
        KUNIT,
    ),
    Mutant(
        "flow/kick.c",
        "cancelling does not wait for a running kick",
        "while (smp_load_acquire(&q->kicking))",
        "while (false)",
        KUNIT,
    ),
    Mutant(
        "flow/ring.c",
        "a resize does not wake the txq",
        "\tnodrop_reopen(q, q->txq);\n",
        "",
        KUNIT,
    ),
    Mutant(
        "flow/ring.c",
        "a detached queue's packets migrate without a bound",
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
        "the limit does not follow the consumer's rate",
        "\t\tWRITE_ONCE(q->limit, limit);",
        "\t\t;",
        KUNIT,
    ),
    Mutant(
        "flow/produce.c",
        "a sender whose slot was taken drops",
        "\tif (!READ_ONCE(q->bypass_reason))\n\t\treturn true;\n\theld",
        "\theld",
        KUNIT,
    ),
    Mutant(
        "flow/queue.c",
        "a txq that is woken by a resize keeps its reserved slots",
        "\tWRITE_ONCE(q->reserved, 0);\n",
        "",
        KUNIT,
    ),
)
DRIVERS = (
    Mutant(
        "tun/wrap.c",
        "backpressure is off by default",
        "static bool nodrop_default = true;",
        "static bool nodrop_default;",
        "tun_switch",
    ),
    Mutant(
        "tun/wrap.c",
        "detaching a queue purges its qdisc",
        "if (!nodrop_tun_keeps_txqs(dev, n))",
        "if (true)",
        "tun_detach",
    ),
    Mutant(
        "tun/lookup.h",
        "a txq's queue changes while a packet is transmitted",
        "return __this_cpu_read(nodrop_tun_target) ?: rcu_dereference(*place);",
        "return rcu_dereference(*place);",
        "tun_detach",
        ("\tret = xmit(skb, dev);", "\tmdelay(10);\n\tret = xmit(skb, dev);"),
    ),
    Mutant(
        "tun/ethtool.h",
        "switching off leaves senders blocked",
        "\tnodrop_tun_switched(tun, flags & 1);\n\tsynchronize_net();\n"
        "\tnodrop_tun_switched(tun, flags & 1);\n",
        "",
        "tun_switch",
    ),
    Mutant(
        "vhost_net/wrap.c",
        "vhost_net reads the ring past the core",
        "return nodrop_consume_batched(q, packets, n);",
        "return __ptr_ring_consume_batched(q->ring, packets, n);",
        "vhost_swap",
    ),
    Mutant(
        "vhost_net/wrap.c",
        "vhost_net takes a ring without a queue for an empty one",
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
        "uncharged frames use the reserve",
        "\tif (!charged && plain >= hold->limit) {",
        "\tif (false) {",
        "tap_limit",
    ),
    Mutant(
        "tap/hold.c",
        "the kernel's replies are charged",
        "\t    (on && nodrop_hold_is_answer(skb)))",
        "\t    false)",
        "tap_answers",
    ),
    Mutant(
        "tap/hold.h",
        "consumed slots of a batch still count as frames",
        "ring->producer - READ_ONCE(ring->consumer_head);",
        "ring->producer - ring->consumer_tail;",
        "kind=macvtap qdisc=noqueue ring=5 sender=forwarded",
    ),
    Mutant(
        "tap/guard.c",
        "the guard's timer stops after a trip",
        "\thold->armed = !hold->closed && !__ptr_ring_empty(ring);\n",
        "\thold->armed = !hold->closed && !stalled;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/guard.c",
        "a reader that is back at the same slot counts as idle",
        "\tu32 taken = nodrop_hold_taken(hold);\n",
        "\tu32 taken = hold->ring->consumer_head == hold->head ? hold->taken :\n"
        "\t\t    nodrop_hold_taken(hold);\n",
        "tap_guard",
    ),
    Mutant(
        "tap/guard.c",
        "the guard uncharges no frame past the array's end",
        "\t       hold->uncharged < nodrop_hold_frames(ring)) {",
        "\t       hold->uncharged < nodrop_hold_frames(ring) &&\n"
        "\t       ring->consumer_head + hold->uncharged < ring->size) {",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "closing a file does not free its ring's frames",
        "\twhile ((skb = ptr_ring_consume(&q->ring)))\n\t\tkfree_skb(skb);\n",
        "\t(void)skb;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "frames that vhost-net puts back stay charged",
        "\t\tnodrop_hold_guard_keep(nodrop_tap_ring_hold(ring));\n",
        "\t\t;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "a write() that blocks is not woken",
        "\t\twake_up_interruptible(sk_sleep(sk));\n",
        "\t\t;\n",
        "tap_guard",
    ),
    Mutant(
        "tap/wrap.c",
        "a shrunk ring loses its frames",
        "\t\tsize = max(size, slots);\n",
        "",
        "tap_limit",
    ),
    Mutant(
        "tap/ethtool.h",
        "each queue overwrites the first queue's counters",
        "\t\tdata += NODROP_HOLD_STATS;\n",
        "",
        "tap_limit",
    ),
)
MUTANTS = (*FLOW, *DRIVERS, *TAP)
