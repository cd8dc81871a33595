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
#include <stdbool.h>
#include <stddef.h>

#define __rcu
#define likely(x) (x)
#define READ_ONCE(x) (x)
#define DEFINE_PER_CPU(type, name) type name
#define __this_cpu_read(x) (x)
#define __this_cpu_write(x, v) ((x) = (v))
#define __same_type(a, b) __builtin_types_compatible_p(__typeof__(a), __typeof__(b))
#define rcu_dereference_check(p, c) (p)
#define rcu_dereference(p) rcu_dereference_check(p, 0)
#define rcu_read_lock()
#define rcu_read_unlock()
#define smp_processor_id() 0
#define irqs_disabled() printing
#define netdev_priv(dev) (&(dev)->tun)
#define netdev_get_tx_queue(dev, index) (&(dev)->txq)
#define skb_get_queue_mapping(skb) (0)
#define __netif_tx_lock(txq, cpu) (assert((txq)->xmit_lock_owner == -1), \
	(txq)->xmit_lock_owner = (cpu))
#define __netif_tx_trylock(txq) \
	((txq)->xmit_lock_owner == -1 && ((txq)->xmit_lock_owner = 0, true))
#define __netif_tx_unlock(txq) ((txq)->xmit_lock_owner = -1)
#define nodrop_tun_queue(tfile) ((tfile)->plain ? NULL : &(tfile)->q)
#define nodrop_tun_enabled(tun) true

typedef unsigned short u16;
typedef enum { NETDEV_TX_OK, NETDEV_TX_BUSY } netdev_tx_t;
enum nodrop_verdict { NODROP_RESERVED, NODROP_BUSY };
struct prog { int run; };
struct nodrop_queue { int reserves; };
struct tun_file { struct nodrop_queue q; int packets; bool plain; };
struct tun_struct { struct tun_file *tfiles[2]; struct prog *prog; };
struct netdev_queue { int xmit_lock_owner; };
struct net_device { struct tun_struct tun; struct netdev_queue txq; };
struct sk_buff { struct net_device *console; };

static bool printing;
static netdev_tx_t printed_to;

static struct net_device *detaches_in_reserve;

static struct tun_file first, second;

static enum nodrop_verdict nodrop_reserve(struct nodrop_queue *q, struct netdev_queue *txq, bool on)
{
	q->reserves++;
	if (detaches_in_reserve)
		detaches_in_reserve->tun.tfiles[0] = &second;
	return txq && on ? NODROP_RESERVED : NODROP_BUSY;
}
#include "lookup.h"

static netdev_tx_t nodrop_live_net_xmit(struct sk_buff *skb, struct net_device *dev);

/* Like the kernel's own. */
static netdev_tx_t tun_net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct tun_struct *tun = netdev_priv(dev);
	struct tun_file *tfile = rcu_dereference(tun->tfiles[0]);
	struct sk_buff printed = {0};

	if (skb->console) {
		printing = true;
		printed_to = nodrop_live_net_xmit(&printed, skb->console);
		printing = false;
	}
	assert(tfile == rcu_dereference(tun->tfiles[0]) || !skb->console);
	assert(rcu_dereference(tun->prog)->run);
	assert(dev->txq.xmit_lock_owner == smp_processor_id());
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
	struct net_device dev = {{{&first}, &prog}, {-1}}, console = {{{&other}, &prog}, {-1}};
	struct sk_buff plain = {0}, prints = {&console};

	/* The reserved slot gets the packet, although its queue is detached meanwhile. */
	detaches_in_reserve = &dev;
	assert(nodrop_live_net_xmit(&plain, &dev) == NETDEV_TX_OK);
	assert(first.q.reserves == 1 && first.packets == 1 && second.packets == 0);

	/* The next packet goes to the queue that now has the index. */
	detaches_in_reserve = NULL;
	assert(nodrop_live_net_xmit(&prints, &dev) == NETDEV_TX_OK);
	assert(second.q.reserves == 1 && second.packets == 1);
	assert(other.q.reserves == 1 && other.packets == 1);

	assert(printed_to == NETDEV_TX_OK);

	/* The console prints through the device in use: it must send later. */
	prints.console = &dev;
	assert(nodrop_live_net_xmit(&prints, &dev) == NETDEV_TX_OK);
	assert(second.q.reserves == 2 && second.packets == 2);
	assert(printed_to == NETDEV_TX_BUSY);

	/* A queue may be created before the packet arrives: no one else reserves under the lock. */
	second.plain = true;
	assert(nodrop_live_net_xmit(&plain, &dev) == NETDEV_TX_OK);
	assert(second.q.reserves == 2 && second.packets == 3);
	assert(dev.txq.xmit_lock_owner == -1);
	return 0;
}
"""


def test_the_reserved_slot_gets_the_packet(tmp_path: Path) -> None:
    text = (KMOD / "live/tun.c").read_text(encoding="utf-8")
    match = re.search(r"^[a-z][\w ]*\bnodrop_live_net_xmit\(.*?^}\n", text, re.M | re.S)
    assert match
    parts = [TRANSMIT, match[0]]
    for header in ("netdevice.h", "percpu.h", "rcupdate.h"):
        write(tmp_path / "linux" / header)
    source = write(tmp_path / "program.c", "\n".join([*parts, CASES]))
    flags = ["-std=gnu11", "-Wno-unknown-pragmas", f"-I{tmp_path}", f"-I{KMOD}/tun"]
    program = tmp_path / "program"
    subprocess.run(["gcc", *flags, "-o", program, source], check=True, timeout=60)
    subprocess.run([program], check=True, timeout=60)
