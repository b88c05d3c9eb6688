/*
 * srv_pool.c - a fixed number of workers, a bounded queue, and help for large problems.
 * Not here: what a task does (srv_http.c); how work is cut into pieces (core/).
 * Start reading at worker_main.
 */
#include "server/srv.h"

#include <assert.h>
#include <stdlib.h>

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

struct srv_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a task, shared work, or the end */
    struct srv_task *first, *last;
    struct shared_work *shared;
    atomic_uint queued;  /* reserved places, filled or not  */
    atomic_uint running; /* workers with a task or a piece  */
    unsigned queue_max, workers, idle;
    bool ending;
    srv_task_fn *run;
    void *arg;
    pthread_t thread[SRV_THREADS_MAX];
    struct api_ctx *ctx[SRV_THREADS_MAX];
    unsigned started;
};

struct worker_start {
    struct srv_pool *pool;
    struct api_ctx **ctx;
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

static void *worker_main(void *start)
{
    struct srv_pool *const pool = ((struct worker_start *)start)->pool;
    struct api_ctx **const ctx = ((struct worker_start *)start)->ctx;

    free(start);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct shared_work *work;

        if (pool->first != NULL) {
            struct srv_task *const task = pool->first;

            pool->first = task->next;
            if (pool->first == NULL)
                pool->last = NULL;
            pthread_mutex_unlock(&pool->lock);
            atomic_fetch_sub(&pool->queued, 1);
            atomic_fetch_add(&pool->running, 1);
            pool->run(pool->arg, task, ctx);
            atomic_fetch_sub(&pool->running, 1);
            pthread_mutex_lock(&pool->lock);
        } else if ((work = shared_find(pool)) != NULL &&
                   atomic_load(&pool->queued) == 0) {
            help(pool, work);
        } else if (pool->ending) {
            break;
        } else {
            pool->idle++;
            pthread_cond_wait(&pool->changed, &pool->lock);
            pool->idle--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static bool worker_add(struct srv_pool *pool, const struct api_limits *limits)
{
    struct worker_start *start = malloc(sizeof *start);
    const unsigned w = pool->started;

    if (start == NULL)
        return false;
    pool->ctx[w] = api_ctx_new(limits);
    *start = (struct worker_start){.pool = pool, .ctx = &pool->ctx[w]};
    if (pool->ctx[w] == NULL ||
        pthread_create(&pool->thread[w], NULL, worker_main, start) != 0) {
        api_ctx_free(pool->ctx[w]);
        free(start);
        return false;
    }
    pool->started++;
    return true;
}

/* Starts the workers, each with a context of its own; NULL when memory or threads are
   short. */
struct srv_pool *srv_pool_new(unsigned workers, unsigned queue_max,
                              const struct api_limits *limits, srv_task_fn *run,
                              void *arg)
{
    struct srv_pool *pool = calloc(1, sizeof *pool);

    assert(workers >= 1);
    assert(workers <= SRV_THREADS_MAX);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
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

void srv_pool_push(struct srv_pool *pool, struct srv_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->last != NULL)
        pool->last->next = task;
    else
        pool->first = task;
    pool->last = task;
    pthread_cond_signal(&pool->changed);
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
    if (pool->idle > 0)
        pthread_cond_broadcast(&pool->changed);
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
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned w = 0; w < pool->started; w++) {
        pthread_join(pool->thread[w], NULL);
        api_ctx_free(pool->ctx[w]);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
