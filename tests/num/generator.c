/* SPDX-License-Identifier: Apache-2.0 */
/*
** generator.c - the program carries both halves, so that one file is all a machine with a GPU
** needs.
*/
#include "num.h"

#include "../../runtime/gen_api.h"

void num_use_own_generator(void) { kvk_register_generator(kvk_generator); }
