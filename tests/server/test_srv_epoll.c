/*
 * test_srv_epoll.c - waiting for events through the function that stands in front of the
 * library's: what it returns, and what it tells about the thread.
 * Not here: 256 clients at once (tests/http/run_lockstep.py).
 * Start reading at ready.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS = 4 };

/* An epoll with `count` descriptors that stay ready. */
static int ready(int count)
{
    const int epoll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};

    for (int n = 0; n < count; n++) {
        const int fd = eventfd(1, EFD_NONBLOCK);

        cr_assert_eq(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
    }
    return epoll_fd;
}

Test(epoll, a_thread_that_waited_is_not_pressed, .timeout = 10)
{
    struct epoll_event events[EVENTS];

    cr_expect_eq(epoll_wait(ready(1), events, EVENTS, -1), 1);
    cr_expect(srv_epoll_pressed());
    cr_expect_eq(epoll_wait(ready(0), events, EVENTS, 1), 0);
    cr_expect_not(srv_epoll_pressed());
    cr_expect_eq(srv_epoll_awake(), 1);
    cr_expect_eq(epoll_wait(ready(0), events, EVENTS, 1), 0);
    cr_expect_eq(srv_epoll_awake(), 1, "this thread is counted once");
}

Test(epoll, after_a_full_answer_it_does_not_wait, .timeout = 10)
{
    struct epoll_event events[EVENTS];

    cr_expect_eq(epoll_wait(ready(EVENTS), events, EVENTS, -1), EVENTS);
    cr_expect_eq(epoll_wait(ready(0), events, EVENTS, -1), 0);
    cr_expect_eq(epoll_wait(ready(2), events, EVENTS, -1), 2);
}
