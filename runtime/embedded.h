/* SPDX-License-Identifier: Apache-2.0 */
/*
** embedded.h - canonical texts of the shipped presets, so that a preset on a warm cache needs no generator; and the shipped
** tuned tables. The .c file is written by the build from specs/.
*/
#ifndef KVKILN_EMBEDDED_H
#define KVKILN_EMBEDDED_H

/* Preset by index (0, 1, ...): its name and canonical text, or 0 past the last. */
int embedded_spec_text(int index, const char **name, const char **text);

/* Tuned table by index: its target and its text as in the file, or 0 past the last. */
int embedded_tuned(int index, const char **target, const char **text);

#endif
