/* SPDX-License-Identifier: GPL-2.0-only */
/* gcc -gbtf -c small.c && objcopy -O binary --only-section=.BTF --set-section-flags .BTF=alloc small.o small.btf */
typedef struct { struct net *net; } possible_net_t;
enum colour { RED, GREEN };
struct ns_common { long stashed; const void *ops; unsigned int inum; };
struct net { int passive; volatile struct ns_common ns; };
struct net_device {
	char name[16];
	unsigned int flags : 3, wild : 5;
	union {
		struct { long first; int ifindex; };
		long both[2];
	};
	int (*open)(struct net_device *dev, enum colour colour);
	possible_net_t nd_net;
};
struct sk_buff { struct sk_buff *next, *prev; struct net_device *dev; } skb;
struct net ns;
