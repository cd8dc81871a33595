// SPDX-License-Identifier: GPL-2.0-only
/*
 * esp: the sending end of a user-space VPN whose packets look like ESP in UDP.
 * It encrypts each packet of its TUN device with AES-128-GCM and sends it:
 *
 *   qdisc -> TUN -> [ seal ] -> UDP socket
 *
 *   | SPI, sequence (8) | IV (8) | packet, encrypted | tag (16) |
 *
 * Without ESP's trailer and without key exchange: the fixed key is for
 * benchmarks only.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"

#define SPI		0x6e6f6472U
#define TAG_BYTES	16
#define POLL_MS		100

static const unsigned char key[16] = "nodrop benchmark";
static const unsigned char salt[4] = "salt";

struct esp_header {
	__be32 spi;
	__be32 sequence;
	__be64 iv;
};

#define OVERHEAD	(sizeof(struct esp_header) + TAG_BYTES)
#define SPI_BYTES	offsetof(struct esp_header, iv)

union message {
	struct esp_header header;
	char bytes[TUN_PACKET_MAX + OVERHEAD];
};

/**
 * struct end - one end and its counts
 * @batch: packets to read per poll(), 0: blocking reads
 * @refused: not encrypted, or not accepted by the kernel
 */
struct end {
	int tun;
	int udp;
	__u64 batch;
	__u64 packets;
	__u64 refused;
	int error;
};

/* A context with the key; each packet has its own IV. */
static EVP_CIPHER_CTX *cipher(void)
{
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

	if (!context || !EVP_CipherInit_ex(context, EVP_aes_128_gcm(), NULL,
					   key, NULL, 1))
		die(EXIT_UNSUPPORTED, "libcrypto has no AES-128-GCM");
	return context;
}

/* Starts a packet: sets its nonce, authenticates its header. */
static bool begin(EVP_CIPHER_CTX *context, const struct esp_header *header)
{
	unsigned char nonce[sizeof(salt) + sizeof(header->iv)];
	int length;

	memcpy(nonce, salt, sizeof(salt));
	memcpy(nonce + sizeof(salt), &header->iv, sizeof(header->iv));
	return EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, -1) &&
	       EVP_CipherUpdate(context, NULL, &length, (const void *)header,
				SPI_BYTES);
}

/* Encrypts the packet after @header and appends the tag. */
static bool seal(EVP_CIPHER_CTX *context, struct esp_header *header,
		 size_t bytes, __u64 sequence)
{
	unsigned char *text = (unsigned char *)(header + 1);
	int length;

	header->spi = htobe32(SPI);
	header->sequence = htobe32(sequence);
	header->iv = htobe64(sequence);
	return begin(context, header) &&
	       EVP_CipherUpdate(context, text, &length, text, bytes) &&
	       EVP_CipherFinal_ex(context, text + length, &length) &&
	       EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES,
				   text + bytes);
}

/* False when the program is to stop. */
static bool wait_readable(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	while (!stop_asked()) {
		if (poll(&ready, 1, POLL_MS) > 0)
			return true;
	}
	return false;
}

/* Reads one packet like an event loop; returns as read(), with errno. */
static ssize_t read_packet(struct end *end, void *packet, __u64 *left)
{
	ssize_t length;

	for (;;) {
		if (end->batch && !*left) {
			if (!wait_readable(end->tun)) {
				errno = EINTR;
				return -1;
			}
			*left = end->batch;
		}
		length = read(end->tun, packet, TUN_PACKET_MAX);
		if (length >= 0 || errno != EAGAIN) {
			*left -= end->batch > 0;
			return length;
		}
		*left = 0;
	}
}

static void *run_seal(void *arg)
{
	union message message;
	struct esp_header *header = &message.header;
	EVP_CIPHER_CTX *context = cipher();
	struct end *end = arg;
	__u64 sequence = 0;
	__u64 left = 0;
	ssize_t bytes;

	while (!stop_asked()) {
		bytes = read_packet(end, header + 1, &left);
		if (bytes < 0) {
			if (errno == EINTR)
				continue;
			end->error = errno;
			break;
		}
		if (seal(context, header, bytes, ++sequence) &&
		    send(end->udp, &message, bytes + OVERHEAD, 0) > 0)
			end->packets++;
		else
			end->refused++;
	}
	EVP_CIPHER_CTX_free(context);
	return NULL;
}

static void print_result(const struct end *end, __u64 duration)
{
	json_open(NULL);
	json_count("packets", end->packets);
	json_count("refused", end->refused);
	json_seconds("seconds", duration);
	json_usage();
	json_close();
}

int main(int argc, char **argv)
{
	static struct end end;
	__u64 fd = 0;
	const char *local = NULL;
	const char *remote = NULL;
	pthread_t thread;
	__u64 port = 4500;
	const struct option_spec specs[] = {
		{ .name = "fd", .number = &fd, .max = 1 << 20 },
		{ .name = "local", .text = &local },
		{ .name = "remote", .text = &remote },
		{ .name = "port", .number = &port, .min = 1, .max = 65535 },
		{ .name = "batch", .number = &end.batch, .max = 1 << 20 },
		{}
	};
	__u64 started;

	parse_options(argc, argv, specs);
	require_text("local", local);
	require_text("remote", remote);
	catch_stop_signals();
	end.udp = open_udp(local, port, 0);
	connect_udp(end.udp, remote, port);
	end.tun = fd;
	if (end.batch && fcntl(end.tun, F_SETFL, O_NONBLOCK))
		die(EXIT_FAILED, "cannot set O_NONBLOCK: %s",
		    strerror(errno));
	json_ready();
	started = now_ns();
	start_thread(&thread, run_seal, &end);
	wait_for_end(0);
	join_threads(&thread, 1);

	print_result(&end, now_ns() - started);
	if (end.error)
		die(EXIT_FAILED, "reading failed: %s", strerror(end.error));
	return EXIT_FINE;
}
