/*
 * srv_half.c - a client that has closed its sending side behind a whole request is
 * answered: it may still read (RFC 9112, section 9.6).
 * Not here: one that has closed it inside of a request (srv_watch.c).
 * Start reading at recv.
 *
 * The HTTP library reads again when a connection is resumed, and closes one that has
 * nothing more to say, whatever the worker has made for it.  As srv_epoll.c does, this
 * file stands in front of the function that the library calls.
 */
#undef _FORTIFY_SOURCE /* which would define the function itself */
#include "server/srv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { OTHER_FILES = 1024 }; /* beside the connections */

/* Room to find connections by their descriptor; false without memory. */
bool srv_fds_new(struct srv_fds *fds, size_t connection_max)
{
    fds->count = connection_max + OTHER_FILES;
    fds->connection = calloc(fds->count, sizeof *fds->connection);
    return fds->connection != NULL;
}

/* NULL when the descriptor is closed. */
void srv_fds_set(struct srv_fds *fds, int fd, struct srv_connection *connection)
{
    if (fd >= 0 && (size_t)fd < fds->count)
        atomic_store(&fds->connection[fd], connection);
}

void srv_fds_free(struct srv_fds *fds)
{
    free(fds->connection);
    *fds = (struct srv_fds){0};
}

/* Whether it is the server's turn on this connection of the calling I/O thread. */
static bool is_our_turn(struct srv_fds *fds, int fd)
{
    struct srv_connection *const connection =
        fd >= 0 && (size_t)fd < fds->count ? atomic_load(&fds->connection[fd]) : NULL;
    const enum srv_phase phase =
        connection != NULL ? atomic_load(&connection->phase) : SRV_WAITING;

    return phase == SRV_WORKING || phase == SRV_SENDING;
}

/* The same, but the end of the input is kept back while an answer is owed. */
ssize_t recv(int fd, void *buffer, size_t bytes, int flags)
{
    const ssize_t got = recvfrom(fd, buffer, bytes, flags, NULL, NULL);
    struct srv_io *const io = srv_io_mine();

    if (got != 0 || bytes == 0 || io == NULL || !is_our_turn(&io->server->fds, fd))
        return got;
    errno = EAGAIN;
    return -1;
}
