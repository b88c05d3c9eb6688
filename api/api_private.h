/*
 * api_private.h - what the files of api/ share: request reading, tensors, errors,
 * writing. Not here: what the server may see (api.h), mathematics (core/attn.h). Start
 * reading at struct api_ctx, then struct api_doc (the body with its arrays lifted out).
 */
#ifndef API_PRIVATE_H
#define API_PRIVATE_H

#include <jansson.h>
#include <string.h>

#include "api/api.h"
#include "api/api_number.h"
#include "core/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define API_COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* ---- embedded files
 * ------------------------------------------------------------------------ */

struct api_asset {
    const char *name, *begin, *end;
};
extern const struct api_asset API_OPENAPI;
extern const struct api_asset API_EXAMPLES[];
extern const size_t API_EXAMPLE_COUNT;

/* ---- errors: one table (api_error.c)
 * --------------------------------------------------------- */

enum { API_POINTER_MAX = 256, API_DETAIL_MAX = 512 };

struct api_err {
    bool set;         /* the first failure only                                */
    const char *name; /* row of ERRORS: "/problems/<name>"; gives status, title */
    char
        pointer[API_POINTER_MAX]; /* JSON Pointer into the request; "" = the whole body */
    bool has_pointer;
    char detail[API_DETAIL_MAX]; /* one sentence with both numbers */
    char object[32];
    char expected[96], observed[96];
};

/*
 * Records the first failure; returns false.  name is a row of ERRORS: "not-json" (400),
 * "duplicate-key" (400), "number-out-of-range" (400), "bad-base64" (400),
 * "unknown-field", "wrong-type", "wrong-rank", "ragged", "wrong-shape", "missing",
 * "contradiction", "bad-value", "not-finite", "unknown-name", "ambiguous-alignment",
 * "heads-not-divisible", "empty-row", "not-supported" (all 422), "too-large" (413),
 * "out-of-memory" (503), "deadline" (504), …
 */
bool api_fail(struct api_err *err, const char *name, const char *pointer,
              const char *detail, ...) __attribute__((format(printf, 4, 5)));
/* The same with expected and observed, which the detail should name as well. */
bool api_fail_numbers(struct api_err *err, const char *name, const char *pointer,
                      const char *object, size_t want, size_t got, const char *detail,
                      ...) __attribute__((format(printf, 7, 8)));
/* Turns what core found into the API's words, with the pointer of the input or field
 * meant. */
bool api_fail_core(struct api_err *err, const struct attn_err *core);
/* Writes the problem document and the status. */
void api_reply_error(struct api_reply *reply, const char *request_id,
                     const struct api_err *err);

/* ---- growing bytes (api_buffer.c)
 * -------------------------------------------------------------- */

bool api_buffer_grow(struct api_buffer *b, size_t more); /* false when memory is out */

/* Room for `more` bytes behind those that are there. */
static inline bool api_buffer_reserve(struct api_buffer *b, size_t more)
{
    return more <= b->cap - b->len || api_buffer_grow(b, more);
}

static inline bool api_put(struct api_buffer *b, const char *text, size_t len)
{
    if (!api_buffer_reserve(b, len))
        return false;
    if (len > 0)
        memcpy(b->p + b->len, text, len);
    b->len += len;
    return true;
}

static inline bool api_puts(struct api_buffer *b, const char *text)
{
    return api_put(b, text, strlen(text));
}

bool api_put_string(struct api_buffer *b, const char *text); /* JSON string with quotes */
/* The inside of one; what is no UTF-8 becomes U+FFFD. */
bool api_put_escaped(struct api_buffer *b, const char *text, size_t len);
/* A number inside of a sentence (api_fact.cc). */
bool api_put_fact(struct api_buffer *b, double x);
bool api_put_double(struct api_buffer *b, double x); /* JSON number or "NaN" string */
bool api_put_u64(struct api_buffer *b, uint64_t x);
/* The digits of x, put to the end of text; returns where they begin. */
enum { API_DIGITS_MAX = 21 };
char *api_digits(char text[API_DIGITS_MAX], uint64_t x);
/* Bytes of the UTF-8 character at text, which is before end; 0 when it is none. */
size_t api_utf8_length(const char *text, const char *end);
/* Bytes of the whole UTF-8 characters among the first `most` of text. */
size_t api_utf8_cut(const char *text, size_t most);
enum { API_GIVEN_MAX = 64 }; /* bytes of a given name that a sentence repeats */

/* ---- the body with its arrays lifted out (api_lift.c)
 * ------------------------------------------- */

/*
 * Every array that holds no object, and every string of at least 256 bytes without
 * escapes, is lifted out of the body before jansson reads it: in its place stands the
 * array [n], which no request can forge, because any such array of its own would have
 * been lifted.  The grammar of what is lifted is checked here, strictly, so that a lifted
 * span is always valid JSON.
 */
enum api_odd { API_ODD_NONE, API_ODD_LENGTH, API_ODD_LEAF, API_ODD_ARRAY, API_ODD_DEEP };
struct api_span {
    const char *begin,
        *end; /* in the body; an array with its brackets, a string without quotes */
    bool is_string;
    bool is_binary;   /* bytes of a file, of source_dtype                        */
    int source_dtype; /* enum api_source_dtype                                    */
    unsigned rank;    /* nesting depth, when regular                             */
    size_t dim[ATTN_RANK_MAX]; /* lengths, when regular */
    bool regular; /* all rows equally long and deep, rank <= ATTN_RANK_MAX   */
    enum api_odd odd;
    unsigned odd_depth; /* where it is not: the place of the first odd element     */
    size_t odd_at[ATTN_RANK_MAX + 1];
    size_t odd_want, odd_got;
    bool has_numbers, has_strings, has_booleans, has_nulls;
    size_t leaves, arrays; /* values; arrays of all depths, its own counted too   */
};

struct api_doc {
    json_t *root; /* the reduced tree: an object                              */
    struct api_span *span;
    size_t span_count;
    bool no_options; /* a file that says nothing but its tensors                 */
    json_t *text;    /* owner of the text that spans point into; or NULL         */
};

/* Keeps the span as number n of the context's list; false when memory is out. */
bool api_span_add(struct api_ctx *ctx, size_t n, const struct api_span *span);

/* The shape of an array while it is scanned (api_span.c). */
struct api_shape {
    struct api_span span;
    unsigned leaf_rank, deepest; /* arrays around a value; most arrays open at once */
    unsigned dims_known; /* bit per level                                            */
};
/* `count` values beside each other, of which `index` is the first. */
void api_shape_leaves(struct api_shape *s, unsigned level, const size_t *index,
                      size_t count);
void api_shape_open(struct api_shape *s, unsigned level, const size_t *index);
void api_shape_close(struct api_shape *s, unsigned level, const size_t *index);
void api_shape_end(struct api_shape *s, const char *end);

/* The scanner: fills ctx->reduced and ctx->span.  Errors: not-json, too-deep, too-large,
   out-of-memory, with the place in the body and its JSON Pointer. */
bool api_lift(struct api_ctx *ctx, const char *body, size_t len, size_t *span_count,
              struct api_err *err);
/* Of a body that api_lift has accepted: where the name or value begins that ends at byte
   `at`, and its JSON Pointer; uses up the reduced text and the spans. */
size_t api_lift_token(struct api_ctx *ctx, const char *body, size_t len, size_t at,
                      char *pointer);
/* Records that the body is wrong at byte `at`: "… at line 1, column 5 (byte 4): what". */
bool api_fail_at(struct api_err *err, const char *name, const char *pointer,
                 const char *body, size_t at, const char *what);

/* Gives jansson its allocator; once, before threads. */
void api_doc_init(void);
/* Reads the body; errors are not-json (with line, column and byte of the original body),
   duplicate-key, too-deep.  The tree and spans live until api_doc_close. */
bool api_doc_open(struct api_ctx *ctx, const char *body, size_t len, struct api_doc *doc,
                  struct api_err *err);
void api_doc_close(struct api_doc *doc);
/* The name that stands between quotes at begin … end of a body, its escapes read; false
   when no pointer has room for it, or it is no Unicode. */
bool api_doc_name(const char *begin, const char *end, char name[API_POINTER_MAX]);

/* The span that a node stands for; NULL when the node is an ordinary value. */
const struct api_span *api_doc_span(const struct api_doc *doc, const json_t *node);
/* A small lifted array as an ordinary tree (lists of names, positions) of at most
   max_entries values and arrays; caller decrefs.  An array in it is no mark: its nodes
   must not go to api_doc_span. */
json_t *api_doc_tree(const struct api_doc *doc, const json_t *node, const char *pointer,
                     size_t max_entries, struct api_err *err);

/* ---- reading fields (api_field.c), names (api_names.c)
 * ----------------------------------------------- */

/* One known member of an object.  A table of these reads an object; a member that no row
   names is unknown-field with its pointer. */
struct api_field_row {
    const char *name;
    bool (*read)(void *into, const struct api_doc *doc, const json_t *value,
                 const char *pointer, struct api_err *err);
    bool required;
};
bool api_read_object(void *into, const struct api_doc *doc, const json_t *object,
                     const char *pointer, const struct api_field_row *rows, size_t count,
                     struct api_err *err);
/* Copies a pointer to out[API_POINTER_MAX]; returns out. */
char *api_pointer_copy(char *out, const char *pointer);
/* Appends "/name" (escaped, RFC 6901) to pointer into out[API_POINTER_MAX]; returns out.
   Where a name is too long the pointer stays as it is: what is around it is there. */
const char *api_pointer(char *out, const char *pointer, const char *name);
/* Whether api_pointer has room for all of name: what is cut names nothing. */
bool api_pointer_fits(const char *pointer, const char *name);
const char *api_pointer_index(char *out, const char *pointer, size_t index);

/* "a number", "an object", …: what a value is, for sentences; doc may be NULL. */
const char *api_type_name(const struct api_doc *doc, const json_t *v);
/* The same of the JSON value that begins at text, which is no object. */
const char *api_type_at(const char *text);
/* Of `count` names, the one that a typing error or another case turned into `given`, or
   that it begins; NULL when none is near. */
typedef const char *api_name_at_fn(const void *names, size_t n);
const char *api_nearest(const char *given, api_name_at_fn *name_at, const void *names,
                        size_t count);
/* The names in quotes with commas between, cut short with "and N more"; empty names are
 * left out. */
enum { API_NAMES_MAX = 320 };
const char *api_name_list(char out[API_NAMES_MAX], api_name_at_fn *name_at,
                          const void *names, size_t count);
/* unknown-field or unknown-name (`name`): says which names are known and which is near.
 */
bool api_fail_unknown(struct api_err *err, const char *name, const char *pointer,
                      const char *given, api_name_at_fn *name_at, const void *names,
                      size_t count);
/* wrong-type: "<want> is expected here, not <got>.", and both as expected and observed.
 */
bool api_fail_type(struct api_err *err, const char *pointer, const char *want,
                   const char *got);

/* Every whole number up to here is a double of its own: 2^53. */
extern const double API_WHOLE_MAX;

bool api_read_bool(const json_t *v, const char *pointer, bool *out, struct api_err *err);
bool api_read_size(const json_t *v, const char *pointer, size_t min, size_t max,
                   size_t *out, struct api_err *err);
bool api_read_int(const json_t *v, const char *pointer, int64_t min, int64_t max,
                  int64_t *out, struct api_err *err);
bool api_read_double(const json_t *v, const char *pointer, double *out,
                     struct api_err *err);
bool api_read_choice(const json_t *v, const char *pointer, const char *const *names,
                     size_t count, int *out, struct api_err *err);

/* ---- tensors in requests (api_tensor.c)
 * ------------------------------------------------------------- */

enum api_source_dtype {
    API_DT_F64,
    API_DT_F32,
    API_DT_F16,
    API_DT_BF16,
    API_DT_BOOL,
    API_DT_COUNT,
    API_DT_UNSTATED = API_DT_COUNT
};
struct api_dtype_row {
    const char *name;
    size_t bytes;
};
extern const struct api_dtype_row API_DTYPES[API_DT_COUNT];

/* Bytes that a base64 text of whole groups stands for. */
size_t api_base64_bytes(const char *text, size_t len);
/* Decodes whole groups of 4 characters; SIZE_MAX with the character's place in *bad
 * otherwise. */
size_t api_base64_read(const char *text, size_t len, unsigned char *out, size_t *bad);

enum { API_SHAPE_TEXT_MAX = 160 };
/* "(2,3,4)", for sentences; returns out. */
const char *api_shape_text(char *out, unsigned rank, const size_t *dim);
/* Product of the sizes; false when it cannot be counted (or 16 times it cannot). */
bool api_count_of(unsigned rank, const size_t *dim, size_t *count);

enum api_tensor_form { API_NESTED, API_FLAT, API_BASE64, API_INIT, API_BYTES };

struct api_tensor_in { /* a tensor as it was given, before memory is taken         */
    bool present;
    enum api_tensor_form form;
    char pointer[API_POINTER_MAX];
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
    bool shaped; /* false for init without shape                              */
    const struct api_span *span; /* nested array, flat data, or base64 text */
    const char *small; /* base64 text, lifted or not                                */
    size_t small_len;
    int source_dtype; /* enum api_source_dtype, as base64 or flat data states it */
    enum attn_init_kind init;
    uint64_t seed; /* 0 unless stated */
    bool seeded;   /* stated          */
    double std;
};

/* Recognises the form and shape; converts nothing. */
bool api_tensor_scan(const struct api_doc *doc, const json_t *value, const char *pointer,
                     struct api_tensor_in *in, struct api_err *err);
/* Gives an init tensor without a shape its shape; others must agree already. */
void api_tensor_set_shape(struct api_tensor_in *in, unsigned rank, const size_t *dim);
/*
 * Converts into t->p (taken by the caller; t->dtype F64, F32 or BOOL; t->rank and t->dim
 * say the layout, product equal to the given one).  Errors: number-out-of-range,
 * not-finite (unless allow_nonfinite: -Infinity only, or all), wrong-type, bad-base64,
 * with the element's pointer.
 */
enum api_finite { API_FINITE_ONLY, API_MINUS_INFINITY_TOO, API_ANY_NUMBER };
bool api_tensor_read(const struct api_tensor_in *in, enum api_finite finite,
                     struct attn_tensor *t, struct api_err *err);

/* The JSON Pointer of one element, by its flat place; returns out. */
const char *api_element_pointer(const struct api_tensor_in *in, size_t flat, char *out);

/* ---- tensors in answers (api_write.c)
 * ------------------------------------------------------------------ */

enum api_encoding { API_ENC_NESTED, API_ENC_FLAT, API_ENC_BASE64, API_ENC_COUNT };
extern const char *const API_ENCODING_NAMES[API_ENC_COUNT];

/* Writes t with the shape `shape` (same count, axes dropped) in the encoding asked. */
bool api_put_tensor(struct api_buffer *b, const struct attn_tensor *t,
                    const struct attn_tensor *shape, enum api_encoding encoding);
/* The same bytes, written with the help of the threads that exec lends (NULL = none). */
bool api_put_tensor_with(struct api_buffer *b, const struct attn_tensor *t,
                         const struct attn_tensor *shape, enum api_encoding encoding,
                         const struct attn_exec *exec);
/* Nested arrays alone; the longest text of one number with its comma (api_text.c). */
bool api_put_numbers(struct api_buffer *b, const struct attn_tensor *t, unsigned rank,
                     const size_t *dim, const struct attn_exec *exec);
size_t api_number_text_max(enum attn_dtype dtype);
/* Upper bound of its bytes. */
size_t api_tensor_bytes(const struct attn_tensor *shape, enum api_encoding encoding);

/* ---- a problem as read (api_problem_read.c)
 * --------------------------------------------------------------- */

enum { API_ABLATIONS_MAX = 64, API_TRACES_MAX = 256 };

struct api_ablation {
    struct attn_edit edit[ATTN_EDITS_MAX];
    size_t edits;
    bool delta; /* "return":"delta"                                         */
    char pointer[API_POINTER_MAX];
};

struct api_convention_note {
    const char *field, *value;
};

struct api_request {
    struct attn_problem p;
    uint32_t want; /* objects to answer                                         */
    enum attn_path path;
    enum attn_audit_level audit;
    enum api_encoding encoding;
    bool as_file;         /* answered as a safetensors file: encoding means nothing    */
    uint64_t work_max_ns; /* as struct api_call has it                                 */
    bool deferred;        /* would take longer: read no further                        */
    const struct attn_fault_row *inject;
    bool inject_has_parameter, inject_has_seed;
    double inject_parameter; /* in the fault's range */
    uint64_t inject_seed;
    bool torch_linear; /* weights and their gradients are (out,in)                  */
    bool has_gradients;
    struct attn_grad_ask gradients;
    struct api_ablation *ablation; /* in the arena */
    size_t ablations;
    struct {
        size_t b, h, i;
        char pointer[64];
    } * trace;
    size_t traces;
    const struct attn_convention_row *convention;
    struct api_convention_note set_by_convention[8];
    size_t set_count;
    const int64_t *next_id;  /* [B], documents; or NULL  */
    const char *warning[16]; /* constants */
    size_t warnings;
};

/* Reads a whole problem: sizes first, then refuses or takes memory, then numbers.  The
   document is closed before it returns.  Everything lives in the context's arena. */
bool api_request_read(struct api_ctx *ctx, const char *body, size_t len,
                      struct api_request *r, struct api_err *err);
/* The same for what a call brings: JSON, or a safetensors file. */
bool api_request_read_call(struct api_ctx *ctx, const struct api_call *call,
                           struct api_request *r, struct api_err *err);
/* The same for /v1/plan: sizes and masks, tensors are never taken or read. */
bool api_request_read_sizes(struct api_ctx *ctx, const char *body, size_t len,
                            struct api_request *r, struct api_err *err);
/* The problem that one object of a larger, open document is, to be judged and not run:
   nothing is returned unless "return" says so.  Pointers are relative to that object. */
bool api_request_read_judged(struct api_ctx *ctx, const struct api_doc *doc,
                             const json_t *problem, struct api_request *r,
                             struct api_err *err);

/* ---- context (api_ctx.c)
 * ------------------------------------------------------------------------------------ */

enum { API_PARTS_MAX = 32 };

struct api_ctx {
    const struct api_limits *limits;
    struct attn_arena
        arena; /* reserved address space of memory_max_bytes, touched lazily */
    struct api_buffer reduced; /* body without its arrays */
    struct api_span *span;     /* reused list     */
    size_t span_cap;
    struct api_buffer rest, names;       /* an answer as a file: its JSON, its header */
    struct api_part part[API_PARTS_MAX]; /* the same, where its bytes are */
    size_t warm_bytes; /* of the arena: touched since memory was last given back */
};

/* Empties the arena for the next request; gives pages back after a large one. */
void api_ctx_reset(struct api_ctx *ctx);
double api_now_ms(void); /* monotonic                                                  */

/* Writes "tensors":{…}, "audit":{…}, … : shared by the operations (api_answer.c). */
bool api_put_shapes(struct api_buffer *b, const struct attn_problem *p, uint32_t objects);
bool api_put_audit(struct api_buffer *b, const struct attn_audit *audit);
bool api_put_cost(struct api_buffer *b, const struct attn_problem *p,
                  const struct attn_cost *cost);
bool api_put_notes(struct api_buffer *b, const struct api_request *r);

#ifdef __cplusplus
}
#endif
#endif
