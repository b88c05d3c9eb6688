/*
 * srv_buffers.c - the byte budget over all requests, the warm buffers, the spare
 * contexts. Not here: what goes into a buffer (srv_request.c, api/). Start reading at
 * srv_held_take.
 */
#include "server/srv.h"

#include <stdlib.h>
#include <string.h>

enum {
    WASTE_MIN_BYTES = 64 << 10,
    WARM_BUFFER_MAX = 64 << 20 /* larger ones are rare: their memory is given back */
};

/* Takes bytes from the budget, or takes nothing and says false. */
bool srv_held_take(struct srv_held *held, size_t bytes)
{
    size_t now = atomic_load_explicit(&held->bytes, memory_order_relaxed);

    do {
        if (now > held->max || bytes > held->max - now)
            return false;
    } while (!atomic_compare_exchange_weak(&held->bytes, &now, now + bytes));
    return true;
}

/* Counts bytes that exist already, such as a written answer; may pass the maximum. */
void srv_held_add(struct srv_held *held, size_t bytes)
{
    atomic_fetch_add(&held->bytes, bytes);
}

void srv_held_give(struct srv_held *held, size_t bytes)
{
    atomic_fetch_sub(&held->bytes, bytes);
}

/* True when answers have passed the maximum: no more work until clients take them. */
bool srv_held_over(struct srv_held *held)
{
    return atomic_load(&held->bytes) > held->max;
}

/* A large buffer is not tied up by a small use of it. */
static bool is_waste(size_t cap, size_t use)
{
    return cap > WASTE_MIN_BYTES && cap / 2 > use;
}

static size_t shelf_cap(struct srv_shelf *shelf)
{
    return atomic_load_explicit(&shelf->cap, memory_order_relaxed);
}

/* How well a buffer serves a wish: one that is large enough before others, of those the
   smallest, of the others the largest; within a factor of two one of the same lane. */
struct fit {
    bool enough;
    int size; /* less is better */
    bool near;
};

static struct fit fit_of(struct srv_shelf *shelf, size_t cap, size_t want)
{
    const int log2 = 63 - __builtin_clzll(cap);

    return (struct fit){
        .enough = cap >= want,
        .size = cap >= want ? log2 : -log2,
        .near = atomic_load_explicit(&shelf->lane, memory_order_relaxed) == srv_lane(),
    };
}

static bool fits_better(struct fit a, struct fit b)
{
    if (a.enough != b.enough)
        return a.enough;
    return a.size != b.size ? a.size < b.size : a.near && !b.near;
}

/* The full shelf that serves the wish best at this moment; NULL when none does. */
static struct srv_shelf *shelf_choose(struct srv_buffers *buffers, size_t want)
{
    struct srv_shelf *best = NULL;
    struct fit best_fit = {0};

    for (size_t b = 0; b < SRV_WARM_MAX; b++) {
        struct srv_shelf *const shelf = &buffers->shelf[b];
        const size_t cap = shelf_cap(shelf);
        struct fit fit;

        if (cap == 0 || is_waste(cap, want))
            continue;
        fit = fit_of(shelf, cap, want);
        if (best == NULL || fits_better(fit, best_fit)) {
            best = shelf;
            best_fit = fit;
        }
    }
    return best;
}

/* Whether the shelf was in this state and is the caller's now. */
static bool shelf_claim(struct srv_shelf *shelf, enum srv_shelf_state state)
{
    return atomic_compare_exchange_strong(&shelf->state, &state, SRV_SHELF_BUSY);
}

/* A buffer with len 0, warm if a fitting one is there; SIZE_MAX asks for the largest. */
struct api_buffer srv_buffers_take(struct srv_buffers *buffers, size_t want)
{
    struct api_buffer taken = {0};

    for (unsigned tries = 0; tries < SRV_WARM_MAX; tries++) {
        struct srv_shelf *const shelf = shelf_choose(buffers, want);

        if (shelf == NULL)
            break;
        if (!shelf_claim(shelf, SRV_SHELF_FULL))
            continue; /* somebody was faster */
        taken = shelf->buffer;
        shelf->buffer = (struct api_buffer){0};
        atomic_store(&shelf->cap, 0);
        atomic_store(&shelf->state, SRV_SHELF_EMPTY);
        atomic_fetch_sub(&buffers->bytes, taken.cap);
        break;
    }
    taken.len = 0;
    return taken;
}

static bool room_take(struct srv_buffers *buffers, size_t cap)
{
    size_t now = atomic_load_explicit(&buffers->bytes, memory_order_relaxed);

    do {
        if (cap > buffers->max_bytes - now)
            return false;
    } while (!atomic_compare_exchange_weak(&buffers->bytes, &now, now + cap));
    return true;
}

static bool shelf_put(struct srv_buffers *buffers, const struct api_buffer *buffer)
{
    for (size_t b = 0; b < SRV_WARM_MAX; b++) {
        struct srv_shelf *const shelf = &buffers->shelf[b];

        if (shelf_cap(shelf) > 0 || !shelf_claim(shelf, SRV_SHELF_EMPTY))
            continue;
        shelf->buffer = *buffer;
        atomic_store(&shelf->lane, srv_lane());
        atomic_store(&shelf->cap, buffer->cap);
        atomic_store(&shelf->state, SRV_SHELF_FULL);
        return true;
    }
    return false;
}

/* Keeps the buffer warm if it is not too large and the store has room for it, frees it
   otherwise. */
void srv_buffers_give(struct srv_buffers *buffers, struct api_buffer *buffer)
{
    const size_t cap = buffer->cap;

    if (buffer->p == NULL)
        return;
    if (cap <= WARM_BUFFER_MAX && room_take(buffers, cap)) {
        if (shelf_put(buffers, buffer)) {
            *buffer = (struct api_buffer){0};
            return;
        }
        atomic_fetch_sub(&buffers->bytes, cap);
    }
    api_buffer_free(buffer);
}

/* Moves a short text out of a large buffer, which becomes free for the next large one. */
void srv_buffers_shrink(struct srv_buffers *buffers, struct api_buffer *buffer)
{
    struct api_buffer small;

    if (!is_waste(buffer->cap, buffer->len))
        return;
    small = srv_buffers_take(buffers, buffer->len);
    if (small.cap < buffer->len) {
        char *p = realloc(small.p, buffer->len);

        if (p == NULL) {
            srv_buffers_give(buffers, &small);
            return;
        }
        small.p = p;
        small.cap = buffer->len;
    }
    memcpy(small.p, buffer->p, buffer->len);
    small.len = buffer->len;
    srv_buffers_give(buffers, buffer);
    *buffer = small;
}

void srv_buffers_free(struct srv_buffers *buffers)
{
    for (size_t b = 0; b < SRV_WARM_MAX; b++) {
        api_buffer_free(&buffers->shelf[b].buffer);
        atomic_store(&buffers->shelf[b].cap, 0);
        atomic_store(&buffers->shelf[b].state, SRV_SHELF_EMPTY);
    }
    atomic_store(&buffers->bytes, 0);
}

/* The places, from that of the calling thread's lane on. */
static _Atomic(struct api_ctx *) *spare_at(struct srv_spares *spares, size_t n)
{
    return &spares->ctx[(srv_lane() + n) % COUNT(spares->ctx)];
}

/* NULL when all are in use. */
struct api_ctx *srv_spares_take(struct srv_spares *spares)
{
    for (size_t n = 0; n < COUNT(spares->ctx); n++) {
        struct api_ctx *const ctx = atomic_exchange(spare_at(spares, n), NULL);

        if (ctx != NULL)
            return ctx;
    }
    return NULL;
}

/* Half of what may be lent stays warm.  There are never more contexts than places. */
void srv_spares_give(struct srv_spares *spares, struct api_ctx *ctx)
{
    api_ctx_return(ctx, spares->lend_max_bytes / 2);
    for (size_t n = 0; n < COUNT(spares->ctx); n++) {
        struct api_ctx *none = NULL;

        if (atomic_compare_exchange_strong(spare_at(spares, n), &none, ctx))
            return;
    }
    api_ctx_free(ctx);
}

void srv_spares_free(struct srv_spares *spares)
{
    for (struct api_ctx *ctx; (ctx = srv_spares_take(spares)) != NULL;)
        api_ctx_free(ctx);
}
