/*
 * api.h - what the server may know of the API: calls in, replies out, one handler an
 * operation. Not here: sockets and processes (server/), tensors and mathematics (core/).
 * Start reading at struct api_call and the list of handlers.
 */
#ifndef API_H
#define API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define API_VERSION "0.1.0"

/* Media types that handlers read or write. */
#define API_JSON        "application/json"
#define API_SAFETENSORS "application/vnd.safetensors"
#define API_OCTETS      "application/octet-stream"

/* Bytes that grow: kept by their owner between requests, so that warm memory is reused.
 */
struct api_buffer {
    char *p;
    size_t len, cap;
};

/* What one request may take.  Set once at start, read by every context and by the
 * catalog. */
struct api_limits {
    size_t body_max_bytes;       /* request body                                      */
    size_t memory_max_bytes;     /* tensors of one request, refused from its plan      */
    size_t answer_max_bytes;     /* one answer, refused from its plan                  */
    unsigned deadline_ms;        /* whole request; 0 = none                            */
    unsigned workers, queue_max; /* told by the catalog only                           */
};

/* Memory and scratch for one request at a time.  One context per thread that runs
 * handlers. */
struct api_ctx;

/* Once per process, before any context and before any thread: seeds and library settings.
 */
void api_init(void);

/* NULL when memory could not be reserved.  `limits` must outlive the context. */
struct api_ctx *api_ctx_new(const struct api_limits *limits);
void api_ctx_free(struct api_ctx *ctx);
/* The context's memory is no longer read by an answer in parts: makes it ready for the
   next request, with at most keep_bytes of its arena still warm. */
void api_ctx_return(struct api_ctx *ctx, size_t keep_bytes);
/* Bytes of the arena that the last request touched. */
size_t api_ctx_bytes(const struct api_ctx *ctx);

/*
 * Runs fn(arg, 0 … count-1), each exactly once, in any order, possibly on several
 * threads, and returns when all have run.  The server lends it to large problems; NULL =
 * run them here.
 */
typedef void api_piece_fn(void *arg, size_t piece);
typedef void api_parallel_fn(void *pool, size_t count, api_piece_fn *fn, void *arg);

/* One request, as the server hands it over.  Strings may be NULL where a header is
 * absent. */
struct api_call {
    const char *request_id;
    const char *method, *path;
    const char *tail; /* what a route's {name} matched, percent-decoded; or NULL */
    const char *content_type, *accept, *accept_encoding;
    const char *body_type;   /* which of the route's types the body has; NULL = JSON    */
    const char *answer_type; /* which of them the client likes best; NULL = JSON        */
    const char *body;        /* not NUL-terminated; NULL when body_len is 0             */
    size_t body_len;
    bool (*expired)(void *); /* true once the request's deadline has passed; or NULL    */
    void *expired_arg;
    api_parallel_fn *parallel; /* or NULL */
    void *pool;
    uint64_t work_max_ns;  /* a handler that would need longer leaves status 0; 0 = any */
    size_t lend_max_bytes; /* an answer may stay in parts in a context that holds at most
                              so much; 0 = it must be whole, in `out` */
};

/* Some bytes of an answer, where they were written. */
struct api_part {
    const void *p; /* in the context; NULL = the next bytes of `out` */
    size_t bytes;
};

/* The answer.  `out` is the caller's buffer: emptied and filled by the handler.  When
   `fixed` is set the body is that static memory instead (embedded files) and `out` stays
   empty.  When `parts` is set the body is those instead: they lie in `out` and in the
   context, which the caller keeps until they are sent, then gives to api_ctx_return. */
struct api_reply {
    int status;
    const char *content_type; /* a string constant                                      */
    const char *allow;        /* value of Allow with a 405; or NULL                     */
    unsigned retry_after_s;   /* with a 503; 0 = no header                              */
    struct api_buffer *out;
    const char *fixed;
    size_t fixed_len;
    const struct api_part *parts;
    size_t part_count;
    const char *cache_control; /* or NULL */
    const char *error; /* wire name of the problem, for logs and metrics; or NULL */
    double parse_ms, compute_ms, write_ms;
};

typedef void api_handler_fn(struct api_ctx *ctx, const struct api_call *call,
                            struct api_reply *reply);

api_handler_fn api_attention;    /* POST /v1/attention       */
api_handler_fn api_audit;        /* POST /v1/audit           */
api_handler_fn api_probe;        /* POST /v1/probe           */
api_handler_fn api_plan;         /* POST /v1/plan            */
api_handler_fn api_catalog;      /* GET  /v1/catalog         */
api_handler_fn api_examples;     /* GET  /v1/examples        */
api_handler_fn api_example;      /* GET  /v1/examples/{name} */
api_handler_fn api_openapi_yaml; /* GET  /openapi.yaml       */

/*
 * Problems that the server itself finds.  Every error answer of the service, whoever
 * finds it, is written by api_problem from the table ERRORS (api_error.c), RFC 9457.
 */
enum api_problem_kind {
    API_P_BAD_REQUEST,       /* 400 HTTP framing                  */
    API_P_NOT_FOUND,         /* 404                               */
    API_P_METHOD,            /* 405, reply->allow set by caller   */
    API_P_NOT_ACCEPTABLE,    /* 406                               */
    API_P_TIMEOUT,           /* 408 body too slow                 */
    API_P_LENGTH_REQUIRED,   /* 411                               */
    API_P_BODY_TOO_LARGE,    /* 413 want = limit, got = size      */
    API_P_URI_TOO_LONG,      /* 414                               */
    API_P_MEDIA_TYPE,        /* 415                               */
    API_P_EXPECTATION,       /* 417                               */
    API_P_HEADERS_TOO_LARGE, /* 431                               */
    API_P_INTERNAL,          /* 500                               */
    API_P_TRANSFER_CODING,   /* 501                               */
    API_P_OVERLOADED,        /* 503 queue full                    */
    API_P_DRAINING,          /* 503                               */
    API_P_DEADLINE,          /* 504                               */
    API_PROBLEM_COUNT
};

/* `detail` replaces the table's sentence when not NULL; want and got are written as
   expected and observed when `numbers` is true. */
void api_problem(struct api_reply *reply, const char *request_id,
                 enum api_problem_kind kind, const char *detail, bool numbers,
                 size_t want, size_t got);

/* Frees what the buffer holds beyond keep_bytes; the server calls it after a large
 * answer. */
void api_buffer_trim(struct api_buffer *buffer, size_t keep_bytes);
void api_buffer_free(struct api_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif
