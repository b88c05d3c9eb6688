/*
 * test_srv_pool.c - every task runs once, the queue is bounded, and parallel work
 * always ends.
 * Not here: requests (tests/http/server_limits.py).
 * Start reading at the tests named parallel_*, and at lanes.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

enum { TASKS = 200, PIECES = 1000 };

static struct api_limits limits = {
    .body_max_bytes = 1 << 20, .memory_max_bytes = 16 << 20, .answer_max_bytes = 1 << 20};

static const struct srv_lanes one_lane = {.count = 1}, two_lanes = {.count = 2};

struct numbered {
    struct srv_task task;
    atomic_int ran;
    unsigned lane; /* of the worker that ran it */
};

static atomic_bool gate_open;

static void count_task(void *arg, struct srv_task *task, struct api_ctx **ctx)
{
    cr_assert_not_null(ctx);
    while (arg != NULL && !atomic_load((atomic_bool *)arg))
        usleep(1000);
    ((struct numbered *)task)->lane = srv_lane();
    atomic_fetch_add(&((struct numbered *)task)->ran, 1);
}

static void push_when_free(struct srv_pool *pool, struct srv_task *task)
{
    while (!srv_pool_reserve(pool))
        usleep(100);
    srv_pool_push(pool, task, false);
}

Test(pool, every_task_runs_once, .timeout = 20)
{
    static struct numbered tasks[TASKS];
    struct srv_pool *pool = srv_pool_new(3, 10, &one_lane, &limits, count_task, NULL);

    cr_assert_not_null(pool);
    for (size_t t = 0; t < TASKS; t++)
        push_when_free(pool, &tasks[t].task);
    srv_pool_free(pool);
    for (size_t t = 0; t < TASKS; t++)
        cr_expect_eq(atomic_load(&tasks[t].ran), 1, "task %zu", t);
}

Test(pool, queue_is_bounded, .timeout = 20)
{
    static struct numbered tasks[4];
    struct srv_pool *pool =
        srv_pool_new(1, 2, &one_lane, &limits, count_task, &gate_open);

    push_when_free(pool, &tasks[0].task);
    push_when_free(pool,
                   &tasks[1].task); /* waits for the worker to have taken the first */
    push_when_free(pool, &tasks[2].task);
    cr_expect_not(srv_pool_reserve(pool));
    cr_expect_not(srv_pool_reserve(pool), "a refusal takes no place");
    atomic_store(&gate_open, true);
    push_when_free(pool, &tasks[3].task);
    srv_pool_free(pool);
    for (size_t t = 0; t < COUNT(tasks); t++)
        cr_expect_eq(atomic_load(&tasks[t].ran), 1);
}

static void count_piece(void *arg, size_t piece)
{
    atomic_fetch_add(&((atomic_int *)arg)[piece], 1);
}

static void expect_ones(atomic_int *ran, size_t count)
{
    for (size_t p = 0; p < count; p++)
        cr_assert_eq(atomic_load(&ran[p]), 1, "piece %zu ran %d times", p,
                     atomic_load(&ran[p]));
}

Test(pool, parallel_from_outside, .timeout = 20)
{
    struct srv_pool *pool = srv_pool_new(3, 10, &one_lane, &limits, count_task, NULL);

    for (size_t round = 0; round < 200; round++) {
        atomic_int ran[PIECES] = {0};

        srv_pool_parallel(pool, round, count_piece, ran);
        expect_ones(ran, round);
    }
    srv_pool_free(pool);
}

struct sharing_task {
    struct srv_task task;
    struct srv_pool **pool;
    atomic_int ran[PIECES];
};

static void share_task(void *arg, struct srv_task *task, struct api_ctx **ctx)
{
    struct sharing_task *mine = (struct sharing_task *)task;

    (void)arg, (void)ctx;
    srv_pool_parallel(*mine->pool, PIECES, count_piece, mine->ran);
}

/* All workers share work at once: nobody is idle, so each must be able to end alone. */
Test(pool, parallel_from_every_worker, .timeout = 20)
{
    static struct sharing_task tasks[20];
    struct srv_pool *pool = srv_pool_new(3, 20, &one_lane, &limits, share_task, NULL);

    for (size_t t = 0; t < COUNT(tasks); t++) {
        tasks[t].pool = &pool;
        push_when_free(pool, &tasks[t].task);
    }
    srv_pool_free(pool);
    for (size_t t = 0; t < COUNT(tasks); t++)
        expect_ones(tasks[t].ran, PIECES);
}

struct nested {
    struct srv_pool *pool;
    atomic_int ran[8][8];
};

static void outer_piece(void *arg, size_t piece)
{
    struct nested *all = arg;

    srv_pool_parallel(all->pool, 8, count_piece, all->ran[piece]);
}

Test(pool, parallel_within_parallel, .timeout = 20)
{
    static struct nested all;

    all.pool = srv_pool_new(2, 4, &one_lane, &limits, count_task, NULL);
    srv_pool_parallel(all.pool, 8, outer_piece, &all);
    for (size_t r = 0; r < 8; r++)
        expect_ones(all.ran[r], 8);
    srv_pool_free(all.pool);
}

static pthread_t seen[PIECES];

static void slow_piece(void *arg, size_t piece)
{
    (void)arg;
    seen[piece] = pthread_self();
    usleep(2000);
}

Test(pool, idle_workers_help, .timeout = 20)
{
    struct srv_pool *pool = srv_pool_new(2, 4, &one_lane, &limits, count_task, NULL);
    size_t helped = 0;

    usleep(50000); /* until the workers have gone to sleep */
    srv_pool_parallel(pool, 100, slow_piece, NULL);
    for (size_t p = 0; p < 100; p++)
        helped += !pthread_equal(seen[p], pthread_self());
    cr_expect_gt(helped, 0, "sleeping workers were woken");
    cr_expect_lt(helped, 100, "the caller works too");
    srv_pool_free(pool);
}

static void wait_for(struct numbered *task)
{
    while (atomic_load(&task->ran) == 0)
        usleep(100);
}

/* Pushes a task from lane 1 and waits for it, `rest_us` after the one before. */
static unsigned lane_after(struct srv_pool *pool, bool elsewhere, useconds_t rest_us)
{
    struct numbered task = {.ran = 0};

    srv_lane_enter(&two_lanes, 1);
    usleep(rest_us);
    while (!srv_pool_reserve(pool))
        usleep(100);
    srv_pool_push(pool, &task.task, elsewhere);
    wait_for(&task);
    return task.lane;
}

/* More often than not: a worker that is not asleep yet is not found. */
Test(lanes, a_task_stays_in_its_lane, .timeout = 20)
{
    struct srv_pool *pool = srv_pool_new(2, 4, &two_lanes, &limits, count_task, NULL);
    unsigned own = 0, other = 0;

    for (size_t n = 0; n < 50; n++) {
        own += lane_after(pool, false, 5000) == 1;
        other += lane_after(pool, true, 5000) == 0;
    }
    cr_expect_gt(own, 25, "%u of 50 ran in their lane", own);
    cr_expect_gt(other, 25, "%u of 50 ran where they were sent", other);
    srv_pool_free(pool);
}

Test(lanes, no_worker_stands_still, .timeout = 20)
{
    static struct numbered tasks[4];
    static atomic_bool gate;
    struct srv_pool *pool = srv_pool_new(2, 8, &two_lanes, &limits, count_task, &gate);

    srv_lane_enter(&two_lanes, 1);
    push_when_free(pool, &tasks[0].task);
    push_when_free(pool, &tasks[1].task);
    usleep(20000); /* both workers stand at the gate, though one lane is empty */
    push_when_free(pool, &tasks[2].task);
    push_when_free(pool, &tasks[3].task);
    atomic_store(&gate, true);
    srv_pool_free(pool);
    for (size_t t = 0; t < COUNT(tasks); t++)
        cr_expect_eq(atomic_load(&tasks[t].ran), 1, "task %zu", t);
    cr_expect_neq(tasks[0].lane, tasks[1].lane, "the first two were done side by side");
}

struct gated {
    struct srv_task task;
    atomic_bool open;
    int order; /* in which it was run, from 1 */
};

static atomic_int orders;

static void gated_task(void *arg, struct srv_task *task, struct api_ctx **ctx)
{
    struct gated *const mine = (struct gated *)task;

    (void)arg, (void)ctx;
    mine->order = 1 + atomic_fetch_add(&orders, 1);
    while (!atomic_load(&mine->open))
        usleep(100);
}

static void push_in_lane(struct srv_pool *pool, unsigned lane, struct gated *task,
                         bool open)
{
    atomic_store(&task->open, open);
    srv_lane_enter(&two_lanes, lane);
    push_when_free(pool, &task->task);
}

/* One worker never ends: a task of its lane goes before those of the other worker that
   came much later. */
Test(lanes, nobody_waits_for_ever, .timeout = 20)
{
    static struct gated held[2], old, late[2];
    struct srv_pool *pool = srv_pool_new(2, 8, &two_lanes, &limits, gated_task, NULL);

    push_in_lane(pool, 0, &held[0], false);
    usleep(20000);
    push_in_lane(pool, 1, &held[1], false);
    usleep(20000); /* both workers are at work */
    push_in_lane(pool, 1, &old, true);
    usleep(40000);
    push_in_lane(pool, 0, &late[0], true);
    push_in_lane(pool, 0, &late[1], true);
    atomic_store(&held[0].open, true);
    usleep(100000);
    cr_expect_eq(old.order, 3);
    cr_expect_eq(late[0].order, 4);
    cr_expect_eq(late[1].order, 5);
    atomic_store(&held[1].open, true);
    srv_pool_free(pool);
}
