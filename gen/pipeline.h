/* SPDX-License-Identifier: Apache-2.0 */
/*
** pipeline.h - one request to a sealed code object, every stage by name.
*/
#ifndef KVKILN_GEN_PIPELINE_H
#define KVKILN_GEN_PIPELINE_H

#include "../runtime/gen_api.h"
#include "plan.h"

/* Request -> spec, geometry, target, plan; fails naming what does not fit. */
kvk_status pipeline_plan(const struct gen_request *request, struct plan *plan, kvk_error *err);

/* The whole way. `emit`: mask of 1 << GEN_EMIT_*. Thread safe. */
kvk_status pipeline_compile(const struct gen_request *request, unsigned emit, struct gen_artifacts *out, kvk_error *err);

#endif
