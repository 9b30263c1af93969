/* SPDX-License-Identifier: Apache-2.0 */
/* test_ref.h - the two halves of the test program `test_ref`. */
#ifndef KVKILN_TESTS_TEST_REF_H
#define KVKILN_TESTS_TEST_REF_H

/* Runs every case file that belongs to a source folder (golden.h) as a test; returns the number of
** failures. */
int test_golden_run(const char *source_folder);

#endif
