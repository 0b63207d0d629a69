/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* lib/gaps.h with ordinary functions, so that tests can hold it against batchwise-core. */
#include "lib/base.h"

#undef BW_INLINE
#define BW_INLINE
#include "lib/gaps.h"
