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
	# Those that replace the kernel's own, and all, in the order in which they are loaded. modules_for
	# prints those of a kernel.
	replaced="tun vhost_net tap"
	names="nodrop nodrop_tun $replaced"
	oldest=6.1
}
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
umask 022

note() { printf 'nodrop: %s\n' "$*" >&2; }
die() { note "$@"; exit 1; }

# config KERNEL OPTION...: does the kernel's configuration have a line that begins with an OPTION?
# Strings have no quotes there.
config() {
	local file=$modules/$1/build/include/config/auto.conf option
	shift
	for option; do
		grep -qs "^CONFIG_$option" "$file" || return 1
	done
}

# has KERNEL NAME y|m: is NAME built into the kernel (y), or a module of it (m)? Without headers,
# what is not known to be built in counts as a module.
has() {
	if [ -r "$modules/$1/build/include/config/auto.conf" ]; then
		config "$1" "${2^^}=$3"
	elif grep -qs "/$2\.ko\$" "$modules/$1/modules.builtin"; then
		[ "$3" = y ]
	else
		[ "$3" = m ]
	fi
}

# modules_for KERNEL: print the names of nodrop's modules for it. They replace the kernel's own; a
# built-in tun cannot be replaced, so nodrop_tun goes beside it.
modules_for() {
	local name list="nodrop tun"
	! has "$1" tun y || list="nodrop nodrop_tun"
	for name in vhost_net tap; do
		! has "$1" "$name" m || list+=" $name"
	done
	echo "$list"
}

# supported KERNEL: has nodrop modules for it? If not, print why.
supported() {
	if [ "$(printf '%s\n' "$oldest" "${1%%-*}" | sort -V | sed -n 1p)" != "$oldest" ]; then
		note "kernel $1 is older than Linux $oldest, the oldest that nodrop supports"
		return 1
	elif has "$1" tun y && has "$1" vhost_net y; then
		note "kernel $1 has both tun and vhost_net built in: nodrop would have no effect, because" \
			"such a vhost_net refuses the devices of nodrop's tun"
		return 1
	elif ! has "$1" tun y && ! has "$1" tun m; then
		note "kernel $1 has no tun (CONFIG_TUN), so there is nothing to replace"
		return 1
	fi
}

# announce KERNEL: print what it has built in, and what nodrop does there.
announce() {
	local stays="is built into kernel $1 and stays"
	! has "$1" tun y || note "tun is built into kernel $1: nodrop's goes beside it (module" \
		"nodrop_tun), loaded at boot"
	! has "$1" vhost_net y || note "vhost_net $stays: tun drops as before for a device that" \
		"vhost_net takes packets from"
	! has "$1" tap y || note "tap $stays: macvtap and ipvtap drop as before"
}

# headers_of KERNEL: print the package of its headers.
headers_of() {
	case $1 in
	*-pve) echo "proxmox-headers-$1" ;;
	*) echo "linux-headers-$1" ;;
	esac
}

# ubuntu: is this Ubuntu, or made from it?
ubuntu() { grep -qsE '^ID(_LIKE)?="?ubuntu' "$root/etc/os-release"; }

# near KERNEL: may its source be of another patch level of the same X.Y? Ubuntu's archive keeps the
# newest linux-source only, and Proxmox has no package of its kernels' source.
near() { [[ $1 = *-pve ]] || ubuntu; }

# source_version DIR, headers_version DIR: print the version of a kernel's source tree (X.Y.Z), or
# of a build tree's headers.
source_version() {
	sed -nE 's/^(VERSION|PATCHLEVEL|SUBLEVEL) *= *//p' "$1/Makefile" | head -n 3 | paste -sd.
}
headers_version() {
	local code
	code=$(sed -n 's/^#define LINUX_VERSION_CODE *//p' "$1/include/generated/uapi/linux/version.h")
	echo "$((code >> 16)).$((code >> 8 & 255)).$((code & 255))"
}

# same_version SOURCE HEADERS: are these versions equal? That of headers ends at 255.
same_version() {
	local sub=${1##*.}
	[ "${1%.*}.$((sub > 255 ? 255 : sub))" = "$2" ]
}

# installed PACKAGE: print the version of a package that is installed, possibly in part: DKMS is
# called while a kernel is being installed. In dpkg's other states, n and c, a package has no files.
installed() {
	dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' "$1" 2>/dev/null |
		sed -n 's/^.[^nc]. *//p' | sed -n 1p
}

# no_room DIR: has DIR less than 1 MB of space left?
no_room() {
	local free
	free=$(df --output=avail "$1" 2>/dev/null | tail -n 1) && [ "${free:-9999}" -lt 1024 ]
}

# is_module FILE: is it a complete module?
is_module() { [ -n "$(modinfo -F vermagic "$1" 2>/dev/null)" ]; }

# foreign FILE: is it a complete module, and not nodrop's? nodrop's have the field "nodrop".
foreign() { is_module "$1" && [ -z "$(modinfo -F nodrop "$1" 2>/dev/null)" ]; }

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
	if [ -z "$mok_signing_key" ] && ubuntu; then
		mok_signing_key=/var/lib/shim-signed/mok/MOK.priv
		mok_certificate=/var/lib/shim-signed/mok/MOK.der
	fi
	: "${mok_signing_key:=$own.key}" "${mok_certificate:=$own.pub}"
	for name; do
		echo "${!name}"
	done
)
