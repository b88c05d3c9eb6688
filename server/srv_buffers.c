/*
 * srv_buffers.c - the byte budget over all requests, and the warm buffers.
 * Not here: what goes into a buffer (srv_request.c, api/).
 * Start reading at srv_held_take.
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

/* Whether `a` serves a wish for `want` bytes better than `b`: the smallest that is large
   enough, else the largest. */
static bool fits_better(size_t a, size_t b, size_t want)
{
    if (a >= want)
        return b < want || a < b;
    return b < want && a > b;
}

/* A large buffer is not tied up by a small use of it. */
static bool is_waste(size_t cap, size_t use)
{
    return cap > WASTE_MIN_BYTES && cap / 2 > use;
}

/* A buffer with len 0, warm if a fitting one is there; SIZE_MAX asks for the largest. */
struct api_buffer srv_buffers_take(struct srv_buffers *buffers, size_t want)
{
    struct api_buffer taken = {0};
    size_t best = 0;

    pthread_mutex_lock(&buffers->lock);
    for (size_t b = 1; b < buffers->count; b++)
        if (fits_better(buffers->warm[b].cap, buffers->warm[best].cap, want))
            best = b;
    if (buffers->count > 0 && !is_waste(buffers->warm[best].cap, want)) {
        taken = buffers->warm[best];
        buffers->warm[best] = buffers->warm[--buffers->count];
        buffers->bytes -= taken.cap;
    }
    pthread_mutex_unlock(&buffers->lock);
    taken.len = 0;
    return taken;
}

/* Keeps the buffer warm if it is not too large and the store has room for it, frees it
   otherwise. */
void srv_buffers_give(struct srv_buffers *buffers, struct api_buffer *buffer)
{
    bool kept = false;

    if (buffer->p == NULL)
        return;
    pthread_mutex_lock(&buffers->lock);
    if (buffer->cap <= WARM_BUFFER_MAX && buffers->count < SRV_WARM_MAX &&
        buffer->cap <= buffers->max_bytes - buffers->bytes) {
        buffers->warm[buffers->count++] = *buffer;
        buffers->bytes += buffer->cap;
        kept = true;
    }
    pthread_mutex_unlock(&buffers->lock);
    if (!kept)
        api_buffer_free(buffer);
    *buffer = (struct api_buffer){0};
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
    for (size_t b = 0; b < buffers->count; b++)
        api_buffer_free(&buffers->warm[b]);
    buffers->count = buffers->bytes = 0;
}
