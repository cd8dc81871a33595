/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens to a queue: a part of queue.pml.
 */

/* inject.c */
inline resize(slots)
{
	both_locks();
	atomic {
		byte all = in_front + ring;

		size = slots;
		lag = 0;
#ifdef BREAK_PROMISE
		ring = (all < size -> all : size);
#else
		ring = size - (room -> 1 : 0);
		ring = (all < ring -> all : ring);
#endif
		in_front = (foreign -> 0 : all - ring);
		dropped = dropped + (foreign -> all - ring : 0);
		/* What is thrown away for a foreign reader is taken by nobody. */
		array = 3 - array;
		if :: room -> room = array :: else fi;
		all = 0
	};
	update_limit(false);
	reopen();
	both_unlock()
}

inline to_foreign()
{
	both_locks();
	foreign = true;
	room = 0;
	update_limit(true);
#ifndef BREAK_FOREIGN
	reopen();
#endif
	/* ptr_ring_unconsume(): what does not fit is destroyed. */
	atomic {
		lag = 0;
		if
		:: in_front + ring > size ->
			dropped = dropped + in_front + ring - size;
			ring = size
		:: else -> ring = ring + in_front
		fi;
		in_front = 0
	};
	both_unlock();
	/* Its reader looks for itself. */
	called = true
}

/* The device goes down: its qdisc is emptied when no run of it is left. */
inline down_and_up()
{
	device_up = false;
	!qdisc_runs;
	atomic { purged = purged + backlog; backlog = 0; scheduled = false };
	xoff = true;
	/* Up: running, then the txqs are opened, then there is a qdisc. */
	atomic { xoff = false; device_up = true; scheduled = (backlog > 0) }
}

active proctype Events()
{
	byte n;

	do
	:: n < EVENTS ->
		n++;
		if
		:: resize((size == BIG -> SMALL : BIG))
		:: down_and_up()
		:: both_locks(); update_limit(true); reopen(); both_unlock()
#ifdef FOREIGN
		:: to_foreign()
#endif
		:: n = EVENTS
		fi
	:: n >= EVENTS -> break
	od
}
