/*
 * api_number_run32.cc - many float32 with commas between, the best way there is here.
 * Not here: the ways (api_number_run32_avx2.cc, api_number_run32_avx512.cc).
 * Start reading at WAYS.
 *
 * Every way writes the text of api_number_write_f32, byte for byte.
 */
#include "api/api_number_run32.h"

namespace
{

bool always()
{
    return true;
}

#if defined(__x86_64__)
bool has_avx512()
{
    return api_lanes::are_usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct {
    bool (*usable)();
    char *(*put)(char *out, const float *x, std::size_t count);
} WAYS[] = {
/* best first */
#if defined(__x86_64__)
    {has_avx512, api_run32::put_many_avx512},
    {api_lanes::are_usable, api_run32::put_many_avx2},
#endif
    {always, api_lanes::one_by_one<float>},
};

enum { COUNT = sizeof WAYS / sizeof WAYS[0] };

/* Asked once: in a virtual machine a question to the processor takes microseconds. */
struct usable_ways {
    bool is[COUNT];

    usable_ways()
    {
        for (std::size_t way = 0; way < COUNT; way++)
            is[way] = WAYS[way].usable();
    }
};

bool is_usable(std::size_t way)
{
    static const usable_ways usable;

    return way < COUNT && usable.is[way];
}

std::size_t best_way()
{
    std::size_t way = 0;

    while (!is_usable(way))
        way++;
    return way;
}

} // namespace

extern "C" {

char *api_number_run_f32_way(size_t way, char *out, const float *x, size_t count)
{
    if (!is_usable(way))
        return nullptr;
    return WAYS[way].put(out, x, count) - (count > 0);
}

char *api_number_run_f32(char *out, const float *x, size_t count)
{
    static const auto put = WAYS[best_way()].put;

    return put(out, x, count) - (count > 0);
}

} // extern "C"
