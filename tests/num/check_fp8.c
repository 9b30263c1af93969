/* SPDX-License-Identifier: Apache-2.0 */
/* check_fp8.c - all codes and all inputs of the 8-bit formats, as cases of `num`. */
#include "fp8.h"
#include "num.h"

#include <stdio.h>

/* The case's variant is the flavour. */
void check_fp8(struct num_run *run, const struct num_case *c)
{
    char path[512], text[NUM_TEXT];

    snprintf(path, sizeof path, "%s/%s.lua", run->spec_folder, c->model.spec->name);
    if (!fp8_check(run->ctx, path, c->variant, text, sizeof text))
        num_differ(run, "%s", text);
}
