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
 * An answer on its way into a file.  Tensors are copied behind room for the header as
 * they come; `rest` takes everything else as JSON, `names` the header's rows.
 */
struct api_file {
    struct api_buffer *out, *rest, *names;
    size_t room; /* bytes left free for length and header */
};

bool api_file_begin(struct api_file *file, struct api_ctx *ctx, struct api_buffer *out);
/* Adds t with the axes of `shape` as "prefix" "name". */
bool api_file_add(struct api_file *file, const char *prefix, const char *name,
                  const struct attn_tensor *t, const struct attn_tensor *shape);
/* Puts length, header and __metadata__.attentiond in front: the file is complete. */
bool api_file_end(struct api_file *file);

#endif
