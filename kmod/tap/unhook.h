/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * After tap.c: remove the hooks.
 */
#undef tap_open
#undef tap_release
#undef tap_get_ptr_ring
#undef ptr_ring_produce
#undef ptr_ring_init
#undef ptr_ring_cleanup
#undef ptr_ring_resize_multiple
#undef ptr_ring_resize_multiple_bh
#undef kfree_skb_list_reason
