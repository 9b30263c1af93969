/* SPDX-License-Identifier: Apache-2.0 */
/* test_ref.h - the two halves of the test program `test_ref`. */
#ifndef KVKILN_TESTS_TEST_REF_H
#define KVKILN_TESTS_TEST_REF_H

int test_golden_run(void); /* runs every case file of golden_folder() as a test; the number of failures */

#endif
