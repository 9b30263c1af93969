/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h - the generator's function table: linked in, or
 * out of libkvkiln-gen.so beside the runtime library. */
#ifndef KVKILN_CLI_GENERATOR_H
#define KVKILN_CLI_GENERATOR_H

#include "../runtime/gen_api.h"

/* NULL with KVK_E_GENERATOR when it cannot be had. */
const struct gen_api *generator_get(kvk_error *err);

/* Path of the library to name in kvk_options.generator,
 * malloc'd; NULL: the runtime's own search (or linked in). */
char *generator_path(void);

/* Static builds: registers the linked-in generator with the runtime. Call once, first. */
void generator_register(void);

#endif
