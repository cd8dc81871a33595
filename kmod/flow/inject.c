// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packets in front of the ring: those that have lost their slot, or never had
 * one, and must not be lost for it. The reader takes them before the ring's.
 *
 *  - The ring shrinks: what does not fit any more.
 *  - A reader took a batch and puts the rest of it back.
 *  - A queue leaves its device: another one inherits what it held.
 *
 * They are few and the reader works on them at once, so they are no second
 * ring: an array that is replaced when more are added. No event can be
 * repeated to make them many: what a ring loses and a reader puts back was in
 * the ring before, and what a queue inherits has a bound.
 */
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "limit.h"

/**
 * struct nodrop_front - packets in front of the ring
 * @size: how many fit
 * @count: how many there were; the last nodrop_queue.in_front are unread
 * @packets: in the order in which they are read
 */
struct nodrop_front {
	unsigned int size;
	unsigned int count;
	void *packets[];
};

static struct nodrop_front *nodrop_front_alloc(unsigned int size, gfp_t gfp)
{
	struct nodrop_front *front;

	front = kvmalloc(struct_size(front, packets, size), gfp);
	if (front) {
		front->size = size;
		front->count = 0;
	}
	return front;
}

static void nodrop_front_add(struct nodrop_front *front, void *packet)
{
	front->packets[front->count++] = packet;
}

/*
 * A front for all that @q has in front, @more, and what its ring can hold if
 * it is to be @emptied. All of that may grow until the locks are held, so look
 * again.
 *
 * Return: with both locks held, unless it is NULL.
 */
static struct nodrop_front *nodrop_front_grow(struct nodrop_queue *q,
					      unsigned int more, bool emptied,
					      gfp_t gfp)
{
	struct nodrop_front *front;
	unsigned int size = more;

	if (emptied)
		size += READ_ONCE(q->ring->size);
	for (;;) {
		front = nodrop_front_alloc(size, gfp);
		if (!front)
			return NULL;
		nodrop_lock(q);
		size = q->in_front + more + (emptied ? q->ring->size : 0);
		if (front->size >= size)
			return front;
		nodrop_unlock(q);
		kvfree(front);
	}
}

/* The queue's packets in front go to @front. Both locks held. */
static void nodrop_move_front(struct nodrop_queue *q,
			      struct nodrop_front *front)
{
	while (q->in_front)
		nodrop_front_add(front, nodrop_take_front(q));
}

/* Return: the one that is not needed any more, to be freed without locks. */
static struct nodrop_front *nodrop_set_front(struct nodrop_queue *q,
					     struct nodrop_front *front)
{
	if (!front->count)
		return front;
	swap(q->front, front);
	WRITE_ONCE(q->in_front, q->front->count);
	return front;
}

/**
 * nodrop_take_front() - the next packet in front of the ring
 * @q: the queue, with one in front
 *
 * Context: consumer_lock held.
 * Return: the packet.
 */
void *nodrop_take_front(struct nodrop_queue *q)
{
	unsigned int left = q->in_front;

	WRITE_ONCE(q->in_front, left - 1);
	return q->front->packets[q->front->count - left];
}
EXPORT_SYMBOL_GPL(nodrop_take_front);

/**
 * nodrop_peek() - what nodrop_consume() would return
 * @q: the queue
 *
 * Context: as nodrop_consume().
 * Return: the packet, which stays where it is, or NULL.
 */
void *nodrop_peek(struct nodrop_queue *q)
{
	void *packet;

	if (q->in_front)
		return q->front->packets[q->front->count - q->in_front];
	packet = __ptr_ring_peek(q->ring);
	if (!packet && nodrop_found_nothing(q))
		packet = __ptr_ring_peek(q->ring);
	return packet;
}
EXPORT_SYMBOL_GPL(nodrop_peek);

/* Return: false when a foreign reader would never find them there. */
static bool nodrop_inject(struct nodrop_queue *q, void **packets, int n)
{
	struct nodrop_front *front;
	int i;

	front = nodrop_front_grow(q, n, false, GFP_KERNEL | __GFP_NOFAIL);
	if (q->foreign) {
		nodrop_unlock(q);
		kvfree(front);
		return false;
	}

	for (i = 0; i < n; i++)
		nodrop_front_add(front, packets[i]);
	nodrop_move_front(q, front);
	front = nodrop_set_front(q, front);
	WRITE_ONCE(q->produced, q->produced + n);
	if (q->limited)
		q->uncharged += n;
	nodrop_unlock(q);
	kvfree(front);
	return true;
}

/* Throw away packets @from to @to of @front. Process context, no locks. */
static void nodrop_front_drop(struct nodrop_queue *q,
			      struct nodrop_front *front,
			      unsigned int from, unsigned int to)
{
	while (from < to)
		q->destroy(front->packets[from++]);
}

/**
 * nodrop_unconsume() - a reader puts back what it has not used
 * @q: the queue
 * @packets: in the order in which nodrop_consume() gave them
 * @n: how many
 *
 * Context: process context, no lock of the ring held.
 */
void nodrop_unconsume(struct nodrop_queue *q, void **packets, int n)
{
	int i;

	if (n && !nodrop_inject(q, packets, n))
		for (i = 0; i < n; i++)
			q->destroy(packets[i]);
}
EXPORT_SYMBOL_GPL(nodrop_unconsume);

/* Everything that the queue holds goes to @front. Both locks held. */
static void nodrop_empty_out(struct nodrop_queue *q,
			     struct nodrop_front *front)
{
	void *packet;

	nodrop_move_front(q, front);
	while ((packet = __ptr_ring_consume(q->ring)))
		nodrop_front_add(front, packet);
}

/*
 * Fill the new array: with the last that came as far as they fit, so that the
 * others can wait in front; for a reader who does not know of a front, with
 * the first. Return: how many went into the ring.
 */
static unsigned int nodrop_refill(struct nodrop_queue *q,
				  struct ptr_ring *fresh,
				  struct nodrop_front *front)
{
	/* The slot that a sender was promised is kept free for it. */
	unsigned int slots = fresh->size - (q->room ? 1 : 0);
	unsigned int n = min(slots, front->count);
	unsigned int first = q->foreign ? 0 : front->count - n;
	unsigned int i;

	for (i = 0; i < n; i++)
		__ptr_ring_produce(fresh, front->packets[first + i]);
	return n;
}

static void nodrop_swap_ring(struct ptr_ring *ring, struct ptr_ring *fresh)
{
	void **before = ring->queue;

	WRITE_ONCE(ring->size, fresh->size);
	ring->batch = fresh->batch;
	ring->producer = fresh->producer;
	ring->consumer_tail = 0;
	WRITE_ONCE(ring->consumer_head, 0);
	WRITE_ONCE(ring->queue, fresh->queue);
	fresh->queue = before;
}

/* Move everything into a new array of @size slots; 0: of as many as now. */
static int nodrop_reload(struct nodrop_queue *q, int size)
{
	struct ptr_ring *ring = q->ring;
	struct nodrop_front *front;
	unsigned int kept, end;
	struct ptr_ring fresh;
	int err;

	err = ptr_ring_init(&fresh, size ?: READ_ONCE(ring->size), GFP_KERNEL);
	if (err)
		return err;
	front = nodrop_front_grow(q, 0, true, GFP_KERNEL);
	if (!front) {
		ptr_ring_cleanup(&fresh, NULL);
		return -ENOMEM;
	}

	nodrop_empty_out(q, front);
	kept = nodrop_refill(q, &fresh, front);
	end = kept;
	nodrop_swap_ring(ring, &fresh);
	if (q->room)
		WRITE_ONCE(q->room, ring->queue);
	if (q->foreign) {
		end = front->count;
		q->stats[NODROP_DROP_FOREIGN] += end - kept;
	} else {
		front->count -= kept;
		front = nodrop_set_front(q, front);
	}
	nodrop_update_limit(q, false);
	nodrop_reopen(q, q->txq);
	nodrop_unlock(q);

	nodrop_front_drop(q, front, kept, end);
	kvfree(front);
	ptr_ring_cleanup(&fresh, NULL);
	return 0;
}

/**
 * nodrop_queue_resize() - give the ring another size
 * @q: the queue
 * @size: slots; there is always one at least. More than memory could ever
 *	hold, or a negative number, is refused as ptr_ring_resize() does it.
 *
 * No packet is lost, except with a foreign reader: what does not fit any more
 * waits in front. A sender that has claimed a slot keeps it.
 *
 * Context: process context, RTNL held.
 * Return: 0 or -ENOMEM: nothing has changed then.
 */
int nodrop_queue_resize(struct nodrop_queue *q, int size)
{
	ASSERT_RTNL();
	return nodrop_reload(q, size ?: 1);
}
EXPORT_SYMBOL_GPL(nodrop_queue_resize);

/* A ring that is shorter inherits as if it had so many slots. */
#define NODROP_HEIR_MIN 1000

/*
 * How many packets @heir may still inherit. In front of all rings of its device
 * together there may be as many as they can hold: who fills a queue, detaches
 * it and attaches it again, and so on, must not fill the memory. RTNL.
 */
static unsigned int nodrop_may_inherit(const struct nodrop_queue *heir)
{
	unsigned int most = max(READ_ONCE(heir->ring->size), NODROP_HEIR_MIN);
	unsigned int held = READ_ONCE(heir->in_front);

	if (heir->txq) {
		most *= heir->txq->dev->real_num_tx_queues;
		held = nodrop_in_front_of(heir->txq->dev);
	}
	return most > held ? most - held : 0;
}

/**
 * nodrop_queue_leave() - the queue leaves its device
 * @q: the queue; no sender reaches it any more
 * @heir: a queue of the same device whose reader is to get what @q holds, or
 *	NULL when there is none: then it is thrown away, as is what @heir may
 *	not inherit
 *
 * As nodrop_queue_bind() with NULL. The caller calls @heir's reader.
 *
 * Context: process context, RTNL held.
 * Return: how many packets were thrown away.
 */
int nodrop_queue_leave(struct nodrop_queue *q, struct nodrop_queue *heir)
{
	struct nodrop_front *front;
	unsigned int n, kept = 0;

	nodrop_queue_bind(q, NULL);

	front = nodrop_front_grow(q, 0, true, GFP_KERNEL | __GFP_NOFAIL);
	nodrop_empty_out(q, front);
	n = front->count;
	WRITE_ONCE(q->taken, q->taken + n);
	nodrop_unlock(q);

	if (heir)
		kept = min(n, nodrop_may_inherit(heir));
	if (kept && !nodrop_inject(heir, front->packets, kept))
		kept = 0;

	nodrop_lock(q);
	q->stats[NODROP_DROP_PURGED] += n - kept;
	nodrop_unlock(q);
	nodrop_front_drop(q, front, kept, n);
	kvfree(front);
	return n - kept;
}
EXPORT_SYMBOL_GPL(nodrop_queue_leave);

/**
 * nodrop_queue_foreign() - the ring goes to a reader that wakes nobody
 * @q: the queue
 *
 * From now on a full ring drops, as it does without nodrop. It stays so for
 * the life of @q: such a reader does not say when it is done. What waits in
 * front of the ring goes into it as far as there is room.
 *
 * Context: process context.
 */
void nodrop_queue_foreign(struct nodrop_queue *q)
{
	bool in_front;

	nodrop_lock(q);
	q->foreign = true;
	WRITE_ONCE(q->room, NULL);
	nodrop_update_limit(q, true);
	nodrop_reopen(q, q->txq);
	in_front = q->in_front;
	nodrop_unlock(q);

	if (in_front && nodrop_reload(q, 0))
		pr_warn("nodrop: no memory: packets in front of a ring are not read\n");
}
EXPORT_SYMBOL_GPL(nodrop_queue_foreign);
