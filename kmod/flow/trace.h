/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints, in events/nodrop/ of tracefs: what a queue decided, how many
 * packets it held of how many slots, how many bytes of how many allowed.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nodrop

#if !defined(NODROP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NODROP_TRACE_H

#include <linux/tracepoint.h>

#include "limit.h"

#ifndef NODROP_PRINT
#define NODROP_PRINT(format, why)					\
	TP_printk("dev=%s queue=%u held=%u/%u bytes=%u/%u " format,	\
		  __entry->dev, __entry->queue, __entry->held,		\
		  __entry->size, __entry->bytes, __entry->limit, why)
#endif

DECLARE_EVENT_CLASS(nodrop_queue,
		    TP_PROTO(const struct nodrop_queue *q, int why),
		    TP_ARGS(q, why),
		    TP_STRUCT__entry(__array(char, dev, IFNAMSIZ)
				     __field(unsigned int, queue)
				     __field(unsigned int, held)
				     __field(unsigned int, size)
				     __field(unsigned int, bytes)
				     __field(unsigned int, limit)
				     __field(int, why)
		    ),
		    TP_fast_assign(__entry->queue =
					nodrop_name(q, __entry->dev);
				   __entry->held = nodrop_held(q);
				   __entry->size = q->ring->size;
				   __entry->bytes = nodrop_inflight(q);
				   __entry->limit = nodrop_limit(q);
				   __entry->why = why;
		    ),
		    NODROP_PRINT("cpu=%d", __entry->why)
);

/* A sender stopped the txq; 0: the ring is full, 1: over the byte limit */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_stop,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->why ? "limit" : "ring")
);

/* The reader opened it */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_wake,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->held ? "half" : "empty")
);

/* A packet went back to the qdisc; 0: the txq has no ring yet, 1: it is full */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_busy,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("cause=%s", __entry->why ? "ring" : "unbound")
);

/* The reader was taken for gone */
DEFINE_EVENT_PRINT(nodrop_queue, nodrop_guard,
		   TP_PROTO(const struct nodrop_queue *q, int why),
		   TP_ARGS(q, why),
		   NODROP_PRINT("taken=%u", __entry->why)
);

/* The reader makes a CPU run the qdisc; its own if it knows no other */
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
