/*
 * fuzz_safetensors.c - libFuzzer target: any bytes as a file that holds a problem.
 * Not here: problems as JSON (fuzz_request.c).
 * Start reading at LLVMFuzzerTestOneInput.
 */
#include "tests/fuzz/fuzz_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_file(struct api_ctx *ctx, const char *body, size_t len)
{
    static struct api_request r;
    const struct api_call call = {.request_id = "fuzz",
                                  .method = "POST",
                                  .path = "/v1/attention",
                                  .body_type = API_SAFETENSORS,
                                  .answer_type = API_SAFETENSORS,
                                  .body = body,
                                  .body_len = len};
    struct api_err err = {0};

    check_read(ctx, api_request_read_call(ctx, &call, &r, &err), &r, &err);
}

/* A file begins with the length of its header.  Bytes at random hardly ever state it
   right, so they are read as they are, and once more as a header with so many bytes of
   data behind it as the first two say. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LENGTH = 8, TAIL = 2 };
    static const struct api_limits limits = {.memory_max_bytes = 4 << 20,
                                             .answer_max_bytes = 4 << 20};
    static struct api_ctx *ctx;
    size_t tail, header;
    char *file;

    if (ctx == NULL) {
        api_init();
        ctx = api_ctx_new(&limits);
    }
    read_file(ctx, (const char *)data, size);
    if (size < TAIL)
        return 0;
    tail = (size_t)(data[0] | data[1] << 8);
    header = size - TAIL > tail ? size - TAIL - tail : 0;
    file = malloc(LENGTH + size);
    if (file == NULL)
        return 0;
    for (unsigned n = 0; n < LENGTH; n++)
        file[n] = (char)(header >> 8 * n);
    memcpy(file + LENGTH, data + TAIL, size - TAIL);
    read_file(ctx, file, LENGTH + size - TAIL);
    free(file);
    return 0;
}
