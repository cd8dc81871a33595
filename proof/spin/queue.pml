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
 *  - while there is flow control, a sender from the qdisc drops no packet;
 *  - the ring never holds more than BIG and the slack;
 *  - the guard trips if the consumer does not take in a window, and a sample
 *    more, what the ring held at the last stop;
 *  - at the end no packet is in the qdisc or the ring, and the txq runs: see
 *    Monitor().
 *
 * Options: PACKETS through the qdisc; BIG, txqueuelen until a resize to 1; LATE,
 * packets that may follow a stop. As many as given, else none: XDP frames; BACK,
 * packets that the consumer puts back; DIRECT, packets past the qdisc; BINDS, the
 * queue is bound again. WAITS: the sender past the qdisc waits for a wake; ADAPT:
 * the limit changes; EVENT; SWITCH: flow control is switched off; GUARD; DEAD:
 * there is no consumer; LEAVES: it ends; EDGE: it waits for an edge once.
 * BREAK_... changes one step; test_models.py has the assertion that must fail then.
 */
#ifndef XDP
#define XDP 0
#endif
#ifndef BACK
#define BACK 0
#endif
#ifndef DIRECT
#define DIRECT 0
#endif
#ifndef BINDS
#define BINDS 0
#endif
#include "core.pml"

/*
 * The run of a qdisc, as the transmit softirq starts it. It reads XOFF and ends
 * with the qdisc's lock held. A burst is dequeued at once; the packets that
 * cannot be transmitted are requeued, and the qdisc runs again.
 */
active proctype Sender()
{
	mtype why;
	bool fits, was_off;
	byte hand, end, seen_limit, max_at_stop;

end_idle: do
	:: atomic { scheduled && !kicked && device_up -> scheduled = false; qdisc_runs = true };
again:		if
		:: atomic { XOFF || !backlog -> qdisc_runs = false }
		:: atomic { !XOFF && backlog -> backlog--; hand = 1 };
			if
			:: atomic { backlog -> backlog--; hand = 2 }
			:: skip
			fi;
			if
			:: !XOFF ->
				produce(false, false, hand == 2);
				hand--;
				/* A burst ends at the driver's bit alone. */
				if
				:: hand && !driver_off ->
					produce(false, false, false);
					hand--
				:: !hand || driver_off
				fi
			:: XOFF
			fi;
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
	:: atomic { scheduled && !kicked && qdisc_runs -> scheduled = false }
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

/*
 * A sender past the qdisc. While the qdisc runs, it is taken for a sender from
 * there.
 */
#if DIRECT
active proctype Direct()
{
	mtype why;
	bool fits, past, was_off;
	byte left = DIRECT, end, seen_limit, max_at_stop;

	do
	:: left ->
		if
		:: atomic { device_up -> direct_runs = true };
			if
#ifdef WAITS
			:: !driver_off ->
				produce(true, true, false); left--
			:: driver_off
#else
			:: !driver_off ->
				past = !qdisc_runs;
				produce(past, false, false); left--
			:: driver_off -> refused++; left--
#endif
			fi;
			direct_runs = false;
#ifdef WAITS
			!driver_off
#endif
		:: !device_up -> refused++; left--
		fi
	:: !left -> break
	od
}
#endif

#if XDP
active proctype Frames()
{
	byte left = XDP, end;

	do
	:: left -> produce_xdp(); left--
	:: !left -> break
	od
}
#endif

/* It checks for a stop if the ring is empty, and else at any time or not. */
#ifndef DEAD
active proctype Consumer()
{
	bool got;
#ifdef EDGE
	bool slept;
#endif
#if BACK
	bool back = true;
#endif

	do
	:: called = false;
		do
		:: atomic {
				!consumer_lock -> consumer_lock = 1;
				got = ring > 0; ring = ring - got
			};
			if
			:: got && !unaware ->
				atomic { taken++; beyond = 0 };
#ifdef ADAPT
				if :: limit = 1 :: limit = max :: skip fi;
#endif
				if :: check(false) :: skip fi
			:: !got && !unaware -> check(true)
			:: unaware
			fi;
			consumer_lock = 0;
#if BACK
			if
			:: got && back -> put_back(); back = false; got = false
			:: delivered = delivered + got
			fi;
#else
			delivered = delivered + got;
#endif
#ifdef LEAVES
			if :: away = true; goto end :: skip fi;
#endif
#ifdef EDGE
			/* Once it sleeps although the ring has packets. */
			if
			:: !slept -> slept = true; asleep = 1; break
			:: skip
			fi;
#endif
			if
			:: got || (!unaware && produced != taken)
			:: else -> break
			fi
		od;
end_sleep:	called; asleep = 0
	od;
end:	skip
}
#endif

/* kick.c */
active proctype Kick()
{
end:	do
#ifdef BREAK_KICK
	:: atomic { kicked -> kicked = false; scheduled = false }
#else
	:: atomic { kicked -> kicked = false; scheduled = device_up }
#endif
	od
}

/*
 * guard.c: each sample comes at any time, however slow the consumer is. A window
 * has three, two or three after a stall, or one while the consumer is stalled. It is decided in one step;
 * docs/memory-ordering.md says what comes of a consumer that takes meanwhile.
 */
#ifdef GUARD
active proctype Guard()
{
	bool stopped, notify, trips;

end:	do
	:: atomic {
			guard_pending && !producer_lock -> producer_lock = 1;
			guard_pending = false; notify = false; trips = false
		};
		if
		:: !device_up
		:: device_up ->
			stopped = stack_off;
			when(stopped && HELD <= limit / 2, xon(); stopped = false);
			when(!stopped, schedule_txq());
#ifdef BREAK_NOTIFY
			notify = (stopped || stalled) && HELD > 0;
#else
			notify = HELD > 0;
#endif
			atomic {
				when(stopped && stop_samples < 5, stop_samples++);
				assert(!stopped || stop_tripped ||
				       stop_samples <= 4 || taken >= stop_mark);
				guard_samples++;
				if
				:: taken >= guard_mark ->
					stalled = false;
					when(!guard_stop, guard_samples = 0);
					when(stopped,
					     guard_window(guard_samples - guard_stop))
				:: taken < guard_mark && !stalled && stopped &&
				   guard_samples >= (tripped -> 2 : 3) ->
					/* Nor if one notification would help. */
					assert(called || asleep < 2);
#ifndef BREAK_TRIP
					trips = true; stalled = true; limit = 1;
					tripped = true;
					stop_tripped = true
#else
					skip
#endif
				:: taken < guard_mark && !stalled && !stopped &&
				   guard_samples >= 3 ->
					assert(called || asleep < 2)
				:: taken < guard_mark && !stalled &&
				   guard_samples < 3 -> guard_pending = true
				:: taken < guard_mark && stalled
				fi
			};
			when(trips, reopen())
		fi;
		atomic {
			producer_lock = 0;
			when(notify, called = true);
			when(asleep && !called, asleep = 2)
		}
	od
}
#endif

/* The device goes down: its qdisc is purged when no sender transmits any more. */
inline down_and_up()
{
	device_up = false;
	!qdisc_runs && !direct_runs && !kicked;
	atomic {
		purged = purged + backlog; backlog = 0; scheduled = false;
		driver_off = true
	};
	/* Up: then the driver binds the queue again, which wakes it. */
	atomic { device_up = true; driver_off = false };
	bind()
}

#ifdef EVENT
active proctype Event()
{
	if
	:: resize(1) :: resize(BIG) :: down_and_up() :: to_unaware()
	fi
}
#endif

/* As the device's flags change. */
#if BINDS
active proctype Binder()
{
	byte left = BINDS;

	do
	:: left -> bind(); left--
	:: !left -> break
	od
}
#endif

/* By the device's flag, which binds the queue again, or by the parameter. */
#ifdef SWITCH
active proctype Administrator()
{
	off = true;
	if :: bind() :: skip fi
}
#endif

/* No process can continue: check the final state. */
#ifdef GUARD
#define RELEASED (true)
#else
#define RELEASED (!away)
#endif
active proctype Monitor()
{
	timeout;
	assert(!RELEASED || !backlog);
	assert(!RELEASED || !XOFF);
	assert(away || asleep || !ring);
	assert(away || asleep || !stalled);
	assert(!RELEASED || asleep ||
	       delivered + dropped + purged + refused + ring ==
	       PACKETS + DIRECT + XDP)
}
