"""Loads a server built with ThreadSanitizer from many connections at once (examples, errors, health,
catalog, a drain in the middle) and fails when a race is reported or the exit is not clean."""

import concurrent.futures
import glob
import http.client
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS, SECONDS = 8, 20


def client(port, seed, bodies, until):
    sent = refused = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while time.monotonic() < until:
        kind = (sent + seed) % 5
        try:
            if kind < 3:
                connection.request("POST", "/v1/attention", bodies[(sent + seed) % len(bodies)],
                                   {"Content-Type": "application/json",
                                    "Accept": ("*/*", "application/vnd.safetensors")[sent % 2],
                                    "Accept-Encoding": ("gzip", "zstd", "identity")[sent % 3]})
            else:
                connection.request("GET", ("/health/ready", "/v1/catalog")[kind - 3])
            answer = connection.getresponse()
            answer.read()
            refused += answer.status == 503
            sent += 1
        except (OSError, http.client.HTTPException):
            connection.close()
    connection.close()
    return sent, refused


def main(binary):
    bodies = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.json"))]
    bodies.append(b'{"shapes":{"T":300,"d_model":32,"d_k":16,"d_v":16},"inputs":{"X":{"init":'
                  b'"normal","seed":1}},"weights":{"W_Q":{"init":"normal","seed":2},"W_K":{"init":'
                  b'"normal","seed":3},"W_V":{"init":"normal","seed":4},"W_O":null},"return":["A"]}')
    bodies.append(b'{"inputs":{"X":[[1,2],[3]]}}')
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TSAN_OPTIONS=f"log_path={folder}/tsan:exitcode=66")
        server = subprocess.Popen([binary, "--port", "0", "--workers", "3", "--queue-max", "4"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  env=environment)
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        until = time.monotonic() + SECONDS
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            counts = list(pool.map(lambda n: client(port, n, bodies, until), range(CLIENTS)))
        server.send_signal(signal.SIGTERM)
        code = server.wait(30)
        reports = glob.glob(f"{folder}/tsan*")
        for report in reports[:2]:
            print(open(report).read()[:6000])
    sent = sum(count[0] for count in counts)
    print(f"{sent} requests from {CLIENTS} clients, {sum(c[1] for c in counts)} refused with 503, "
          f"exit code {code}, {len(reports)} race reports")
    good = code == 0 and not reports and sent > CLIENTS
    print("1 passed, 0 failed" if good else "0 passed, 1 failed")
    sys.exit(not good)


if __name__ == "__main__":
    main(sys.argv[1])
