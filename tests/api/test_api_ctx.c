/* test_api_ctx.c - a context: much address space, little memory, clean after every
   request. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages of the arena that are in memory, up to `pages`. */
static size_t resident(const struct api_ctx *ctx, size_t pages)
{
    static unsigned char in[1 << 16];
    size_t count = 0;

    cr_assert(pages <= sizeof in);
    cr_assert(mincore(ctx->arena.base, pages * (size_t)sysconf(_SC_PAGESIZE), in) == 0);
    for (size_t n = 0; n < pages; n++)
        count += in[n] & 1u;
    return count;
}

Test(api_ctx, reserves_without_touching_and_gives_back_after_a_large_request)
{
    const struct api_limits limits = {.memory_max_bytes = (size_t)8 << 30};
    struct api_ctx *ctx = api_ctx_new(&limits);
    const size_t large = 100 << 20, pages = large / (size_t)sysconf(_SC_PAGESIZE);
    void *p;

    cr_assert(ctx != NULL && ctx->arena.size == limits.memory_max_bytes);
    cr_expect(resident(ctx, pages) == 0);
    p = attn_arena_take(&ctx->arena, large);
    cr_assert(p != NULL && (uintptr_t)p % ATTN_ALIGN == 0);
    memset(p, 1, large);
    cr_expect(resident(ctx, pages) == pages);
    api_ctx_reset(ctx);
    cr_expect(ctx->arena.used == 0 && ctx->arena.peak == 0);
    cr_expect(resident(ctx, pages) < pages, "all pages were kept");
    cr_expect(resident(ctx, pages) > 0, "warm pages were given back too");
    api_ctx_free(ctx);
}

Test(api_ctx, refuses_a_limit_of_nothing)
{
    const struct api_limits limits = {0};

    cr_expect(api_ctx_new(&limits) == NULL);
    api_ctx_free(NULL);
}

Test(api_ctx, the_clock_does_not_go_back)
{
    double before = api_now_ms();

    for (int n = 0; n < 1000; n++) {
        const double now = api_now_ms();

        cr_assert(now >= before);
        before = now;
    }
}
