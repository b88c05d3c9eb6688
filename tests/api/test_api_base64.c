/* test_api_base64.c - the vectors of RFC 4648 section 10, and what is not base64. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <string.h>

static size_t decode(const char *text, unsigned char *out)
{
    size_t bad;

    return api_base64_read(text, strlen(text), out, &bad);
}

Test(api_base64, the_vectors_of_the_standard)
{
    static const struct {
        const char *text, *bytes;
    } ROWS[] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm8=", "fo"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {"Zm9vYmE=", "fooba"},
        {"Zm9vYmFy", "foobar"},
    };
    unsigned char out[16];

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const size_t len = strlen(ROWS[n].bytes);

        cr_expect(api_base64_bytes(ROWS[n].text, strlen(ROWS[n].text)) == len);
        cr_expect(decode(ROWS[n].text, out) == len &&
                      memcmp(out, ROWS[n].bytes, len) == 0,
                  "%s", ROWS[n].text);
    }
}

Test(api_base64, refuses_other_bytes_wrong_padding_and_hidden_bits)
{
    static const char *const BAD[] = {"Zm9*", "Zm-v", "Zm_v", "Zm 9",
                                      "=m9v", "Z===", "====", "Zg==Zg==",
                                      "Zm=v", "Zh==", "Zm9=", "Zm8\n"};
    unsigned char out[16];

    for (size_t n = 0; n < API_COUNT(BAD); n++)
        cr_expect(decode(BAD[n], out) == SIZE_MAX, "%s was taken", BAD[n]);
}
