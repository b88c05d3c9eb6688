/*
 * srv_log.c - the log: one JSON object a line on standard error.
 * Not here: what is worth a line (the callers).
 * Start reading at srv_log_request.
 */
#include "server/srv.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 }; /* below PIPE_BUF: poll tells whether it fits a pipe whole */

/* Escapes for the inside of a JSON string; what does not fit is cut at a
   whole character. */
void srv_json_escape(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        char piece[8];
        int length;

        if (c == '"' || c == '\\')
            length = snprintf(piece, sizeof piece, "\\%c", c);
        else if (c < ' ' || c >= 0x7f) /* bytes, not characters: they need not be UTF-8 */
            length = snprintf(piece, sizeof piece, "\\u%04x", c);
        else
            length = snprintf(piece, sizeof piece, "%c", c);
        if (n + (size_t)length >= size)
            break;
        memcpy(out + n, piece, (size_t)length);
        n += (size_t)length;
    }
    out[n] = '\0';
}

static void time_text(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    char seconds[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, size, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

/* Never waits for a reader: what a full pipe cannot take is dropped and counted. */
static void line_write(struct srv_log *log, char *line, int length)
{
    struct pollfd out = {.fd = log->fd, .events = POLLOUT};

    if (length >= LINE_BYTES - 2)
        length = LINE_BYTES - 2;
    line[length++] = '\n';
    pthread_mutex_lock(&log->lock);
    if (poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0 ||
        write(log->fd, line, (size_t)length) != length)
        log->dropped++;
    pthread_mutex_unlock(&log->lock);
}

static double ms_between(int64_t from_us, int64_t to_us)
{
    return from_us > 0 && to_us > from_us ? (double)(to_us - from_us) / 1000.0 : 0.0;
}

void srv_log_request(struct srv_log *log, const struct srv_request *request)
{
    const struct api_reply *reply = &request->reply;
    char line[LINE_BYTES], when[40], method[64], path[768], error[128];
    int length;

    if (!log->on)
        return;
    time_text(when, sizeof when);
    srv_json_escape(request->method, method, sizeof method);
    srv_json_escape(request->path, path, sizeof path);
    srv_json_escape(reply->error ? reply->error : "", error, sizeof error);
    length = snprintf(
        line, sizeof line,
        "{\"time\":\"%s\",\"event\":\"request\",\"request_id\":\"%s\",\"method\":\"%s\","
        "\"path\":\"%s\",\"status\":%d,\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64
        ",\"ms\":{\"total\":%.3f,\"queue\":%.3f,\"parse\":%.3f,\"compute\":%.3f,"
        "\"write\":%.3f},\"error\":%s%s%s}",
        when, request->id, method, path, reply->status, request->received_bytes,
        request->sent_bytes, ms_between(request->start_us, srv_now_us()),
        ms_between(request->queued_us, request->begun_us), reply->parse_ms,
        reply->compute_ms, reply->write_ms, reply->error ? "\"" : "",
        reply->error ? error : "null", reply->error ? "\"" : "");
    line_write(log, line, length);
}

/* A line about the process: `format` gives further members, such as "\"signal\":%d". */
void srv_log_event(struct srv_log *log, const char *event, const char *format, ...)
{
    char line[LINE_BYTES], when[40], members[1024];
    va_list args;

    if (!log->on)
        return;
    va_start(args, format);
    vsnprintf(members, sizeof members, format, args);
    va_end(args);
    time_text(when, sizeof when);
    line_write(log, line,
               snprintf(line, sizeof line, "{\"time\":\"%s\",\"event\":\"%s\",%s}", when,
                        event, members));
}
