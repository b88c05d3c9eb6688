/*
 * srv_listen.c - the listening socket and the address as a person reads it.
 * Not here: accepting (srv_http.c).
 * Start reading at srv_listen.
 */
#include "server/srv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

/* "HOST:PORT", an IPv6 host in brackets. */
void srv_address_text(const struct sockaddr *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "";

    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;

        memcpy(&six, address, sizeof six);
        inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%d", host, ntohs(six.sin6_port));
    } else {
        struct sockaddr_in four;

        memcpy(&four, address, sizeof four);
        inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%d", host, ntohs(four.sin_port));
    }
}

static int bound_socket(const struct addrinfo *address)
{
    const int on = 1;
    const int fd =
        socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int cause = errno;

    close(fd);
    errno = cause;
    return -1;
}

/* Listens on config->host and port; `url` gets the address really taken.  -1: a message
   has been written to `errors`. */
int srv_listen(const struct srv_config *config, char *url, size_t url_size, FILE *errors)
{
    const struct addrinfo hints = {.ai_flags =
                                       AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    struct addrinfo *found = NULL;
    char port[16], text[80];
    int fd;

    snprintf(port, sizeof port, "%d", (int)config->port);
    if (getaddrinfo(config->host, port, &hints, &found) != 0) {
        fprintf(errors, "attentiond: --host: \"%s\" is no IPv4 or IPv6 address\n",
                config->host);
        return -1;
    }
    fd = bound_socket(found);
    freeaddrinfo(found);
    if (fd < 0) {
        fprintf(errors, "attentiond: cannot listen on %s port %s: %s\n", config->host,
                port, strerror(errno));
        return -1;
    }
    getsockname(fd, (struct sockaddr *)&address, &size);
    srv_address_text((const struct sockaddr *)&address, text, sizeof text);
    snprintf(url, url_size, "http://%s", text);
    return fd;
}
