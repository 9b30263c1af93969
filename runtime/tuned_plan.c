/* SPDX-License-Identifier: Apache-2.0 */
/* tuned_plan.c - values of plan fields as text. Part of both libraries. */
#include "error.h"
#include "tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 48 };

static const struct {
    const char *name;
    int low, high;
} fields[PLAN_FIELDS] = {
#define PLAN_FIELD(name, low, high, meaning) {#name, low, high},
#include "plan.def"
#undef PLAN_FIELD
};

const char *tuned_field_name(enum plan_field field)
{
    return field < PLAN_FIELDS ? fields[field].name : "?";
}

enum plan_field tuned_field(const char *name, size_t length)
{
    int i = 0;
    while (i < PLAN_FIELDS &&
           (strlen(fields[i].name) != length || memcmp(fields[i].name, name, length) != 0))
        i++;
    return (enum plan_field)i;
}

void tuned_range(enum plan_field field, char *text, size_t cap)
{
    snprintf(text, cap, "%d..%d", fields[field].low, fields[field].high);
}

kvk_status tuned_check_value(const char *where, enum plan_field field, long value, kvk_error *err)
{
    if (value >= fields[field].low && value <= fields[field].high)
        return KVK_OK;
    return ERR(err, KVK_E_ARG, "%s: %s: %ld: accepted %d..%d", where, fields[field].name, value,
               fields[field].low, fields[field].high);
}

/* "%.*s%s" of a text that a message shows as it was written, but not all of it if it is long. */
#define SHOWN(text, length)                                                                        \
    (int)((length) < SHOWN_BYTES ? (length) : SHOWN_BYTES), text,                                  \
        (length) > SHOWN_BYTES ? "..." : ""

static kvk_status unknown_field(const char *what, const char *item, size_t length, kvk_error *err)
{
    char known[160] = "";
    for (int i = 0; i < PLAN_FIELDS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s=N", i ? ", " : "", fields[i].name);
    }
    return ERR(err, KVK_E_ARG, "%s: %.*s%s: accepted %s", what, SHOWN(item, length), known);
}

kvk_status tuned_plan_parse(const char *what, const char *text, struct tuned_plan *out,
                            kvk_error *err)
{
    for (int i = 0; i < PLAN_FIELDS; i++)
        out->value[i] = TUNED_RULE;
    while (text && *text) {
        size_t length = strcspn(text, ","), name = strcspn(text, "=,");
        char *end = NULL;
        enum plan_field field = tuned_field(text, name);
        long value = name < length ? strtol(text + name + 1, &end, 10) : 0;
        if (field == PLAN_FIELDS || end != text + length || end == text + name + 1)
            return unknown_field(what, text, length, err);
        if (tuned_check_value(what, field, value, NULL))
            return ERR(err, KVK_E_ARG, "%s: %s: %.*s%s: accepted %d..%d", what, fields[field].name,
                       SHOWN(text + name + 1, length - name - 1), fields[field].low,
                       fields[field].high);
        out->value[field] = (int)value;
        text += length + (text[length] == ',');
    }
    return KVK_OK;
}

size_t tuned_plan_format(const struct tuned_plan *plan, char *text, size_t cap)
{
    size_t length = 0;
    if (cap)
        *text = '\0';
    for (int i = 0; i < PLAN_FIELDS; i++) {
        if (plan->value[i] == TUNED_RULE)
            continue;
        size_t room = length < cap ? cap - length : 0;
        int n = snprintf(room ? text + length : NULL, room, "%s%s=%d", length ? "," : "",
                         fields[i].name, plan->value[i]);
        length += n > 0 ? (size_t)n : 0;
    }
    return length;
}
