#!/bin/sh
# Starts the server ($1 = binary, $2 = port) and prints a request to try.
set -eu
binary=$1 port=$2
cat >&2 <<TEXT
Try, in another terminal:

    curl -s http://127.0.0.1:$port/v1/attention -H 'Content-Type: application/json' \\
         -d @examples/causal-trace.json | python3 -m json.tool

More examples: curl -s http://127.0.0.1:$port/v1/examples      All of them, readable: make demo

TEXT
exec "$binary" --port "$port"
