# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch's transmit, compiled with stubs of the kernel: races that cannot be forced."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from stubs import write

KMOD = Path(__file__).resolve().parents[3] / "kmod"

TRANSMIT = r"""
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define __rcu
#define __percpu
#define likely(x) (x)
#define READ_ONCE(x) (x)
#define DEFINE_PER_CPU(type, name) type name
#define __this_cpu_read(x) (x)
#define __this_cpu_write(x, v) ((x) = (v))
#define __same_type(a, b) __builtin_types_compatible_p(__typeof__(a), __typeof__(b))
#define rcu_dereference_check(p, c) (p)
#define rcu_dereference(p) rcu_dereference_check(p, 0)
#define rcu_dereference_bh(p) (p)
#define netdev_priv(dev) (&(dev)->tun)
#define netdev_get_tx_queue(dev, index) (&(dev)->txq)
#define skb_get_queue_mapping(skb) (0)
#define nodrop_tun_queue(tfile) ((tfile)->plain ? NULL : &(tfile)->q)
#define nodrop_tun_enabled(tun) true
#define nodrop_keeps(skb) false

typedef unsigned short u16;
typedef enum { NETDEV_TX_OK, NETDEV_TX_BUSY, NET_XMIT_DROP } netdev_tx_t;
struct prog { int run; };
struct nodrop_queue { int reserves; };
struct tun_file { struct nodrop_queue q; int packets; bool plain; };
struct tun_struct { struct tun_file *tfiles[2]; struct prog *prog; };
struct netdev_queue { int unused; };
struct net_device { struct tun_struct tun; struct netdev_queue txq; int dropped; };
struct sk_buff { struct net_device *console; int freed; };

static struct net_device *detaches_in_reserve;

static struct tun_file first, second;

enum { SKB_DROP_REASON_FULL_RING = 1 };
static int reserve_error;

static void dev_core_stats_tx_dropped_inc(struct net_device *dev)
{
	dev->dropped++;
}

static void skb_tx_error(struct sk_buff *skb)
{
	assert(!skb->freed);
}

static void kfree_skb_reason(struct sk_buff *skb, int reason)
{
	skb->freed += reason;
}

static bool nodrop_reserved(struct nodrop_queue *q, struct netdev_queue *txq)
{
	return false;
}

static int nodrop_reserve(struct nodrop_queue *q, struct netdev_queue *txq, bool on,
			bool keeps)
{
	q->reserves++;
	if (detaches_in_reserve)
		detaches_in_reserve->tun.tfiles[0] = &second;
	return txq && on ? reserve_error : -1;
}
#include "lookup.h"

static netdev_tx_t nodrop_live_tun_net_xmit(struct sk_buff *skb, struct net_device *dev);

/* Like the kernel's own. */
static netdev_tx_t tun_net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile = rcu_dereference(tun->tfiles[0]);
	struct sk_buff printed = {0};

	if (skb->console)
		assert(nodrop_live_tun_net_xmit(&printed, skb->console) == NETDEV_TX_OK);
	assert(tfile == rcu_dereference(tun->tfiles[0]) || !skb->console);
	assert(rcu_dereference(tun->prog)->run);
	tfile->packets++;
	return NETDEV_TX_OK;
}
#undef rcu_dereference
#define rcu_dereference(p) (p)
"""

CASES = r"""
int main(void)
{
	struct tun_file other = {0};
	struct prog prog = {1};
	struct net_device dev = {{{&first}, &prog}}, console = {{{&other}, &prog}};
	struct sk_buff plain = {0}, prints = {&console};

	/* The reserved slot gets the packet, although its queue is detached meanwhile. */
	detaches_in_reserve = &dev;
	assert(nodrop_live_tun_net_xmit(&plain, &dev) == NETDEV_TX_OK);
	assert(first.q.reserves == 1 && first.packets == 1 && second.packets == 0);

	/* The next packet goes to the queue that now has the index. */
	detaches_in_reserve = NULL;
	assert(nodrop_live_tun_net_xmit(&prints, &dev) == NETDEV_TX_OK);
	assert(second.q.reserves == 1 && second.packets == 1);
	assert(other.q.reserves == 1 && other.packets == 1);

	/* No slot, with and without flow control. */
	reserve_error = -EBUSY;
	assert(nodrop_live_tun_net_xmit(&plain, &dev) == NETDEV_TX_BUSY);
	assert(!dev.dropped && !plain.freed);
	reserve_error = -ENOSPC;
	assert(nodrop_live_tun_net_xmit(&plain, &dev) == NET_XMIT_DROP);
	assert(dev.dropped == 1 && plain.freed == 1);
	assert(second.q.reserves == 3 && second.packets == 1);

	/* Without a queue it is transmitted as by the stock driver. */
	second.plain = true;
	assert(nodrop_live_tun_net_xmit(&plain, &dev) == NETDEV_TX_OK);
	assert(second.q.reserves == 3 && second.packets == 2);
	return 0;
}
"""


def test_the_reserved_slot_gets_the_packet(tmp_path: Path) -> None:
    text = (KMOD / "live/tun.c").read_text(encoding="utf-8")
    match = re.search(r"^[a-z][\w ]*\bnodrop_live_tun_net_xmit\(.*?^}\n", text, re.M | re.S)
    assert match
    parts = [TRANSMIT, match[0]]
    for header in ("netdevice.h", "percpu.h", "rcupdate.h"):
        write(tmp_path / "linux" / header)
    source = write(tmp_path / "program.c", "\n".join([*parts, CASES]))
    flags = ["-std=gnu11", "-Wno-unknown-pragmas", f"-I{tmp_path}", f"-I{KMOD}/tun"]
    program = tmp_path / "program"
    subprocess.run(["gcc", *flags, "-o", program, source], check=True, timeout=60)
    subprocess.run([program], check=True, timeout=60)
