// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two CPUs: a sender that stops and a reader that only wakes.
 */
#include <linux/kthread.h>

#include "fixture.h"

KUNIT_ARRAY_PARAM(size, flow_sizes, size_desc);

#define RACE_MS 700
#define RACE_STALL_MS 2000

struct race {
	struct flow *f;
	unsigned int sent;
	unsigned int lost;
	bool stalled;	/* written by the sender while the reader looks */
};

static int race_send(void *data)
{
	unsigned long patience = jiffies + msecs_to_jiffies(RACE_STALL_MS);
	struct race *race = data;
	int err;

	while (!kthread_should_stop()) {
		if (stopped(race->f)) {
			if (time_after(jiffies, patience)) {
				WRITE_ONCE(race->stalled, true);
				break;
			}
			cond_resched();
			cpu_relax();
			continue;
		}
		patience = jiffies + msecs_to_jiffies(RACE_STALL_MS);
		local_bh_disable();
		if (transmit(race->f, race->sent, &err) != NODROP_BUSY) {
			race->lost += !!err;
			WRITE_ONCE(race->sent, race->sent + 1);
		}
		local_bh_enable();
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void test_race(struct kunit *test)
{
	struct flow *f = flow_new(test, param_size(test));
	struct race race = { .f = f };
	unsigned int taken = 0, wrong = 0;
	struct task_struct *sender;
	unsigned long end;

	/* The guard would hide a wake that is lost. */
	nodrop_guard_ms = 0;
	sender = kthread_run(race_send, &race, "flow_race");
	KUNIT_ASSERT_FALSE(test, IS_ERR(sender));
	end = jiffies + msecs_to_jiffies(RACE_MS);
	while (time_before(jiffies, end) ||
	       (stopped(f) && !READ_ONCE(race.stalled))) {
		void *got = consume(f);

		if (got)
			wrong += got != packet(taken++);
		else
			cond_resched();
	}
	kthread_stop(sender);
	while (consume(f))
		taken++;
	nodrop_guard_ms = GUARD_MS;

	KUNIT_EXPECT_FALSE(test, race.stalled);
	KUNIT_EXPECT_EQ(test, race.lost, 0U);
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, taken, race.sent);
}

static struct kunit_case race_cases[] = {
	KUNIT_CASE_PARAM_ATTR(test_race, size_gen_params,
			      {.speed = KUNIT_SPEED_SLOW}),
	{}
};

static struct kunit_suite race_suite = {
	.name = "nodrop_race",
	.suite_init = flow_suite_init,
	.init = flow_init,
	.exit = flow_exit,
	.test_cases = race_cases,
};

kunit_test_suite(race_suite);
