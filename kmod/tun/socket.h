/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What nodrop_tun exports to vhost_net, by its own name for it.
 */
#ifndef NODROP_TUN_SOCKET_H
#define NODROP_TUN_SOCKET_H

struct file;
struct socket;

/**
 * nodrop_tun_get_socket() - tun_get_socket() for nodrop_tun's own files
 * @file: any file; the caller keeps a reference on it while it uses the socket
 *
 * Context: any.
 * Return: the socket; -EINVAL as an ERR_PTR() for a file of another driver.
 */
struct socket *nodrop_tun_get_socket(struct file *file);

#endif
