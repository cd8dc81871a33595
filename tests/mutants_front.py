# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of what waits in front of a ring: put back, left over by a resize, inherited."""

from __future__ import annotations

from mutant import Mutant

INJECT, HEADER = "flow/inject.c", "flow/nodrop_flow.h"

FRONT = (
    Mutant("unconsume: packets are completed twice", INJECT, "\t\tq->uncharged += n;\n", "\t\t;\n"),
    Mutant(
        "unconsume: before those that were put back first",
        INJECT,
        "\tfor (i = 0; i < n; i++)\n"
        "\t\tnodrop_front_add(front, packets[i]);\n"
        "\tnodrop_move_front(q, front);\n",
        "\tnodrop_move_front(q, front);\n"
        "\tfor (i = 0; i < n; i++)\n"
        "\t\tnodrop_front_add(front, packets[i]);\n",
    ),
    Mutant(
        "unconsume: not counted as held",
        INJECT,
        "\tWRITE_ONCE(q->produced, q->produced + n);\n",
        "",
    ),
    Mutant(
        "front: a reader that polls does not see it",
        HEADER,
        "\tif (unlikely(q->in_front))\n\t\treturn false;\n",
        "",
    ),
    Mutant(
        "resize: the claimed slot is filled",
        INJECT,
        "fresh->size - (q->room ? 1 : 0);",
        "fresh->size;",
    ),
    Mutant(
        "resize: the claim is forgotten",
        INJECT,
        "\tif (q->room)\n\t\tWRITE_ONCE(q->room, ring->queue);\n",
        "\tWRITE_ONCE(q->room, NULL);\n",
    ),
    Mutant(
        "resize: the ring holds the first, not the last",
        INJECT,
        "q->foreign ? 0 : front->count - n;",
        "0;",
    ),
    Mutant(
        "resize: opens nothing",
        INJECT,
        "\tnodrop_update_limit(q, false);\n\tnodrop_reopen(q, q->txq);\n",
        "\tnodrop_update_limit(q, false);\n",
    ),
    Mutant(
        "resize: a stranger's packets go in front",
        INJECT,
        "\tif (q->foreign) {\n\t\tend",
        "\tif (false) {\n\t\tend",
    ),
    Mutant(
        "leave: the heir gets nothing",
        INJECT,
        "\tif (kept && !nodrop_inject(heir, front->packets, kept))\n",
        "\tif (true)\n",
    ),
    Mutant(
        "leave: a stranger inherits",
        INJECT,
        "\tif (q->foreign) {\n\t\tnodrop_unlock(q);",
        "\tif (false) {\n\t\tnodrop_unlock(q);",
    ),
    Mutant(
        "foreign: what is in front is lost",
        INJECT,
        "if (in_front && nodrop_reload(q, 0))",
        "if (false)",
    ),
)
