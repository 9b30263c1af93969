/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_fp8.c - the 8-bit formats on the host, compiled for each level of x86-64 that this processor
** has: x86-64-v2 has no instruction for fp16. `num` has the same cases for all devices.
*/
#include "fp8.h"

#include "../../runtime/context.h"
#include "../../runtime/gen_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvkiln-fp8-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < FP8_FLAVOURS; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/plain_%s.lua", folder, fp8_name(i));
        FILE *file = fopen(path, "w");
        if (!file)
            return -1;
        fprintf(file, "local f = float { format = \"%s\" }\nreturn preset { key = f, value = f }\n",
                fp8_name(i));
        fclose(file);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < FP8_FLAVOURS; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/plain_%s.lua", folder, fp8_name(i));
        unlink(path);
    }
    return rmdir(folder);
}

/* Level 2, 3 or 4; a level that the processor lacks is skipped. */
static void all_flavours_at(int level)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    char path[96], text[512];
    kvk_context *ctx = NULL;
    kvk_error err = {0};
    options.device = "host";
    options.cache_dir = "";
    if (kvk_open(&options, &ctx, &err))
        fail_msg("%s", err.text);
    int highest = ctx->info.target[strlen("x86-64-v")] - '0';
    if (level <= highest)
        snprintf(ctx->info.target, sizeof ctx->info.target, "x86-64-v%d", level);
    for (int i = 0; i < FP8_FLAVOURS && level <= highest; i++) {
        snprintf(path, sizeof path, "%s/plain_%s.lua", folder, fp8_name(i));
        if (!fp8_check(ctx, path, i, text, sizeof text))
            fail_msg("x86-64-v%d: %s", level, text);
    }
    kvk_close(ctx);
    if (level > highest)
        skip();
}

static void every_code_and_every_number_at_v2(void **state)
{
    (void)state;
    all_flavours_at(2);
}

static void every_code_and_every_number_at_v3(void **state)
{
    (void)state;
    all_flavours_at(3);
}

static void every_code_and_every_number_at_v4(void **state)
{
    (void)state;
    all_flavours_at(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_and_every_number_at_v2),
        cmocka_unit_test(every_code_and_every_number_at_v3),
        cmocka_unit_test(every_code_and_every_number_at_v4),
    };
    kvk_register_generator(kvk_generator);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
