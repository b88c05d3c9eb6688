/*
 * test_srv_config.c - options from flags and environment, and the defaults made
 * from a machine.
 * Not here: reading the machine (test_srv_limits.c).
 * Start reading at read_options.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static char *port_7_env(const char *name)
{
    static char seven[] = "7";

    return strcmp(name, "ATTENTIOND_PORT") == 0 ? seven : NULL;
}

/* Flags end with NULL, as for main. */
static bool read_options(struct srv_config *config, enum srv_action *action, char **flags,
                         srv_getenv_fn *env, char *message, size_t size)
{
    FILE *errors = fmemopen(message, size, "w");
    int argc = 0;
    bool ok;

    while (flags[argc] != NULL)
        argc++;
    message[0] = '\0';
    ok = srv_config_read(config, action, argc, flags, env, errors);
    fclose(errors);
    return ok;
}

Test(config, defaults)
{
    struct srv_config config;
    enum srv_action action;
    char message[256], *flags[] = {"attentiond", NULL};

    cr_assert(read_options(&config, &action, flags, no_env, message, sizeof message));
    cr_expect_eq(action, SRV_SERVE);
    cr_expect_str_eq(config.host, "127.0.0.1");
    cr_expect_eq(config.port, 8080);
    cr_expect_eq(config.queue_max, 256);
    cr_expect_eq(config.body_max_bytes, 64 << 20);
    cr_expect_eq(config.workers, SRV_DERIVED);
}

Test(config, flag_wins_over_environment)
{
    struct srv_config config;
    enum srv_action action;
    char message[256], *none[] = {"attentiond", NULL};
    char *flag[] = {"attentiond", "--port", "8", "--log=off", NULL};

    cr_assert(read_options(&config, &action, none, port_7_env, message, sizeof message));
    cr_expect_eq(config.port, 7);
    cr_assert(read_options(&config, &action, flag, port_7_env, message, sizeof message));
    cr_expect_eq(config.port, 8);
    cr_expect_str_eq(config.log, "off");
}

Test(config, every_row_refuses_what_is_no_value)
{
    for (size_t o = 0; o < srv_option_count(); o++) {
        struct srv_config config;
        enum srv_action action;
        char message[256], flag[64];
        char *flags[] = {"attentiond", flag, NULL};
        const bool any_text = strcmp(srv_option_name(o), "host") == 0;

        snprintf(flag, sizeof flag, "--%s=no such value", srv_option_name(o));
        cr_expect_eq(
            read_options(&config, &action, flags, no_env, message, sizeof message),
            any_text, "%s", flag);
        if (!any_text)
            cr_expect_not_null(strstr(message, srv_option_name(o)), "%s", message);
        flag[strcspn(flag, "=")] = '\0';
        cr_expect_not(
            read_options(&config, &action, flags, no_env, message, sizeof message));
    }
    cr_expect_null(srv_option_name(srv_option_count()));
}

Test(config, environment_names)
{
    char name[64];

    srv_option_env_name("body-total-max", name, sizeof name);
    cr_expect_str_eq(name, "ATTENTIOND_BODY_TOTAL_MAX");
}

static bool derive(struct srv_config *config, struct srv_machine machine, char **flags)
{
    enum srv_action action;
    char message[256];
    FILE *errors = fopen("/dev/null", "w");
    bool ok;

    cr_assert(read_options(config, &action, flags, no_env, message, sizeof message));
    ok = srv_config_derive(config, &machine, errors);
    fclose(errors);
    return ok;
}

/* The formula's promise: what can be in use at once stays well below the container's
   size. */
Test(config, limits_fit_small_and_large_memory)
{
    static const size_t MIB[] = {256, 512, 1024, 4096, 24000, 1000000};
    static const unsigned CORES[] = {1, 2, 8, 64};
    char *none[] = {"attentiond", NULL};

    for (size_t m = 0; m < COUNT(MIB); m++)
        for (size_t c = 0; c < COUNT(CORES); c++) {
            const struct srv_machine machine = {MIB[m] << 20, CORES[c], 20000};
            struct srv_config k;
            size_t all;

            cr_assert(derive(&k, machine, none));
            cr_expect_eq(k.workers, CORES[c] < 30 ? CORES[c] : 30);
            all = (size_t)(k.body_total_max_bytes +
                           k.workers * (k.memory_max_bytes + k.answer_max_bytes)) +
                  machine.memory_bytes / 16;
            cr_expect_leq(all, machine.memory_bytes / 16 * 11, "%zu MiB, %u cores",
                          MIB[m], CORES[c]);
            cr_expect_geq(k.body_total_max_bytes, k.body_max_bytes);
            cr_expect_leq(k.connection_max, 8192);
        }
}

Test(config, contradictions_are_refused)
{
    const struct srv_machine machine = {(size_t)1 << 30, 4, 1000};
    char *threads[] = {"attentiond", "--workers", "31", NULL};
    char *budget[] = {"attentiond", "--body-total-max", "5", NULL};
    char *files[] = {"attentiond", "--connection-max", "990", NULL};
    char *drain[] = {"attentiond", "--drain-time", "1", "--drain-wait", "2", NULL};
    char *fits[] = {"attentiond", "--workers", "30", "--connection-max", "900", NULL};
    struct srv_config config;

    cr_expect_not(derive(&config, machine, threads));
    cr_expect_not(derive(&config, machine, budget));
    cr_expect_not(derive(&config, machine, files));
    cr_expect_not(derive(&config, machine, drain));
    cr_expect(derive(&config, machine, fits));
    cr_expect_eq(config.workers, 30);
}
