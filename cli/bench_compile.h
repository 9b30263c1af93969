/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_compile.h - `kvkiln bench compile`: how long a kernel takes from its spec to a loadable
** object, and from the cache.
*/
#ifndef KVKILN_CLI_BENCH_COMPILE_H
#define KVKILN_CLI_BENCH_COMPILE_H

/* argv[0] is "kvkiln bench compile". Returns an exit code. */
int bench_compile(int argc, char **argv);

#endif
