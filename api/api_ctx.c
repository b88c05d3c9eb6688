/*
 * api_ctx.c - what one thread keeps between requests: the arena, the reduced body, the
 * spans.
 * Not here: what is put into them (api_lift.c, api_request.c).
 * Start reading at api_ctx_new.
 */
#include "api/api_private.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_ARENA = 64 << 20, KEEP_REDUCED = 1 << 20, KEEP_SPANS = 1024 };

void api_init(void)
{
    json_object_seed(0);
    api_doc_init();
    attn_blas_init();
}

/* Address space only: the kernel gives a page when it is first touched, so a small
   request on a large limit costs what it uses. */
static bool reserve(struct attn_arena *arena, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return false;
    *arena = (struct attn_arena){.base = p, .size = bytes};
    return true;
}

struct api_ctx *api_ctx_new(const struct api_limits *limits)
{
    struct api_ctx *ctx = calloc(1, sizeof *ctx);

    if (ctx == NULL)
        return NULL;
    if (limits->memory_max_bytes == 0 ||
        !reserve(&ctx->arena, limits->memory_max_bytes)) {
        free(ctx);
        return NULL;
    }
    ctx->limits = limits;
    return ctx;
}

void api_ctx_free(struct api_ctx *ctx)
{
    if (ctx == NULL)
        return;
    munmap(ctx->arena.base, ctx->arena.size);
    api_buffer_free(&ctx->reduced);
    api_buffer_free(&ctx->rest);
    api_buffer_free(&ctx->names);
    free(ctx->span);
    free(ctx);
}

/* Gives back what of the arena is warm beyond keep_bytes. */
static void arena_trim(struct api_ctx *ctx, size_t keep_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t keep = keep_bytes / page * page;

    if (ctx->warm_bytes <= keep)
        return;
    madvise(ctx->arena.base + keep, ctx->arena.size - keep, MADV_DONTNEED);
    ctx->warm_bytes = keep;
}

void api_ctx_return(struct api_ctx *ctx, size_t keep_bytes)
{
    api_ctx_reset(ctx);
    arena_trim(ctx, keep_bytes);
}

size_t api_ctx_bytes(const struct api_ctx *ctx)
{
    return ctx->arena.peak;
}

void api_ctx_reset(struct api_ctx *ctx)
{
    if (ctx->warm_bytes < ctx->arena.peak)
        ctx->warm_bytes = ctx->arena.peak;
    arena_trim(ctx, KEEP_ARENA);
    ctx->arena.used = 0;
    ctx->arena.peak = 0;
    ctx->reduced.len = 0;
    api_buffer_trim(&ctx->reduced, KEEP_REDUCED);
    api_buffer_trim(&ctx->rest, KEEP_REDUCED);
    api_buffer_trim(&ctx->names, KEEP_REDUCED);
    if (ctx->span_cap > KEEP_SPANS) {
        free(ctx->span);
        ctx->span = NULL;
        ctx->span_cap = 0;
    }
}

double api_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}
