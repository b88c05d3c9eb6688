/*
 * srv_limits.c - what the machine gives (cgroup, affinity), and the limits made of it.
 * Not here: the limits of one problem (api/); the options themselves (srv_config.c).
 * Start reading at srv_config_derive: it holds the whole formula.
 */
#include "server/srv.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LEND_MAX_BYTES = 64 << 20 };

static int64_t at_least(int64_t value, int64_t min)
{
    return value < min ? min : value;
}
static int64_t at_most(int64_t value, int64_t max)
{
    return value > max ? max : value;
}

static void set_unless(int64_t *field, int64_t value)
{
    if (*field == SRV_DERIVED)
        *field = value;
}

/*
 * Fills the options that nobody set and checks those that depend on each other.
 *
 * With m bytes of memory and w workers the most that can be in use at once is
 *     body-total-max (m/4)  bodies and answers
 *   + w * answer-max (m/8)  answers being written when that budget is reached
 *   + w * memory-max (m/4)  tensors
 *   + m/16                  warm buffers kept between requests
 *   + w * lend-max (m/16)   contexts that answers keep, or that wait to be used
 * which leaves 1/4 of m to the program, its libraries and the kernel's socket memory.
 */
bool srv_config_derive(struct srv_config *config, const struct srv_machine *machine,
                       FILE *errors)
{
    const int64_t memory =
        at_most((int64_t)(machine->memory_bytes >> 1), INT64_MAX / 4) * 2;
    const int64_t files = (int64_t)machine->files_max - SRV_FILES_SPARE;

    set_unless(
        &config->workers,
        at_most(machine->cores, at_least(SRV_THREADS_MAX - config->io_threads, 1)));
    set_unless(
        &config->memory_max_bytes,
        at_least(at_most(memory / 4 / config->workers, (int64_t)4 << 30), 1 << 20));
    set_unless(
        &config->answer_max_bytes,
        at_least(at_most(memory / 8 / config->workers, (int64_t)1 << 30), 1 << 20));
    set_unless(&config->body_total_max_bytes,
               at_least(memory / 4, config->body_max_bytes));
    set_unless(&config->connection_max,
               at_least(at_most(at_most(at_least(memory >> 16, 64), 8192), files), 8));

    if (config->workers + config->io_threads > SRV_THREADS_MAX) {
        fprintf(errors,
                "attentiond: workers (%d) and io-threads (%d) are together over %d\n",
                (int)config->workers, (int)config->io_threads, SRV_THREADS_MAX);
        return false;
    }
    if (config->body_total_max_bytes < config->body_max_bytes) {
        fprintf(errors, "attentiond: body-total-max is below body-max\n");
        return false;
    }
    if (config->connection_max > files) {
        fprintf(errors,
                "attentiond: connection-max is %d, but only %zu files may be open\n",
                (int)config->connection_max, machine->files_max);
        return false;
    }
    if (config->drain_wait_ms > config->drain_time_ms) {
        fprintf(errors, "attentiond: drain-wait is longer than drain-time\n");
        return false;
    }
    return true;
}

/* Of a context that may hold an answer while it is sent: as many as workers are spare. */
size_t srv_lend_max(const struct srv_config *config, const struct srv_machine *machine)
{
    const size_t share = machine->memory_bytes / 16 / (size_t)config->workers;

    return share < LEND_MAX_BYTES ? share : LEND_MAX_BYTES;
}

/* The first line of root/path/name; false when it cannot be read. */
static bool line_read(const char *root, const char *path, const char *name, char *line,
                      int size)
{
    char file[PATH_BYTES + 128];
    FILE *in;
    bool ok;

    snprintf(file, sizeof file, "%s%s/%s", root, path, name);
    in = fopen(file, "re");
    if (in == NULL)
        return false;
    ok = fgets(line, size, in) != NULL;
    fclose(in);
    return ok;
}

/* This process's directory in one hierarchy: `controller` is "" for version 2. */
static bool cgroup_path(const char *root, const char *controller, char *path, size_t size)
{
    char file[PATH_BYTES], line[PATH_BYTES];
    FILE *in;
    bool found = false;

    snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    in = fopen(file, "re");
    if (in == NULL)
        return false;
    while (!found && fgets(line, sizeof line, in) != NULL) {
        char *list = strchr(line, ':'), *dir = list ? strchr(list + 1, ':') : NULL;

        if (dir == NULL)
            continue;
        *dir++ = '\0';
        dir[strcspn(dir, "\n")] = '\0';
        if (*controller == '\0')
            found = list[1] == '\0';
        for (char *c = strtok(list + 1, ","); c != NULL && !found; c = strtok(NULL, ","))
            found = *controller != '\0' && strcmp(c, controller) == 0;
        if (found)
            snprintf(path, size, "%s", strcmp(dir, "/") == 0 ? "" : dir);
    }
    fclose(in);
    return found;
}

typedef double limit_read_fn(const char *root, const char *dir);

/* The least limit from this process's group up to the mount's root.  Where the path names
   groups of the host that the mount does not show, only the root counts: that is ours. */
static double cgroup_least(const char *root, const char *mount, const char *controller,
                           limit_read_fn *limit)
{
    char path[PATH_BYTES] = "", dir[2 * PATH_BYTES];
    double least = 0;

    if (!cgroup_path(root, controller, path, sizeof path))
        return 0;
    for (;;) {
        char *slash;
        double here;

        snprintf(dir, sizeof dir, "%s%s", mount, path);
        here = limit(root, dir);
        if (here > 0 && (least <= 0 || here < least))
            least = here;
        slash = strrchr(path, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static double memory_v1(const char *root, const char *dir)
{
    char line[64];

    return line_read(root, dir, "memory.limit_in_bytes", line, sizeof line) ? atof(line)
                                                                            : 0;
}

static double memory_v2(const char *root, const char *dir)
{
    char line[64];

    return line_read(root, dir, "memory.max", line, sizeof line) ? atof(line) : 0;
}

static double cores_v1(const char *root, const char *dir)
{
    char quota[64], period[64];

    if (!line_read(root, dir, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !line_read(root, dir, "cpu.cfs_period_us", period, sizeof period) ||
        atof(period) <= 0)
        return 0;
    return atof(quota) / atof(period);
}

static double cores_v2(const char *root, const char *dir)
{
    char line[64];
    double quota, period;

    if (!line_read(root, dir, "cpu.max", line, sizeof line) ||
        sscanf(line, "%lf %lf", &quota, &period) != 2 || period <= 0)
        return 0;
    return quota / period;
}

/* clang-format off */
static const struct {
    const char *mount, *controller;
    limit_read_fn *memory, *cores;
} HIERARCHIES[] = {
    { "/sys/fs/cgroup/memory",      "memory", memory_v1, NULL     },
    { "/sys/fs/cgroup/cpu",         "cpu",    NULL,      cores_v1 },
    { "/sys/fs/cgroup/cpu,cpuacct", "cpu",    NULL,      cores_v1 },
    { "/sys/fs/cgroup",             "",       memory_v2, cores_v2 },
};
/* clang-format on */

/* Least positive limit over all hierarchies; 0 = none. */
static double hierarchies_least(const char *root, bool memory)
{
    double least = 0;

    for (size_t h = 0; h < COUNT(HIERARCHIES); h++) {
        limit_read_fn *limit = memory ? HIERARCHIES[h].memory : HIERARCHIES[h].cores;
        double here = 0;

        if (limit != NULL)
            here = cgroup_least(root, HIERARCHIES[h].mount, HIERARCHIES[h].controller,
                                limit);
        if (here > 0 && (least <= 0 || here < least))
            least = here;
    }
    return least;
}

/* The cgroup's limit, version 1 or 2; SIZE_MAX where there is none.  `root` is "" or a
   test's directory that stands for /. */
size_t srv_cgroup_memory_bytes(const char *root)
{
    const double least = hierarchies_least(root, true);

    return least > 0 && least < 9e18 ? (size_t)least : SIZE_MAX;
}

/* The cgroup's quota in whole cores, rounded up; 0 where there is none. */
unsigned srv_cgroup_cores(const char *root)
{
    const double least = hierarchies_least(root, false);

    return least > 0 && least < 1e6 ? (unsigned)least + (least > (unsigned)least) : 0;
}

static unsigned affinity_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1)
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

/* Raises the soft limit of open files to the hard one first: connections need them. */
static size_t files_allowed(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return 256;
    if (files.rlim_cur < files.rlim_max) {
        const rlim_t soft = files.rlim_cur;

        files.rlim_cur = files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0)
            files.rlim_cur = soft;
    }
    return files.rlim_cur == RLIM_INFINITY ? 1u << 20 : (size_t)files.rlim_cur;
}

struct srv_machine srv_machine_read(const char *root)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const size_t physical =
        pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 1u << 30;
    const size_t group = srv_cgroup_memory_bytes(root);
    const unsigned quota = srv_cgroup_cores(root), affinity = affinity_cores();

    return (struct srv_machine){
        .memory_bytes = group < physical ? group : physical,
        .cores = quota > 0 && quota < affinity ? quota : affinity,
        .files_max = files_allowed(),
    };
}
