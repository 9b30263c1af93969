/* SPDX-License-Identifier: Apache-2.0 */
/*
** model.h - a kvk_model with its defaults filled in, and the spec it names.
*/
#ifndef KVKILN_MODEL_H
#define KVKILN_MODEL_H

#include "context.h"

/* Sizes, dtypes and kinds, checked against each other; the layout is left to model_layout. */
kvk_status model_shape(const struct kvk_model *model, struct shape *out, kvk_error *err);

/* Canonical text, malloc'd: of an embedded preset or of one in a pack, or through the generator (a path, or a file in the
** spec directories). */
kvk_status model_spec_text(kvk_context *ctx, const char *spec, char **text, kvk_error *err);

/* The layout asked for, or the first one of the spec. */
kvk_status model_layout(const struct kvk_model *model, const char *spec_text, struct shape *out, kvk_error *err);

#endif
