/*
 * srv_lane.c - which threads belong together, and the core that they share.
 * Not here: who works for whom (srv_pool.c), whose buffer is whose (srv_buffers.c).
 * Start reading at srv_lane_enter.
 *
 * What one core has written another reads slowly, and on machines whose cores share no
 * cache four times as slowly.  So a request stays in a lane: an I/O thread, the workers
 * that see to its requests first, and the buffers that they had last.
 */
#include "server/srv.h"

#include <sched.h>
#include <string.h>

static _Thread_local unsigned mine;

/* The lane of the calling thread; 0 of one that has entered none. */
unsigned srv_lane(void)
{
    return mine;
}

/* Fills in the cores that the process may use; false when they are not `count`. */
static bool cores_find(int *core, unsigned count)
{
    cpu_set_t allowed;
    unsigned n = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        (unsigned)CPU_COUNT(&allowed) != count)
        return false;
    for (size_t c = 0; c < CPU_SETSIZE && n < count; c++)
        if (CPU_ISSET(c, &allowed))
            core[n++] = (int)c;
    return true;
}

/* How many lanes there are, and whether each is a core of its own: where there are as
   many I/O threads and as many workers as cores, and no quota moves them about. */
struct srv_lanes srv_lanes_plan(const struct srv_config *config,
                                const struct srv_machine *machine)
{
    struct srv_lanes lanes = {.count = (unsigned)(config->io_threads < config->workers
                                                      ? config->io_threads
                                                      : config->workers)};

    lanes.are_cores =
        strcmp(config->affinity, "auto") == 0 && config->io_threads == config->workers &&
        lanes.count == machine->cores && cores_find(lanes.core, lanes.count);
    return lanes;
}

/* The lane on this core; false when no lane is bound to it. */
bool srv_lane_of_core(const struct srv_lanes *lanes, int core, unsigned *lane)
{
    for (unsigned l = 0; lanes->are_cores && l < lanes->count; l++)
        if (lanes->core[l] == core) {
            *lane = l;
            return true;
        }
    return false;
}

/* The calling thread belongs to this lane from now on.  That the kernel refuses to bind
   it to a core costs speed and nothing else. */
void srv_lane_enter(const struct srv_lanes *lanes, unsigned lane)
{
    cpu_set_t core;

    mine = lane;
    if (!lanes->are_cores)
        return;
    CPU_ZERO(&core);
    CPU_SET((size_t)lanes->core[lane], &core);
    sched_setaffinity(0, sizeof core, &core);
}
