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

DECLARE_EVENT_CLASS(nodrop_queue,
		    TP_PROTO(const struct nodrop_queue *q),
		    TP_ARGS(q),
		    TP_STRUCT__entry(__array(char, dev, IFNAMSIZ)
				     __field(unsigned int, queue)
				     __field(unsigned int, held)
				     __field(unsigned int, limit)
				     __field(unsigned int, max)
				     __field(int, cpu)
		    ),
		    TP_fast_assign(__entry->queue =
					nodrop_name(q, __entry->dev);
				   __entry->held = nodrop_seen(q);
				   __entry->limit = READ_ONCE(q->limit);
				   __entry->max = READ_ONCE(q->max);
				   __entry->cpu = READ_ONCE(q->cpu);
		    ),
		    TP_printk("dev=%s queue=%u held=%u/%u max=%u cpu=%d",
			      __entry->dev, __entry->queue, __entry->held,
			      __entry->limit, __entry->max, __entry->cpu)
);

/* A sender of @cpu stopped the txq */
DEFINE_EVENT(nodrop_queue, nodrop_stop,
	     TP_PROTO(const struct nodrop_queue *q),
	     TP_ARGS(q)
);

/* The consumer woke it */
DEFINE_EVENT(nodrop_queue, nodrop_wake,
	     TP_PROTO(const struct nodrop_queue *q),
	     TP_ARGS(q)
);

/* The consumer is stalled */
DEFINE_EVENT(nodrop_queue, nodrop_guard,
	     TP_PROTO(const struct nodrop_queue *q),
	     TP_ARGS(q)
);

/* The consumer has the qdisc run: by a kick of @cpu, or on its own CPU */
DEFINE_EVENT(nodrop_queue, nodrop_kick,
	     TP_PROTO(const struct nodrop_queue *q),
	     TP_ARGS(q)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
