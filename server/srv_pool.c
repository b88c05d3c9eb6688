/*
 * srv_pool.c - a fixed number of workers, a bounded queue, and help for large problems.
 * Not here: what a task does (srv_work.c); how work is cut into pieces (core/).
 * Start reading at lane_choose.
 *
 * The queue is in lanes (srv_lane.c).  A worker whose own lane is empty for the moment
 * leaves tasks of others alone for a little while, as their own workers have what they
 * need in their caches: delay scheduling (Zaharia et al. 2010, section 3).
 */
#include "server/srv.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

enum {
    ELSEWHERE_US = 500,  /* until a task may be taken by a worker of another lane,    */
    LATELY_US = 5000,    /* if that one had a task of its own so short a time ago     */
    PATIENCE_US = 20000, /* until it goes before that worker's own, which came later  */
};

/* One call of srv_pool_parallel: on its caller's stack until no helper is inside. */
struct shared_work {
    struct shared_work *next;
    api_piece_fn *fn;
    void *arg;
    size_t count;
    atomic_size_t taken; /* pieces given out; may run past count */
    unsigned helpers;    /* inside now; under the pool's lock    */
    pthread_cond_t left;
};

struct lane {
    struct srv_task *first, *last;
};

enum worker_state {
    AT_WORK,  /* or about to look for some                             */
    WATCHING, /* asleep until a task of another lane may be taken      */
    IDLE      /* asleep until there is a task, shared work, or the end */
};

struct worker {
    struct srv_pool *pool;
    unsigned lane;
    struct api_ctx *ctx;
    pthread_t thread;
    int64_t own_us;          /* when it last finished a task of its lane */
    enum worker_state state; /* under the pool's lock                    */
    pthread_cond_t woken;
};

struct srv_pool {
    pthread_mutex_t lock;
    const struct srv_lanes *lanes;
    struct lane lane[SRV_THREADS_MAX];
    struct shared_work *shared;
    atomic_uint queued;  /* reserved places, filled or not  */
    atomic_uint running; /* workers with a task or a piece  */
    unsigned queue_max, workers, started;
    bool ending;
    srv_task_fn *run;
    void *arg;
    struct worker worker[SRV_THREADS_MAX];
};

/* Takes pieces until there are none, or until `idle_only` and a request waits for a
   worker. */
static void pieces_run(struct srv_pool *pool, struct shared_work *work, bool idle_only)
{
    for (;;) {
        size_t piece;

        if (idle_only && atomic_load(&pool->queued) > 0)
            return;
        piece = atomic_fetch_add(&work->taken, 1);
        if (piece >= work->count)
            return;
        work->fn(work->arg, piece);
    }
}

static bool work_is_left(struct shared_work *work)
{
    return atomic_load(&work->taken) < work->count;
}

static struct shared_work *shared_find(struct srv_pool *pool)
{
    for (struct shared_work *work = pool->shared; work != NULL; work = work->next)
        if (work_is_left(work))
            return work;
    return NULL;
}

/* Called and left with the lock held; without it while pieces run. */
static void help(struct srv_pool *pool, struct shared_work *work)
{
    work->helpers++;
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_add(&pool->running, 1);
    pieces_run(pool, work, true);
    atomic_fetch_sub(&pool->running, 1);
    pthread_mutex_lock(&pool->lock);
    if (--work->helpers == 0)
        pthread_cond_signal(&work->left);
}

/* The lane of another worker whose first task has waited longest; NULL when none has one.
   With the lock held. */
static struct lane *lane_elsewhere(struct srv_pool *pool, const struct lane *own)
{
    struct lane *oldest = NULL;

    for (unsigned l = 0; l < pool->lanes->count; l++) {
        struct lane *const lane = &pool->lane[l];

        if (lane != own && lane->first != NULL &&
            (oldest == NULL || lane->first->since_us < oldest->first->since_us))
            oldest = lane;
    }
    return oldest;
}

/* The lane whose first task a worker does next, with the lock held.  NULL: there is none,
   or none before *until_us. */
static struct lane *lane_choose(struct srv_pool *pool, const struct worker *worker,
                                int64_t *until_us)
{
    struct lane *const own = &pool->lane[worker->lane];
    struct lane *const other = lane_elsewhere(pool, own);
    int64_t now;

    *until_us = INT64_MAX;
    if (other == NULL)
        return own->first != NULL ? own : NULL;
    if (own->first != NULL)
        return other->first->since_us + PATIENCE_US < own->first->since_us ? other : own;
    now = srv_now_us();
    *until_us = other->first->since_us;
    if (now - worker->own_us < LATELY_US)
        *until_us += ELSEWHERE_US;
    return *until_us <= now ? other : NULL;
}

/* Does the first task of a lane.  Called and left with the lock held. */
static void task_run(struct worker *worker, struct lane *lane)
{
    struct srv_pool *const pool = worker->pool;
    struct srv_task *const task = lane->first;

    lane->first = task->next;
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_sub(&pool->queued, 1);
    atomic_fetch_add(&pool->running, 1);
    pool->run(pool->arg, task, &worker->ctx);
    atomic_fetch_sub(&pool->running, 1);
    pthread_mutex_lock(&pool->lock);
    if (lane == &pool->lane[worker->lane])
        worker->own_us = srv_now_us();
}

/* Sleeps until it is woken or, if there is such a time, until_us.  With the lock held. */
static void worker_sleep(struct worker *worker, int64_t until_us)
{
    pthread_mutex_t *const lock = &worker->pool->lock;
    const struct timespec until = {.tv_sec = until_us / 1000000,
                                   .tv_nsec = until_us % 1000000 * 1000};

    worker->state = until_us == INT64_MAX ? IDLE : WATCHING;
    if (worker->state == IDLE)
        pthread_cond_wait(&worker->woken, lock);
    else
        pthread_cond_timedwait(&worker->woken, lock, &until);
    worker->state = AT_WORK;
}

static void *worker_main(void *arg)
{
    struct worker *const worker = arg;
    struct srv_pool *const pool = worker->pool;

    srv_lane_enter(pool->lanes, worker->lane);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        int64_t until_us;
        struct lane *const lane = lane_choose(pool, worker, &until_us);
        struct shared_work *work;

        if (lane != NULL)
            task_run(worker, lane);
        else if ((work = shared_find(pool)) != NULL && atomic_load(&pool->queued) == 0)
            help(pool, work);
        else if (pool->ending && until_us == INT64_MAX)
            break;
        else
            worker_sleep(worker, until_us);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* A condition whose times are those of srv_now_us. */
static void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static bool worker_add(struct srv_pool *pool, const struct api_limits *limits)
{
    struct worker *const worker = &pool->worker[pool->started];

    *worker = (struct worker){.pool = pool,
                              .lane = pool->started % pool->lanes->count,
                              .ctx = api_ctx_new(limits)};
    if (worker->ctx == NULL)
        return false;
    condition_init(&worker->woken);
    if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
        pthread_cond_destroy(&worker->woken);
        api_ctx_free(worker->ctx);
        return false;
    }
    pool->started++;
    return true;
}

/* Starts the workers, each with a context of its own; NULL when memory or threads are
   short.  `lanes` is kept. */
struct srv_pool *srv_pool_new(unsigned workers, unsigned queue_max,
                              const struct srv_lanes *lanes,
                              const struct api_limits *limits, srv_task_fn *run,
                              void *arg)
{
    struct srv_pool *pool = calloc(1, sizeof *pool);

    assert(workers >= 1 && workers <= SRV_THREADS_MAX);
    assert(lanes->count >= 1 && lanes->count <= workers);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->lanes = lanes;
    pool->queue_max = queue_max;
    pool->workers = workers;
    pool->run = run;
    pool->arg = arg;
    while (pool->started < workers)
        if (!worker_add(pool, limits)) {
            srv_pool_free(pool);
            return NULL;
        }
    return pool;
}

/* Workers that are not idle and tasks that wait, as far as can be said without asking
   them to stand still. */
unsigned srv_pool_busy(struct srv_pool *pool)
{
    return atomic_load_explicit(&pool->running, memory_order_relaxed) +
           atomic_load_explicit(&pool->queued, memory_order_relaxed);
}

/* Keeps a place in the queue for the task that srv_pool_push brings; false = full. */
bool srv_pool_reserve(struct srv_pool *pool)
{
    if (atomic_fetch_add(&pool->queued, 1) < pool->queue_max)
        return true;
    atomic_fetch_sub(&pool->queued, 1);
    return false;
}

static void worker_wake(struct worker *worker)
{
    if (worker->state != AT_WORK)
        pthread_cond_signal(&worker->woken);
    worker->state = AT_WORK;
}

static void wake_all(struct srv_pool *pool)
{
    for (unsigned w = 0; w < pool->started; w++)
        worker_wake(&pool->worker[w]);
}

/* A worker that sleeps, best one of this lane, or best one of another; NULL when there
   is none.  Those that watch are awake soon enough for another lane. */
static struct worker *sleeper(struct srv_pool *pool, unsigned lane, bool elsewhere)
{
    struct worker *second = NULL;

    for (unsigned w = 0; w < pool->started; w++) {
        struct worker *const worker = &pool->worker[w];
        const bool own = worker->lane == lane;

        if (worker->state == AT_WORK || (worker->state == WATCHING && !own))
            continue;
        if (own != elsewhere)
            return worker;
        second = worker;
    }
    return second;
}

/* Queues a task, in a place that was reserved, in the lane of the calling thread; or
   `elsewhere`, if a worker of another lane is idle. */
void srv_pool_push(struct srv_pool *pool, struct srv_task *task, bool elsewhere)
{
    struct worker *worker;
    struct lane *lane;

    task->next = NULL;
    task->since_us = srv_now_us();
    pthread_mutex_lock(&pool->lock);
    worker = sleeper(pool, srv_lane(), elsewhere);
    lane = &pool->lane[elsewhere && worker != NULL ? worker->lane : srv_lane()];
    if (lane->first != NULL)
        lane->last->next = task;
    else
        lane->first = task;
    lane->last = task;
    if (worker != NULL)
        worker_wake(worker);
    pthread_mutex_unlock(&pool->lock);
}

static void shared_remove(struct srv_pool *pool, const struct shared_work *work)
{
    struct shared_work **at = &pool->shared;

    while (*at != work)
        at = &(*at)->next;
    *at = work->next;
}

/*
 * Runs fn(arg, 0 … count-1), each once: an api_parallel_fn.  The caller takes pieces
 * itself and waits only for helpers that are inside a piece, so it ends even when nobody
 * helps. Workers help while no request waits for them.
 */
void srv_pool_parallel(void *pool_arg, size_t count, api_piece_fn *fn, void *arg)
{
    struct srv_pool *const pool = pool_arg;
    struct shared_work work = {.fn = fn, .arg = arg, .count = count};

    if (count <= 1 || pool->workers == 1) {
        for (size_t piece = 0; piece < count; piece++)
            fn(arg, piece);
        return;
    }
    pthread_cond_init(&work.left, NULL);
    pthread_mutex_lock(&pool->lock);
    work.next = pool->shared;
    pool->shared = &work;
    wake_all(pool);
    pthread_mutex_unlock(&pool->lock);

    pieces_run(pool, &work, false);

    pthread_mutex_lock(&pool->lock);
    shared_remove(pool, &work);
    while (work.helpers > 0)
        pthread_cond_wait(&work.left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_destroy(&work.left);
}

/* Ends the workers once the queue is empty. */
void srv_pool_free(struct srv_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    wake_all(pool);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned w = 0; w < pool->started; w++) {
        struct worker *const worker = &pool->worker[w];

        pthread_join(worker->thread, NULL);
        pthread_cond_destroy(&worker->woken);
        api_ctx_free(worker->ctx);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
