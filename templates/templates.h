/* SPDX-License-Identifier: Apache-2.0 */
/*
** templates.h - the kernels. Each function fills one entry point: the builder stands in it with its parameters bound, and
** the pipeline ends it.
*/
#ifndef KVKILN_TEMPLATES_H
#define KVKILN_TEMPLATES_H

struct kb;

void template_store(struct kb *k);
void template_decode(struct kb *k);
void template_reduce(struct kb *k);
void template_unified(struct kb *k);
void template_dense(struct kb *k); /* unified, where plan->dense */
void template_dequant(struct kb *k);
void template_merge(struct kb *k);
void template_copy(struct kb *k);
void template_convert(struct kb *k);

#endif
