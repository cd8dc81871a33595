// SPDX-License-Identifier: GPL-2.0-only
#include "tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common.h"

static const struct {
	const char *word;
	unsigned int flag;
} flag_words[] = {
	{ "backpressure", IFF_BACKPRESSURE },
	{ "vnet_hdr", IFF_VNET_HDR },
	{ "napi", IFF_NAPI },
};

#define FLAG_WORDS (sizeof(flag_words) / sizeof(*flag_words))

static unsigned int flag_of(const char *word, size_t length)
{
	unsigned int i;

	for (i = 0; i < FLAG_WORDS; i++) {
		if (strlen(flag_words[i].word) == length &&
		    !strncmp(flag_words[i].word, word, length))
			return flag_words[i].flag;
	}
	die(EXIT_USAGE,
	    "unknown flag '%.*s'; known: backpressure, vnet_hdr, napi",
	    (int)length, word);
}

unsigned int parse_tun_flags(const char *words)
{
	unsigned int flags = 0;
	size_t length;

	while (words && *words) {
		length = strcspn(words, ",");
		flags |= flag_of(words, length);
		words += length;
		words += *words == ',';
	}
	return flags;
}

int open_tun(const char *name, unsigned int flags)
{
	struct ifreq request = {};
	unsigned int known;
	int fd;

	if (strlen(name) >= IFNAMSIZ)
		die(EXIT_USAGE, "the device name '%s' is longer than %d bytes",
		    name, IFNAMSIZ - 1);
	fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(EXIT_FAILED, "cannot open /dev/net/tun: %s; load tun first",
		    strerror(errno));
	flags |= IFF_NO_PI;
	if (ioctl(fd, TUNGETFEATURES, &known))
		die(EXIT_FAILED, "cannot ask tun for its features: %s",
		    strerror(errno));
	if ((flags & ~(known | IFF_TUN | IFF_TAP)) != 0)
		die(EXIT_UNSUPPORTED,
		    "this kernel's tun does not know the flags 0x%x",
		    flags & ~known);

	memcpy(request.ifr_name, name, strlen(name) + 1);
	request.ifr_flags = flags;
	if (ioctl(fd, TUNSETIFF, &request))
		die(EXIT_FAILED, "cannot attach to the device %s: %s", name,
		    strerror(errno));
	return fd;
}

bool find_mark(const void *packet, size_t length, unsigned int flags,
	       struct probe_mark *mark)
{
	const char *at = packet;
	size_t skip = 0;
	struct iphdr ip;

	if (flags & IFF_VNET_HDR)
		skip += sizeof(struct virtio_net_hdr);
	if (flags & IFF_TAP)
		skip += ETH_HLEN;
	if (length < skip + sizeof(ip))
		return false;
	memcpy(&ip, at + skip, sizeof(ip));
	if (ip.version != 4 || ip.protocol != IPPROTO_UDP)
		return false;
	skip += ip.ihl * 4 + sizeof(struct udphdr);
	if (length < skip + sizeof(*mark))
		return false;
	memcpy(mark, at + skip, sizeof(*mark));
	return mark->magic == PROBE_MAGIC;
}
