/* SPDX-License-Identifier: Apache-2.0 */
/*
** Every tests/fails/NAME.lua must be rejected with the message in NAME.expect, and soon: many of them try to hang or to
** take all memory. NAME.expect holds the whole message, with the file's base name for its path; where two limits race
** it has one line for each.
*/
#include "gen/spec.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LINE_BYTES = 600, SPECS_MAX = 400 };

static char names[SPECS_MAX][64];
static struct CMUnitTest cases[SPECS_MAX];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int is_expected(const char *name, const char *text)
{
    char path[1024], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/tests/fails/%s.expect", TEST_ROOT, name);
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = !strcmp(line, text);
    }
    if (file)
        fclose(file);
    return found;
}

static void is_rejected(void **state)
{
    const char *name = *state;
    char path[1024];
    struct spec spec;
    kvk_error err;
    snprintf(path, sizeof path, "%s/tests/fails/%s.lua", TEST_ROOT, name);
    double start = now();
    kvk_status status = spec_load(path, NULL, &spec, &err);
    double seconds = now() - start;
    if (status != KVK_E_SPEC)
        fail_msg("%s: status %d", name, (int)status);
    const char *text = strstr(err.text, name); /* from the file's base name on */
    if (!is_expected(name, text ? text : err.text))
        fail_msg("not in %s.expect: %s", name, text ? text : err.text);
    if (seconds > 2)
        fail_msg("%s: took %.1f s", name, seconds);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static int list_specs(void)
{
    int n = 0;
    struct dirent *entry;
    DIR *dir = opendir(TEST_ROOT "/tests/fails");
    while (dir && n < SPECS_MAX && (entry = readdir(dir))) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && length < sizeof names[n] && !strcmp(entry->d_name + length - 4, ".lua"))
            snprintf(names[n++], sizeof names[0], "%.*s", (int)length - 4, entry->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(names, (size_t)n, sizeof names[0], by_name);
    return n;
}

static void there_are_specs_to_reject(void **state)
{
    (void)state;
    assert_true(list_specs() >= 45);
}

int main(void)
{
    int n = list_specs();
    cases[0] = (struct CMUnitTest)cmocka_unit_test(there_are_specs_to_reject);
    for (int i = 0; i < n && i + 1 < SPECS_MAX; i++)
        cases[i + 1] = (struct CMUnitTest){names[i], is_rejected, NULL, NULL, names[i]};
    return _cmocka_run_group_tests("fails", cases, (size_t)n + 1, NULL, NULL);
}
