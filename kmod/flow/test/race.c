// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two CPUs: a sender that stops and a consumer that only wakes; and with them a
 * thread that resizes the ring and puts packets back.
 */
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/kthread.h>
#include <linux/mutex.h>

#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

#define RACE_MS 300

/* Else the guard would trip if the consumer is starved of CPU. */
static int race_init(struct kunit *test)
{
	int err = flow_init(test);

	guard_set(0);
	return err;
}

/* Not on a stack, which KCSAN's reports walk. */
struct race {
	struct flow *f;
	int (*send)(struct flow *f, unsigned int n);
	unsigned int sent;
	unsigned int lost;
	bool stalled;	/* written by the sender while the consumer reads it */
	bool churning;	/* else the third thread leaves the queue alone */
	unsigned int churned;
	struct mutex reading;	/* one consumer at a time */
	bool dry;		/* the consumer has found the ring empty */
};

static int race_send(void *data)
{
	unsigned long patience = jiffies + msecs_to_jiffies(flow_patience_ms);
	struct race *race = data;

	while (!kthread_should_stop()) {
		if (stopped(race->f)) {
			if (time_after(jiffies, patience)) {
				WRITE_ONCE(race->stalled, true);
				flow_patience_ms = FLOW_IMPATIENT_MS;
				break;
			}
			cond_resched();
			cpu_relax();
			continue;
		}
		patience = jiffies + msecs_to_jiffies(flow_patience_ms);
		race->lost += !!race->send(race->f, race->sent);
		WRITE_ONCE(race->sent, race->sent + 1);
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/*
 * Take a packet. As one that sleeps until there is a packet, the consumer looks
 * at an empty ring once: a lost wake must not be made up for by the next look.
 */
static void *race_take(struct race *race)
{
	void *got;

	if (race->dry && !nodrop_held(race->f->q)) {
		cond_resched();
		return NULL;
	}
	got = consume(race->f);
	race->dry = !got;
	return got;
}

static void test_race(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	unsigned int taken = 0, wrong = 0;
	struct task_struct *sender;
	static struct race race;
	unsigned long end;

	race = (struct race){ .f = f, .send = transmit };
	sender = kthread_run(race_send, &race, "flow_race");
	KUNIT_ASSERT_FALSE(test, IS_ERR(sender));
	end = jiffies + msecs_to_jiffies(RACE_MS);
	while (time_before(jiffies, end) ||
	       (stopped(f) && !READ_ONCE(race.stalled))) {
		void *got = race_take(&race);

		if (got)
			wrong += got != (void *)packet(taken++);
	}
	kthread_stop(sender);
	taken += drain(f);

	KUNIT_EXPECT_FALSE(test, race.stalled);
	KUNIT_EXPECT_EQ(test, race.lost, 0U);
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, taken, race.sent);
}

/* Two kernel threads past the qdisc: one sends after the other's stop. */
static void test_race_of_senders(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	struct race reader = { .f = f, .send = transmit_kthread };
	static struct race races[2];
	struct task_struct *senders[ARRAY_SIZE(races)];
	unsigned long end;
	u64 taken = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(races); i++) {
		races[i] = reader;
		senders[i] = kthread_run(race_send, &races[i], "flow_race");
		KUNIT_ASSERT_FALSE(test, IS_ERR(senders[i]));
	}
	end = jiffies + msecs_to_jiffies(RACE_MS);
	while (time_before(jiffies, end) ||
	       (stopped(f) && !READ_ONCE(races[0].stalled) &&
		!READ_ONCE(races[1].stalled))) {
		if (race_take(&reader))
			taken++;
	}
	for (i = 0; i < ARRAY_SIZE(races); i++)
		kthread_stop(senders[i]);
	taken += drain(f);

	for (i = 0; i < ARRAY_SIZE(races); i++) {
		KUNIT_EXPECT_FALSE(test, races[i].stalled);
		KUNIT_EXPECT_EQ(test, races[i].lost, 0U);
	}
	KUNIT_EXPECT_EQ(test, taken, (u64)races[0].sent + races[1].sent);
}

static int race_churn(void *data)
{
	static const int rings[] = { 500, 1, 33, 2, 0, 64, 31, 5 };
	struct race *race = data;
	void *taken[16];
	int n;

	while (!kthread_should_stop()) {
		usleep_range(100, 200);
		if (!READ_ONCE(race->churning))
			continue;
		flow_resize(race->f, rings[race->churned % 8]);
		flow_limit(race->f, race->f->q->max);
		guard_samples(race->f, 1);
		WRITE_ONCE(race->churned, race->churned + 1);
		mutex_lock(&race->reading);
		n = consume_batched(race->f, taken, 1 + race->churned % 16);
		nodrop_unconsume(race->f->q, taken, n);
		mutex_unlock(&race->reading);
	}
	return 0;
}

/* Until @churned is reached or, without churning, the txq is not stopped. */
static bool race_goes_on(struct race *race, unsigned int churned)
{
	if (READ_ONCE(race->stalled))
		return false;
	return READ_ONCE(race->churning) ? READ_ONCE(race->churned) < churned :
					   stopped(race->f);
}

/* Consume for @ms at least. */
static void race_read(struct race *race, unsigned int ms, unsigned int churned,
		      unsigned int *taken, unsigned int *wrong)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);

	while (time_before(jiffies, end) || race_goes_on(race, churned)) {
		void *got;

		mutex_lock(&race->reading);
		got = race_take(race);
		mutex_unlock(&race->reading);
		if (got)
			*wrong += got != (void *)packet((*taken)++);
	}
}

#define CHURN_ROUNDS 8
#define CHURN_TIMES 10
#define CHURN_MS 100

static void test_race_with_churn(struct kunit *test)
{
	struct flow *f = flow_new(test, 500);
	struct task_struct *sender, *churner;
	unsigned int taken = 0, wrong = 0, i;
	static struct race race;

	race = (struct race){ .f = f, .send = transmit };
	mutex_init(&race.reading);
	sender = kthread_run(race_send, &race, "flow_race");
	churner = kthread_run(race_churn, &race, "flow_churn");
	for (i = 0; i < CHURN_ROUNDS; i++) {
		WRITE_ONCE(race.churning, true);
		race_read(&race, CHURN_MS, (i + 1) * CHURN_TIMES, &taken,
			  &wrong);
		/* A resize wakes the txq, and would hide a lost wake. */
		WRITE_ONCE(race.churning, false);
		race_read(&race, CHURN_MS, 0, &taken, &wrong);
	}
	kthread_stop(churner);
	kthread_stop(sender);
	taken += drain(f);

	KUNIT_EXPECT_FALSE(test, race.stalled);
	KUNIT_EXPECT_EQ(test, race.lost, 0U);
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, taken, race.sent);
	KUNIT_EXPECT_EQ(test, flow_destroyed, 0U);
	KUNIT_EXPECT_EQ(test, nodrop_held(f->q), 0U);
}

/* A consumer that stalls and resumes, again and again. */
static int race_come_and_go(void *data)
{
	struct flow *f = data;

	while (!kthread_should_stop()) {
		WRITE_ONCE(f->q->stalled, true);
		cpu_relax();
		WRITE_ONCE(f->q->stalled, false);
		cond_resched();
	}
	return 0;
}

/* Whatever a sender finds, it drops for a cause, or stops the txq. */
static void test_race_with_a_reader_that_returns(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct task_struct *returner;
	unsigned long end, late;

	fill(test, f);
	returner = kthread_run(race_come_and_go, f, "flow_return");
	KUNIT_ASSERT_FALSE(test, IS_ERR(returner));
	end = jiffies + msecs_to_jiffies(RACE_MS);
	late = jiffies + msecs_to_jiffies(flow_patience_ms);
	while (time_before(jiffies, end) ||
	       (!counted(f, NODROP_DROP_GUARD) && time_before(jiffies, late))) {
		if (!transmit(f, 0))
			KUNIT_ASSERT_TRUE(test, stopped(f));
		while (counted(f, NODROP_RING) > 5)
			take(test, f, 1);
		cond_resched();
	}
	kthread_stop(returner);

	KUNIT_EXPECT_GT(test, counted(f, NODROP_DROP_GUARD), 0ULL);
	KUNIT_EXPECT_EQ(test, counted(f, NODROP_DROP_UNCLAIMED), 0ULL);
}

/* Other queues come and go in the same row of the table. */
#define RACE_ROW_BITS 12
#define RACE_BESIDE 8

struct race_row {
	const char *key;
	struct ptr_ring *ring;
};

static const char *race_beside(const struct race_row *row, const char *key)
{
	unsigned int at = hash_min((unsigned long)row->key, RACE_ROW_BITS);

	do
		key += 8;
	while (hash_min((unsigned long)key, RACE_ROW_BITS) != at);
	return key;
}

static int race_open_and_close(void *data)
{
	struct nodrop_queue *queues[RACE_BESIDE];
	struct race_row *row = data;
	int i;

	while (!kthread_should_stop()) {
		const char *key = row->key;

		for (i = 0; i < RACE_BESIDE; i++) {
			key = race_beside(row, key);
			queues[i] = nodrop_queue_create(row->ring, key, NULL);
		}
		for (i = 0; i < RACE_BESIDE; i++)
			if (queues[i])
				nodrop_queue_destroy(queues[i]);
		cond_resched();
	}
	return 0;
}

static void test_race_of_a_search(struct kunit *test)
{
	struct flow *f = flow_new(test, 5);
	struct race_row row = { .key = f->q->key, .ring = &f->ring };
	struct task_struct *opener;
	unsigned long missed = 0, end;

	opener = kthread_run(race_open_and_close, &row, "flow_open");
	KUNIT_ASSERT_FALSE(test, IS_ERR(opener));
	end = jiffies + msecs_to_jiffies(RACE_MS);
	while (time_before(jiffies, end)) {
		missed += nodrop_queue_find(row.key) != f->q;
		cond_resched();
	}
	kthread_stop(opener);
	KUNIT_EXPECT_EQ(test, missed, 0UL);
}

static struct kunit_case race_cases[] = {
	KUNIT_CASE_PARAM_ATTR(test_race, size_gen_params,
			      {.speed = KUNIT_SPEED_SLOW}),
	KUNIT_CASE_PARAM_ATTR(test_race_of_senders, size_gen_params,
			      {.speed = KUNIT_SPEED_SLOW}),
	KUNIT_CASE_SLOW(test_race_with_churn),
	KUNIT_CASE_SLOW(test_race_with_a_reader_that_returns),
	KUNIT_CASE_SLOW(test_race_of_a_search),
	{}
};

static struct kunit_suite race_suite = {
	.name = "nodrop_race",
	.init = race_init,
	.exit = flow_exit,
	.test_cases = race_cases,
};

kunit_test_suite(race_suite);
