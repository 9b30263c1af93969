/* SPDX-License-Identifier: Apache-2.0 */
/*
** faults.h - calls of libc that fail on demand. The programs of this folder are linked with --wrap for each of them
** (cmake/tests.cmake), so that what the runtime calls passes through faults.c; what libc calls itself does not.
*/
#ifndef KVKILN_TESTS_RT_FAULTS_H
#define KVKILN_TESTS_RT_FAULTS_H

#include <stdatomic.h>

enum {
    FAULT_MEMORY = 1,  /* malloc and its like, mmap, mprotect: ENOMEM */
    FAULT_FILES = 2,   /* everything that the cache does with files: `error` */
    FAULT_THREADS = 4, /* pthread_create: EAGAIN */
};

struct faults {
    atomic_uint families;  /* which of them count and may fail; 0 = none */
    atomic_int fail_at;    /* the n-th counted call fails, from 1; 0 = none */
    atomic_uint chance;    /* of 2^16: each counted call fails with it */
    atomic_int error;      /* errno of FAULT_FILES */
    atomic_int calls, failures;
    _Atomic(const char *) failed; /* name of the last call that failed */
    atomic_ullong random;
    _Atomic(const char *) missing; /* dlsym does not find this name; "dlopen", "madvise": always fail */
};
extern struct faults faults;

/* All zero, then these. */
void faults_arm(unsigned families, int fail_at, int error);
void faults_disarm(void);

#endif
