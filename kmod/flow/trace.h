/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints, in events/nodrop/ of tracefs: what a queue decided, with the
 * packets in the ring, the limit and txqueuelen.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nodrop

#if !defined(NODROP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NODROP_TRACE_H

#include <linux/tracepoint.h>

#include "internal.h"

#ifndef NODROP_PRINT
#define NODROP_PRINT(format, why)					\
	TP_printk("dev=%s queue=%u held=%u/%u max=%u " format,	\
		  __entry->dev, __entry->queue, __entry->held,		\
		  __entry->limit, __entry->max, why)
#endif

DECLARE_EVENT_CLASS(nodrop_queue,
		    TP_PROTO(const struct nodrop_queue *q, int why),
		    TP_ARGS(q, why),
		    TP_STRUCT__entry(__array(char, dev, IFNAMSIZ)
				     __field(unsigned int, queue)
				     __field(unsigned int, held)
				     __field(unsigned int, limit)
				     __field(unsigned int, max)
				     __field(int, why)
		    ),
		    TP_fast_assign(__entry->queue =
					nodrop_name(q, __entry->dev);
				   __entry->held = nodrop_held(q);
				   __entry->limit = READ_ONCE(q->limit);
				   __entry->max = READ_ONCE(q->max);
				   __entry->why = why;
		    ),
		    NODROP_PRINT("cpu=%d", __entry->why)
);

/* A sender stopped the txq; 0: at txqueuelen, 1: below it */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_stop,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->why ? "limit" : "ring")
);

/* The consumer woke it */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_wake,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->held ? "half" : "empty")
);

/* NETDEV_TX_BUSY; 0: the txq is not bound to the ring, 1: there is no slot */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_busy,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->why ? "ring" : "unbound")
);

/* The consumer is stalled; the value of its @taken */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_guard,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("taken=%u", __entry->why)
);

/* The consumer has this CPU run the qdisc: a kick, or its own CPU */
DEFINE_EVENT(nodrop_queue, nodrop_kick,
	     TP_PROTO(const struct nodrop_queue *q, int why),
	     TP_ARGS(q, why)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
