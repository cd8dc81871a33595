# SPDX-License-Identifier: GPL-2.0-only
"""Mutants that the tests of events in a queue's life must notice, at least one for each."""

from __future__ import annotations

from mutant import Mutant

INJECT, PRODUCE, LIMIT = "flow/inject.c", "flow/produce.c", "flow/limit.h"
HEADER, GUARD = "flow/nodrop_flow.h", "flow/guard.c"
WRAP, ETHTOOL, PACKET = "tun/wrap.c", "tun/ethtool.h", "tun/packet.h"

EVENTS = (
    Mutant(
        "resize: what does not fit is forgotten",
        INJECT,
        "\t\tfront->count -= kept;\n\t\tfront = nodrop_set_front(q, front);\n",
        "\t\tfront->count -= kept;\n",
        row="kind=tun ring=5 event=resize pace=burst",
    ),
    Mutant(
        "detach: the kernel may empty the only qdisc",
        WRAP,
        "if (!nodrop_tun_keeps_txqs(dev, n))",
        "if (true)",
        "tun_detach",
    ),
    Mutant(
        "detach: a txq leads elsewhere within a packet",
        WRAP,
        "\t__netif_tx_lock_bh(txq);\n\trcu_assign_pointer(*place, tfile);\n"
        "\t__netif_tx_unlock_bh(txq);\n",
        "\trcu_assign_pointer(*place, tfile);\n",
        "tun_detach",
        (("!= NODROP_BUSY)\n\t\tret =", "!= NODROP_BUSY && ({ mdelay(3); true; }))\n\t\tret ="),),
    ),
    Mutant(
        "leave: nobody inherits",
        INJECT,
        "\tif (kept && !nodrop_inject(heir, front->packets, kept))\n",
        "\tif (true)\n",
        "tun_detach",
    ),
    Mutant(
        "leave: what was in the last ring is not counted",
        WRAP,
        "while (dev && lost--)",
        "while (false)",
        "tun_down",
    ),
    Mutant(
        "xdp: takes the txq's slot",
        PRODUCE,
        "(kept && !nodrop_has_second_slot(q))",
        "false",
        "tun_xdp",
    ),
    Mutant(
        "xdp: drops are not counted",
        PRODUCE,
        "\t\tq->stats[NODROP_DROP_ASIDE]++;",
        "\t\t;",
        "tun_xdp",
    ),
    Mutant(
        "filter: the txq is stopped when the last slot is claimed, not when it is filled",
        PRODUCE,
        "\tif (verdict == NODROP_CLAIMED)\n\t\tnodrop_keep_room(q);\n",
        "\tif (verdict == NODROP_CLAIMED) {\n"
        "\t\tnodrop_keep_room(q);\n"
        "\t\tif (q->txq && q->ring->size == 1)\n"
        "\t\t\tnetif_tx_stop_queue(q->txq);\n"
        "\t}\n",
        "tun_filter",
    ),
    Mutant(
        "burst: its end calls nobody",
        HEADER,
        "\tWRITE_ONCE(q->notice, false);\n\treturn true;",
        "\treturn false;",
        row="kind=tun reader=blocking sender=gso",
    ),
    Mutant(
        "burst: one that ends in a drop calls nobody",
        WRAP,
        "if (unlikely(nodrop_burst_end(q, txq)))",
        "if (unlikely(nodrop_burst_end(q, txq)) && !ret)",
        row="kind=tun reader=blocking ring=5 qdisc=noqueue sender=gso",
    ),
    Mutant(
        "limit: nothing is completed",
        LIMIT,
        "\tdql_completed(&q->txq->dql, q->bytes);\n",
        "",
        "tun_limit",
    ),
    Mutant(
        "limit: never exceeded",
        LIMIT,
        "if (!q->limited || likely(dql_avail(&q->txq->dql) >= 0))",
        "if (true)",
        "tun_limit",
    ),
    Mutant(
        "limit: a large packet is charged as one segment",
        PACKET,
        "return ((const struct sk_buff *)packet)->len;",
        "return min(((const struct sk_buff *)packet)->len, 1500U);",
        "tun_offload",
    ),
    Mutant(
        "flag: who is held stays held when it is switched off",
        ETHTOOL,
        "\tnodrop_tun_bind_all(dev);\n",
        "",
        "tun_switch",
    ),
    Mutant(
        "guard: trips and opens nothing",
        GUARD,
        "\t\tWRITE_ONCE(q->gone, true);",
        "\t\t;",
        "tun_guard",
    ),
    Mutant(
        "leave: who inherits has no bound",
        INJECT,
        "kept = min(n, nodrop_may_inherit(heir));",
        "kept = n;",
        "sec_memory",
    ),
    Mutant(
        "limit: a ring holds more bytes than dql can count",
        LIMIT,
        "\t       nodrop_inflight(q) > DQL_MAX_LIMIT;",
        "\t       false;",
        "sec_bytes",
    ),
    Mutant(
        "trace: the other cause",
        PRODUCE,
        "trace_nodrop_stop(q, nodrop_has_room(q));",
        "trace_nodrop_stop(q, !nodrop_has_room(q));",
        "tun_trace",
    ),
    Mutant(
        "trace: nothing of a packet that goes back",
        PRODUCE,
        "\t\ttrace_nodrop_busy(q, q->txq == txq);\n",
        "",
        "tun_trace",
    ),
    Mutant(
        "detach: packets for a queue that went are dropped",
        WRAP,
        "\tif (!n || !nodrop_tun_enabled(tun) ||\n",
        "\tif (true || !n || !nodrop_tun_enabled(tun) ||\n",
        "tun_detach",
    ),
    Mutant(
        "detach: what the last queue held is neither read nor freed",
        INJECT,
        "\tnodrop_front_drop(q, front, kept, n);\n",
        "",
        "tun_detach",
    ),
    Mutant(
        "fuzz: the reader never looks at the txq",
        HEADER,
        "\t\tnodrop_release(q);",
        "\t\t;",
        "fuzz",
    ),
    Mutant(
        "fuzz: a queue that leaves keeps its txq",
        INJECT,
        "\tnodrop_queue_bind(q, NULL);\n\n\tfront =",
        "\n\tfront =",
        "fuzz",
    ),
)
