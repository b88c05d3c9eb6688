/*
 * srv_watch.c - absolute deadlines: a thread that ends connections which take too long,
 * notices connections that break while their answer is computed, and lets refused
 * connections linger until their sender has read the answer.
 * Not here: the deadline of the computation (the API asks `expired`).
 * Start reading at watch_main.  The HTTP library's own timeout ends only silent
 * connections; one that drips a byte now and then outlives it.
 */
#include "server/srv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    PATIENCE_US = 1000000,
    BATCH_MAX = 64,
    LINGER_MAX = 256,
    LINGER_US = 2000000,
    LINGER_READ_BYTES = 64 << 10
};

struct lingering {
    int fd;
    int64_t until_us;
};

struct srv_watch {
    struct srv_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    struct srv_connection *connections;
    struct lingering linger[LINGER_MAX];
    size_t lingers;
    int wake_fd;
    bool ending;
};

static void wake(struct srv_watch *watch)
{
    const uint64_t one = 1;

    if (write(watch->wake_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it is awake */
}

/* Ends one connection whose phase is over.  Its I/O thread reads the end of the input and
   closes; while a request was on its way it may still send, for the 408.
   What a slow reader has not taken is discarded with its connection. */
static void connection_expire(struct srv_connection *connection, enum srv_phase phase,
                              int64_t now)
{
    const struct linger discard = {.l_onoff = 1};
    const bool sending = phase == SRV_SENDING, receiving = phase == SRV_RECEIVING;

    if (!atomic_compare_exchange_strong(&connection->phase, &phase, SRV_EXPIRED))
        return;
    if (sending)
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &discard, sizeof discard);
    connection->patient_until_us = receiving ? now + PATIENCE_US : 0;
    shutdown(connection->fd, receiving ? SHUT_RD : SHUT_RDWR);
}

/* A byte that arrives together with the end of the input hides it from the I/O thread, so
   it is shown again every tick, and in the end both sides are closed. */
static void connection_remind(struct srv_connection *connection, int64_t now)
{
    shutdown(connection->fd, now < connection->patient_until_us ? SHUT_RD : SHUT_RDWR);
}

/* Connections to ask about, a batch of them; and what is done with those that the kernel
   has news of. */
typedef void news_fn(struct srv_connection *connection);

struct batch {
    news_fn *news;
    struct srv_connection *connection[BATCH_MAX];
    struct pollfd fds[BATCH_MAX];
    nfds_t count;
};

static void batch_ask(struct batch *batch)
{
    if (batch->count > 0 && poll(batch->fds, batch->count, 0) > 0)
        for (nfds_t n = 0; n < batch->count; n++)
            if (batch->fds[n].revents != 0)
                batch->news(batch->connection[n]);
    batch->count = 0;
}

static void batch_add(struct batch *batch, struct srv_connection *connection,
                      short events)
{
    batch->connection[batch->count] = connection;
    batch->fds[batch->count++] = (struct pollfd){.fd = connection->fd, .events = events};
    if (batch->count == BATCH_MAX)
        batch_ask(batch);
}

/* A connection that waits for its answer has broken: its work ends.  A client that closed
   its sending side may still read: that is no sign. */
static void has_broken(struct srv_connection *connection)
{
    atomic_store(&connection->gone, true);
}

/* The client has closed its sending side and all it sent has been read: no request will
   come, or not the rest of one.  The end came together with the last bytes and has hidden
   behind them: it is shown to the I/O thread again. */
static void has_ended(struct srv_connection *connection)
{
    char byte;

    if (recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        shutdown(connection->fd, SHUT_RD);
}

static void connections_check(struct srv_watch *watch)
{
    const int64_t now = srv_now_us();
    struct batch working = {.news = has_broken}, receiving = {.news = has_ended};

    pthread_mutex_lock(&watch->lock);
    for (struct srv_connection *c = watch->connections; c != NULL; c = c->next) {
        const enum srv_phase phase = atomic_load(&c->phase);

        if (phase == SRV_EXPIRED)
            connection_remind(c, now);
        else if (phase == SRV_WORKING)
            batch_add(&working, c, 0);
        else if (now > atomic_load(&c->until_us))
            connection_expire(c, phase, now);
        else if (phase != SRV_SENDING)
            batch_add(&receiving, c, POLLRDHUP);
    }
    batch_ask(&working);
    batch_ask(&receiving);
    pthread_mutex_unlock(&watch->lock);
}

/* Reads away what the peer still sends; false once it has ended or its time is over. */
static bool linger_drain(const struct lingering *linger, int64_t now)
{
    char waste[LINGER_READ_BYTES];
    ssize_t n = recv(linger->fd, waste, sizeof waste, MSG_DONTWAIT);

    return now < linger->until_us &&
           (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

static void lingers_check(struct srv_watch *watch)
{
    const int64_t now = srv_now_us();

    pthread_mutex_lock(&watch->lock);
    for (size_t l = 0; l < watch->lingers;) {
        if (linger_drain(&watch->linger[l], now)) {
            l++;
            continue;
        }
        close(watch->linger[l].fd);
        watch->linger[l] = watch->linger[--watch->lingers];
    }
    pthread_mutex_unlock(&watch->lock);
}

/* Waits a tick, or until a lingering peer sends or the watch is woken. */
static void wait_tick(struct srv_watch *watch)
{
    struct pollfd fds[LINGER_MAX + 1];
    uint64_t count;
    nfds_t n = 0;

    fds[n++] = (struct pollfd){.fd = watch->wake_fd, .events = POLLIN};
    pthread_mutex_lock(&watch->lock);
    for (size_t l = 0; l < watch->lingers; l++)
        fds[n++] = (struct pollfd){.fd = watch->linger[l].fd, .events = POLLIN};
    pthread_mutex_unlock(&watch->lock);
    poll(fds, n, TICK_MS);
    if ((fds[0].revents & POLLIN) && read(watch->wake_fd, &count, sizeof count) < 0)
        return;
}

static bool watch_is_ending(struct srv_watch *watch)
{
    bool ending;

    pthread_mutex_lock(&watch->lock);
    ending = watch->ending;
    pthread_mutex_unlock(&watch->lock);
    return ending;
}

static void *watch_main(void *arg)
{
    struct srv_watch *const watch = arg;

    while (!watch_is_ending(watch)) {
        wait_tick(watch);
        connections_check(watch);
        lingers_check(watch);
    }
    return NULL;
}

struct srv_watch *srv_watch_new(struct srv_server *server)
{
    struct srv_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL)
        return NULL;
    watch->server = server;
    pthread_mutex_init(&watch->lock, NULL);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->wake_fd >= 0 &&
        pthread_create(&watch->thread, NULL, watch_main, watch) == 0)
        return watch;
    if (watch->wake_fd >= 0)
        close(watch->wake_fd);
    free(watch);
    return NULL;
}

/* After the daemon has been stopped: no connection is left. */
void srv_watch_free(struct srv_watch *watch)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->ending = true;
    pthread_mutex_unlock(&watch->lock);
    wake(watch);
    pthread_join(watch->thread, NULL);
    for (size_t l = 0; l < watch->lingers; l++)
        close(watch->linger[l].fd);
    close(watch->wake_fd);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

/* A new connection, to send a request line in time; NULL without memory. */
struct srv_connection *srv_watch_open(struct srv_watch *watch, int fd)
{
    struct srv_connection *connection = calloc(1, sizeof *connection);

    if (connection == NULL)
        return NULL;
    connection->fd = fd;
    srv_connection_enter(connection, SRV_WAITING,
                         srv_now_us() + watch->server->config.idle_timeout_s * 1000000);
    pthread_mutex_lock(&watch->lock);
    connection->next = watch->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    watch->connections = connection;
    pthread_mutex_unlock(&watch->lock);
    return connection;
}

/* Keeps a copy of the socket open, its sending side closed: closing it while the peer
   still sends would reset the connection and could destroy the unread answer. */
static void linger_begin(struct srv_watch *watch, int fd)
{
    int copy;

    if (watch->lingers == LINGER_MAX || (copy = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return;
    shutdown(copy, SHUT_WR);
    watch->linger[watch->lingers++] =
        (struct lingering){.fd = copy, .until_us = srv_now_us() + LINGER_US};
    wake(watch);
}

/* Called while the socket is still open. */
void srv_watch_close(struct srv_watch *watch, struct srv_connection *connection)
{
    pthread_mutex_lock(&watch->lock);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        watch->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    if (connection->linger)
        linger_begin(watch, connection->fd);
    pthread_mutex_unlock(&watch->lock);
    free(connection);
}

/* The deadline first: the watcher must never see the new phase with the old one. */
void srv_connection_enter(struct srv_connection *connection, enum srv_phase phase,
                          int64_t until_us)
{
    atomic_store(&connection->until_us, until_us);
    atomic_store(&connection->phase, phase);
}

/* Back to waiting for a request line; true if the watcher has ended the connection. */
bool srv_connection_rest(struct srv_connection *connection, int64_t until_us)
{
    atomic_store(&connection->until_us, until_us);
    return atomic_exchange(&connection->phase, SRV_WAITING) == SRV_EXPIRED;
}

/* From this phase to the server's own turn; false if the watcher was faster. */
bool srv_connection_leave(struct srv_connection *connection, enum srv_phase phase)
{
    return atomic_compare_exchange_strong(&connection->phase, &phase, SRV_WORKING);
}
