/*
 * srv_main.c - the process: start, wait for a signal, drain, stop.
 * Not here: everything else.
 * Start reading at main.
 */
#include "server/srv.h"

#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_USAGE = 2,
    STEP_MS = 5,
    QUIET_MS = 100,
    LAST_MS = 500, /* of the drain time, kept for answers that say 503 or 504: */
    LAST_SHARE = 4 /* at most one part in so many of it                        */
};

static struct srv_server SERVER;

static void limits_set(struct srv_server *server, const struct srv_machine *machine)
{
    const struct srv_config *config = &server->config;

    server->limits = (struct api_limits){
        .body_max_bytes = (size_t)config->body_max_bytes,
        .memory_max_bytes = (size_t)config->memory_max_bytes,
        .answer_max_bytes = (size_t)config->answer_max_bytes,
        .deadline_ms = (unsigned)config->deadline_ms,
        .workers = (unsigned)config->workers,
        .queue_max = (unsigned)config->queue_max,
    };
    server->held.max = (size_t)config->body_total_max_bytes;
    server->buffers.max_bytes = machine->memory_bytes / 16;
    server->lanes = srv_lanes_plan(config, machine);
    server->spares.lend_max_bytes = srv_lend_max(config, machine);
    srv_log_open(&server->log, config->log[0] == 'j', STDERR_FILENO);
}

/* Everything but the socket; false = memory or threads are short. */
static bool parts_start(struct srv_server *server)
{
    const struct srv_config *config = &server->config;

    for (int64_t t = 0; t < config->io_threads; t++) {
        server->io[t].ctx = api_ctx_new(&server->limits);
        if (server->io[t].ctx == NULL)
            return false;
    }
    for (int64_t w = 0; w < config->workers; w++) {
        struct api_ctx *spare = api_ctx_new(&server->limits);

        if (spare == NULL)
            break; /* then answers are copied */
        srv_spares_give(&server->spares, spare);
    }
    if (!srv_fds_new(&server->fds, (size_t)config->connection_max))
        return false;
    server->pool = srv_pool_new((unsigned)config->workers, (unsigned)config->queue_max,
                                &server->lanes, &server->limits, srv_task_run, server);
    server->watch = srv_watch_new(server);
    return server->pool != NULL && server->watch != NULL;
}

/* Large blocks are mapped and given back whole, so that one large request leaves
   no hole. */
static void heap_setup(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_ARENA_MAX, 4);
}

static sem_t signalled;
static atomic_int signal_seen;

/* The first signal is main's to act on; a second one ends the process at once. */
static void on_signal(int number)
{
    if (atomic_exchange(&signal_seen, number) != 0)
        _exit(128 + number);
    sem_post(&signalled);
}

/* A handler and not sigwait: a library's threads, made before main, have nothing blocked,
   and one of them may be given the signal. */
static void signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sem_init(&signalled, 0, 0);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Threads inherit what is blocked while they are made. */
static void signals_block(int how)
{
    sigset_t ending;

    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    pthread_sigmask(how, &ending, NULL);
}

static void signal_wait(void)
{
    while (sem_wait(&signalled) != 0)
        continue; /* interrupted */
}

static void sleep_ms(int64_t ms)
{
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&rest, &rest) != 0)
        continue; /* interrupted: sleep the rest */
}

static bool is_quiet(const struct srv_server *server)
{
    return atomic_load(&server->in_flight) == 0;
}

/* Waits until no request has been there for so long: some may be on their way. */
static void wait_quiet(struct srv_server *server, int64_t quiet_ms, int64_t until_us)
{
    int64_t since_us = srv_now_us();

    while (srv_now_us() < until_us &&
           (!is_quiet(server) || srv_now_us() < since_us + quiet_ms * 1000)) {
        sleep_ms(STEP_MS);
        if (!is_quiet(server))
            since_us = srv_now_us();
    }
}

/*
 * From the signal to the end: ready answers 503; after drain-wait nothing new is
 * accepted; requests in flight are finished, and those that come on open connections;
 * near the end of the drain time those that still compute are told that their deadline
 * has passed.  In the end none begins any more, because no connection may be with a
 * worker when the I/O threads stop.  True when every request was answered.
 */
static bool drain(struct srv_server *server)
{
    const int64_t drain_ms = server->config.drain_time_ms;
    const int64_t end_us = srv_now_us() + drain_ms * 1000;
    const int64_t last_ms =
        drain_ms / LAST_SHARE < LAST_MS ? drain_ms / LAST_SHARE : LAST_MS;

    atomic_store(&server->draining, true);
    sleep_ms(server->config.drain_wait_ms);
    srv_accept_free(server->accept);
    atomic_store(&server->closing, true);
    wait_quiet(server, QUIET_MS, end_us - last_ms * 1000);
    atomic_store(&server->abandoned, true);
    wait_quiet(server, 0, end_us);
    return is_quiet(server);
}

static void parts_stop(struct srv_server *server)
{
    srv_http_stop(server);
    srv_pool_free(server->pool);
    srv_watch_free(server->watch);
    srv_fds_free(&server->fds);
    for (int64_t t = 0; t < server->config.io_threads; t++)
        api_ctx_free(server->io[t].ctx);
    for (size_t t = 0; t < SRV_THREADS_MAX; t++)
        while (server->io[t].free != NULL) {
            struct srv_request *const next = server->io[t].free->next;

            free(server->io[t].free);
            server->io[t].free = next;
        }
    srv_spares_free(&server->spares);
    srv_buffers_free(&server->buffers);
    srv_packers_free(&server->packers);
}

static int serve(struct srv_server *server, const struct srv_machine *machine)
{
    char url[96];
    int listen_fd;
    bool clean;

    signals_catch();
    heap_setup();
    limits_set(server, machine);
    listen_fd = srv_listen(&server->config, url, sizeof url, stderr);
    if (listen_fd < 0)
        return EXIT_FAILURE;
    signals_block(SIG_BLOCK);
    api_init();
    srv_log_event(&server->log, "start",
                  "\"version\":\"%s\",\"url\":\"%s\",\"workers\":%d,"
                  "\"bound_to_cores\":%s",
                  API_VERSION, url, (int)server->config.workers,
                  server->lanes.are_cores ? "true" : "false");
    if (!parts_start(server) || !srv_http_start(server) ||
        (server->accept = srv_accept_new(server, listen_fd)) == NULL) {
        fprintf(stderr,
                "attentiond: not enough memory, threads or open files to start\n");
        _exit(EXIT_FAILURE); /* a library that lacks threads waits for them at exit */
    }
    signals_block(SIG_UNBLOCK);
    printf("listening on %s\n", url);
    fflush(stdout);
    signal_wait();
    srv_log_event(&server->log, "drain", "\"signal\":%d,\"in_flight\":%u",
                  atomic_load(&signal_seen), atomic_load(&server->in_flight));
    clean = drain(server);
    srv_log_event(&server->log, "stop", "\"unanswered\":%u,\"log_lines_dropped\":%lu",
                  atomic_load(&server->in_flight), atomic_load(&server->log.dropped));
    if (!clean)
        _exit(EXIT_SUCCESS); /* a worker or a client holds on: nothing can be joined */
    parts_stop(server);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct srv_config *const config = &SERVER.config;
    struct srv_machine machine;
    enum srv_action action;

    if (!srv_config_read(config, &action, argc, argv, getenv, stderr))
        return EXIT_USAGE;
    if (action == SRV_HELP) {
        srv_config_help(stdout);
        return EXIT_SUCCESS;
    }
    if (action == SRV_VERSION) {
        printf("attentiond %s\n", API_VERSION);
        return EXIT_SUCCESS;
    }
    if (action == SRV_HEALTHCHECK)
        return srv_healthcheck(config);
    machine = srv_machine_read("");
    if (!srv_config_derive(config, &machine, stderr))
        return EXIT_USAGE;
    return serve(&SERVER, &machine);
}
