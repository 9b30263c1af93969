/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - see compare.h. */
#include "compare.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void compare_begin(struct comparison *c, const char *name)
{
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
}

int compare_add(struct comparison *c, double got, double want)
{
    double diff = fabs(got - want);
    c->count++;
    c->row_reference += want * want;
    if (diff == 0)
        return 0;
    c->differ++;
    c->row_square += diff * diff;
    if (!isfinite(diff)) {
        c->max_diff = INFINITY;
        compare_bad(c, "element %ld is %g, expected %g", c->count - 1, got, want);
    } else if (diff > c->max_diff) {
        c->max_diff = diff;
    }
    return 1;
}

void compare_bad(struct comparison *c, const char *format, ...)
{
    if (!c->bad++) {
        va_list args;
        va_start(args, format);
        vsnprintf(c->note, sizeof c->note, format, args);
        va_end(args);
    }
}

static double relative(double square, double reference)
{
    if (square == 0)
        return 0;
    return reference > 0 ? sqrt(square / reference) : INFINITY;
}

void compare_row(struct comparison *c)
{
    double worst = relative(c->row_square, c->row_reference);
    if (!(worst <= c->worst_row)) /* a NaN wins */
        c->worst_row = worst;
    c->square += c->row_square;
    c->reference += c->row_reference;
    c->row_square = c->row_reference = 0;
    c->rows++;
}

static void finish(struct comparison *c, enum compare_rule rule, double limit, int pass)
{
    c->square += c->row_square;
    c->reference += c->row_reference;
    c->row_square = c->row_reference = 0;
    c->rel_l2 = relative(c->square, c->reference);
    c->rule = rule;
    c->limit = limit;
    c->pass = pass && !c->bad && isfinite(c->max_diff);
}

void compare_exact(struct comparison *c)
{
    finish(c, COMPARE_EXACT, 0, c->differ == 0);
}

void compare_count(struct comparison *c, double rate)
{
    double allowed = fmax(2, ceil((double)c->count * rate));
    finish(c, COMPARE_COUNT, allowed, (double)c->differ <= allowed);
}

void compare_steps(struct comparison *c, long steps)
{
    finish(c, COMPARE_STEPS, (double)steps, 1);
}

void compare_l2(struct comparison *c, double limit)
{
    finish(c, COMPARE_L2, limit, 1);
    c->pass = c->pass && c->rel_l2 <= limit && c->worst_row <= 4 * limit;
    if (c->rel_l2 <= limit && !(c->worst_row <= 4 * limit) && !c->bad)
        snprintf(c->note, sizeof c->note, "a row has relative L2 %.2e, more than 4 x the limit",
                 c->worst_row);
}

void compare_limit_text(const struct comparison *c, char *text, size_t cap)
{
    if (c->rule == COMPARE_EXACT)
        snprintf(text, cap, "exact");
    else if (c->rule == COMPARE_COUNT)
        snprintf(text, cap, "%g differ", c->limit);
    else if (c->rule == COMPARE_STEPS)
        snprintf(text, cap, "%g ulp", c->limit);
    else
        snprintf(text, cap, "L2 %.1e", c->limit);
}

json_t *compare_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *compare_json(const struct comparison *c)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:o, s:o, s:f, s:b}", "name", c->name, "count",
                               (json_int_t)c->count, "differ", (json_int_t)c->differ, "max_diff",
                               compare_real(c->max_diff), "rel_l2", compare_real(c->rel_l2),
                               "limit", c->limit, "pass", c->pass);
    if (!c->pass && c->note[0])
        json_object_set_new(object, "note", json_string(c->note));
    return object;
}

struct comparison *compare_new(struct comparisons *all, const char *name)
{
    int last = (int)(sizeof all->items / sizeof *all->items) - 1;
    struct comparison *c = &all->items[all->count <= last ? all->count++ : last];
    compare_begin(c, name);
    return c;
}
