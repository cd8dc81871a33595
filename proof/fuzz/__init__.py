# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer (docs/testing.md): random programs of system calls for tun and vhost-net."""
