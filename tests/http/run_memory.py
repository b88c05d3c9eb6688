#!/usr/bin/python3
"""Memory: what the largest request takes at its peak, and what is given back after it.

usage: run_memory.py BINARY
The raw tensors of a request are the inputs, weights and tensors of its answer in float32.
Not here: limits and refusals (server_limits.py).  Start reading at peak.
"""
import pathlib
import sys
import time

from client import Service, Tally
from wire import generated

MiB = 1 << 20
PEAK_FACTOR = 6          # of the raw tensors
KEPT_MAX = 200 * MiB     # after a large request: warm buffers and arenas, never all of it
DRIFT_MAX = 8 * MiB      # between the tenth and the fiftieth request of one size


def status(process, field):
    for line in pathlib.Path("/proc/%d/status" % process.pid).read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def reset_peak(process):
    pathlib.Path("/proc/%d/clear_refs" % process.pid).write_text("5")


def raw_bytes(T, width):
    """X, Q, K, V, H, Y; S, M, A; four weights: numbers of 4 bytes."""
    return 4 * (6 * T * width + 3 * T * T + 4 * width * width)


def ask(service, body, accept="application/json"):
    code, _, data = service.send("POST", "/v1/attention", body,
                                 {"Content-Type": "application/json", "Accept": accept})
    assert code == 200, data[:300]
    return data


def peak(T, width, accept, **more):
    def case(binary):
        body = generated(T, width, dtype="float32", **more)
        with Service(binary, "--workers", "2", "--memory-max", str(1 << 30),
                     "--answer-max", str(1 << 30)) as service:
            ask(service, generated(3, 8, dtype="float32"))
            idle = status(service.process, "VmRSS")
            for turn in range(3):
                reset_peak(service.process)
                ask(service, body, accept)
                high = status(service.process, "VmHWM")
                raw = raw_bytes(T, width)
                print("T = %d, %s, turn %d: peak %.1f MiB, %.2f times the raw %.1f MiB; "
                      "idle %.1f MiB" % (T, accept, turn, high / MiB, high / raw, raw / MiB,
                                         idle / MiB))
                assert high <= PEAK_FACTOR * raw, (high, raw)
    case.__name__ = "peak_%d_%s" % (T, accept[-11:])
    return case


def given_back(binary):
    """After one huge answer the process is small again, as soon as a small one follows."""
    with Service(binary, "--workers", "2", "--memory-max", str(1 << 30),
                 "--answer-max", str(1 << 30)) as service:
        ask(service, generated(3000, 64, dtype="float32"))
        for _ in range(8):
            ask(service, generated(3, 8))
        time.sleep(0.2)
        kept, high = (status(service.process, f) for f in ("VmRSS", "VmHWM"))
        print("after T = 3000: %.1f MiB kept of %.1f MiB" % (kept / MiB, high / MiB))
        assert kept <= KEPT_MAX, kept
        assert kept <= high / 2, (kept, high)


def no_drift(binary):
    """Many requests of one size take no more memory than ten."""
    with Service(binary) as service:
        body = generated(200, 32, dtype="float32")
        early = 0
        for turn in range(50):
            ask(service, body)
            if turn == 9:
                early = status(service.process, "VmRSS")
        late = status(service.process, "VmRSS")
        assert late <= early + DRIFT_MAX, (early, late)


CASES = [peak(1024, 64, "application/json"), peak(2048, 64, "application/json"),
         peak(1024, 64, "application/json", masks={"causal": True}),
         peak(2048, 64, "application/vnd.safetensors"), given_back, no_drift]


def main():
    tally = Tally()
    for case in CASES:
        try:
            case(sys.argv[1])
            tally.record(case.__name__, [])
        except AssertionError as wrong:
            tally.record(case.__name__, [str(wrong)[:400]])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
