// api_fact.cc - numbers inside of sentences, for people to read.
// Not here: numbers of tensors, which read back the same (api_number_write.cc).
// Start reading at api_fact_write.
#include "api/api_fact.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace
{

enum { DIGITS = 6 };

size_t put_name(char *out, const char *name)
{
    const size_t len = std::strlen(name);

    std::memcpy(out, name, len);
    return len;
}

} // namespace

size_t api_fact_write(char *out, double x)
{
    char *const end = out + API_FACT_MAX;

    if (std::isnan(x))
        return put_name(out, "NaN");
    if (std::isinf(x))
        return put_name(out, x > 0 ? "Infinity" : "-Infinity");
    if (x == std::floor(x) && std::fabs(x) < 1e15)
        return static_cast<size_t>(std::to_chars(out, end, static_cast<int64_t>(x)).ptr -
                                   out);
    return static_cast<size_t>(
        std::to_chars(out, end, x, std::chars_format::general, DIGITS).ptr - out);
}
