/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of one queue: a sender with a qdisc, a ring, a reader, the guard,
 * and what happens to them. Names and order of steps are those of kmod/flow.
 *
 * Every order of steps is tried. Each step sees what the steps before it did;
 * that this is so, too, on CPUs that reorder memory is what tests/litmus is
 * for. One statement is one access that another CPU can come in between of.
 *
 * What must hold:
 *  - a packet is dropped only by a foreign ring or one whose reader is gone;
 *  - never is more completed than was charged;
 *  - when nothing moves any more, all packets are where they belong, no byte
 *    is charged and the txq is open: see "quiet" at the end.
 *
 * BREAK_... leaves one thing out; test_spin.py knows what that must lead to.
 */

#ifndef PACKETS
#define PACKETS 4
#endif
#ifndef EVENTS
#define EVENTS 1
#endif
/* Slots: at first, and after a resize. */
#ifndef BIG
#define BIG 3
#endif
#define SMALL 1
/* So many slots are enough for batches, a limit, and a knock before it is dry. */
#define ENOUGH (size > 2)
/* Packets, each of one byte, that may be charged without stopping the txq. */
#define LIMIT 1
/* Looks of the guard until a reader that takes nothing is gone. */
#define LOOKS 2

mtype = { RUNNING, STOPPED, ASKED, ANSWERED };
mtype = { PASS, CLAIMED, BUSY };

/* The ring: packets, slots that were read and not yet given back, its size. */
byte ring, lag, size = BIG;
/* The array: another number after each resize. */
byte array = 1;
byte in_front;
bit producer_lock, consumer_lock;

/* struct nodrop_queue */
byte room;
byte produced, taken, fill;
bool foreign, gone, asked, notice, limited = (BIG > 2);
/* 0, or a kick that is on its way, or that looks at the txq. */
#define SENT 1
#define BEGUN 2
byte kick;
byte bytes, uncharged;
mtype phase = RUNNING;
bool guard_pending, guard_open;
/* For guard_mark: the reader has taken something since. */
bool guard_moved;
byte guard_looks;

/* The txq, its qdisc, and the byte queue limit: charged less completed. */
bool xoff, scheduled = true, qdisc_runs, device_up = true;
byte backlog = PACKETS - 1, charged;

/* The reader: it was called; it reads no more. */
bool called, away;

/* What became of the packets. */
byte sent = PACKETS - 1, delivered, dropped, purged;

#define BATCH (ENOUGH -> 2 : 1)
#define HAS_ROOM (ring + lag < size)
#define OVER (limited && charged > LIMIT)
#define HELD (produced - taken)

inline lock(which) { atomic { which == 0 -> which = 1 } }
inline unlock(which) { which = 0 }

inline both_locks() { lock(consumer_lock); lock(producer_lock) }
inline both_unlock() { unlock(producer_lock); unlock(consumer_lock) }

inline wake_txq()
{
	atomic { if :: xoff -> xoff = false; scheduled = true :: else fi }
}

inline schedule_txq()
{
	atomic { if :: !xoff -> scheduled = true :: else fi }
}

inline reopen()
{
#ifdef BREAK_REOPEN
	if :: device_up -> wake_txq() :: else fi
#else
	if :: device_up -> xoff = false; schedule_txq() :: else fi
#endif
}

/* limit.h; with both locks. */
inline update_limit(fresh)
{
	atomic {
		if
		:: fresh || limited != (!foreign && ENOUGH) ->
			limited = (!foreign && ENOUGH);
			bytes = 0;
#ifdef BREAK_UNCHARGED
			uncharged = 0;
#else
			uncharged = (limited -> HELD : 0);
#endif
			charged = 0
		:: else
		fi
	}
}

inline complete()
{
	atomic {
		/* dql_completed() is a BUG otherwise. */
		assert(bytes <= charged);
		charged = charged - bytes;
		bytes = 0
	}
}

/* produce.c */

inline guard_arm()
{
#ifdef GUARD
	atomic {
		if
		:: !guard_pending ->
			guard_moved = false;
			guard_looks = 0;
			guard_open = false;
			guard_pending = true
		:: else
		fi
	}
#else
	skip
#endif
}

inline stop()
{
	fill = HELD;
	xoff = true;
#ifdef BREAK_RECHECK
	stopped = true;
#else
	stopped = !HAS_ROOM;
	if :: !stopped -> stopped = OVER :: else fi;
#endif
	if
	:: !stopped -> wake_txq()
	:: else -> guard_arm()
	fi
}

#define HOLDS (!foreign && !gone)

inline claim()
{
	was = room;
	if
	:: was && was == array -> verdict = CLAIMED
	:: else ->
		atomic { producer_lock == 0 -> producer_lock = 1; room = 0 };
		atomic {
			if
			:: !HOLDS && HAS_ROOM && !foreign -> verdict = CLAIMED
			:: !HOLDS && (!HAS_ROOM || foreign) -> verdict = PASS
#ifdef BREAK_CLAIM
			:: HOLDS -> verdict = CLAIMED
#else
			:: HOLDS && HAS_ROOM -> verdict = CLAIMED
			:: HOLDS && !HAS_ROOM -> verdict = BUSY
#endif
			fi
		};
		if
		:: verdict == BUSY ->
			stop();
			verdict = (stopped -> BUSY : CLAIMED)
		:: else
		fi;
		atomic {
			if :: verdict == CLAIMED -> room = array :: else fi;
			producer_lock = 0
		}
	fi
}

inline produce()
{
	atomic {
		producer_lock == 0 -> producer_lock = 1;
		stopped = !HAS_ROOM;
		/* Nobody but a foreign or a gone reader loses a packet. */
		assert(!stopped || foreign || gone)
	};
	if
	:: stopped -> dropped++
	:: else ->
#ifdef BREAK_CHARGE
		atomic { ring++; produced++ };
		if :: limited -> charged++ :: else fi;
#else
		if :: limited -> charged++ :: else fi;
		atomic { ring++; produced++ };
#endif
		atomic {
			stopped = !HAS_ROOM;
			if :: stopped || size == 1 -> room = 0 :: else fi
		};
		atomic {
			stopped = (stopped || OVER) && HOLDS
		};
		if :: stopped -> stop() :: else fi;
		/* The qdisc runs: this is its run. */
		atomic { asked = false; notice = true }
	fi;
	producer_lock = 0
}

inline burst_end()
{
#ifdef BREAK_BURST
	if :: notice && !more -> notice = false; called = true :: else fi
#else
	if
	:: notice && (!more || xoff) -> notice = false; called = true
	:: else
	fi
#endif
}

/* The run of a qdisc, as the transmit softirq starts it. */
active proctype Sender()
{
	mtype verdict = PASS;
	bool stopped, more;
	byte was;

end:	do
	:: atomic { scheduled && device_up -> scheduled = false; qdisc_runs = true };
		do
		:: xoff || !backlog -> break
		:: atomic { !xoff && backlog -> backlog-- };
			/* A burst: what follows is transmitted at once. */
burst:			if
			:: backlog -> more = true
			:: more = false
			fi;
			claim();
			if
			:: verdict == BUSY ->
				/* Goes back to the qdisc, which runs again. */
				atomic { backlog++; scheduled = true };
				burst_end();
				break
			:: else -> produce()
			fi;
			burst_end();
			if
			:: more && !xoff && backlog -> backlog--; goto burst
			:: more && xoff -> break
			:: else
			fi
		od;
		qdisc_runs = false
	od
}

/* All but one are there from the beginning; one comes at any time. */
active proctype Application()
{
	atomic {
		sent = PACKETS;
		if :: device_up -> backlog++; scheduled = true
		:: else -> purged++
		fi
	}
}

/* consume.c */

inline ask()
{
	phase = RUNNING;
	if
	:: device_up ->
		phase = ASKED;
		xoff = false;
		asked = true
	:: else
	fi
}

inline knock()
{
	phase = RUNNING;
	asked = false;
	if
	:: atomic { kick == 0 -> kick = SENT }
	:: kick == SENT
#ifdef BREAK_KICK
	:: kick == BEGUN
#endif
	:: schedule_txq()
	fi
}

inline release()
{
	complete();
	atomic {
		if
		:: xoff -> phase = STOPPED
		:: !xoff && phase == STOPPED -> phase = ANSWERED
		:: else
		fi
	};
	if
	:: phase == STOPPED && HELD <= fill - fill / 2 && !OVER -> ask()
	:: else
	fi;
	atomic {
		if
		:: phase == ASKED && !asked -> phase = ANSWERED
		:: else
		fi
	};
	if
	:: phase == ASKED ->
		/* In a ring of this size it may be time to knock, or not. */
		if :: ENOUGH -> knock() :: skip fi
	:: else
	fi
}

inline ran_dry()
{
	if :: bytes -> release() :: else fi;
	if :: phase == STOPPED -> ask() :: else fi;
	if
	:: phase != RUNNING ->
		/* Patience: a sender may come by now, or not. */
		if
		:: ring
#ifdef BREAK_KNOCK
		:: !ring -> phase = RUNNING
#else
		:: !ring && backlog -> knock()
		:: !ring && !backlog -> phase = RUNNING
#endif
		fi
	:: else
	fi
}

inline consume()
{
	atomic {
		got = (in_front || ring);
		if
		:: in_front -> in_front--
		:: !in_front && ring ->
			ring--; lag++;
			if :: lag >= BATCH -> lag = 0 :: else fi
		:: else
		fi;
		if
		:: got ->
			taken++;
#ifdef GUARD
			guard_moved = true;
#endif
			if
			:: uncharged -> uncharged--
			:: !uncharged && limited -> bytes++
			:: else
			fi
		:: else
		fi
	};
	if :: got && gone -> gone = false :: else fi;
	if
	:: foreign
	:: !foreign && got && !lag -> release()
	:: !foreign && !got && (phase != RUNNING || bytes) -> ran_dry()
	:: else
	fi
}

active proctype Reader()
{
	bool got;

	do
	:: called = false;
		do
		:: lock(consumer_lock);
			consume();
			atomic {
				consumer_lock = 0;
				if :: got -> delivered++ :: else -> break fi
			}
#ifdef LEAVES
		:: away = true; goto end
#endif
		od;
end_sleep:	called
	od;
end:	skip
}

active proctype Kick()
{
end:	do
	:: kick == SENT ->
		kick = BEGUN;
		schedule_txq();
		kick = 0
	od
}

/* guard.c: each look comes at any time, however slow the reader is. */
active proctype Guard()
{
end:	do
#ifdef GUARD
	:: atomic { guard_pending && producer_lock == 0 ->
			guard_pending = false; producer_lock = 1 };
		if
		:: !device_up
		:: device_up && !xoff ->
			asked = false;
			schedule_txq();
			if
			:: guard_open
			:: !guard_open -> guard_open = true; guard_pending = true
			fi
		:: device_up && xoff ->
			guard_open = false;
			if
			:: guard_moved ->
				guard_moved = false;
				guard_looks = 1;
				guard_pending = true
			:: !guard_moved && guard_looks + 1 < LOOKS ->
				guard_looks++;
				guard_pending = true
			:: !guard_moved && guard_looks + 1 >= LOOKS ->
				gone = true;
				wake_txq();
#ifndef BREAK_TRIP
				guard_pending = true
#endif
			fi
		fi;
		unlock(producer_lock)
#else
	:: false
#endif
	od
}

#include "events.pml"

/* Nothing moves any more: is everything where it belongs? */
active proctype Monitor()
{
	timeout;
	assert(sent == PACKETS);
	assert(!backlog);
	if
	:: away
	:: !away ->
		assert(!ring && !in_front && !xoff);
		assert(delivered + dropped + purged == PACKETS);
		assert(foreign || (!bytes && !charged && !uncharged))
	fi
}
