/* SPDX-License-Identifier: Apache-2.0 */
/*
** page.h - the messages that a page of docs/ lists, held against what the code says: rows "| `message` | STATUS | ...", "…"
** standing for anything, and which of them a suite provoked. For one suite a program: all of it is static.
*/
#ifndef KVKILN_TESTS_PAGE_H
#define KVKILN_TESTS_PAGE_H

#include "../runtime/kvkiln.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_ROWS = 128, PAGE_MESSAGE = 512 };

struct page {
    struct page_row {
        char message[PAGE_MESSAGE], status[32];
        int wanted, provoked; /* wanted: by this suite */
    } row[PAGE_ROWS];
    int rows;
};

/* Rows behind the line `heading` (NULL: the whole page). A suite wants those that hold `mark` (NULL: all). Returns how many. */
static int page_read(struct page *page, const char *path, const char *heading, const char *mark)
{
    char line[2048];
    FILE *f = fopen(path, "r");
    int open = heading == NULL;

    while (f && page->rows < PAGE_ROWS && fgets(line, sizeof line, f)) {
        struct page_row *row = &page->row[page->rows];
        open = open || strncmp(line, heading, strlen(heading)) == 0;
        if (open && sscanf(line, "| `%511[^`]` | %31s |", row->message, row->status) == 2) {
            row->wanted = !mark || strstr(line, mark);
            page->rows++;
        }
    }
    if (f)
        fclose(f);
    return page->rows;
}

/* Does the pattern match the whole text? */
static int page_matches(const char *pattern, const char *text)
{
    static const char any[] = "…";
    size_t n = sizeof any - 1;

    for (; *pattern; pattern++, text++) {
        if (!strncmp(pattern, any, n)) {
            do
                if (page_matches(pattern + n, text))
                    return 1;
            while (*text++);
            return 0;
        }
        if (*pattern != *text)
            return 0;
    }
    return !*text;
}

/* The matching row with the longest message, which then is provoked; NULL if none. */
static struct page_row *page_met(struct page *page, kvk_status status, const char *text)
{
    struct page_row *best = NULL;

    for (struct page_row *row = page->row; row < page->row + page->rows; row++)
        if (!strcmp(row->status, kvk_status_name(status)) && page_matches(row->message, text) &&
            (!best || strlen(row->message) > strlen(best->message)))
            best = row;
    if (best)
        best->provoked = 1;
    return best;
}

/* The first wanted row that was not met; NULL if all were. */
static const struct page_row *page_unmet(const struct page *page)
{
    for (const struct page_row *row = page->row; row < page->row + page->rows; row++)
        if (row->wanted && !row->provoked)
            return row;
    return NULL;
}

#endif
