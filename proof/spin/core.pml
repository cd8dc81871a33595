/* SPDX-License-Identifier: GPL-2.0-only */
/* The model's state, and the core's functions: see queue.pml. */
#define when(condition, then) if :: condition -> then :: else fi

/* The ring: its packets, its locks. */
byte ring;
bit producer_lock, consumer_lock;

/* The limit at first. */
#ifdef ADAPT
#define FIRST 1
#else
#define FIRST BIG
#endif

/* struct nodrop_queue */
byte max = BIG, limit = FIRST, produced, budget, taken;
bool unaware, off, stalled, woken;
bool guard_pending, tripped;
byte guard_mark, guard_samples, guard_stop;
/* Of the last stop: its samples, its mark, and whether the guard tripped. */
byte stop_samples, stop_mark;
bool stop_tripped;

/* The txq, its XOFF bits, its qdisc, and their runs: @kicked, by an IPI. */
bool driver_off, stack_off;
bool scheduled = true, kicked, qdisc_runs, direct_runs, device_up = true;
byte backlog = PACKETS - 1;

/* The consumer was notified; it has ended. The packets' fates. */
#ifdef DEAD
bool called, away = true;
#else
bool called, away;
#endif
/* It sleeps although the ring has packets; 2: a sample has left it so. */
byte asleep;
byte delivered, dropped, purged, refused;
/* How many entered a ring of @max or more since the consumer took one. */
byte beyond;

/* A packet may leave the ring before @taken counts it, or @produced. */
#define HELD (unaware -> ring : produced - taken)
#define XOFF (driver_off || stack_off)

/* nodrop_drops(). NODROP_LEAST is 1. */
mtype = { WORKS, BYPASS, OFF, STALLED };
#define DROPS (unaware || off -> OFF : (stalled -> STALLED : WORKS))

/*
 * The slack: packets of senders that follow a stop, XDP frames, packets that
 * the consumer puts back. The array has it.
 */
#define SLACK (LATE + XDP + BACK)
#ifdef BREAK_SLACK
#define SENDERS_END (max + LATE)
#else
#define SENDERS_END (BIG + SLACK)
#endif

inline lock(which) { atomic { !which -> which = 1 } }
inline both_locks() { lock(consumer_lock); lock(producer_lock) }
inline both_unlock() { producer_lock = 0; consumer_lock = 0 }

inline schedule_txq() { atomic { when(!XOFF, scheduled = true) } }

inline xon()
{
#ifdef BREAK_BITS
	stack_off = false
#else
	atomic { stack_off = false; when(device_up, driver_off = false) }
#endif
}

/* guard.c: with producer_lock. */

inline guard_window(samples)
{
#ifdef BREAK_MARK
	guard_mark = (produced > taken -> taken + 1 : produced);
#else
	guard_mark = produced;
#endif
	guard_samples = samples; guard_stop = 0; guard_pending = true
}

inline guard_arm()
{
	atomic {
		if
		:: guard_pending
		:: !guard_pending && taken < guard_mark && !stalled ->
			guard_pending = true
		:: !guard_pending && (taken >= guard_mark || stalled) ->
			guard_window(0)
		fi
	}
}

/* queue.c: with producer_lock. */

inline reopen()
{
#ifndef BREAK_VOID
	budget = 0;
#endif
	if
#ifndef BREAK_FULL
	:: stack_off && DROPS == WORKS && HELD >= limit -> guard_arm()
	:: else ->
#else
	:: true ->
#endif
		xon();
#ifndef BREAK_REOPEN
		when(device_up, schedule_txq())
#endif
	fi
}

/* queue.c, ring.c: with both locks. */

inline resize(packets)
{
	both_locks();
	atomic { max = packets; limit = (limit > max -> max : limit) };
	reopen();
	both_unlock()
}

/* Also when the device comes up. */
inline bind()
{
	both_locks();
	when(DROPS == WORKS && HELD >= limit, stack_off = true);
	reopen();
	both_unlock()
}

inline to_unaware()
{
	both_locks();
	atomic { unaware = true; woken = false };
#ifndef BREAK_UNAWARE
	reopen();
#endif
	both_unlock();
	/* An unaware consumer reads the ring once without a notification. */
	called = true
}

/* produce.c: with producer_lock. */

inline stop(all)
{
	max_at_stop = limit;
	atomic {
		when(all, driver_off = true);
		was_off = stack_off;
#ifdef GUARD
		when(!stack_off,
		     stop_samples = 0; stop_mark = produced;
		     stop_tripped = false);
#endif
		stack_off = true
	};
#ifdef BREAK_RECHECK
	guard_arm()
#else
	if
	:: HELD <= max_at_stop / 2 ->
#ifdef BREAK_UNDO
		xon()
#else
		reopen()
#endif
	:: else ->
		atomic {
			guard_arm();
			when(!was_off, guard_stop = guard_samples + 1)
		}
	fi
#endif
}

/*
 * The consumer may take the packet before it is counted. It is notified of it
 * before a stop: tun.c does that later, but the core does not rely on it.
 */
inline enter()
{
	atomic {
		beyond = (HELD < max || DROPS != WORKS -> 0 : beyond + 1);
		ring++;
		assert(beyond <= SLACK && ring <= BIG + SLACK)
	};
	atomic { produced++; called = true }
}

/* A batch is one packet. */
inline produce_last(past, waits, more)
{
	atomic { why = DROPS; seen_limit = limit; end = max; budget = 0 };
	if
	:: why == STALLED -> end = 1
	:: why == WORKS && past && !waits -> atomic { why = BYPASS; share() }
	:: why == WORKS && !(past && !waits) -> end = SENDERS_END
	:: why == OFF
	fi;
	fits = HELD < end;
	if
	:: fits -> enter()
	:: else ->
		/* With flow control no sender drops. */
		assert(why != WORKS);
		dropped++
	fi;
	if
	:: why == STALLED -> when(!fits, guard_arm())
	:: why == OFF -> when(fits, budget = end - HELD)
	:: why == WORKS || why == BYPASS ->
		if
#ifdef BREAK_STOP
		:: true
#else
		:: HELD >= seen_limit -> stop(waits || more)
		:: HELD < seen_limit ->
			when(why == WORKS, budget = seen_limit - HELD)
#endif
		fi
	fi
}

/* nodrop_share() */
inline share()
{
	end = (backlog ->
	       (stack_off -> (limit > 1 -> limit / 2 : 1) : limit - limit / 4) :
	       max)
}

inline produce(past, waits, more)
{
	lock(producer_lock);
	if
	:: budget > 1 -> enter(); budget--
	:: else -> produce_last(past, waits, more)
	fi;
	producer_lock = 0
}

inline produce_xdp()
{
	lock(producer_lock);
	atomic {
		end = (DROPS == STALLED -> 1 : max);
		when(DROPS == WORKS,
		     share(); when(end == max, end = end + XDP));
		if
		:: HELD < end -> enter(); when(budget, budget--)
		:: else -> refused++; when(DROPS == STALLED, guard_arm())
		fi;
		producer_lock = 0
	}
}

/* consume.c: with consumer_lock. */

inline check(dry)
{
#ifndef BREAK_STALL
	when(dry && stalled, stalled = false);
#endif
	if
	:: stack_off && device_up ->
		when(HELD <= limit / 2,
		     woken = true;
		     xon();
		     when(dry, woken_and_dry()))
	:: else ->
		if
		:: woken && dry -> woken_and_dry()
		/* Not with a short txqueuelen. */
		:: woken && !dry && backlog && !qdisc_runs -> run_qdisc()
		:: !woken || !dry
		fi
	fi
}

inline woken_and_dry()
{
	woken = false;
#ifndef BREAK_DRY
	when(backlog, run_qdisc())
#endif
}

/* By a kick, or on this CPU */
inline run_qdisc()
{
	if
	:: atomic { when(!scheduled, scheduled = true; kicked = true) }
	:: scheduled = true
	fi
}

/* ring.c: the packet that the consumer has taken. */
inline put_back()
{
	both_locks();
	taken--;
	both_unlock();
	both_locks();
	atomic { ring++; assert(ring <= BIG + SLACK) };
	both_unlock()
}
