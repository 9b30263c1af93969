/* SPDX-License-Identifier: Apache-2.0 */
/*
** compare.h - one compared tensor or field: numbers are added one by one, then judged by one of the
** rules.
**
** A difference that is not finite fails under every rule.
*/
#ifndef KVKILN_CLI_COMPARE_H
#define KVKILN_CLI_COMPARE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum compare_rule {
    COMPARE_EXACT, /* no difference */
    COMPARE_COUNT, /* at most `limit` differences, each of an allowed sort */
    COMPARE_STEPS, /* every difference at most `limit` steps of the last place */
    COMPARE_L2     /* relative L2 of the tensor <= limit, of each row <= 4 x limit */
};

struct comparison {
    char name[64];
    enum compare_rule rule;
    long count, differ;
    double max_diff, rel_l2, limit;
    int pass,
        informational; /* informational: beside the comparison that counts, with a wider limit */
    char note[128];    /* why it failed: the first fault */
    /* while adding */
    double square, reference, row_square, row_reference, worst_row;
    long bad, rows;
};

void compare_begin(struct comparison *c, const char *name);

/* One number; returns whether it differs. */
int compare_add(struct comparison *c, double got, double want);

/* The number added last differs in a way that no rate excuses: remembers where. */
void compare_bad(struct comparison *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* End of a row (COMPARE_L2). */
void compare_row(struct comparison *c);

/* Verdicts. */
void compare_exact(struct comparison *c);
void compare_count(struct comparison *c, double rate); /* limit max(2, ceil(count * rate)) */
void compare_steps(struct comparison *c, long steps);  /* with compare_bad where there are more */
void compare_l2(struct comparison *c, double limit);

/* Text of the limit ("exact", "<= 2 differ", "1.0e-03"), and the JSON object. */
void compare_limit_text(const struct comparison *c, char *text, size_t cap);
json_t *compare_json(const struct comparison *c);

/* A finite number, else null. */
json_t *compare_real(double value);

/* All comparisons of a file. */
struct comparisons {
    struct comparison items[48];
    int count;
    uint64_t stored; /* hash of the pool our store left, 0 = none: equal on two devices that store equal bytes */
};
struct comparison *compare_new(struct comparisons *all,
                               const char *name); /* begun; the last one is reused when full */

#endif
