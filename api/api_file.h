/*
 * api_file.h - safetensors files: requests read from them, answers written as them.
 * Not here: tensors as JSON (api_private.h).
 * Start reading at struct api_file.
 */
#ifndef API_FILE_H
#define API_FILE_H

#include <inttypes.h>
#include <stdio.h>

#include "api/api_private.h"

/* "F64", … by enum api_source_dtype. */
extern const char *const API_FILE_DTYPES[API_DT_COUNT];

/* As api_doc_open, for a file: its tensors stand in the document where the problem has
   them.  The body must outlive the document. */
bool api_safetensors_open(struct api_ctx *ctx, const char *body, size_t len,
                          struct api_doc *doc, struct api_err *err);

/*
 * An answer on its way into a file.  `out` begins with room for length and header; behind
 * it tensors are copied as they come, but large ones that stay in the arena are left
 * there.  `rest` takes everything else as JSON, `names` the header's rows.
 */
struct api_file {
    struct api_buffer *out, *rest, *names;
    size_t room;     /* bytes left free for length and header             */
    size_t data;     /* bytes of tensors so far                           */
    bool stays;      /* what is added now is not overwritten any more     */
    size_t lend_max; /* 0, or of an arena that may be left to the answer  */
    struct api_ctx *ctx;
    struct api_part part[API_PARTS_MAX - 1]; /* runs of tensors, in order */
    size_t parts;
};

bool api_file_begin(struct api_file *file, struct api_ctx *ctx, struct api_buffer *out,
                    size_t lend_max);
/* Adds t with the axes of `shape` as "prefix" "name". */
bool api_file_add(struct api_file *file, const char *prefix, const char *name,
                  const struct attn_tensor *t, const struct attn_tensor *shape);
/* Puts length, header and __metadata__.attentiond in front: the file is complete, in
   `out`, or in parts when some of it was left in the arena. */
bool api_file_end(struct api_file *file, struct api_reply *reply);

#endif
