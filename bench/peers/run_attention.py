"""Attention in process, two threads: ours against onnxruntime and PyTorch, in turns in one run.
Usage: run_attention.py BENCH_ATTENTION PEERS_FOLDER."""

import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS, SIZES, THREADS = 7, (1024, 2048), 2


class Contestant:
    def __init__(self, name, command, path):
        self.name, self.path = name, path
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def run(self, T, causal):
        """Milliseconds of one run, after one that is not timed."""
        self.process.stdin.write(f"{T} {int(causal)} {THREADS} {self.path}\n")
        self.process.stdin.flush()
        milliseconds = float(self.process.stdout.readline())
        time.sleep(0.2)   # threads that wait by spinning must not disturb the next one
        return milliseconds


def contestants(ours, peers):
    python = [peers / "venv/bin/python", HERE / "attention_onnx.py"]
    yield Contestant("attentiond, tiled", [ours, "--serve"], "tiled")
    yield Contestant("onnxruntime MultiHeadAttention", python, "MultiHeadAttention")
    yield Contestant("onnxruntime Attention-23", python, "Attention")
    if (peers / "trixie/done").exists():
        yield Contestant("PyTorch SDPA", ["sh", HERE / "torch.sh", peers / "trixie"], "sdpa")
    else:
        print("PyTorch was not installed and is left out.\n")


def versions(peers):
    commands = [[peers / "venv/bin/python", HERE / "attention_onnx.py", "--version"]]
    if (peers / "trixie/done").exists():
        commands.append(["sh", HERE / "torch.sh", peers / "trixie", "--version"])
    return "; ".join(subprocess.check_output(c, text=True).strip() for c in commands)


def main(ours, peers):
    print(f"B 1, 8 heads, d 64, float32, two threads, medians of {ROUNDS} rounds; "
          f"{versions(peers)}.\n")
    everyone = list(contestants(ours, peers))
    print("| T | mask | who | ms | ours is faster by |\n|---|---|---|---|---|")
    for T in SIZES:
        for causal in (False, True):
            times = {c.name: [] for c in everyone}
            for round_number in range(ROUNDS + 1):
                for c in everyone:
                    milliseconds = c.run(T, causal)
                    if round_number:
                        times[c.name].append(milliseconds)
            median = {name: statistics.median(t) for name, t in times.items()}
            for name, value in median.items():
                print(f"| {T} | {'causal' if causal else 'open'} | {name} | {value:.1f} | "
                      f"{value / median[everyone[0].name]:.2f} |", flush=True)
    for c in everyone:
        c.process.stdin.close()
        c.process.wait()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
