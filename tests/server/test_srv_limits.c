/*
 * test_srv_limits.c - limits of cgroups, version 1 and 2, from files as the kernel
 * writes them.
 * Not here: what is made of them (test_srv_config.c).
 * Start reading at version_2.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void root_make(void)
{
    snprintf(root, sizeof root, "%s", "attentiond-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void root_remove(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(limits, .init = root_make, .fini = root_remove);

/* Writes one file below the root, and the directories it needs. */
static void put(const char *path, const char *text)
{
    char file[512];
    FILE *out;

    snprintf(file, sizeof file, "%s%s", root, path);
    for (char *slash = strchr(file + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(file, 0700);
        *slash = '/';
    }
    out = fopen(file, "w");
    cr_assert_not_null(out, "%s", file);
    fputs(text, out);
    fclose(out);
}

Test(limits, version_2)
{
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "268435456\n");
    put("/sys/fs/cgroup/memory.max", "536870912\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    cr_expect_eq(srv_cgroup_memory_bytes(root), 268435456);
    cr_expect_eq(srv_cgroup_cores(root), 2);
}

Test(limits, version_2_in_a_container)
{
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    cr_expect_eq(srv_cgroup_memory_bytes(root), 268435456);
    cr_expect_eq(srv_cgroup_cores(root), 1);
}

Test(limits, version_1)
{
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/x\n2:cpu,cpuacct:/x\n0::/\n");
    put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(srv_cgroup_memory_bytes(root), 268435456);
    cr_expect_eq(srv_cgroup_cores(root), 3);
}

Test(limits, version_1_path_of_the_host)
{
    put("/proc/self/cgroup", "4:memory:/docker/0123\n1:cpu:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(srv_cgroup_memory_bytes(root), 268435456);
    cr_expect_eq(srv_cgroup_cores(root), 0);
}

Test(limits, none)
{
    cr_expect_eq(srv_cgroup_memory_bytes(root), SIZE_MAX);
    cr_expect_eq(srv_cgroup_cores(root), 0);
    put("/proc/self/cgroup", "0::/\nnot a line\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    cr_expect_eq(srv_cgroup_memory_bytes(root), SIZE_MAX);
}

Test(limits, this_machine)
{
    const struct srv_machine machine = srv_machine_read("");

    cr_expect_gt(machine.memory_bytes, (size_t)16 << 20);
    cr_expect_geq(machine.cores, 1);
    cr_expect_gt(machine.files_max, SRV_FILES_SPARE);
}
