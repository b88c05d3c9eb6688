/*
 * srv_epoll.c - keeps the HTTP library from sleeping on events that it already holds, and
 * knows how busy its threads are.
 * Not here: what the events mean (libmicrohttpd).
 * Start reading at epoll_wait.
 *
 * libmicrohttpd (MHD_epoll) asks for 128 events, and for more as long as it gets exactly
 * 128, each time willing to wait; only then it looks at what it got.  When just 128
 * connections of a thread are ready and nobody else comes, it waits for ever: with 256
 * clients and two threads that is the rule.  As srv_library.c does, this file stands in
 * front of the function that the library calls.
 */
#include "server/srv.h"

#include <sys/epoll.h>

static atomic_uint awake; /* I/O threads that do not wait for events */
static _Thread_local bool pressed;

/* True when the calling thread found events without waiting: they come faster than it
   works. */
bool srv_epoll_pressed(void)
{
    return pressed;
}

unsigned srv_epoll_awake(void)
{
    return atomic_load_explicit(&awake, memory_order_relaxed);
}

/* The same, but right after a full answer it does not wait. */
int epoll_wait(int epoll_fd, struct epoll_event *events, int max, int timeout_ms)
{
    static _Thread_local bool was_full, counted;
    int count = epoll_pwait(epoll_fd, events, max, 0, NULL);

    pressed = count != 0 || timeout_ms == 0;
    if (!pressed && !was_full) {
        if (counted)
            atomic_fetch_sub(&awake, 1);
        count = epoll_pwait(epoll_fd, events, max, timeout_ms, NULL);
        atomic_fetch_add(&awake, 1);
        counted = true;
    }
    was_full = count == max;
    return count;
}
