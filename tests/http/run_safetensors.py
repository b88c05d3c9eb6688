#!/usr/bin/python3
"""Safetensors both ways, bit for bit, with the package that the format comes from.

usage: run_safetensors.py BINARY [--venv DIR]
The package `safetensors` is no package of Debian: when it is missing here, a virtual
environment in DIR gets it from PyPI, and the test starts itself again there.
Not here: malformed files (tests/api/test_api_safetensors.c).  Start reading at CASES.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

try:
    import numpy as np
    from safetensors.numpy import load, save
except ImportError:
    load = save = None

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["numpy", "safetensors"]
JSON, FILE, OCTETS = ("application/json", "application/vnd.safetensors",
                      "application/octet-stream")


def run_in_venv(folder):
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    if os.environ.get("SAFETENSORS_VENV"):
        raise SystemExit("safetensors cannot be imported from %s" % folder)
    os.environ["SAFETENSORS_VENV"] = str(folder)
    os.execv(python, [str(python), *sys.argv])


# ---- one problem in three forms ----

def problem(seed, dtype, draw_as=None):
    """Tensors and the rest of a problem with a batch, two heads, biases and masks."""
    draw = np.random.default_rng(seed)
    B, T, d_model, h, d_k, d_v = 2, 5, 6, 2, 3, 4
    shapes = {"X": (B, T, d_model), "W_Q": (d_model, h * d_k), "W_K": (d_model, h * d_k),
              "W_V": (d_model, h * d_v), "W_O": (h * d_v, d_model), "b_Q": (h * d_k,),
              "sink": (h,)}
    tensors = {name: draw.standard_normal(shape).astype(draw_as or dtype)
               for name, shape in shapes.items()}
    tensors["past.K"] = draw.standard_normal((B, h, 2, d_k)).astype(draw_as or dtype)
    tensors["past.V"] = draw.standard_normal((B, h, 2, d_v)).astype(draw_as or dtype)
    tensors["masks.allowed"] = draw.random((T, T + 2)) < 0.7
    rest = {"dtype": dtype, "shapes": {"heads": h}, "return": "all", "audit": "full",
            "gradients": {"with_respect_to": ["X", "W_Q", "S"]},
            "ablations": [{"target": "W_V", "change": "zero"},
                          {"target": "W_Q", "change": "zero", "return": "delta"}]}
    return tensors, rest


def as_json(tensors, rest):
    body = json.loads(json.dumps(rest))
    for name, x in tensors.items():
        group = ("weights" if name[:2] in ("W_", "b_") else
                 "masks" if name.startswith("masks.") else
                 "" if name == "sink" else "inputs")
        at = body.setdefault(group, {}) if group else body
        *path, last = name.replace("masks.", "").split(".")
        for part in path:
            at = at.setdefault(part, {})
        at[last] = x.tolist() if x.dtype == bool else x.astype(float).tolist()
    return json.dumps(body).encode()


def as_file(tensors, rest):
    return save(tensors, {"attentiond": json.dumps(rest), "format": "np"})


def rest_of(data):
    """What stands in the header beside the tensors, read without the package."""
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0, "aligned"
    header = json.loads(data[8:8 + size])
    return json.loads(header["__metadata__"]["attentiond"])


# ---- comparing ----

def flat(tensors, prefix=""):
    return {prefix + name: x for name, x in (tensors or {}).items() if name != "check"}


def array_of(nested, dtype):
    return np.array(nested, dtype=object).astype(dtype)


def compare(answer, data, dtype):
    """Every tensor of the JSON answer is in the file, with the same bits, and no other."""
    file = load(data)
    want = flat(answer["tensors"])
    want.update(flat(answer.get("gradients"), "gradients."))
    for n, ablation in enumerate(answer.get("ablations", [])):
        want.update(flat(ablation["tensors"], "ablations.%d." % n))
    assert set(file) == set(want), set(file) ^ set(want)
    for name, nested in want.items():
        kind = bool if name.split(".")[-1] == "allowed" else np.dtype(dtype)
        x = array_of(nested, kind)
        assert file[name].dtype == x.dtype, (name, file[name].dtype)
        assert file[name].shape == x.shape, (name, file[name].shape, x.shape)
        assert file[name].tobytes() == x.tobytes(), name
    rest = rest_of(data)
    ours = {k: v for k, v in answer.items() if k not in ("tensors", "timing_ms", "request_id")}
    for name in ("ablations", "gradients"):
        for part in ours[name] if isinstance(ours[name], list) else [ours[name]]:
            for tensor in [k for k in part if k == "tensors" or k.startswith("d")]:
                del part[tensor]
    for name, value in ours.items():
        assert rest[name] == value, (name, rest[name], value)


# ---- cases ----

def ask(service, body, body_type, accept):
    status, headers, data = service.send(
        "POST", "/v1/attention", body, {"Content-Type": body_type, "Accept": accept})
    assert status == 200, data[:500]
    assert headers["Content-Type"] == accept, headers["Content-Type"]
    assert "Accept" in headers["Vary"]
    return data


def all_ways(service, dtype):
    tensors, rest = problem(1, dtype)
    both = as_json(tensors, rest), as_file(tensors, rest)
    answer = json.loads(ask(service, both[0], JSON, JSON))
    again = json.loads(ask(service, both[1], FILE, JSON))
    for name in ("tensors", "ablations", "gradients", "audit", "cost", "shapes"):
        assert again[name] == answer[name], name
    for body, body_type in zip(both, (JSON, FILE)):
        for accept in (FILE, OCTETS):
            compare(json.loads(json.dumps(answer)),
                    ask(service, body, body_type, accept), dtype)


def float64(service):
    all_ways(service, "float64")


def float32(service):
    all_ways(service, "float32")


def narrow_types(service):
    """float16 and bfloat16 are widened exactly."""
    tensors, rest = problem(2, "float64", "float16")
    answer = json.loads(ask(service, as_json(tensors, rest), JSON, JSON))
    compare(answer, ask(service, as_file(tensors, rest), FILE, FILE), "float64")
    rows = {n: x for n, x in tensors.items() if n != "masks.allowed"}
    cut = {n: (np.ascontiguousarray(x, "<f4").view("<u4") >> 16) for n, x in rows.items()}
    wide = {n: (x << 16).view("<f4") for n, x in cut.items()}
    answer = json.loads(ask(service, as_json(wide, rest), JSON, JSON))
    raw, header, at = b"", {"__metadata__": {"attentiond": json.dumps(rest)}}, 0
    for name, x in cut.items():
        raw += x.astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(x.shape),
                        "data_offsets": [at, len(raw)]}
        at = len(raw)
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + raw
    compare(answer, ask(service, body, FILE, FILE), "float64")


def large(service):
    """Long enough for a padded header; what was read is what was sent."""
    draw = np.random.default_rng(3)
    tensors = {"X": draw.standard_normal((300, 16)).astype("float32")}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        tensors[name] = draw.standard_normal((16, 16)).astype("float32")
    rest = {"dtype": "float32", "masks": {"causal": True}}
    data = ask(service, as_file(tensors, rest), FILE, FILE)
    answer = json.loads(ask(service, as_json(tensors, rest), JSON, JSON))
    file = load(data)
    for name, nested in answer["tensors"].items():
        assert file[name].tobytes() == array_of(nested, "float32").tobytes(), name
    assert len(data) > 1 << 20


def refusals(service):
    tensors, rest = problem(4, "float64")
    twice = as_file(tensors, dict(rest, inputs={"X": [[1]]}))
    for body, status, pointer in ((twice, 422, "/inputs/X"), (as_file(tensors, rest)[:-1], 400, None),
                                  (b"", 400, ""), (b"{}", 400, "")):
        got, headers, data = service.send("POST", "/v1/attention", body,
                                          {"Content-Type": FILE, "Accept": FILE})
        assert got == status, (got, status, data)
        assert headers["Content-Type"] == "application/problem+json"
        assert pointer is None or json.loads(data)["pointer"] == pointer, data


CASES = [float64, float32, narrow_types, large, refusals]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--venv", default="build/venv-safetensors", type=pathlib.Path)
    args = parser.parse_args()
    if save is None:
        run_in_venv(args.venv.resolve())
    sys.path.insert(0, str(HERE))
    from client import Service, Tally
    tally = Tally()
    with Service(args.binary) as service:
        for case in CASES:
            try:
                case(service)
                tally.record(case.__name__, [])
            except AssertionError as wrong:
                tally.record(case.__name__, [str(wrong)[:500]])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
