/*
 * numbers.cc - every float32 and very many float64, written and read: against the C
 * library. Not here: grammar and refusals (tests/api/test_api_number.c). Start reading at
 * CASES.
 *
 * usage: numbers [--step N] [--count N] [--threads N] [--seed N]
 *   --step   takes every Nth float32; 1 (the default) takes all 2^32
 *   --count  random float64 of each kind; 1000000 unless said otherwise
 */
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "api/api_number.h"

namespace
{

struct options {
    std::uint64_t step = 1, count = 1000000, seed = 1;
    unsigned threads = 2;
} opt;

enum { RUN = 8 + 4 + 3 }; /* numbers: two fours, one, and some alone */

std::atomic<std::uint64_t> wrong;

void complain(const char *what, const char *text, double x)
{
    if (wrong.fetch_add(1) < 20)
        std::fprintf(stderr, "%s: \"%s\" for %a\n", what, text, x);
}

/* splitmix64: Steele, Lea and Flood 2014, figure 15 */
std::uint64_t draw(std::uint64_t *state)
{
    std::uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double double_of(std::uint64_t bits)
{
    double x;

    std::memcpy(&x, &bits, sizeof x);
    return x;
}

float float_of(std::uint32_t bits)
{
    float x;

    std::memcpy(&x, &bits, sizeof x);
    return x;
}

std::size_t ours(char *out, float x)
{
    return api_number_write_f32(out, x);
}

std::size_t ours(char *out, double x)
{
    return api_number_write_f64(out, x);
}

std::size_t list_of(const char **p, const char *end, float *x)
{
    return api_number_list_read_f32(p, end, x);
}

std::size_t list_of(const char **p, const char *end, double *x)
{
    return api_number_list_read_f64(p, end, x);
}

enum api_number_result one_of(const char **p, const char *end, float *x)
{
    return api_number_read_f32(p, end, x);
}

enum api_number_result one_of(const char **p, const char *end, double *x)
{
    return api_number_read_f64(p, end, x);
}

/* Reads the number alone and inside of a list, where it must be the same; false when it
   is refused. */
template <typename real> bool read(const char *text, std::size_t len, real *x)
{
    enum { ROOM = 64, LONGEST = 1200 }; /* blanks on both sides */
    char list[ROOM + LONGEST + ROOM];
    const char *p = text, *q = list;
    real again[1] = {};

    std::memset(list, ' ', ROOM);
    std::memcpy(list + ROOM, text, len);
    std::memset(list + ROOM + len, ' ', ROOM);
    const bool taken = one_of(&p, text + len, x) == API_NUMBER_OK;
    const std::size_t count = list_of(&q, list + ROOM + len + ROOM, again);
    if (count != taken || (taken && std::memcmp(again, x, sizeof *x) != 0) ||
        q != (taken ? list + ROOM + len + ROOM : list + ROOM))
        complain("not the same inside of a list", text, static_cast<double>(again[0]));
    return taken && p == text + len;
}

template <typename real> bool reads_back(const char *text, std::size_t len, real x)
{
    real again;

    return read(text, len, &again) && std::memcmp(&again, &x, sizeof x) == 0;
}

/* Written as the C++ library writes it, and read back to the same bits. */
template <typename real> void check_write(real x)
{
    char text[API_NUMBER_MAX + 1], want[API_NUMBER_MAX];

    if (!std::isfinite(x) || x == 0)
        return;
    const std::size_t len = ours(text, x);
    const auto size =
        static_cast<std::size_t>(std::to_chars(want, want + sizeof want, x).ptr - want);
    text[len] = '\0';
    if (len != size || std::memcmp(text, want, len) != 0)
        complain("not what the library writes", text, static_cast<double>(x));
    if (!reads_back(text, len, x))
        complain("does not read back", text, static_cast<double>(x));
}

char *run_of(std::size_t way, char *out, const std::vector<float> &x)
{
    return api_number_run_f32_way(way, out, x.data(), x.size());
}

char *run_of(std::size_t way, char *out, const std::vector<double> &x)
{
    return way == 0 ? api_number_run_f64(out, x.data(), x.size()) : nullptr;
}

/* A run is what its numbers are one by one, whichever way it is written. */
template <typename real> void check_run(const std::vector<real> &x)
{
    std::vector<char> run(x.size() * API_NUMBER_MAX + API_NUMBER_MAX), single(run.size());
    char *p = single.data();

    for (real y : x) {
        p += ours(p, y);
        *p++ = ',';
    }
    const auto size = static_cast<std::size_t>(p - 1 - single.data());
    for (std::size_t way = 0; way < API_NUMBER_WAYS; way++) {
        const char *const end = run_of(way, run.data(), x);

        if (end != nullptr && (end != run.data() + size ||
                               std::memcmp(run.data(), single.data(), size) != 0))
            complain("a run is not its numbers one by one", single.data(),
                     static_cast<double>(x[0]));
    }
}

/* Checks numbers in runs of `size`, the last one shorter. */
template <typename real> class runs
{
  public:
    ~runs()
    {
        if (!run.empty())
            check_run(run);
    }
    void add(real x, std::size_t size)
    {
        run.push_back(x);
        if (run.size() < size)
            return;
        check_run(run);
        run.clear();
    }

  private:
    std::vector<real> run;
};

/* Any decimal reads as strtod and strtof read it. */
void check_read(const char *text)
{
    const std::size_t len = std::strlen(text);
    const double x = std::strtod(text, nullptr);
    const float y = std::strtof(text, nullptr);
    double a;
    float b;

    if (!read(text, len, &a) ? !std::isinf(x) : std::memcmp(&a, &x, sizeof a) != 0)
        complain("float64 not read as strtod does", text, x);
    if (!read(text, len, &b) ? !std::isinf(y) : std::memcmp(&b, &y, sizeof b) != 0)
        complain("float32 not read as strtof does", text, static_cast<double>(y));
}

/* ---- cases: thread `t` of opt.threads takes its share ---- */

void every_float32(unsigned t)
{
    const std::uint64_t stride = opt.step * opt.threads;
    runs<float> all;

    for (std::uint64_t bits = t * opt.step; bits <= UINT32_MAX; bits += stride) {
        const float x = float_of(static_cast<std::uint32_t>(bits));

        check_write(x);
        all.add(x, RUN);
    }
}

/* Far and near, plain and not, side by side, in runs of every length up to 32. */
void mixed_runs(unsigned t)
{
    std::uint64_t state = opt.seed * 500 + t;
    runs<float> narrow;
    runs<double> wide;

    for (std::uint64_t n = t; n < opt.count; n += opt.threads) {
        const std::uint64_t bits = draw(&state), kind = draw(&state);
        const double x = double_of(bits),
                     near_one = static_cast<double>(bits) * 0x1p-62 - 2;
        const float y = float_of(static_cast<std::uint32_t>(bits >> 32));
        const double choices[] = {near_one,
                                  near_one * near_one * 1e-4,
                                  near_one * 1e20,
                                  0.0,
                                  -0.0,
                                  -HUGE_VAL,
                                  std::nan(""),
                                  std::round(near_one * 4) / 4};
        const double chosen = choices[kind % 32 < 8 ? kind % 8 : kind % 3];
        const std::size_t size = 1 + (kind >> 8 & 31);

        narrow.add(kind >> 16 & 1 ? y : static_cast<float>(chosen), size);
        wide.add(kind >> 16 & 1 ? x : chosen, size);
    }
}

void random_float64(unsigned t)
{
    std::uint64_t state = opt.seed * 1000 + t;
    char text[API_NUMBER_MAX + 1];
    runs<double> all;

    for (std::uint64_t n = t; n < opt.count; n += opt.threads) {
        const double any = double_of(draw(&state));
        const double near_one =
            (static_cast<double>(draw(&state) >> 11) * 0x1p-53 - 0.5) * 6;

        check_write(any);
        check_write(near_one);
        all.add(any, RUN);
        all.add(near_one, RUN);
        check_write(std::round(near_one * 1e4) / 1e4);
        if (std::isfinite(any)) {
            text[ours(text, any)] = '\0';
            check_read(text);
        }
    }
}

/* Both ends, the middle and the neighbours of every exponent. */
void boundaries(unsigned t)
{
    const std::uint64_t top = UINT64_C(1) << 52;
    runs<double> all;

    for (std::uint64_t exponent = t; exponent < 2047; exponent += opt.threads)
        for (std::uint64_t k = 0; k < 64; k++)
            for (const std::uint64_t fraction :
                 {k, top - 1 - k, UINT64_C(1) << (k % 52), top / 2 - k}) {
                const double x = double_of((exponent << 52) + fraction);

                check_write(x);
                all.add(x, RUN);
            }
}

/* Decimals of any length, and those just at the middle between two floats. */
void random_decimals(unsigned t)
{
    std::uint64_t state = opt.seed * 2000 + t;
    char text[1200];

    for (std::uint64_t n = t; n < opt.count / 4; n += opt.threads) {
        const double any = double_of(draw(&state));
        const float narrow = float_of(static_cast<std::uint32_t>(draw(&state)));
        const double middle = (static_cast<double>(narrow) +
                               static_cast<double>(std::nextafter(narrow, INFINITY))) /
                              2;
        const int digits = static_cast<int>(draw(&state) % 30) + 1;

        if (std::isfinite(any)) {
            std::snprintf(text, sizeof text, "%.*e", digits, any);
            check_read(text);
        }
        if (std::isfinite(middle)) {
            std::snprintf(text, sizeof text, "%.*e", digits % 2 == 0 ? 16 : 60, middle);
            check_read(text);
            std::snprintf(text, sizeof text, "%.*g", digits, middle);
            check_read(text);
        }
        std::snprintf(text, sizeof text, "%llu.%0*llue%d",
                      static_cast<unsigned long long>(draw(&state) >> draw(&state) % 64),
                      digits,
                      static_cast<unsigned long long>(draw(&state) >> draw(&state) % 64),
                      static_cast<int>(draw(&state) % 100) - 50);
        check_read(text);
    }
}

/* The exact middle between neighbouring doubles: 54 bits and an exponent. */
void double_middles(unsigned t)
{
    std::uint64_t state = opt.seed * 3000 + t;
    char text[1200];

    for (std::uint64_t n = t; n < opt.count / 40; n += opt.threads) {
        const double x = double_of(draw(&state) & ~(UINT64_C(1) << 63));
        const auto middle = (static_cast<long double>(x) +
                             static_cast<long double>(std::nextafter(x, INFINITY))) /
                            2;

        if (!std::isfinite(x) || !std::isfinite(std::nextafter(x, INFINITY)))
            continue;
        std::snprintf(text, sizeof text, "%.*Le", 780, middle);
        check_read(text);
        std::snprintf(text, sizeof text, "%.*Le", 18, middle);
        check_read(text);
    }
}

const struct {
    const char *name;
    void (*run)(unsigned thread);
} CASES[] = {
    {"every float32, written and read", every_float32},
    {"mixed numbers in runs", mixed_runs},
    {"random float64", random_float64},
    {"boundaries of float64", boundaries},
    {"decimals of any length", random_decimals},
    {"middles between float64", double_middles},
};

bool read_options(int argc, char **argv)
{
    for (int n = 1; n + 1 < argc; n += 2) {
        const std::uint64_t value = std::strtoull(argv[n + 1], nullptr, 10);

        if (std::strcmp(argv[n], "--step") == 0)
            opt.step = value;
        else if (std::strcmp(argv[n], "--count") == 0)
            opt.count = value;
        else if (std::strcmp(argv[n], "--threads") == 0)
            opt.threads = static_cast<unsigned>(value);
        else if (std::strcmp(argv[n], "--seed") == 0)
            opt.seed = value;
        else
            return false;
    }
    return argc % 2 == 1 && opt.step > 0 && opt.threads > 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (!read_options(argc, argv))
        return 2;
    for (const auto &c : CASES) {
        std::vector<std::thread> threads;
        const std::uint64_t before = wrong;

        for (unsigned t = 0; t < opt.threads; t++)
            threads.emplace_back(c.run, t);
        for (std::thread &thread : threads)
            thread.join();
        std::printf("%-34s %s\n", c.name, wrong == before ? "ok" : "WRONG");
        std::fflush(stdout);
    }
    return wrong != 0;
}
