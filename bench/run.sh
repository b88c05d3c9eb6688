#!/bin/sh
# Runs the benches and prints one report.  $1 = binary; $2 = folder that peers/setup.sh has
# filled, or nothing: then only what Debian packages can compare with.
set -eu
binary=$1
peers=${2:-}
build=$(dirname "$binary")

# With gcc, whichever compiler built the binary and the objects.
compile() { # name, more sources and objects
    name=$1
    shift
    gcc -std=c11 -O2 -D_GNU_SOURCE -I. -o "$build/$name" "bench/$name.c" "$@" \
        $(pkg-config --cflags --libs jansson openblas) -lm -lstdc++ -lpthread
}

echo "# Results"
echo
echo "Ratios are what counts: machines differ and are noisy, peers ran in turns in the same run."
echo
echo "- $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | sed 's/^ //'), $(nproc) cores; $("$binary" --version)"
echo "- $(gcc --version | head -n 1); python3-numpy $(/usr/bin/python3 -c 'import numpy; print(numpy.__version__)')"
echo "- other work on the machine: load average $(cut -d' ' -f1-3 /proc/loadavg) at the start, over 1, 5 and 15 minutes"
echo
echo "## One causal layer in float64, all tensors as JSON over HTTP, two clients"
echo
/usr/bin/python3 bench/bench_http.py "$binary"
echo
echo "## The same tensors as JSON and as safetensors files, float32, default audit, one client"
echo
/usr/bin/python3 bench/bench_binary.py "$binary"
echo
echo "## What the default audit adds to a request: JSON both ways, float32, one client"
echo
/usr/bin/python3 bench/bench_audit_share.py "$binary"
echo
echo "## A second worker: float32, default audit, four clients"
echo
/usr/bin/python3 bench/bench_workers.py "$binary"
echo
echo "## One number"
echo
compile bench_numbers "$build"/obj/api/*.o "$build"/obj/core/*.o "$build"/obj/gen/*.o
if [ -n "$peers" ]; then
    "$peers/venv/bin/python" bench/peers/run_numbers.py "$build/bench_numbers"
else
    "$build/bench_numbers"
fi
echo
echo "## Attention in process: float32, B 1, 8 heads, d 64, Q K V given"
echo
compile bench_attention bench/bench_layer.c "$build"/obj/core/*.o
"$build/bench_attention"
echo
echo "Causal rows count only the work that is not masked."
echo
echo "## Time and memory by sequence length: float32, one head, d 64, no mask, two threads"
echo
compile bench_scaling bench/bench_layer.c "$build"/obj/core/*.o
"$build/bench_scaling" | tee "$build/scaling.md"
/usr/bin/python3 bench/scaling_svg.py <"$build/scaling.md" >bench/scaling.svg
echo
echo "![time and memory by sequence length](scaling.svg)"
if [ -n "$peers" ]; then
    echo
    echo "## Attention in process against onnxruntime and PyTorch"
    echo
    /usr/bin/python3 bench/peers/run_attention.py "$build/bench_attention" "$peers"
    echo
    echo "## All tensors as JSON over HTTP against FastAPI, float32, default audit"
    echo
    compile bench_machine
    echo "Before: $("$build/bench_machine")"
    echo
    /usr/bin/python3 bench/peers/run_http.py "$binary" "$peers"
    echo
    echo "After: $("$build/bench_machine")"
fi
