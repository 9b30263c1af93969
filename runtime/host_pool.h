/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_pool.h - the OS threads that share the CTAs of a launch.
*/
#ifndef KVKILN_HOST_POOL_H
#define KVKILN_HOST_POOL_H

#include "host_sched.h"

struct host_pool;

/* `threads`: at most so many, the caller's own included. They are started by the first launch that can use them. */
kvk_status host_pool_open(struct host_pool **out, unsigned threads, kvk_error *err);
void host_pool_close(struct host_pool *pool);

/*
** Runs the grid; returns when all of its CTAs have, or with the first error of one. Calls from several threads take
** turns. The calling thread runs CTAs as well, on the stacks of fibers.
*/
kvk_status host_pool_run(struct host_pool *pool, const struct host_grid *grid, kvk_error *err);

#endif
