/*
 * srv_pack.c - content codings: which one a client likes best, and packing an answer in
 * it. Not here: media types (srv_negotiate.c); which answers are worth it (srv_http.c).
 * Start reading at CODINGS.
 */
#include "server/srv.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* The fastest levels: numbers as text shrink to a third in both, and an answer is packed
   once.  The next level takes twice the time for a tenth of the bytes. */
enum { GZIP_LEVEL = 1, ZSTD_LEVEL = 1 };

/* What packing needs beside the bytes; kept between answers. */
struct srv_packer {
    struct libdeflate_compressor *gzip;
    ZSTD_CCtx *zstd;
};

static size_t gzip_bound(size_t bytes)
{
    return libdeflate_gzip_compress_bound(NULL, bytes);
}

/* Returns the packed length; 0 when it does not fit or memory is short. */
static size_t gzip_pack(struct srv_packer *packer, const char *in, size_t bytes,
                        char *out, size_t room)
{
    if (packer->gzip == NULL)
        packer->gzip = libdeflate_alloc_compressor(GZIP_LEVEL);
    if (packer->gzip == NULL)
        return 0;
    return libdeflate_gzip_compress(packer->gzip, in, bytes, out, room);
}

static size_t zstd_pack(struct srv_packer *packer, const char *in, size_t bytes,
                        char *out, size_t room)
{
    size_t packed;

    if (packer->zstd == NULL && (packer->zstd = ZSTD_createCCtx()) == NULL)
        return 0;
    packed = ZSTD_compressCCtx(packer->zstd, out, room, in, bytes, ZSTD_LEVEL);
    return ZSTD_isError(packed) ? 0 : packed;
}

/* In the order of our own liking. */
static const struct srv_coding CODINGS[] = {
    {"zstd", ZSTD_compressBound, zstd_pack},
    {"gzip", gzip_bound, gzip_pack},
};

/*
 * The coding that an Accept-Encoding list likes best (RFC 9110, section 12.5.3); NULL =
 * send the bytes as they are: without a header, with q=0, or where identity is liked
 * better.
 */
const struct srv_coding *srv_coding_choose(const char *accept_encoding)
{
    const struct srv_coding *best = NULL;
    int most = srv_weight(accept_encoding, "identity", false);

    if (accept_encoding == NULL)
        return NULL;
    most = most > 0 ? most : 1;
    for (size_t c = 0; c < COUNT(CODINGS); c++) {
        const int weight = srv_weight(accept_encoding, CODINGS[c].name, true);

        if (weight > most || (weight == most && best == NULL)) {
            most = weight;
            best = &CODINGS[c];
        }
    }
    return best;
}

static struct srv_packer *packer_take(struct srv_packers *packers)
{
    for (size_t n = 0; n < COUNT(packers->idle); n++) {
        struct srv_packer *const packer = atomic_exchange(&packers->idle[n], NULL);

        if (packer != NULL)
            return packer;
    }
    return calloc(1, sizeof(struct srv_packer));
}

static void packer_free(struct srv_packer *packer)
{
    libdeflate_free_compressor(packer->gzip);
    ZSTD_freeCCtx(packer->zstd);
    free(packer);
}

static void packer_give(struct srv_packers *packers, struct srv_packer *packer)
{
    for (size_t n = 0; n < COUNT(packers->idle); n++) {
        struct srv_packer *none = NULL;

        if (atomic_compare_exchange_strong(&packers->idle[n], &none, packer))
            return;
    }
    packer_free(packer);
}

/* Packs `in` into `out`, whose memory is the caller's before and after.  False, with
   nothing in `out`, when memory is short or packing would not make it shorter. */
bool srv_pack(struct srv_packers *packers, const struct srv_coding *coding,
              const struct api_buffer *in, struct api_buffer *out)
{
    const size_t room = coding->bound(in->len);
    struct srv_packer *packer;

    out->len = 0;
    if (out->cap < room) {
        char *p = realloc(out->p, room);

        if (p == NULL)
            return false;
        out->p = p;
        out->cap = room;
    }
    packer = packer_take(packers);
    if (packer == NULL)
        return false;
    out->len = coding->pack(packer, in->p, in->len, out->p, out->cap);
    packer_give(packers, packer);
    if (out->len < in->len)
        return out->len > 0;
    out->len = 0;
    return false;
}

void srv_packers_free(struct srv_packers *packers)
{
    for (size_t n = 0; n < COUNT(packers->idle); n++) {
        struct srv_packer *const packer = atomic_exchange(&packers->idle[n], NULL);

        if (packer != NULL)
            packer_free(packer);
    }
}
