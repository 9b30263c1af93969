/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see options.h. */
#include "options.h"

#include <string.h>

void options_number(const struct argp_state *state, const char *option, const char *arg, long low,
                    long high, long *out)
{
    if (!cli_number(arg, low, high, out))
        argp_error(state, "--%s: '%s': accepted %ld to %ld", option, arg, low, high);
}

int options_has(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, ",");
        if (n == length && !memcmp(w, text, n))
            return 1;
        w += n;
        w += strspn(w, ", ");
    }
    return 0;
}

const char *options_word(const struct argp_state *state, const char *option, const char *arg,
                         const char *words)
{
    if (!options_has(words, arg))
        argp_error(state, "--%s: '%s': accepted %s", option, arg, words);
    return arg;
}

kvk_dtype options_dtype(const struct argp_state *state, const char *arg)
{
    kvk_dtype dtype = cli_dtype(arg);
    if (dtype == KVK_DTYPE_DEFAULT)
        argp_error(state, "--dtype: '%s': accepted bf16, fp16", arg);
    return dtype;
}
