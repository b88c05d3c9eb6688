#!/bin/sh
# Runs every bench that needs Debian packages only and prints one report.  $1 = binary.
set -eu
binary=$1
build=$(dirname "$binary")
echo "# Results"
echo
echo "Ratios are what counts: machines differ and are noisy, peers ran in turns in the same run."
echo
echo "- $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | sed 's/^ //'), $(nproc) cores; $("$binary" --version)"
echo "- $(gcc --version | head -n 1); python3-numpy $(/usr/bin/python3 -c 'import numpy; print(numpy.__version__)')"
echo
echo "## One causal layer in float64, all tensors as JSON over HTTP, two clients"
echo
/usr/bin/python3 bench/bench_http.py "$binary"
echo
echo "## One number"
echo
gcc -std=c11 -O2 -D_GNU_SOURCE -I. -o "$build/bench_numbers" bench/bench_numbers.c \
    "$build"/obj/api/*.o "$build"/obj/core/*.o "$build"/obj/gen/*.o \
    $(pkg-config --libs jansson openblas) -lm -lstdc++ -lpthread
"$build/bench_numbers"
