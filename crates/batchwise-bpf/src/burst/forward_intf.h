/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the forwarder's program shares with its loader: the only definition of both. */
#ifndef BW_FORWARD_INTF_H
#define BW_FORWARD_INTF_H

/* The interfaces, as indices of the maps. */
enum bw_forward_port {
	BW_FORWARD_FROM,
	BW_FORWARD_TO,
	BW_FORWARD_PORTS,
};

#endif
