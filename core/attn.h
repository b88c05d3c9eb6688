/*
 * attn.h - the public face of libattn: one attention layer, its objects, audit, cost,
 * gradients. Not here: JSON, files, sockets, clocks, threads, heap (see api/ and
 * server/). Start reading at enum attn_object in attn_layer.h, then struct attn_problem
 * in attn_problem.h, then attn_run.
 *
 * Letters: B items, T_q query positions, T_kv key positions = T_past cached + T_new new
 * ones, h query heads, h_kv key/value heads, d_model, d_k, d_v.  Indices: b item, h head,
 * i query row, j key column, c feature.  Every tensor here is dense and row-major, and
 * always has its batch and head axes; what an answer drops is decided by
 * attn_object_shape.
 */
#ifndef LIBATTN_ATTN_H
#define LIBATTN_ATTN_H

#include "core/attn_problem.h"
#include "core/attn_layer.h"
#include "core/attn_findings.h"

#endif
