/* SPDX-License-Identifier: GPL-2.0-only */
/* The model's state, and the core's functions: see queue.pml. */
#define when(condition, then) if :: condition -> then :: else fi

/* The ring: its packets, its locks. */
byte ring;
bit producer_lock, consumer_lock;

/* struct nodrop_queue */
byte max = BIG, limit = BIG, produced, reserved, taken, mark;
short wake_at;
bool unaware, off, stalled, stopped, woken, notice;
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
/* Slots of the slack for senders: two, or one. */
#if defined(EVENT) || defined(OFF)
#define OTHERS (1 + DIRECT)
#else
#define OTHERS DIRECT
#endif
#define WORKS (!unaware && !off && !stalled)

inline lock(which) { atomic { !which -> which = 1 } }
inline both_locks() { lock(consumer_lock); lock(producer_lock) }
inline both_unlock() { producer_lock = 0; consumer_lock = 0 }

inline wake_txq() { atomic { when(xoff, xoff = false; scheduled = true) } }
inline schedule_txq() { atomic { when(!xoff, scheduled = true) } }

/* queue.c, ring.c: with both locks. */

inline reopen()
{
#ifdef BREAK_REOPEN
	stopped = false; when(device_up, wake_txq())
#else
	stopped = false; xoff = false; when(device_up, schedule_txq())
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

/* nodrop_queue_switched() */
inline to_off()
{
	both_locks();
	off = true;
	reserved = 0;
	reopen();
	both_unlock()
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
		:: !WORKS -> atomic {
				free = HELD < max;
				when(free && !reserved, reserved = max - HELD);
				verdict = (reserved -> RESERVED : FULL);
				when(!reserved, dropped++)
			}
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
#ifdef BREAK_OFF
		when(!reserved && !WORKS && HELD < max, reserved = max - HELD);
		when(!reserved && WORKS, reserved = 1);
#else
#ifndef BREAK_SLACK
		/* The slot that it has seen may be taken: the slack has one. */
		when(!reserved, reserved = 1);
#endif
#endif
		free = reserved && ring < BIG + OTHERS;
		/* No sender that has seen a slot drops. */
		assert(free)
	};
	ring++;
	produced++;
	reserved--;
	when(!reserved && WORKS, look(); when(!free, stop()));
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

mtype = { FULL, RESERVED, BUSY };

/* consume.c */

inline wake()
{
	stopped = false; woken = true; xoff = false
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
