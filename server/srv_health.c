/*
 * srv_health.c - the two health routes, and the client that asks one (--healthcheck).
 * Not here: what draining does (srv_main.c).
 * Start reading at srv_health_ready.
 */
#include "server/srv.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHECK_TIMEOUT_S = 3 };

static void status_reply(struct api_reply *reply, int status, const char *text)
{
    reply->status = status;
    reply->content_type = "application/json";
    reply->cache_control = "no-store";
    reply->fixed = text;
    reply->fixed_len = strlen(text);
}

/* 200 for as long as the process can answer at all. */
void srv_health_live(struct srv_server *server, struct api_reply *reply)
{
    (void)server;
    status_reply(reply, 200, "{\"status\":\"live\"}\n");
}

/* 503 from the first SIGTERM on, so that a balancer sends new requests elsewhere. */
void srv_health_ready(struct srv_server *server, struct api_reply *reply)
{
    if (!atomic_load(&server->draining)) {
        status_reply(reply, 200, "{\"status\":\"ready\"}\n");
        return;
    }
    status_reply(reply, 503, "{\"status\":\"draining\"}\n");
    reply->retry_after_s = 1;
    reply->error = "draining";
}

/* A server that listens on every address is asked on the loopback one. */
static const char *address_to_ask(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

static int connect_to(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    const struct timeval timeout = {.tv_sec = CHECK_TIMEOUT_S};
    struct addrinfo *found = NULL;
    int fd;

    if (getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* Exit code 0 when the configured server answers 200 on /health/ready, else 1 and why. */
int srv_healthcheck(const struct srv_config *config)
{
    static const char REQUEST[] = "GET /health/ready HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
    static const char GOOD[] = "HTTP/1.1 200 ";
    char port[16], answer[sizeof GOOD] = "";
    ssize_t got = 0;
    int fd;

    snprintf(port, sizeof port, "%d", (int)config->port);
    fd = connect_to(address_to_ask(config->host), port);
    if (fd < 0) {
        fprintf(stderr, "attentiond: no connection to %s port %s\n",
                address_to_ask(config->host), port);
        return 1;
    }
    if (send(fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) ==
        (ssize_t)sizeof REQUEST - 1)
        got = recv(fd, answer, sizeof GOOD - 1, MSG_WAITALL);
    close(fd);
    if (got == (ssize_t)sizeof GOOD - 1 && memcmp(answer, GOOD, sizeof GOOD - 1) == 0)
        return 0;
    fprintf(stderr, "attentiond: not ready\n");
    return 1;
}
