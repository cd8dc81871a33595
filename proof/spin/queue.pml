/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of one queue: senders, a qdisc, a ring, a consumer, the guard, and
 * events. Names and order of steps are those of kmod/flow; core.pml has its
 * functions.
 *
 * Spin tries every order of steps. Each step sees the effects of all earlier
 * ones; proof/litmus proves that for CPUs that reorder memory accesses. One
 * statement is one access, between which other CPUs may run.
 *
 * Invariants:
 *  - a sender that has seen a slot drops no packet;
 *  - at the end no packet is in the qdisc or the ring, and the txq runs: see
 *    Monitor().
 *
 * Options: PACKETS through the qdisc; BIG, txqueuelen until a resize to 1;
 * DIRECT, packets past the qdisc, 0 or 1; ADAPT: the limit changes; EVENT; OFF:
 * flow control is switched off; GUARD; LEAVES: the consumer ends. BREAK_... omits
 * one step; test_spin.py has the assertion that must fail then.
 */
#include "core.pml"

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
				when(verdict == RESERVED, produce());
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
		if
		:: verdict == RESERVED -> produce()
		:: verdict == BUSY -> refused++
		:: verdict == FULL
		fi;
		burst_end();
		direct_runs = false
	:: refused++
	fi
}
#endif

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
	/* Up: then the driver binds the queue again, which wakes it. */
	device_up = true;
	both_locks();
	reopen();
	both_unlock()
}

#ifdef EVENT
active proctype Event()
{
	if
	:: resize(1) :: resize(BIG) :: down_and_up() :: to_unaware()
	fi
}
#endif

#ifdef OFF
active proctype Administrator()
{
	to_off()
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
