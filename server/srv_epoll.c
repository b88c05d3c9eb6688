/*
 * srv_epoll.c - keeps the HTTP library from sleeping on events that it already holds.
 * Not here: what the events mean (libmicrohttpd).
 * Start reading at epoll_wait.
 *
 * libmicrohttpd (MHD_epoll) asks for 128 events, and for more as long as it gets exactly
 * 128, each time willing to wait; only then it looks at what it got.  When just 128
 * connections of a thread are ready and nobody else comes, it waits for ever: with 256
 * clients and two threads that is the rule.  As srv_library.c does, this file stands in
 * front of the function that the library calls.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>

/* The same, but right after a full answer it does not wait. */
int epoll_wait(int epoll_fd, struct epoll_event *events, int max, int timeout_ms)
{
    static _Thread_local bool was_full;
    const int count = epoll_pwait(epoll_fd, events, max, was_full ? 0 : timeout_ms, NULL);

    was_full = count == max;
    return count;
}
