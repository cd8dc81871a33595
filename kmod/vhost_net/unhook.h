/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * After net.c: remove the hooks.
 */
#undef tun_get_tx_ring
#undef tun_get_socket
#undef spin_lock
#undef spin_unlock
#undef __ptr_ring_consume_batched
#undef ptr_ring_consume_batched
#undef ptr_ring_unconsume
#undef peek_head_len
#undef MODULE_VERSION
