/*
 * fuzz_request.c - libFuzzer target: any bytes as a problem; refusals are valid answers.
 * Not here: the scanner against another reader (fuzz_lift.c), files
 * (fuzz_safetensors.c).
 * Start reading at LLVMFuzzerTestOneInput.
 */
#include "tests/fuzz/fuzz_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct api_limits limits = {.memory_max_bytes = 4 << 20,
                                             .answer_max_bytes = 4 << 20};
    static struct api_ctx *ctx;
    static struct api_request r;
    struct api_err err = {0};

    if (ctx == NULL) {
        api_init();
        ctx = api_ctx_new(&limits);
    }
    check_read(ctx, api_request_read(ctx, (const char *)data, size, &r, &err), &r, &err);
    err = (struct api_err){0};
    if (!api_request_read_sizes(ctx, (const char *)data, size, &r, &err))
        check_refusal(&err);
    api_ctx_reset(ctx);
    return 0;
}
