/*
 * srv_log.c - the log: one JSON object a line on standard error.
 * Not here: what is worth a line (the callers).
 * Start reading at srv_log_request.
 */
#include "server/srv.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 }; /* below PIPE_BUF: a pipe takes a line whole or not at all */

/* ---- a line while it is written: what does not fit is left out ---- */

struct line {
    char text[LINE_BYTES];
    size_t length;
};

static void put(struct line *line, const char *text)
{
    const size_t length = strlen(text), room = sizeof line->text - 1 - line->length;
    const size_t n = length < room ? length : room;

    memcpy(line->text + line->length, text, n);
    line->length += n;
}

/* At least `width` digits. */
static void put_number(struct line *line, uint64_t x, unsigned width)
{
    char text[24], *p = text + sizeof text;

    *--p = '\0';
    for (unsigned n = 0; n < width || x > 0; n++, x /= 10)
        *--p = (char)('0' + x % 10);
    put(line, p);
}

/* Milliseconds with three decimals. */
static void put_us(struct line *line, const char *name, int64_t us)
{
    const uint64_t whole = us > 0 ? (uint64_t)us : 0;

    put(line, name);
    put_number(line, whole / 1000, 1);
    put(line, ".");
    put_number(line, whole % 1000, 3);
}

static void put_text(struct line *line, const char *name, const char *text)
{
    char escaped[6 * SRV_PATH_MAX];

    srv_json_escape(text, escaped, sizeof escaped);
    put(line, name);
    put(line, "\"");
    put(line, escaped);
    put(line, "\"");
}

/* Escapes for the inside of a JSON string; what does not fit is cut at a
   whole character. */
void srv_json_escape(const char *text, char *out, size_t size)
{
    static const char HEX[] = "0123456789abcdef";
    size_t n = 0;

    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        const char wide[] = {'\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15]};
        const bool quoted = c == '"' || c == '\\';
        const bool bytes = c < ' ' || c >= 0x7f; /* need not be UTF-8 */
        const size_t length = bytes ? sizeof wide : quoted ? 2 : 1;

        if (n + length >= size)
            break;
        if (bytes)
            memcpy(out + n, wide, sizeof wide);
        else if (quoted)
            out[n] = '\\';
        if (!bytes)
            out[n + length - 1] = (char)c;
        n += length;
    }
    out[n] = '\0';
}

/* 2026-01-02T03:04:05.678Z; the part in seconds is made anew once a second. */
static void put_time(struct line *line)
{
    static _Thread_local struct {
        time_t second;
        char text[32];
    } last;
    struct timespec now;
    struct tm parts;

    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != last.second) {
        gmtime_r(&now.tv_sec, &parts);
        strftime(last.text, sizeof last.text, "%Y-%m-%dT%H:%M:%S", &parts);
        last.second = now.tv_sec;
    }
    put(line, last.text);
    put(line, ".");
    put_number(line, (uint64_t)(now.tv_nsec / 1000000), 3);
    put(line, "Z\"");
}

static void line_begin(struct line *line, const char *event)
{
    line->length = 0;
    put(line, "{\"time\":\"");
    put_time(line);
    put(line, ",\"event\":\"");
    put(line, event);
    put(line, "\"");
}

/* ---- where lines go ---- */

/* A pipe is opened a second time, so that others who share it are not made non-blocking;
   a regular file never waits.  Elsewhere (a socket, somebody else's pipe) poll tells
   whether a line fits, one thread at a time. */
void srv_log_open(struct srv_log *log, bool on, int fd)
{
    char path[40];
    struct stat file;
    int again = -1;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode))
        again = fd;
    else if (on)
        again = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    log->on = on;
    log->in_turns = again < 0;
    log->fd = again < 0 ? fd : again;
    pthread_mutex_init(&log->lock, NULL);
}

static bool line_fits(struct srv_log *log)
{
    struct pollfd out = {.fd = log->fd, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
}

static bool line_write(struct srv_log *log, const struct line *line)
{
    return write(log->fd, line->text, line->length) == (ssize_t)line->length;
}

/* Never waits for a reader: what a full pipe cannot take is dropped and counted. */
static void line_end(struct srv_log *log, struct line *line)
{
    bool written;

    put(line, "}");
    line->text[line->length++] = '\n';
    if (!log->in_turns) {
        written = line_write(log, line);
    } else {
        pthread_mutex_lock(&log->lock);
        written = line_fits(log) && line_write(log, line);
        pthread_mutex_unlock(&log->lock);
    }
    if (!written)
        atomic_fetch_add(&log->dropped, 1);
}

static int64_t us_between(int64_t from_us, int64_t to_us)
{
    return from_us > 0 && to_us > from_us ? to_us - from_us : 0;
}

static int64_t us_of(double ms)
{
    return (int64_t)(ms * 1000 + 0.5);
}

void srv_log_request(struct srv_log *log, const struct srv_request *request)
{
    const struct api_reply *reply = &request->reply;
    struct line line;

    if (!log->on)
        return;
    line_begin(&line, "request");
    put_text(&line, ",\"request_id\":", request->id);
    put_text(&line, ",\"method\":", request->method);
    put_text(&line, ",\"path\":", request->path);
    put(&line, ",\"status\":");
    put_number(&line, (uint64_t)reply->status, 1);
    put(&line, ",\"bytes_in\":");
    put_number(&line, request->received_bytes, 1);
    put(&line, ",\"bytes_out\":");
    put_number(&line, request->answer_bytes, 1);
    put_us(&line, ",\"ms\":{\"total\":", us_between(request->start_us, srv_now_us()));
    put_us(&line, ",\"queue\":", us_between(request->queued_us, request->begun_us));
    put_us(&line, ",\"parse\":", us_of(reply->parse_ms));
    put_us(&line, ",\"compute\":", us_of(reply->compute_ms));
    put_us(&line, ",\"write\":", us_of(reply->write_ms));
    if (reply->error != NULL)
        put_text(&line, "},\"error\":", reply->error);
    else
        put(&line, "},\"error\":null");
    line_end(log, &line);
}

/* A line about the process: `format` gives further members, such as "\"signal\":%d". */
void srv_log_event(struct srv_log *log, const char *event, const char *format, ...)
{
    char members[1024];
    struct line line;
    va_list args;

    if (!log->on)
        return;
    va_start(args, format);
    vsnprintf(members, sizeof members, format, args);
    va_end(args);
    line_begin(&line, event);
    put(&line, ",");
    put(&line, members);
    line_end(log, &line);
}
