# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of the flow control and of what binds it to the drivers; any test may notice them."""

from __future__ import annotations

from mutant import Mutant

PRODUCE, CONSUME, HEADER = "flow/produce.c", "flow/consume.c", "flow/nodrop_flow.h"
QUEUE, GUARD, WRAP = "flow/queue.c", "flow/guard.c", "tun/wrap.c"
VHOST = "vhost_net/wrap.c"
LIMIT, INJECT, KICK = "flow/limit.h", "flow/inject.c", "flow/kick.c"

CORE = (
    Mutant(
        "room check: say that there is room without looking",
        PRODUCE,
        "} else if (nodrop_has_room(q) || !nodrop_stop(q)) {",
        "} else if (true) {",
    ),
    Mutant(
        "re-check: stop without looking at the ring again",
        PRODUCE,
        "\tif (nodrop_has_both(q)) {\n\t\t/*",
        "\tif (false) {\n\t\t/*",
    ),
    Mutant(
        "stop: never stop after the last slot",
        PRODUCE,
        "if (unlikely(!nodrop_has_both(q)) && nodrop_holds(q))\n\t\tnodrop_stop(q);",
        ";",
    ),
    Mutant("wake: the reader never looks at the txq", HEADER, "\t\tnodrop_release(q);", "\t\t;"),
    Mutant(
        "knock: a reader that finds nothing sleeps",
        HEADER,
        "\tif (!packet && nodrop_found_nothing(q))\n",
        "\tif (!packet)\n",
    ),
    Mutant(
        "knock: a reader of batches that finds nothing sleeps",
        HEADER,
        "\t\tif (!nodrop_found_nothing(q) || i)\n",
        "\t\tif (true)\n",
    ),
    Mutant(
        "knock: a reader that has packets fills its batch with what it sends",
        HEADER,
        "\t\tif (!nodrop_found_nothing(q) || i)\n",
        "\t\tif (!nodrop_found_nothing(q))\n",
    ),
    Mutant(
        "knock: a reader that polls and finds nothing sleeps",
        HEADER,
        "\treturn !nodrop_found_nothing(q);",
        "\treturn true;",
    ),
    Mutant(
        "knock: a small ring's reader sends an interrupt",
        CONSUME,
        "if (nodrop_serves_itself(q))\n\t\tcpu = -1;",
        ";",
    ),
    Mutant(
        "knock: the reader does not look at what it sent itself",
        CONSUME,
        "\treturn !__ptr_ring_empty(q->ring);\n",
        "\treturn false;\n",
    ),
    Mutant(
        "answer: a sender that goes past the qdisc takes the question back",
        PRODUCE,
        "qdisc_is_running(rcu_dereference(q->txq->qdisc))) {",
        "true) {",
    ),
    Mutant(
        "answer: nobody takes the question back",
        PRODUCE,
        "\t\tWRITE_ONCE(q->asked, false);\n\t\t/*",
        "\t\t/*",
    ),
    Mutant(
        "passed: why is asked again when the packet has passed",
        PRODUCE,
        "verdict == NODROP_PASS ? cause : 0",
        "verdict == NODROP_PASS ? nodrop_drop_cause(q) : 0",
    ),
    Mutant(
        "aside: XDP takes the txq's slot",
        PRODUCE,
        "(kept && !nodrop_has_second_slot(q))",
        "false",
    ),
    Mutant(
        "index: a txq that is not bound yet uses the ring",
        PRODUCE,
        "if (on && !q->foreign && q->txq != txq) {",
        "if (false) {",
    ),
    Mutant(
        "index: a txq that is not bound yet takes back what another one claimed",
        PRODUCE,
        "\t\tnetif_tx_stop_queue(txq);\n\t\tverdict",
        "\t\tnetif_tx_stop_queue(txq);\n\t\tWRITE_ONCE(q->room, NULL);\n\t\tverdict",
    ),
    Mutant(
        "index: a txq that is not bound yet forgets why another one's packet was let through",
        PRODUCE,
        "\t\tnetif_tx_stop_queue(txq);\n\t\tverdict",
        "\t\tnetif_tx_stop_queue(txq);\n\t\tWRITE_ONCE(q->passed, 0);\n\t\tverdict",
    ),
    Mutant(
        "foreign: a reader that wakes nobody gets a ring that stops",
        INJECT,
        "\tq->foreign = true;",
        "\t;",
    ),
    Mutant(
        "bind: a queue that gets a txq does not open it",
        QUEUE,
        "\tnodrop_reopen(q, txq);\n\tnodrop_unlock(q);",
        "\tnodrop_unlock(q);",
    ),
    Mutant(
        "guard: counts what is released, not what is taken",
        HEADER,
        "\tWRITE_ONCE(q->taken, q->taken + 1);\n",
        "\tif (ring->consumer_tail == ring->consumer_head)\n"
        "\t\tWRITE_ONCE(q->taken, q->taken + 1);\n",
    ),
    Mutant(
        "guard: opens the txqs of a device that is down",
        GUARD,
        "if (!q->txq || !netif_running(q->txq->dev))",
        "if (!q->txq)",
    ),
    Mutant("guard: never trips", GUARD, "\t\tWRITE_ONCE(q->gone, true);", "\t\t;"),
    Mutant(
        "guard: does not knock for a reader that asked and went",
        GUARD,
        "\t\tWRITE_ONCE(q->asked, false);\n\t\tnodrop_run_qdiscs(q, q->txq);\n",
        "",
    ),
    Mutant(
        "limit: more bytes than dql can count",
        LIMIT,
        "\t       nodrop_inflight(q) > DQL_MAX_LIMIT;",
        "\t       false;",
    ),
    Mutant(
        "heir: without a bound",
        INJECT,
        "kept = min(n, nodrop_may_inherit(heir));",
        "kept = n;",
    ),
    Mutant(
        "heir: a bound for each, not for all of a device",
        INJECT,
        "\t\theld = nodrop_in_front_of(heir->txq->dev);\n",
        "",
    ),
    Mutant(
        "resize: a size below zero is taken for one",
        INJECT,
        "nodrop_reload(q, size ?: 1);",
        "nodrop_reload(q, max(size, 1));",
    ),
    Mutant("guard: outlives the device", QUEUE, "\t\tnodrop_guard_cancel(q);\n", ""),
    Mutant(
        "vhost: never finds the queue",
        VHOST,
        "if (!q)\n\t\treturn tun_get_tx_ring(file);",
        "if (q || !q)\n\t\treturn tun_get_tx_ring(file);",
        "vhost_swap",
    ),
    Mutant(
        "vhost: reads past the core",
        VHOST,
        "return nodrop_consume_batched(q, packets, n, nodrop_tun_bytes);",
        "return __ptr_ring_consume_batched(q->ring, packets, n);",
        "vhost_swap",
    ),
    Mutant(
        "vhost: puts back into the ring, and destroys what does not fit",
        VHOST,
        "nodrop_unconsume(q, packets, n);",
        "ptr_ring_unconsume(q->ring, packets, n, destroy);",
        "vhost_swap",
    ),
    Mutant(
        "vhost: an ordinary ring is taken for an empty one",
        VHOST,
        "return __ptr_ring_consume_batched(ring, packets, n);",
        "return 0;",
        "vhost_mixed",
    ),
    Mutant(
        "destroy: leaks what was put back after the device went",
        QUEUE,
        "\twhile (q->in_front)\n\t\tq->destroy(nodrop_take_front(q));\n",
        "\tWARN_ON(q->in_front);\n",
    ),
    Mutant(
        "default: off",
        WRAP,
        "static bool nodrop_default = true;",
        "static bool nodrop_default;",
        "tun_switch",
    ),
    Mutant(
        "limit: short rings have one, too",
        LIMIT,
        " &&\n\t\t       q->ring->size >= NODROP_LIMIT_MIN_RING;",
        ";",
    ),
    Mutant(
        "limit: a packet over it stops nothing",
        PRODUCE,
        "return nodrop_has_room(q) && !nodrop_over_limit(q);",
        "return nodrop_has_room(q);",
    ),
    Mutant("limit: nothing is completed at a release", CONSUME, "\tnodrop_complete(q);\n", ""),
    Mutant(
        "limit: a reader that runs dry completes nothing",
        HEADER,
        "q->phase != NODROP_RUNNING || q->bytes)",
        "q->phase != NODROP_RUNNING)",
    ),
    Mutant(
        "limit: completed bytes are completed again",
        LIMIT,
        "\tkcsan_enable_current();\n\tq->bytes = 0;",
        "\tkcsan_enable_current();",
    ),
    Mutant("limit: asks although over it", CONSUME, " && !nodrop_over_limit(q);", ";"),
    Mutant(
        "limit: what the queue holds is completed on a new txq",
        LIMIT,
        "limited ? nodrop_held(q) : 0;",
        "0;",
    ),
    Mutant(
        "limit: a txq keeps its charge when its queue goes",
        QUEUE,
        "\t\t\tnodrop_dql_reset(before);\n",
        "",
    ),
    Mutant(
        "limit: a reset forgets what may be queued",
        LIMIT,
        "\ttxq->dql.adj_limit = txq->dql.limit;\n",
        "",
    ),
    Mutant(
        "limit: bytes of an old txq are completed on a new one",
        LIMIT,
        "q->limited = limited;\n\tq->bytes = 0;",
        "q->limited = limited;",
    ),
    Mutant(
        "limit: a resize that changes nothing voids the charge",
        LIMIT,
        "if (!fresh && limited == q->limited)",
        "if (false)",
    ),
    Mutant(
        "find: the first of the row",
        QUEUE,
        "\t\tif (q->key == key)\n\t\t\tbreak;\n",
        "\t\tbreak;\n",
    ),
    Mutant(
        "create: what the ring holds is not counted",
        QUEUE,
        "\tq->produced = nodrop_ring_count(ring);\n",
        "",
    ),
    Mutant(
        "create: a full ring is taken for an empty one",
        QUEUE,
        "\t\treturn ring->size;\n\treturn n;",
        "\t\treturn 0;\n\treturn n;",
    ),
    Mutant("find: what is destroyed stays", QUEUE, "\thash_del_rcu(&q->node);\n", ""),
    Mutant(
        "kick: the reader's CPU may be the target",
        PRODUCE,
        "else if (cpu != READ_ONCE(q->cpu))",
        "if (cpu != READ_ONCE(q->cpu))",
    ),
    Mutant(
        "kick: the reader is known only when it opens the txq",
        CONSUME,
        "\tif (q->reader_cpu != cpu)\n",
        "\tif (q->phase == NODROP_STOPPED && q->reader_cpu != cpu)\n",
    ),
    Mutant(
        "kick: none is waited for", KICK, "while (smp_load_acquire(&q->kicking))", "while (false)"
    ),
    Mutant(
        "kick: one that failed is on its way for ever",
        KICK,
        "\tWRITE_ONCE(q->kicking, NODROP_KICK_NONE);\n\treturn false;",
        "\treturn true;",
    ),
    Mutant("kick: runs nothing", KICK, "\tif (txq)\n\t\tnodrop_run_qdiscs(q, txq);", "\t;"),
    Mutant(
        "kick: small rings knock while there are packets",
        CONSUME,
        "return q->ring->size >= NODROP_SMALL && done",
        "return done",
    ),
    Mutant(
        "burst: calls for each packet",
        HEADER,
        "\tWRITE_ONCE(q->notice, true);\n\treturn true;",
        "\treturn false;",
    ),
    Mutant(
        "burst: a stop in it calls nobody",
        HEADER,
        "if (netdev_xmit_more() && !data_race(netif_xmit_stopped(txq)))",
        "if (netdev_xmit_more())",
    ),
    Mutant(
        "burst: a last packet that is dropped calls nobody",
        HEADER,
        "if (netdev_xmit_more() || READ_ONCE(q->notice))",
        "if (netdev_xmit_more())",
    ),
    Mutant(
        "burst: other CPUs are held, too",
        HEADER,
        "READ_ONCE(q->burst_cpu) != raw_smp_processor_id()",
        "READ_ONCE(q->burst_cpu) < 0",
    ),
    Mutant(
        "knock: at half already",
        CONSUME,
        "done >= full - full / 4;\n}",
        "done >= full / 2;\n}",
    ),
    Mutant(
        "destroy: what was put back is lost",
        QUEUE,
        "\twhile (q->in_front)\n\t\tq->destroy(nodrop_take_front(q));\n",
        "",
    ),
    Mutant("burst: outlives its packet", HEADER, "\tWRITE_ONCE(q->burst_cpu, -1);\n\tif", "\tif"),
)
