/*
 * srv_config.c - the options: one row each, read from flags and the environment.
 * Not here: what the machine has (srv_limits.c); what an option does (its own file).
 * Start reading at OPTIONS.
 */
#include "server/srv.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define TIB ((int64_t)1 << 40)

typedef bool text_ok_fn(const char *text);

struct srv_option {
    const char *name; /* --queue-max, and ATTENTIOND_QUEUE_MAX                  */
    size_t field;     /* of struct srv_config: int64_t, or const char *         */
    const char *text; /* default of a text option; NULL = the option is a number */
    text_ok_fn *ok;   /* what a text must be                                    */
    int64_t fallback, min, max;
    const char *unit;
    const char *otherwise; /* the default in words, where it depends on the machine  */
    const char *help;
};
#define FIELD(f) offsetof(struct srv_config, f)

static bool any_host(const char *text)
{
    return *text != '\0';
}

static bool affinity_kind(const char *text)
{
    return strcmp(text, "auto") == 0 || strcmp(text, "off") == 0;
}

static bool log_kind(const char *text)
{
    return strcmp(text, "json") == 0 || strcmp(text, "off") == 0;
}

/* clang-format off */
static const struct srv_option OPTIONS[] = {
    { "host", FIELD(host), "127.0.0.1", any_host, 0, 0, 0, "address", NULL,
      "IPv4 or IPv6 address to listen on" },
    { "port", FIELD(port), NULL, NULL, 8080, 0, 65535, "", NULL,
      "TCP port; 0 = any free one" },
    { "workers", FIELD(workers), NULL, NULL, SRV_DERIVED, 1, 31, "threads",
      "cores this process may use",
      "requests computed at once; with the I/O threads at most 32" },
    { "io-threads", FIELD(io_threads), NULL, NULL, 2, 1, 31, "threads", NULL,
      "threads that read requests, send answers and compute what is cheap" },
    { "affinity", FIELD(affinity), "auto", affinity_kind, 0, 0, 0, "auto|off", NULL,
      "auto: where I/O threads, workers and cores are equally many, each core has one of "
      "both to itself" },
    { "queue-max", FIELD(queue_max), NULL, NULL, 256, 1, 65536, "requests", NULL,
      "requests that may wait for a worker; one more is answered 503" },
    { "connection-max", FIELD(connection_max), NULL, NULL, SRV_DERIVED, 8, 1000000,
      "connections", "memory / 64 KiB, from 64 to 8192 and what open files allow",
      "open connections; one more waits to be accepted" },
    { "body-max", FIELD(body_max_bytes), NULL, NULL, 64 * MIB, 1, TIB, "bytes", NULL,
      "largest request body; a larger one is answered 413" },
    { "body-total-max", FIELD(body_total_max_bytes), NULL, NULL, SRV_DERIVED, 1, TIB,
      "bytes", "memory / 4, at least body-max",
      "bodies and answers held at once, over all requests; while it is more, what comes "
      "is answered 503" },
    { "memory-max", FIELD(memory_max_bytes), NULL, NULL, SRV_DERIVED, 1, TIB, "bytes",
      "memory / 4 / workers, at most 4 GiB",
      "tensors of one request; a larger plan is answered 413" },
    { "answer-max", FIELD(answer_max_bytes), NULL, NULL, SRV_DERIVED, 1, TIB, "bytes",
      "memory / 8 / workers, at most 1 GiB",
      "one answer; a larger plan is answered 413" },
    { "deadline", FIELD(deadline_ms), NULL, NULL, 60000, 1, 86400000, "ms", NULL,
      "waiting and computing, from the body's last byte on; then 504" },
    { "idle-timeout", FIELD(idle_timeout_s), NULL, NULL, 30, 1, 86400, "s", NULL,
      "a connection must send a whole request line within this time, or is closed" },
    { "request-timeout", FIELD(request_timeout_s), NULL, NULL, 30, 1, 86400, "s", NULL,
      "header and body must arrive (else 408), and an answer be taken, within this time "
      "plus 1 s per MiB" },
    { "drain-time", FIELD(drain_time_ms), NULL, NULL, 9000, 0, 3600000, "ms", NULL,
      "from SIGTERM to exit at most, for requests in flight; what is not done shortly "
      "before (a quarter of it, at most 500 ms) is answered 504" },
    { "drain-wait", FIELD(drain_wait_ms), NULL, NULL, 0, 0, 3600000, "ms", NULL,
      "of that, how long ready answers 503 before the listen socket is closed" },
    { "cors-origins", FIELD(cors_origins), "*", srv_cors_origins_ok, 0, 0, 0, "origins",
      NULL,
      "origins of web pages that may call: a comma list, * for all, empty for none" },
    { "log", FIELD(log), "json", log_kind, 0, 0, 0, "json|off", NULL,
      "one line per request on standard error" },
};
/* clang-format on */

size_t srv_option_count(void)
{
    return COUNT(OPTIONS);
}

const char *srv_option_name(size_t row)
{
    return row < COUNT(OPTIONS) ? OPTIONS[row].name : NULL;
}

/* "queue-max" becomes "ATTENTIOND_QUEUE_MAX". */
void srv_option_env_name(const char *name, char *text, size_t size)
{
    snprintf(text, size, "ATTENTIOND_%s", name);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static const struct srv_option *option_find(const char *name, size_t length)
{
    for (size_t o = 0; o < COUNT(OPTIONS); o++)
        if (strlen(OPTIONS[o].name) == length &&
            strncmp(OPTIONS[o].name, name, length) == 0)
            return &OPTIONS[o];
    return NULL;
}

/* Only digits: no sign, no blank, no unit, nothing behind. */
static bool number_read(const char *text, int64_t *value)
{
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

/* Sets one option from text; `from` names the flag or variable in the message. */
static bool option_set(struct srv_config *config, const struct srv_option *option,
                       const char *text, const char *from, FILE *errors)
{
    char *const field = (char *)config + option->field;
    int64_t value;

    if (option->text != NULL) {
        if (!option->ok(text)) {
            fprintf(errors, "attentiond: %s: \"%s\" is no %s\n", from, text,
                    option->unit);
            return false;
        }
        memcpy(field, &text, sizeof text);
        return true;
    }
    if (!number_read(text, &value) || value < option->min || value > option->max) {
        fprintf(errors,
                "attentiond: %s: \"%s\" is not a whole number from %" PRId64
                " to %" PRId64 "%s%s\n",
                from, text, option->min, option->max, *option->unit ? " " : "",
                option->unit);
        return false;
    }
    memcpy(field, &value, sizeof value);
    return true;
}

static void options_default(struct srv_config *config)
{
    for (size_t o = 0; o < COUNT(OPTIONS); o++) {
        char *const field = (char *)config + OPTIONS[o].field;

        if (OPTIONS[o].text != NULL)
            memcpy(field, &OPTIONS[o].text, sizeof OPTIONS[o].text);
        else
            memcpy(field, &OPTIONS[o].fallback, sizeof OPTIONS[o].fallback);
    }
}

static bool options_from_env(struct srv_config *config, srv_getenv_fn *env, FILE *errors)
{
    for (size_t o = 0; o < COUNT(OPTIONS); o++) {
        char name[64];
        const char *text;

        srv_option_env_name(OPTIONS[o].name, name, sizeof name);
        text = env(name);
        if (text != NULL && !option_set(config, &OPTIONS[o], text, name, errors))
            return false;
    }
    return true;
}

static bool action_set(const char *argument, enum srv_action *action)
{
    static const struct {
        const char *flag;
        enum srv_action action;
    } ACTIONS[] = {
        {"--help", SRV_HELP},
        {"--version", SRV_VERSION},
        {"--healthcheck", SRV_HEALTHCHECK},
    };

    for (size_t a = 0; a < COUNT(ACTIONS); a++)
        if (strcmp(argument, ACTIONS[a].flag) == 0) {
            *action = ACTIONS[a].action;
            return true;
        }
    return false;
}

/* `--flag value` and `--flag=value`; the last one wins. */
static bool options_from_flags(struct srv_config *config, enum srv_action *action,
                               int argc, char *const *argv, FILE *errors)
{
    for (int a = 1; a < argc; a++) {
        const char *name = argv[a] + 2, *text;
        const size_t length = strcspn(argv[a], "=");
        const struct srv_option *option = NULL;

        if (action_set(argv[a], action))
            continue;
        if (strncmp(argv[a], "--", 2) == 0)
            option = option_find(name, length - 2);
        if (option == NULL) {
            fprintf(errors, "attentiond: unknown option \"%s\"; --help lists them\n",
                    argv[a]);
            return false;
        }
        text = argv[a][length] == '=' ? argv[a] + length + 1 : argv[++a];
        if (text == NULL) {
            fprintf(errors, "attentiond: --%s needs a value\n", option->name);
            return false;
        }
        char from[64];

        snprintf(from, sizeof from, "--%s", option->name);
        if (!option_set(config, option, text, from, errors))
            return false;
    }
    return true;
}

/* Defaults, then environment, then flags.  False: a message has been written
   to `errors`. */
bool srv_config_read(struct srv_config *config, enum srv_action *action, int argc,
                     char *const *argv, srv_getenv_fn *env, FILE *errors)
{
    *action = SRV_SERVE;
    options_default(config);
    return options_from_env(config, env, errors) &&
           options_from_flags(config, action, argc, argv, errors);
}

static void print_wrapped(FILE *out, const char *text)
{
    const int indent = 10, width = 88;
    int column = width;

    while (*text != '\0') {
        const int word = (int)strcspn(text, " ");

        if (column + 1 + word > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else {
            column += fprintf(out, " ");
        }
        column += fprintf(out, "%.*s", word, text);
        text += word + (text[word] == ' ');
    }
    fprintf(out, "\n");
}

void srv_config_help(FILE *out)
{
    fprintf(
        out,
        "Usage: attentiond [option]...\n"
        "Computes attention layers over HTTP and returns every intermediate tensor.\n\n"
        "  --help, --version, --healthcheck (asks a running server; exit 0 when ready)\n"
        "\nEach option is a flag and an environment variable; the flag wins.\n"
        "`memory` is the lesser of physical memory and the cgroup's limit.\n");
    for (size_t o = 0; o < COUNT(OPTIONS); o++) {
        const struct srv_option *option = &OPTIONS[o];
        const char *gap = *option->unit != '\0' ? " " : "";
        char env[64];

        srv_option_env_name(option->name, env, sizeof env);
        fprintf(out, "\n  --%s (%s)", option->name, env);
        print_wrapped(out, option->help);
        fprintf(out, "%*sdefault ", 10, "");
        if (option->text != NULL)
            fprintf(out, "\"%s\"; %s\n", option->text, option->unit);
        else if (option->fallback == SRV_DERIVED)
            fprintf(out, "%s; %" PRId64 " to %" PRId64 "%s%s\n", option->otherwise,
                    option->min, option->max, gap, option->unit);
        else
            fprintf(out, "%" PRId64 "; %" PRId64 " to %" PRId64 "%s%s\n",
                    option->fallback, option->min, option->max, gap, option->unit);
    }
}
