/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * After tun.c: remove the hooks.
 */
#undef tun_init
#undef tun_cleanup
#undef tun_setup
#undef tun_queue_purge
#undef tun_chr_open
#undef tun_chr_close
#undef tun_get_tx_ring
#undef __ptr_ring_produce
#undef ptr_ring_produce
#undef ptr_ring_consume
#undef tun_ring_consume
#undef __ptr_ring_consume
#undef ptr_ring_empty
#undef ptr_ring_resize
#undef ptr_ring_resize_multiple
#undef ptr_ring_resize_multiple_bh
#undef netif_set_real_num_tx_queues
#undef ndo_start_xmit
