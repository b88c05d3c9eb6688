/*
 * test_srv_pack.c - which coding is chosen, and that bytes come back out of it.
 * Not here: whole answers (tests/http/run_coding.py).
 * Start reading at CHOICES.
 */
#include <criterion/criterion.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "server/srv.h"

static const struct {
    const char *accept_encoding, *coding;
} CHOICES[] = {
    {NULL, NULL},
    {"", NULL},
    {"identity", NULL},
    {"gzip", "gzip"},
    {"zstd", "zstd"},
    {"gzip, zstd", "zstd"},
    {"gzip;q=1.0, zstd;q=0.9", "gzip"},
    {"gzip;q=0", NULL},
    {"gzip;q=0.000", NULL},
    {"gzip;q=0.001", "gzip"},
    {"*", "zstd"},
    {"*;q=0", NULL},
    {"zstd;q=0, *;q=0.1", "gzip"},
    {"identity, gzip;q=0.5", NULL},
    {"identity;q=0.5, gzip;q=0.5", "gzip"},
    {"br, compress", NULL},
    {"gzipped", NULL},
    {" GZip ;q=0.3 ,", "gzip"},
};

Test(srv_pack, the_best_weight_wins)
{
    for (size_t n = 0; n < COUNT(CHOICES); n++) {
        const struct srv_coding *coding = srv_coding_choose(CHOICES[n].accept_encoding);
        const char *got = coding != NULL ? coding->name : "none";
        const char *want = CHOICES[n].coding != NULL ? CHOICES[n].coding : "none";

        cr_expect_str_eq(got, want, "\"%s\": %s, want %s", CHOICES[n].accept_encoding,
                         got, want);
    }
}

static size_t unpack(const char *coding, const struct api_buffer *packed, char *out,
                     size_t room)
{
    struct libdeflate_decompressor *gzip;
    size_t got = 0;

    if (strcmp(coding, "zstd") == 0)
        return ZSTD_decompress(out, room, packed->p, packed->len);
    gzip = libdeflate_alloc_decompressor();
    cr_assert_eq(
        libdeflate_gzip_decompress(gzip, packed->p, packed->len, out, room, &got),
        LIBDEFLATE_SUCCESS);
    libdeflate_free_decompressor(gzip);
    return got;
}

Test(srv_pack, bytes_come_back)
{
    static const char *const NAMES[] = {"gzip", "zstd", "gzip", "zstd"};
    enum { MOST = 300000 };
    struct srv_packers packers = {0};
    struct api_buffer plain = {.p = malloc(MOST), .cap = MOST}, packed = {0};
    char *out = malloc(MOST);

    for (size_t n = 0; n < MOST; n++)
        plain.p[n] = "0123456789.,-"[n * n % 97 % 13];
    for (size_t len = 1000; len <= MOST; len *= 3)
        for (size_t n = 0; n < COUNT(NAMES); n++) {
            plain.len = len;
            cr_assert(srv_pack(&packers, srv_coding_choose(NAMES[n]), &plain, &packed));
            cr_expect_lt(packed.len, len);
            cr_assert_eq(unpack(NAMES[n], &packed, out, MOST), len);
            cr_expect_eq(memcmp(out, plain.p, len), 0, "%s, %zu bytes", NAMES[n], len);
        }
    srv_packers_free(&packers);
    api_buffer_free(&packed);
    api_buffer_free(&plain);
    free(out);
}

Test(srv_pack, what_does_not_shrink_stays)
{
    struct srv_packers packers = {0};
    char noise[64];
    struct api_buffer plain = {.p = noise, .len = sizeof noise, .cap = sizeof noise};
    struct api_buffer packed = {0};

    for (size_t n = 0; n < sizeof noise; n++)
        noise[n] = (char)(n * 157 + n * n * 31);
    cr_expect_not(srv_pack(&packers, srv_coding_choose("gzip"), &plain, &packed));
    cr_expect_not(srv_pack(&packers, srv_coding_choose("zstd"), &plain, &packed));
    cr_expect_eq(packed.len, 0);
    srv_packers_free(&packers);
    api_buffer_free(&packed);
}
