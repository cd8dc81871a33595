# SPDX-License-Identifier: GPL-2.0-only
"""Which of the kernel's own tests are about tunnels, in tools/testing/selftests."""

from __future__ import annotations

from collections.abc import Mapping

_NET = (
    *("bareudp", "fou_mcast_encap", "gre_gso", "gre_ipv6_lladdr", "ip6_gre_headroom"),
    *("ip6_tunnel", "l2_tos_ttl_inherit", "lwt_dst_cache_ref_loop", "srv6_iptunnel_cache"),
    *("test_bridge_backup_port", "test_bridge_neigh_suppress", "test_vxlan_fdb_changelink"),
    *("test_vxlan_mdb", "test_vxlan_nh", "test_vxlan_nolocalbypass", "test_vxlan_under_vrf"),
    *("test_vxlan_vnifilter_notify", "test_vxlan_vnifiltering", "vrf_route_leaking"),
    *("xfrm_policy", "amt", "big_tcp_tunnels", "double_udp_encap"),
)
_FORWARDING = (
    *("gre_inner_v4_multipath", "gre_inner_v6_multipath", "gre_multipath", "gre_multipath_nh"),
    *("ip6gre_flat", "ip6gre_flat_key", "ip6gre_flat_keys", "ip6gre_hier", "ip6gre_hier_key"),
    *("ip6gre_hier_keys", "ip6gre_inner_v4_multipath", "ip6gre_inner_v6_multipath"),
    *("ipip_flat_gre", "ipip_flat_gre_key", "ipip_flat_gre_keys", "ipip_hier_gre"),
    *("ipip_hier_gre_key", "ipip_hier_gre_keys", "vxlan_asymmetric", "vxlan_bridge_1d"),
    *("vxlan_bridge_1d_ipv6", "vxlan_bridge_1q", "vxlan_bridge_1q_ipv6", "vxlan_reserved"),
    *("vxlan_symmetric", "vxlan_symmetric_ipv6", "dual_vxlan_bridge", "mirror_gre"),
)
_RTNETLINK = (
    *("kci_test_encap", "kci_test_gre", "kci_test_gretap", "kci_test_ip6gretap", "kci_test_erspan"),
    "kci_test_ip6erspan",
)
TESTS: Mapping[str, tuple[float, str, *tuple[str, ...]]] = {
    **{name: (240.0, f"net/{name}.sh") for name in _NET},
    **{name: (240.0, f"net/forwarding/{name}.sh") for name in _FORWARDING},
    "rtnetlink": (120.0, "net/rtnetlink.sh", "-t", " ".join(_RTNETLINK)),
    "pmtu": (900.0, "net/pmtu.sh"),
    "wireguard": (300.0, "wireguard/netns.sh"),
}
"""Name -> seconds after which it is stopped, its path below tools/testing/selftests, arguments."""
