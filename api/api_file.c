/*
 * api_file.c - an answer as a safetensors file.
 * Not here: what an answer holds (api_answer*.c), reading such files (api_safetensors.c).
 * Start reading at api_file_end.
 *
 * Where the caller keeps the context until the answer is sent, large tensors are not
 * copied into the answer: it is a list of parts, and most of them are the arena's own.
 */
#include <string.h>

#include "api/api_file.h"

#include "api/api_answer.h"

enum {
    LENGTH_BYTES = 8,
    ALIGN = 8,             /* of the data                                       */
    ROOM = 48 << 10,       /* for length and header, until they are known       */
    MOVED_MAX = 512 << 10, /* data that is moved rather than padded up to       */
    LENT_MIN = 32 << 10    /* of a tensor that is worth a part of its own       */
};

static const char *const DTYPES[ATTN_DTYPE_COUNT] = {
    [ATTN_F64] = "F64",
    [ATTN_F32] = "F32",
    [ATTN_BOOL] = "BOOL",
};

bool api_file_begin(struct api_file *file, struct api_ctx *ctx, struct api_buffer *out,
                    size_t lend_max)
{
    *file = (struct api_file){.out = out,
                              .rest = &ctx->rest,
                              .names = &ctx->names,
                              .room = ROOM,
                              .lend_max = lend_max,
                              .ctx = ctx};
    out->len = file->rest->len = file->names->len = 0;
    if (!api_buffer_reserve(out, ROOM))
        return false;
    out->len = ROOM;
    return true;
}

/* Behind a lent part there is room for one more: copies need no more. */
static bool may_lend(const struct api_file *file, size_t bytes)
{
    return file->stays && bytes >= LENT_MIN && file->parts + 2 <= API_COUNT(file->part) &&
           file->ctx->arena.peak <= file->lend_max;
}

static bool add_bytes(struct api_file *file, const void *p, size_t bytes)
{
    struct api_part *last = file->parts > 0 ? &file->part[file->parts - 1] : NULL;

    file->data += bytes;
    if (may_lend(file, bytes)) {
        file->part[file->parts++] = (struct api_part){.p = p, .bytes = bytes};
        return true;
    }
    if (last == NULL || last->p != NULL) {
        last = &file->part[file->parts++];
        *last = (struct api_part){0};
    }
    last->bytes += bytes;
    return api_put(file->out, p, bytes);
}

bool api_file_add(struct api_file *file, const char *prefix, const char *name,
                  const struct attn_tensor *t, const struct attn_tensor *shape)
{
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
    const size_t begin = file->data;
    struct api_buffer *b = file->names;

    return api_puts(b, ",\"") && api_puts(b, prefix) && api_puts(b, name) &&
           api_puts(b, "\":{\"dtype\":\"") && api_puts(b, DTYPES[t->dtype]) &&
           api_puts(b, "\",\"shape\":") && api_put_shape(b, shape) &&
           api_puts(b, ",\"data_offsets\":[") && api_put_u64(b, begin) &&
           api_puts(b, ",") && api_put_u64(b, begin + bytes) && api_puts(b, "]}") &&
           add_bytes(file, t->p, bytes);
}

/* Makes the room for length and header exactly `want` bytes: what remains of a large
   file's room is filled with blanks instead, which the format allows. */
static bool fit_room(struct api_file *file, size_t want)
{
    struct api_buffer *out = file->out;
    const size_t data = out->len - file->room;

    if (want <= file->room && data > MOVED_MAX)
        return true;
    if (want > file->room && !api_buffer_reserve(out, want - file->room))
        return false;
    memmove(out->p + want, out->p + file->room, data);
    out->len = want + data;
    file->room = want;
    return true;
}

/* {"__metadata__":{"attentiond":"…"},"X":{…},…}, written behind the rows in `names`. */
static bool put_header(struct api_file *file, size_t rows)
{
    struct api_buffer *b = file->names;

    if (!api_put(file->rest, "", 1) ||
        !api_puts(b, "{\"__metadata__\":{\"attentiond\":") ||
        !api_put_string(b, file->rest->p) || !api_puts(b, "}") ||
        !api_buffer_reserve(b, rows))
        return false;
    return api_put(b, b->p, rows) && api_puts(b, "}");
}

/* Header, then the runs of tensors. */
static void put_parts(struct api_file *file, struct api_reply *reply)
{
    struct api_part *const part = file->ctx->part;

    part[0] = (struct api_part){.bytes = file->room};
    memcpy(&part[1], file->part, file->parts * sizeof *part);
    reply->parts = part;
    reply->part_count = file->parts + 1;
}

bool api_file_end(struct api_file *file, struct api_reply *reply)
{
    const size_t rows = file->names->len;
    size_t size, header;

    if (!put_header(file, rows))
        return false;
    header = file->names->len - rows;
    if (!fit_room(file, (header + LENGTH_BYTES + ALIGN - 1) / ALIGN * ALIGN))
        return false;
    size = file->room - LENGTH_BYTES;
    for (unsigned n = 0; n < LENGTH_BYTES; n++)
        file->out->p[n] = (char)(size >> 8 * n);
    memset(file->out->p + LENGTH_BYTES, ' ', size);
    memcpy(file->out->p + LENGTH_BYTES, file->names->p + rows, header);
    if (file->data > file->out->len - file->room)
        put_parts(file, reply);
    return true;
}
