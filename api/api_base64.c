/*
 * api_base64.c - strict base64 (RFC 4648 section 4): standard alphabet, padding, no other
 * bytes.
 * Not here: what the bytes mean (api_tensor_read.c).
 * Start reading at api_base64_read.
 */
#include "api/api_private.h"

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

size_t api_base64_bytes(const char *text, size_t len)
{
    size_t bytes = len / 4 * 3;

    if (len > 0 && text[len - 1] == '=')
        bytes--;
    if (len > 1 && text[len - 2] == '=')
        bytes--;
    return bytes;
}

size_t api_base64_read(const char *text, size_t len, unsigned char *out, size_t *bad)
{
    size_t n = 0;

    for (size_t at = 0; at < len; at += 4) {
        const bool last = at + 4 == len;
        const unsigned pad = !last || text[at + 3] != '=' ? 0
                             : text[at + 2] != '='        ? 1
                                                          : 2;
        uint32_t bits = 0;

        for (unsigned k = 0; k < 4 - pad; k++) {
            const int six = sextet(text[at + k]);

            *bad = at + k;
            if (six < 0)
                return SIZE_MAX;
            bits |= (uint32_t)six << (18 - 6 * k);
        }
        if (pad > 0 && (bits & (pad == 1 ? 0xFFu : 0xFFFFu)) != 0)
            return SIZE_MAX;
        for (unsigned k = 0; k < 3 - pad; k++)
            out[n++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return n;
}
