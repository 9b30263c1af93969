/* SPDX-License-Identifier: Apache-2.0 */
/*
** runtime_parts.c - the runtime library exports its public functions only; `doctor` also looks for
** an assembler the way the runtime does. A static build has these functions already.
*/
#ifndef KVKILN_STATIC
#include "../runtime/assembler.c"
#include "../runtime/env.c"
#else
typedef int runtime_parts_are_linked_in;
#endif
