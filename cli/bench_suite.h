/* SPDX-License-Identifier: Apache-2.0 */
/* bench_suite.h - `kvkiln bench suite`. */
#ifndef KVKILN_CLI_BENCH_SUITE_H
#define KVKILN_CLI_BENCH_SUITE_H

/* argv[0] is "kvkiln bench suite"; returns an exit code. */
int bench_suite(int argc, char **argv);

#endif
