/*
 * test_srv_lane.c - when lanes are cores, and that threads are then bound to them.
 * Not here: what a lane is good for (test_srv_pool.c, test_srv_buffers.c).
 * Start reading at when_lanes_are_cores.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <sched.h>

static unsigned allowed_cores(cpu_set_t *set)
{
    cr_assert_eq(sched_getaffinity(0, sizeof *set, set), 0);
    return (unsigned)CPU_COUNT(set);
}

static struct srv_lanes plan(const char *affinity, unsigned io_threads, unsigned workers,
                             unsigned cores)
{
    const struct srv_config config = {
        .affinity = affinity, .io_threads = io_threads, .workers = workers};
    const struct srv_machine machine = {.cores = cores};

    return srv_lanes_plan(&config, &machine);
}

Test(lane, when_lanes_are_cores)
{
    cpu_set_t set;
    const unsigned n = allowed_cores(&set);

    if (n > SRV_THREADS_MAX / 2)
        cr_skip_test("more cores than threads");
    cr_expect(plan("auto", n, n, n).are_cores);
    cr_expect_not(plan("off", n, n, n).are_cores);
    cr_expect_not(plan("auto", n + 1, n, n).are_cores);
    cr_expect_not(plan("auto", n, n + 1, n).are_cores);
    cr_expect_not(plan("auto", n + 1, n + 1, n + 1).are_cores, "more than there are");
    cr_expect_not(plan("auto", n + 1, n + 1, n).are_cores);
    cr_expect_eq(plan("off", 2, 7, n).count, 2);
    cr_expect_eq(plan("off", 7, 3, n).count, 3);
}

/* A quota of fewer cores than the process may run on: the kernel moves threads about. */
Test(lane, not_under_a_quota)
{
    cpu_set_t set;
    const unsigned n = allowed_cores(&set);

    if (n < 2)
        cr_skip_test("one core");
    cr_expect_not(plan("auto", n - 1, n - 1, n - 1).are_cores);
}

struct asked {
    const struct srv_lanes *lanes;
    unsigned lane, lane_after, lane_before;
    cpu_set_t set;
};

static void *enter(void *arg)
{
    struct asked *const asked = arg;

    asked->lane_before = srv_lane();
    srv_lane_enter(asked->lanes, asked->lane);
    asked->lane_after = srv_lane();
    allowed_cores(&asked->set);
    return NULL;
}

static struct asked entered(const struct srv_lanes *lanes, unsigned lane)
{
    struct asked asked = {.lanes = lanes, .lane = lane};
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, enter, &asked), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(asked.lane_before, 0);
    cr_expect_eq(asked.lane_after, lane);
    return asked;
}

Test(lane, threads_are_bound_to_their_core)
{
    cpu_set_t set;
    const unsigned n = allowed_cores(&set);
    struct srv_lanes lanes;

    if (n > SRV_THREADS_MAX / 2)
        cr_skip_test("more cores than threads");
    lanes = plan("auto", n, n, n);
    for (unsigned lane = 0; lane < n; lane++) {
        const struct asked asked = entered(&lanes, lane);
        unsigned found = n;

        cr_expect_eq(CPU_COUNT(&asked.set), 1);
        cr_expect(CPU_ISSET((size_t)lanes.core[lane], &asked.set));
        cr_expect(srv_lane_of_core(&lanes, lanes.core[lane], &found));
        cr_expect_eq(found, lane);
    }
}

Test(lane, threads_are_free_where_lanes_are_none)
{
    cpu_set_t set;
    const unsigned n = allowed_cores(&set);
    const struct srv_lanes lanes = plan("off", n, n, n);
    const struct asked asked = entered(&lanes, n - 1);
    unsigned lane;

    cr_expect(CPU_EQUAL(&asked.set, &set));
    cr_expect_not(srv_lane_of_core(&lanes, 0, &lane));
}
