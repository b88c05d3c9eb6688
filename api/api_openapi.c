/*
 * api_openapi.c - GET /openapi.yaml: the contract, as embedded by the build.
 * Not here: the embedding (scripts/assets.sh).
 * Start reading at api_openapi_yaml.
 */
#include "api/api_private.h"

void api_openapi_yaml(struct api_ctx *ctx, const struct api_call *call,
                      struct api_reply *reply)
{
    (void)ctx, (void)call;
    reply->out->len = 0;
    reply->status = 200;
    reply->content_type = "application/yaml";
    reply->cache_control = "no-cache";
    reply->fixed = API_OPENAPI.begin;
    reply->fixed_len = (size_t)(API_OPENAPI.end - API_OPENAPI.begin);
}
