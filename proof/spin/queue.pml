/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of one queue: senders, a qdisc, a ring, a consumer, the guard, and
 * events. Names and order of steps are those of kmod/flow.
 *
 * Spin tries every order of steps. Each step sees the effects of all earlier
 * ones; proof/litmus proves that for CPUs that reorder memory accesses. One
 * statement is one access, between which other CPUs may run.
 *
 * Invariants:
 *  - a packet is dropped only if the consumer is unaware or stalled;
 *  - at the end no packet is in the qdisc or the ring, and the txq runs: see
 *    Monitor().
 *
 * Options: PACKETS through the qdisc; BIG, txqueuelen until a resize to 1;
 * DIRECT, packets past the qdisc, 0 or 1; ADAPT: the limit changes; EVENT; GUARD;
 * LEAVES: the consumer ends. BREAK_... omits one step; test_spin.py has the
 * assertion that must fail then.
 */
#define when(condition, then) if :: condition -> then :: else fi

/* The ring: its packets, its locks. */
byte ring;
bit producer_lock, consumer_lock;

/* struct nodrop_queue */
byte max = BIG, limit = BIG, produced, reserved, taken, mark;
short wake_at;
bool unaware, stalled, stopped, woken, notice;
bool todo;
/* The kick's state: sent, or reading the txq's state. */
mtype = { NONE, SENT, BEGUN };
mtype kicking = NONE;
/* guard_moved, for guard_mark: the consumer has taken something since. */
bool guard_pending, guard_moved;
byte guard_samples;

/* The txq, its qdisc, and their runs. */
bool xoff, scheduled = true, qdisc_runs, direct_runs, device_up = true;
byte backlog = PACKETS - 1;

/* The consumer was notified; it has ended. The packets' fates. */
bool called, away;
byte delivered, dropped, purged, refused;

#define HELD (unaware -> ring : produced - taken)
#define HAS_PACKETS (produced != taken)
#ifdef EVENT
#define OTHERS 1
#else
#define OTHERS DIRECT
#endif
#define WORKS (!unaware && !stalled)

inline lock(which) { atomic { !which -> which = 1 } }
inline both_locks() { lock(consumer_lock); lock(producer_lock) }
inline both_unlock() { producer_lock = 0; consumer_lock = 0 }

inline wake_txq() { atomic { when(xoff, xoff = false; scheduled = true) } }
inline schedule_txq() { atomic { when(!xoff, scheduled = true) } }

/* queue.c, ring.c: with both locks. */

inline reopen()
{
#ifdef BREAK_REOPEN
	when(device_up, stopped = false; wake_txq())
#else
	when(device_up, stopped = false; xoff = false; schedule_txq())
#endif
}

inline resize(slots)
{
	both_locks();
	atomic {
		max = slots;
		limit = (limit > max -> max : limit);
		reserved = 0
	};
	reopen();
	both_unlock()
}

inline to_unaware()
{
	both_locks();
	unaware = true;
	reserved = 0;
#ifndef BREAK_UNAWARE
	reopen();
#endif
	both_unlock();
	/* An unaware consumer reads the ring once without a notification. */
	called = true
}

/* produce.c: with producer_lock. */

inline guard_arm()
{
	atomic {
		when(!guard_pending,
		     guard_moved = false; guard_samples = 0;
		     guard_pending = true)
	}
}

inline look()
{
	atomic {
		free = HELD < limit;
		when(free, reserved = limit - HELD)
	}
}

/* Sets free when the stop is undone. */
inline stop()
{
	atomic { reserved = 0; mark = produced; wake_at = produced - limit / 2 };
#ifdef BREAK_STOPPED
	stopped = true; xoff = true;
#else
	xoff = true; stopped = true;
#endif
#ifdef BREAK_RECHECK
	free = false;
#else
	free = taken >= wake_at;
#endif
	if
	:: free ->
		stopped = false;
		xoff = false;
#ifndef BREAK_UNDO
		schedule_txq();
#endif
		look();
		atomic { when(!free, reserved = 1; free = true) }
	:: else -> guard_arm()
	fi
}

inline reserve()
{
	if
	:: reserved -> verdict = RESERVED
	:: else ->
		lock(producer_lock);
		if
		:: !WORKS -> verdict = PASS
#ifdef BREAK_RESERVE
		:: WORKS -> verdict = RESERVED
#else
		:: WORKS && reserved -> verdict = RESERVED
		:: WORKS && !reserved ->
			look();
			when(!free, stop());
			verdict = (free -> RESERVED : BUSY)
#endif
		fi;
		producer_lock = 0
	fi
}

inline produce()
{
	atomic {
		!producer_lock -> producer_lock = 1;
#ifndef BREAK_SLACK
		/* The slot that it has seen may be taken: the slack has one. */
		when(verdict == RESERVED && !reserved, reserved = 1);
#endif
		free = reserved || HELD < max;
		when(free && !reserved, reserved = max - HELD);
		assert(!free || ring < BIG + OTHERS);
		/* Only an unaware or a stalled consumer makes a ring drop. */
		assert(free || unaware || verdict == PASS)
	};
	if
	:: !free -> dropped++
	:: else ->
		ring++;
		produced++;
		reserved--;
		when(!reserved && WORKS, look(); when(!free, stop()))
	fi;
	atomic { notice = true; producer_lock = 0 }
}

/* The driver notifies more often: also if the burst put nothing in. */
inline burst_end()
{
#ifdef BREAK_BURST
	atomic { when(notice && hand < 2, notice = false; called = true) }
#else
	atomic {
		when(notice && (hand < 2 || xoff), notice = false; called = true)
	}
#endif
}

mtype = { PASS, RESERVED, BUSY };

/*
 * The run of a qdisc, as the transmit softirq starts it. It reads XOFF and ends
 * with the qdisc's lock held. A burst is dequeued at once; the packets that
 * cannot be transmitted are requeued, and the qdisc runs again.
 */
active proctype Sender()
{
	mtype verdict;
	bool free;
	byte hand;

end:	do
	:: atomic { scheduled && device_up -> scheduled = false; qdisc_runs = true };
again:		if
		:: atomic { xoff || !backlog -> qdisc_runs = false }
		:: atomic { !xoff && backlog -> backlog--; hand = 1 };
			if
			:: atomic { backlog -> backlog--; hand = 2 }
			:: skip
			fi;
			do
			:: hand && !xoff ->
				reserve();
				when(verdict != BUSY, produce());
				burst_end();
				if :: verdict == BUSY -> break :: else -> hand-- fi
			:: !hand || xoff -> break
			od;
			when(!hand, goto again);
			atomic {
				backlog = backlog + hand; hand = 0;
				scheduled = true; qdisc_runs = false
			}
		fi
	od
}

/* A softirq for a qdisc that already runs ends at once. */
active proctype Softirq()
{
end:	do
	:: atomic { scheduled && qdisc_runs -> scheduled = false }
	od
}

/* All packets but one are queued initially; one arrives at any time. */
active proctype Application()
{
	atomic {
		if
		:: device_up -> backlog++; scheduled = scheduled || !qdisc_runs
		:: else -> purged++
		fi
	}
}

/* A sender past the qdisc, like a packet socket: it handles BUSY itself. */
#if DIRECT
active proctype Direct()
{
	mtype verdict = BUSY;
	bool free;
	byte hand = 1;

	if
	:: atomic { device_up -> direct_runs = true };
		when(!xoff, reserve());
		if :: verdict != BUSY -> produce() :: else -> refused++ fi;
		burst_end();
		direct_runs = false
	:: refused++
	fi
}
#endif

/* consume.c */

inline wake()
{
	stopped = false;
	when(device_up, woken = true; xoff = false)
}

inline check(dry)
{
	when(stopped, when(dry || taken >= wake_at, wake()));
	if
	:: woken && dry ->
		woken = false;
#ifndef BREAK_DRY
		todo = true
#endif
	/* Half way to the mark, if no sender came since the stop. */
	:: woken && !dry && produced == mark -> todo = true
	:: !woken || !dry
	fi
}

inline act()
{
	todo = false;
	/* Meanwhile a sender may have come, or not. */
	if
	:: stopped || (HAS_PACKETS && produced != mark) -> woken = true
	:: else ->
		when(backlog,
			if
			:: atomic { kicking == NONE -> kicking = SENT }
			:: kicking == SENT
#ifdef BREAK_KICK
			:: kicking == BEGUN
#endif
			/* On this CPU, or because the kick has begun. */
			:: schedule_txq()
			fi)
	fi
}

/* It checks for a stop if the ring is empty, and else at any time or not. */
active proctype Consumer()
{
	bool got;

	do
	:: called = false;
		do
		:: atomic {
				!consumer_lock -> consumer_lock = 1;
				got = ring > 0; ring = ring - got
			};
			if
			:: got && !unaware ->
				atomic { taken++; guard_moved = true };
				when(stalled, stalled = false);
#ifdef ADAPT
				if :: limit = 1 :: limit = max :: skip fi;
#endif
				if :: check(false) :: skip fi
			:: !got && !unaware -> check(true)
			:: unaware
			fi;
			atomic { consumer_lock = 0; delivered = delivered + got };
#ifdef LEAVES
			if :: away = true; goto end :: skip fi;
#endif
			when(todo, act());
			/* nodrop_act() returns whether to read again. */
			if
			:: got || (!unaware && HAS_PACKETS)
			:: else -> break
			fi
		od;
end_sleep:	called
	od;
end:	skip
}

/* kick.c */
active proctype Kick()
{
end:	do
	:: kicking == SENT -> kicking = BEGUN; schedule_txq(); kicking = NONE
	od
}

/* guard.c: each sample comes at any time, however slow the consumer is. */
#ifdef GUARD
active proctype Guard()
{
end:	do
	:: atomic {
			guard_pending && !producer_lock -> producer_lock = 1;
			guard_pending = device_up && xoff;
			if
			:: device_up && xoff ->
				when(guard_moved, guard_samples = 0);
				/* NODROP_GUARD_SAMPLES is 2. */
				when(guard_samples < 2, guard_samples++);
				guard_moved = false
			:: device_up && !xoff -> scheduled = true
			:: !device_up
			fi
		};
		if
		:: guard_pending && guard_samples == 2 ->
			stalled = true;
			wake_txq();
#ifdef BREAK_TRIP
			guard_pending = false
#endif
		:: else
		fi;
		producer_lock = 0
	od
}
#endif

/* The device goes down: its qdisc is purged when no sender transmits any more. */
inline down_and_up()
{
	device_up = false;
	!qdisc_runs && !direct_runs;
	atomic { purged = purged + backlog; backlog = 0; scheduled = false };
	xoff = true;
	/* Up: running, then the txqs are woken, then there is a qdisc. */
	atomic { xoff = false; device_up = true }
}

#ifdef EVENT
active proctype Event()
{
	if
	:: resize(1) :: resize(BIG) :: down_and_up() :: to_unaware()
	fi
}
#endif

/* No process can continue: check the final state. */
active proctype Monitor()
{
	timeout;
	assert(!backlog);
	assert(away || (!ring && !xoff));
	assert(away || delivered + dropped + purged + refused == PACKETS + DIRECT)
}
