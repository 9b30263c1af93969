/* SPDX-License-Identifier: Apache-2.0 */
/*
** table.c - ops.def by name.
*/
#include "fn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct op table[] = {
#define V(name, signature, fn, rule) {name, signature, FORM_VECTOR, rule, op_##fn, NULL, NULL, 0},
#define S(name, signature, fn, rule) {name, signature, FORM_SCALAR, rule, NULL, op_##fn, NULL, 0},
#define X(name, fn, argument) {name, "", FORM_SPECIAL, ANY, NULL, NULL, op_##fn, argument},
#include "ops.def"
#undef V
#undef S
#undef X
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct op *)a)->name, ((const struct op *)b)->name);
}

static void sort(void) { qsort(table, sizeof table / sizeof *table, sizeof *table, by_name); }

const struct op *sim_op(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct op key = {.name = name};
    pthread_once(&once, sort);
    return bsearch(&key, table, sizeof table / sizeof *table, sizeof *table, by_name);
}
