/*
 * test_srv_buffers.c - the byte budget and the warm buffers.
 * Not here: who uses them (tests/http/server_limits.py).
 * Start reading at budget.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(held, budget)
{
    struct srv_held held = {.max = 100};

    cr_expect(srv_held_take(&held, 60));
    cr_expect_not(srv_held_take(&held, 41));
    cr_expect(srv_held_take(&held, 40));
    cr_expect_not(srv_held_over(&held));
    srv_held_add(&held, 1);
    cr_expect(srv_held_over(&held));
    cr_expect_not(srv_held_take(&held, 0));
    srv_held_give(&held, 101);
    cr_expect_not(srv_held_take(&held, SIZE_MAX));
    cr_expect(srv_held_take(&held, 100));
}

static struct api_buffer made(size_t cap)
{
    return (struct api_buffer){.p = malloc(cap), .len = 3, .cap = cap};
}

Test(buffers, best_fit_and_bound)
{
    struct srv_buffers store = {.max_bytes = 1000};
    struct api_buffer small = made(100), middle = made(300), large = made(600),
                      more = made(1);
    struct api_buffer taken;

    srv_buffers_give(&store, &large);
    srv_buffers_give(&store, &small);
    srv_buffers_give(&store, &middle);
    cr_expect_null(middle.p, "the store owns it now");
    srv_buffers_give(&store, &more);
    cr_expect_eq(store.bytes, 1000, "full: the last one was freed");

    taken = srv_buffers_take(&store, 200);
    cr_expect_eq(taken.cap, 300);
    cr_expect_eq(taken.len, 0);
    srv_buffers_give(&store, &taken);
    taken = srv_buffers_take(&store, SIZE_MAX);
    cr_expect_eq(taken.cap, 600);
    srv_buffers_give(&store, &taken);
    srv_buffers_free(&store);
    cr_expect_eq(store.bytes, 0);
    taken = srv_buffers_take(&store, 1);
    cr_expect_null(taken.p);
}

Test(buffers, large_ones_are_not_tied_up)
{
    struct srv_buffers store = {.max_bytes = 10 << 20};
    struct api_buffer large = made(1 << 20), tight = made(8);
    struct api_buffer taken;

    memcpy(large.p, "abc", 3);
    srv_buffers_shrink(&store, &large);
    cr_expect_eq(large.cap, 3);
    cr_expect_arr_eq(large.p, "abc", 3);
    cr_expect_eq(store.bytes, 1 << 20, "the large one is back in the store");
    srv_buffers_shrink(&store, &tight);
    cr_expect_eq(tight.cap, 8);

    taken = srv_buffers_take(&store, 100);
    cr_expect_null(taken.p, "a small wish gets none of the large ones");
    taken = srv_buffers_take(&store, 600 << 10);
    cr_expect_eq(taken.cap, 1 << 20);
    srv_buffers_give(&store, &taken);
    srv_buffers_free(&store);
    api_buffer_free(&large);
    api_buffer_free(&tight);
}

Test(buffers, spare_contexts_come_back)
{
    static const struct api_limits limits = {.memory_max_bytes = 1 << 20};
    struct srv_spares spares = {.lend_max_bytes = 1 << 16};
    struct api_ctx *first, *second;

    api_init();
    cr_expect_null(srv_spares_take(&spares));
    srv_spares_give(&spares, api_ctx_new(&limits));
    srv_spares_give(&spares, api_ctx_new(&limits));
    first = srv_spares_take(&spares);
    second = srv_spares_take(&spares);
    cr_expect_neq(first, second);
    cr_assert_not_null(second);
    cr_expect_null(srv_spares_take(&spares));
    srv_spares_give(&spares, first);
    srv_spares_give(&spares, second);
    srv_spares_free(&spares);
    cr_expect_null(srv_spares_take(&spares));
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *take_and_give(void *store)
{
    for (unsigned n = 0; n < ROUNDS; n++) {
        struct api_buffer b = srv_buffers_take(store, n % 3 ? 64 : 640);

        if (b.p == NULL)
            b = made(n % 2 ? 64 : 640);
        memset(b.p, (int)n, b.cap);
        srv_buffers_give(store, &b);
    }
    return NULL;
}

Test(buffers, many_threads_share_them)
{
    struct srv_buffers store = {.max_bytes = 3000};
    pthread_t thread[THREADS];
    size_t bytes = 0;

    for (unsigned t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_create(&thread[t], NULL, take_and_give, &store), 0);
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (;;) {
        struct api_buffer b = srv_buffers_take(&store, SIZE_MAX);

        if (b.p == NULL)
            break;
        bytes += b.cap;
        cr_expect_leq(bytes, 3000);
        api_buffer_free(&b);
    }
    cr_expect_eq(store.bytes, 0);
}

/* Of buffers within a factor of two the one that came from the same lane. */
Test(buffers, own_lane_first)
{
    static const struct srv_lanes lanes = {.count = 3};
    struct srv_buffers store = {.max_bytes = 10 << 20};
    struct api_buffer taken;

    for (unsigned lane = 0; lane < 3; lane++) {
        struct api_buffer buffer = made(1024 + lane);

        srv_lane_enter(&lanes, lane);
        srv_buffers_give(&store, &buffer);
    }
    srv_lane_enter(&lanes, 1);
    for (size_t round = 0; round < 3; round++) {
        taken = srv_buffers_take(&store, round == 0 ? SIZE_MAX : 1000);
        cr_expect_eq(taken.cap, 1025, "%zu", taken.cap);
        srv_buffers_give(&store, &taken);
    }
    taken = srv_buffers_take(&store, 1026);
    cr_expect_eq(taken.cap, 1026, "one that is large enough comes first");
    api_buffer_free(&taken);
    srv_buffers_free(&store);
}
