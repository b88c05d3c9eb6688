/*
 * test_srv_log.c - log lines are JSON whatever a client sends, and never wait for
 * a reader.
 * Not here: which lines there are (tests/http/server_routes.py).
 * Start reading at escapes.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Test(log, escapes)
{
    char out[64], cut[8];

    srv_json_escape("a\"b\\c\n\x01\x7f\xff/", out, sizeof out);
    cr_expect_str_eq(out, "a\\\"b\\\\c\\u000a\\u0001\\u007f\\u00ff/");
    srv_json_escape("abc\n", cut, sizeof cut);
    cr_expect_str_eq(cut, "abc", "an escape is never cut in two");
    srv_json_escape("", cut, sizeof cut);
    cr_expect_str_eq(cut, "");
}

Test(log, one_whole_line, .timeout = 10)
{
    static struct srv_request request = {.id = "id-1",
                                         .method = "GET",
                                         .path = "/a\"b",
                                         .received_bytes = 3,
                                         .answer_bytes = 4,
                                         .reply = {.status = 404, .error = "not_found"}};
    struct srv_log log = {0};
    char line[1024] = "";
    int ends[2];

    cr_assert_eq(pipe(ends), 0);
    srv_log_open(&log, true, ends[1]);
    srv_log_request(&log, &request);
    cr_assert_gt(read(ends[0], line, sizeof line - 1), 0);
    cr_expect_not_null(strstr(line, "\"request_id\":\"id-1\""), "%s", line);
    cr_expect_not_null(strstr(line, "\"path\":\"/a\\\"b\",\"status\":404,\"bytes_in\":3,"
                                    "\"bytes_out\":4,"));
    cr_expect_not_null(strstr(line, "\"error\":\"not_found\"}\n"));
    cr_expect_eq(strchr(line, '\n')[1], '\0');
}

static void expect_dropped(int fd, bool in_turns)
{
    static struct srv_request request = {.id = "x"};
    struct srv_log log = {0};

    srv_log_open(&log, true, fd);
    cr_expect_eq(log.in_turns, in_turns);
    for (int n = 0; n < 2000; n++)
        srv_log_request(&log, &request);
    cr_expect_gt(log.dropped, 0);
    cr_expect_lt(log.dropped, 2000);
}

Test(log, full_pipe_drops_lines, .timeout = 10)
{
    int ends[2];

    cr_assert_eq(pipe(ends), 0);
    expect_dropped(ends[1], false);
    cr_expect_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0, "others may share it");
}

Test(log, full_socket_drops_lines, .timeout = 10)
{
    int ends[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    expect_dropped(ends[1], true);
}

Test(log, a_file_is_written_as_it_is)
{
    static struct srv_request request = {.id = "x"};
    struct srv_log log = {0};
    FILE *file = tmpfile();
    char line[1024] = "";

    cr_assert_not_null(file);
    srv_log_open(&log, true, fileno(file));
    srv_log_event(&log, "start", "\"n\":%d", 1);
    srv_log_request(&log, &request);
    rewind(file);
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_expect_not_null(strstr(line, "Z\",\"event\":\"start\",\"n\":1}\n"), "%s", line);
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_expect_not_null(strstr(line, "\"ms\":{\"total\":0.000,"), "%s", line);
    fclose(file);
}
