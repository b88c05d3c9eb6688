/*
 * srv_accept.c - takes new connections and gives each to an I/O thread.
 * Not here: the listening socket (srv_listen.c), a connection's life (srv_http.c).
 * Start reading at accept_main.
 *
 * The HTTP library could accept by itself, but then whichever thread wakes first has the
 * connection, which leaves one with twice the work of the other.
 */
#include "server/srv.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    NEAR_MORE = 8,   /* connections that a thread may have more than another, if they come
                        in on its core; and never more than twice as many */
    FULL_MS = 5,     /* until it is looked again whether a connection was closed */
    SHORT_MS = 50,   /* the same for files, memory or the network                */
    SETTLE_MS = 1000 /* until what was given to a thread must have begun       */
};

struct srv_accept {
    struct srv_server *server;
    pthread_t thread;
    int listen_fd, end_fd;
    unsigned last;   /* thread that got a connection last, */
    int64_t last_us; /* and when                           */
    unsigned long given[SRV_THREADS_MAX];
};

/* Connections of an I/O thread, those on their way to it counted. */
static unsigned long open_of(const struct srv_accept *accept, unsigned t)
{
    const struct srv_io *const io = &accept->server->io[t];
    const unsigned long closed = atomic_load(&io->closed),
                        started = atomic_load(&io->started), given = accept->given[t];

    return (given > started ? given : started) - closed;
}

static unsigned long open_all(const struct srv_accept *accept)
{
    unsigned long sum = 0;

    for (unsigned t = 0; t < accept->server->config.io_threads; t++)
        sum += open_of(accept, t);
    return sum;
}

/* The thread with the fewest connections; of equal ones the next in turn. */
static unsigned thread_least(const struct srv_accept *accept)
{
    const unsigned threads = (unsigned)accept->server->config.io_threads;
    unsigned best = (accept->last + 1) % threads;

    for (unsigned n = 2; n <= threads; n++) {
        const unsigned t = (accept->last + n) % threads;

        if (open_of(accept, t) < open_of(accept, best))
            best = t;
    }
    return best;
}

/* The thread on the core that gets the connection's packets (SO_INCOMING_CPU, socket(7)),
   unless it has many more connections than another: then the one with the fewest. */
static unsigned thread_choose(const struct srv_accept *accept, int fd)
{
    const unsigned least = thread_least(accept);
    const unsigned long few = open_of(accept, least);
    socklen_t size = sizeof(int);
    unsigned near;
    int core;

    if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &core, &size) == 0 &&
        srv_lane_of_core(&accept->server->lanes, core, &near) &&
        open_of(accept, near) <= few + (few < NEAR_MORE ? few : NEAR_MORE))
        return near;
    return least;
}

/* A connection that the library could not begin for want of memory is neither started
   nor closed: what has not begun after so long never will. */
static void settle(struct srv_accept *accept)
{
    if (srv_now_us() - accept->last_us < SETTLE_MS * 1000)
        return;
    for (unsigned t = 0; t < accept->server->config.io_threads; t++)
        accept->given[t] = atomic_load(&accept->server->io[t].started);
}

/* Accepts one connection; false, with errno set, when there is none to be had. */
static bool accept_one(struct srv_accept *accept)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    const int fd = accept4(accept->listen_fd, (struct sockaddr *)&address, &size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    unsigned t;

    if (fd < 0)
        return false;
    t = thread_choose(accept, fd);
    accept->last = t;
    accept->last_us = srv_now_us();
    accept->given[t]++;
    if (MHD_add_connection(accept->server->io[t].daemon, fd, (struct sockaddr *)&address,
                           size) != MHD_YES)
        accept->given[t]--; /* the library has closed it */
    return true;
}

/* Accepts what waits; the result is for how long nobody need look, -1 = until somebody
   comes. */
static int accept_waiting(struct srv_accept *accept)
{
    const unsigned long max = (unsigned long)accept->server->config.connection_max;

    while (open_all(accept) < max)
        if (!accept_one(accept) && errno != EINTR && errno != ECONNABORTED)
            return errno == EAGAIN ? -1 : SHORT_MS;
    return FULL_MS;
}

static void *accept_main(void *arg)
{
    struct srv_accept *const accept = arg;
    struct pollfd fds[] = {{.fd = accept->end_fd, .events = POLLIN},
                           {.fd = accept->listen_fd, .events = POLLIN}};
    int rest_ms = -1;

    while (fds[0].revents == 0) {
        fds[1].revents = 0;
        poll(fds, rest_ms < 0 ? 2 : 1, rest_ms);
        settle(accept);
        rest_ms = accept_waiting(accept);
    }
    return NULL;
}

/* Starts a thread that accepts on this socket; NULL when there is no memory, thread or
   file for it. */
struct srv_accept *srv_accept_new(struct srv_server *server, int listen_fd)
{
    struct srv_accept *accept = calloc(1, sizeof *accept);

    if (accept == NULL)
        return NULL;
    accept->server = server;
    accept->listen_fd = listen_fd;
    accept->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (accept->end_fd >= 0 &&
        pthread_create(&accept->thread, NULL, accept_main, accept) == 0)
        return accept;
    if (accept->end_fd >= 0)
        close(accept->end_fd);
    free(accept);
    return NULL;
}

/* Ends the thread and closes the socket: nobody is accepted any more. */
void srv_accept_free(struct srv_accept *accept)
{
    const uint64_t one = 1;

    if (accept == NULL)
        return;
    while (write(accept->end_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(accept->thread, NULL);
    close(accept->end_fd);
    close(accept->listen_fd);
    free(accept);
}
