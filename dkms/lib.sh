# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Sourced by the scripts of this directory: nodrop's modules, paths, messages, DKMS's settings.
# NODROP_ROOT replaces / in tests.

# shellcheck disable=SC2034 # used by the scripts
{
	root=${NODROP_ROOT-}
	modules=$root/lib/modules
	cache=$root/var/cache/nodrop
	logs=$root/var/log/nodrop
	top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
	# In the order in which they are loaded. The kernel may lack vhost_net and tap.
	names="nodrop tun vhost_net tap"
}
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
umask 022

note() { printf 'nodrop: %s\n' "$*" >&2; }
die() { note "$@"; exit 1; }

# config KERNEL OPTION...: does the kernel's configuration have a line that begins with an OPTION?
config() {
	local file=$modules/$1/build/.config option
	shift
	for option; do
		grep -qs "^CONFIG_$option" "$file" || return 1
	done
}

# no_room PLACE: has PLACE less than 1 MB of space left?
no_room() {
	local free
	free=$(df --output=avail "$1" 2>/dev/null | tail -n 1) && [ "${free:-9999}" -lt 1024 ]
}

# whole FILE: is it a complete module?
whole() { [ -n "$(modinfo -F vermagic "$1" 2>/dev/null)" ]; }

# foreign FILE: is it a complete module, and not nodrop's? nodrop's have the field "nodrop".
foreign() { whole "$1" && [ -z "$(modinfo -F nodrop "$1" 2>/dev/null)" ]; }

# settings NAME...: print settings of DKMS, one per line: dkms_tree, the directory of its modules;
# mok_signing_key and mok_certificate, which sign them; sign_file, the program that signs, or
# nothing. They are in /etc/dkms/framework.conf and framework.conf.d/*.conf, which are shell scripts
# and may use the variables below.
settings() (
	set +eu
	# shellcheck disable=SC2034
	kernelver=$(uname -r)
	dkms_tree=$root/var/lib/dkms mok_signing_key='' mok_certificate='' sign_file=''
	# DKMS creates its key here, even if the files below set dkms_tree.
	own=$dkms_tree/mok
	for file in "$root"/etc/dkms/framework.conf{,.d/*.conf}; do
		# shellcheck source=/dev/null
		[ ! -r "$file" ] || . "$file" >/dev/null 2>&1
	done
	# Ubuntu's DKMS uses shim-signed's certificate, even if another one is set.
	if [ -z "$mok_signing_key" ] && grep -qsE '^ID(_LIKE)?="?ubuntu' "$root/etc/os-release"; then
		mok_signing_key=/var/lib/shim-signed/mok/MOK.priv
		mok_certificate=/var/lib/shim-signed/mok/MOK.der
	fi
	: "${mok_signing_key:=$own.key}" "${mok_certificate:=$own.pub}"
	for name; do
		echo "${!name}"
	done
)
