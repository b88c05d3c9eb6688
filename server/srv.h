/*
 * srv.h - the server layer: options, limits, requests, workers, what its files share.
 * Not here: formats and tensors (api/); only the files that talk HTTP include
 * microhttpd.h.
 * Start reading at struct srv_server, then srv_http.c for the life of one request.
 */
#ifndef SRV_H
#define SRV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "api/api.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct MHD_Connection;
struct MHD_Daemon;
struct sockaddr;
struct srv_server;

/* ---- options and what the machine allows: srv_config.c, srv_limits.c ---- */

enum {
    SRV_DERIVED = -1,     /* an option nobody set: srv_config_derive fills it */
    SRV_THREADS_MAX = 32, /* I/O threads and workers that may call the BLAS   */
    SRV_FILES_SPARE = 64  /* descriptors that are no client connections       */
};

struct srv_config {
    const char *host, *cors_origins, *log, *affinity;
    int64_t port, workers, io_threads, queue_max, connection_max;
    int64_t body_max_bytes, body_total_max_bytes, memory_max_bytes, answer_max_bytes;
    int64_t deadline_ms, idle_timeout_s, request_timeout_s, drain_time_ms, drain_wait_ms;
};

enum srv_action { SRV_SERVE, SRV_HELP, SRV_VERSION, SRV_HEALTHCHECK };

struct srv_machine {
    size_t memory_bytes; /* the lesser of physical memory and the cgroup's limit */
    unsigned cores;      /* the lesser of affinity and the cgroup's quota        */
    size_t files_max;    /* open files allowed                                   */
};

typedef char *srv_getenv_fn(const char *name);

bool srv_config_read(struct srv_config *config, enum srv_action *action, int argc,
                     char *const *argv, srv_getenv_fn *env, FILE *errors);
bool srv_config_derive(struct srv_config *config, const struct srv_machine *machine,
                       FILE *errors);
void srv_config_help(FILE *out);
size_t srv_option_count(void);
const char *srv_option_name(size_t row);
void srv_option_env_name(const char *name, char *text, size_t size);

struct srv_machine srv_machine_read(const char *root);
size_t srv_lend_max(const struct srv_config *config, const struct srv_machine *machine);
size_t srv_cgroup_memory_bytes(const char *root);
unsigned srv_cgroup_cores(const char *root);

/* ---- threads and memory that stay together: srv_lane.c ---- */

struct srv_lanes {
    unsigned count;
    bool are_cores; /* the threads of a lane are bound to a core: */
    int core[SRV_THREADS_MAX];
};
struct srv_lanes srv_lanes_plan(const struct srv_config *config,
                                const struct srv_machine *machine);
void srv_lane_enter(const struct srv_lanes *lanes, unsigned lane);
bool srv_lane_of_core(const struct srv_lanes *lanes, int core, unsigned *lane);
unsigned srv_lane(void);

/* ---- what is held, and what is kept for the next request: srv_buffers.c ---- */

/* Bytes of bodies and answers that exist at this moment, over all requests. */
struct srv_held {
    atomic_size_t bytes;
    size_t max;
};
bool srv_held_take(struct srv_held *held, size_t bytes);
void srv_held_add(struct srv_held *held, size_t bytes);
void srv_held_give(struct srv_held *held, size_t bytes);
bool srv_held_over(struct srv_held *held);

/* Warm buffers between requests, at most max_bytes of them.  Nobody waits for anybody: a
   shelf is taken or filled by whoever changes its state. */
enum { SRV_WARM_MAX = 64 };
enum srv_shelf_state { SRV_SHELF_EMPTY, SRV_SHELF_FULL, SRV_SHELF_BUSY };
struct srv_shelf {
    _Atomic(enum srv_shelf_state) state;
    atomic_size_t cap;        /* of the buffer; a hint unless the shelf is one's own */
    atomic_uint lane;         /* of whoever gave it; likewise                        */
    struct api_buffer buffer; /* of whoever made the state BUSY                      */
};
struct srv_buffers {
    struct srv_shelf shelf[SRV_WARM_MAX];
    atomic_size_t bytes;
    size_t max_bytes;
};
struct api_buffer srv_buffers_take(struct srv_buffers *buffers, size_t want);
void srv_buffers_give(struct srv_buffers *buffers, struct api_buffer *buffer);
void srv_buffers_shrink(struct srv_buffers *buffers, struct api_buffer *buffer);
void srv_buffers_free(struct srv_buffers *buffers);

/* Contexts for workers whose own is lent to an answer that is being sent. */
struct srv_spares {
    _Atomic(struct api_ctx *) ctx[SRV_THREADS_MAX];
    size_t lend_max_bytes; /* of one that may be lent */
};
struct api_ctx *srv_spares_take(struct srv_spares *spares);
void srv_spares_give(struct srv_spares *spares, struct api_ctx *ctx);
void srv_spares_free(struct srv_spares *spares);

/* ---- workers: srv_pool.c ---- */

struct srv_task {
    struct srv_task *next;
    int64_t since_us; /* pushed at */
};
/* *ctx is the worker's; the function may put another in its place. */
typedef void srv_task_fn(void *arg, struct srv_task *task, struct api_ctx **ctx);

struct srv_pool;
struct srv_pool *srv_pool_new(unsigned workers, unsigned queue_max,
                              const struct srv_lanes *lanes,
                              const struct api_limits *limits, srv_task_fn *run,
                              void *arg);
unsigned srv_pool_busy(struct srv_pool *pool);
bool srv_pool_reserve(struct srv_pool *pool);
void srv_pool_push(struct srv_pool *pool, struct srv_task *task, bool elsewhere);
void srv_pool_parallel(void *pool, size_t count, api_piece_fn *fn, void *arg);
void srv_pool_free(struct srv_pool *pool);

/* ---- what a request says: srv_headers.c, srv_negotiate.c, srv_routes.c ---- */

enum { SRV_ID_MAX = 128, SRV_PATH_MAX = 256, SRV_ACCEPT_MAX = 1024 };

struct srv_headers {
    const char *host, *content_length, *transfer_encoding, *content_type,
        *content_encoding;
    const char *accept, *accept_encoding, *expect, *origin, *request_id;
    size_t bytes;   /* of all header lines                         */
    bool repeated;  /* one that may stand only once stands twice   */
    bool malformed; /* a name or value with a forbidden character  */
    bool too_long;  /* Accept lines that cannot be kept            */
    char accept_joined[SRV_ACCEPT_MAX];
};
void srv_headers_add(struct srv_headers *headers, const char *name, const char *value);

bool srv_accepts(const char *accept, const char *type);
const char *srv_type_choose(const char *accept, const char *const *types);
const char *srv_type_find(const char *content_type, const char *const *types);
int srv_weight(const char *list, const char *name, bool any);
bool srv_is_json(const char *content_type);
bool srv_is_identity(const char *content_encoding);
bool srv_is_token(const char *text);
bool srv_token_is(const char *text, const char *token);
bool srv_length_read(const char *text, uint64_t *length);
bool srv_id_is_sane(const char *id);
void srv_id_make(char *id, size_t size);
void srv_text_copy(char *out, size_t size, const char *text, size_t length);

struct srv_route {
    const char *method, *path; /* a path may end in /{name}                        */
    api_handler_fn *handler;   /* of the API; or NULL:                             */
    void (*local)(struct srv_server *server, struct api_reply *reply);
    bool worker;                /* has a body and runs on a worker; else where it is */
    const char *const *answers; /* media types, best first; NULL = whatever Accept says */
    const char *const *takes;   /* media types of the body; NULL = JSON             */
    bool here; /* of the workers' routes: cheap calls may run where they arrive */
};
size_t srv_route_count(void);
const struct srv_route *srv_route_at(size_t row);
const struct srv_route *srv_route_find(const char *method, const char *path, char *tail,
                                       size_t tail_size, bool *path_known);
void srv_route_allow(const char *path, char *text, size_t size);
bool srv_path_copy(const char *target, char *path, size_t size);
bool srv_percent_decode(const char *text, char *out, size_t size);

/* ---- content codings: srv_pack.c ---- */

struct srv_packer;
struct srv_coding {
    const char *name;
    size_t (*bound)(size_t bytes);
    size_t (*pack)(struct srv_packer *packer, const char *in, size_t bytes, char *out,
                   size_t room);
};
struct srv_packers {
    _Atomic(struct srv_packer *) idle[SRV_THREADS_MAX];
};
const struct srv_coding *srv_coding_choose(const char *accept_encoding);
bool srv_pack(struct srv_packers *packers, const struct srv_coding *coding,
              const struct api_buffer *in, struct api_buffer *out);
void srv_packers_free(struct srv_packers *packers);

/* ---- one request: srv_request.c ---- */

enum srv_stage {
    SRV_LINE, /* the request line is known             */
    SRV_BODY, /* the header was read, the body follows */
    SRV_WORK, /* queued or running; suspended          */
    SRV_DONE  /* `reply` is ready to be sent           */
};

struct srv_problem {
    enum api_problem_kind kind;
    const char *detail; /* NULL = the table's sentence           */
    bool set, close, numbers;
    size_t want, got;
};

struct srv_request {
    struct srv_task task;     /* first: a worker gets this             */
    struct srv_request *next; /* in the free-list                      */
    struct srv_server *server;
    struct srv_connection *connection;
    struct MHD_Connection *mhd;
    atomic_int references; /* the request's and its response's      */
    enum srv_stage stage;
    const struct srv_route *route;
    struct srv_headers headers;
    const char *body_type, *answer_type; /* of the route's; NULL = JSON  */
    const struct srv_coding *coding;     /* of the answer; NULL = none   */
    struct srv_problem problem;
    struct api_reply reply;
    struct api_buffer body, out;
    struct api_ctx *lent; /* holds parts of the answer; or NULL      */
    size_t held_bytes;    /* taken from server->held                 */
    uint64_t received_bytes, declared_bytes, answer_bytes;
    bool chunked, preflight, close;
    bool (*expired)(void *);
    int64_t start_us, queued_us, begun_us, deadline_us;
    char id[SRV_ID_MAX + 1], method[16], path[SRV_PATH_MAX], tail[SRV_PATH_MAX];
    char allow[64], detail[128];
    size_t target_bytes; /* length of the request target          */
};

struct srv_request *srv_request_new(struct srv_server *server);
void srv_request_release(struct srv_request *request);
bool srv_request_body_add(struct srv_request *request, const char *data, size_t bytes);
void srv_request_body_drop(struct srv_request *request);
void srv_request_refuse(struct srv_request *request, enum api_problem_kind kind,
                        const char *detail);
void srv_request_refuse_size(struct srv_request *request, size_t bytes);
void srv_request_write_problem(struct srv_request *request);
void srv_request_check(struct srv_request *request, bool http_1_1);

/* ---- connections and their absolute deadlines: srv_watch.c ---- */

enum srv_phase {
    SRV_WAITING,   /* no request line yet                       */
    SRV_RECEIVING, /* header or body on the way                 */
    SRV_WORKING,   /* the server's turn: no deadline here       */
    SRV_SENDING,   /* the answer on the way                     */
    SRV_EXPIRED    /* the watcher has ended it                  */
};

struct srv_connection {
    struct srv_connection *previous, *next;
    int fd;
    _Atomic(enum srv_phase) phase;
    _Atomic(int64_t) until_us;   /* when the phase must have ended            */
    struct srv_request *request; /* the I/O thread's alone                    */
    int64_t patient_until_us;    /* the watcher's alone                       */
    bool linger;                 /* the peer may still be sending: close late */
    atomic_bool gone;            /* it broke while it waited for the answer   */
};

/* Connections by their descriptor: srv_half.c. */
struct srv_fds {
    _Atomic(struct srv_connection *) *connection;
    size_t count;
};
bool srv_fds_new(struct srv_fds *fds, size_t connection_max);
void srv_fds_set(struct srv_fds *fds, int fd, struct srv_connection *connection);
void srv_fds_free(struct srv_fds *fds);

struct srv_watch;
struct srv_watch *srv_watch_new(struct srv_server *server);
void srv_watch_free(struct srv_watch *watch);
struct srv_connection *srv_watch_open(struct srv_watch *watch, int fd);
void srv_watch_close(struct srv_watch *watch, struct srv_connection *connection);
void srv_connection_enter(struct srv_connection *connection, enum srv_phase phase,
                          int64_t until_us);
bool srv_connection_leave(struct srv_connection *connection, enum srv_phase phase);
bool srv_connection_rest(struct srv_connection *connection, int64_t until_us);

/* ---- answers: srv_reply.c, srv_cors.c, srv_health.c, srv_library.c ---- */

int srv_reply_queue(struct srv_request *request);
void srv_connection_send_problem(struct srv_request *request);
int64_t srv_transfer_us(const struct srv_server *server, uint64_t bytes);

typedef void srv_header_fn(void *arg, const char *name, const char *value);
void srv_reply_headers(const struct srv_request *request, srv_header_fn *add, void *arg);
void srv_cors_headers(const char *origins, const char *origin, bool preflight,
                      srv_header_fn *add, void *arg);
bool srv_cors_origins_ok(const char *origins);

void srv_health_live(struct srv_server *server, struct api_reply *reply);
void srv_health_ready(struct srv_server *server, struct api_reply *reply);
int srv_healthcheck(const struct srv_config *config);

bool srv_library_setup(struct srv_server *server);

/* ---- log: srv_log.c ---- */

struct srv_log {
    bool on;
    bool in_turns; /* writing could wait: one thread at a time asks first */
    int fd;
    pthread_mutex_t lock; /* of the turns */
    atomic_ulong dropped; /* lines that a full pipe did not take */
};
void srv_log_open(struct srv_log *log, bool on, int fd);
void srv_log_request(struct srv_log *log, const struct srv_request *request);
void srv_log_event(struct srv_log *log, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void srv_json_escape(const char *text, char *out, size_t size);

/* ---- how busy the I/O threads are: srv_epoll.c ---- */

bool srv_epoll_pressed(void);
unsigned srv_epoll_awake(void);

/* ---- a route's function: srv_work.c ---- */

void srv_task_run(void *server, struct srv_task *task, struct api_ctx **ctx);
bool srv_work_wants_worker(const struct srv_server *server);
bool srv_work_here(struct srv_request *request);
void srv_work_light(struct srv_request *request);

/* ---- what an I/O thread has of its own: srv_request.c ---- */

struct srv_io {
    _Alignas(64) struct srv_server *server; /* a cache line a thread */
    struct MHD_Daemon *daemon;
    struct api_ctx *ctx;
    struct srv_request *free; /* records between requests                */
    unsigned free_count;
    atomic_ulong started, closed; /* connections, since the thread began */
};
void srv_io_enter(struct srv_io *io);
struct srv_io *srv_io_mine(void);

/* ---- the whole: srv_http.c, srv_listen.c, srv_accept.c, srv_main.c ---- */

struct srv_server {
    struct srv_config config;
    struct api_limits limits;
    struct srv_log log;
    struct srv_held held;
    struct srv_buffers buffers;
    struct srv_packers packers;
    struct srv_pool *pool;
    struct srv_watch *watch;
    struct srv_fds fds;
    struct srv_accept *accept;
    struct srv_lanes lanes;
    struct srv_spares spares;
    struct srv_io io[SRV_THREADS_MAX];
    atomic_uint in_flight; /* from the request line to the last byte sent      */
    atomic_bool draining;  /* ready answers 503                                */
    atomic_bool closing;   /* the listen socket is closed: answers end theirs  */
    atomic_bool abandoned; /* the end is near: nothing more is computed        */
};

bool srv_http_start(struct srv_server *server);
struct srv_connection *srv_connection_of(struct MHD_Connection *mhd);
void srv_http_stop(struct srv_server *server);

int srv_listen(const struct srv_config *config, char *url, size_t url_size, FILE *errors);
struct srv_accept *srv_accept_new(struct srv_server *server, int listen_fd);
void srv_accept_free(struct srv_accept *accept);
void srv_address_text(const struct sockaddr *address, char *text, size_t size);

int64_t srv_now_us(void);

#endif
