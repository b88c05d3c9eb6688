"""Sends the examples of examples/ through a running server and prints the answers for a reader:
tensors with their shapes, the audit as a list, the cost as a table.

Uses the server on --port when one answers there; otherwise starts one of its own on a free port
and stops it at the end.  Standard library only.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
MARK = {"pass": "ok  ", "warn": "warn", "fail": "FAIL", "not_applicable": "n/a "}
WIDEST = 8


def post(url, body):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def number(x):
    if isinstance(x, bool):
        return "1" if x else "·"
    if isinstance(x, str):
        return {"-Infinity": "-inf", "Infinity": "inf"}.get(x, x)
    return f"{x:.4g}"


def print_rows(tensor, indent):
    """A vector as one line, a matrix as lines, higher ranks as matrices one below the other."""
    if not isinstance(tensor, list) or not tensor or not isinstance(tensor[0], list):
        row = tensor if isinstance(tensor, list) else [tensor]
        cells = " ".join(f"{number(x):>8}" for x in row[:WIDEST])
        print(f"{indent}{cells}{' …' if len(row) > WIDEST else ''}")
        return
    for n, part in enumerate(tensor):
        if isinstance(part, list) and part and isinstance(part[0], list):
            print(f"{indent}[{n}]")
            print_rows(part, indent + "  ")
        else:
            print_rows(part, indent)


def print_tensors(title, tensors, shapes):
    print(f"  {title}")
    for name, tensor in tensors.items():
        shape = shapes.get(name)
        print(f"    {name} {'×'.join(map(str, shape)) if shape else ''}")
        print_rows(tensor, "      ")


def print_audit(audit):
    print(f"  audit: {audit['status']}, first incorrect object: "
          f"{audit['first_incorrect'] or 'none'}")
    for check in audit["checks"]:
        print(f"    {check['order']:>2} {MARK[check['status']]} {check['id']}")
        if check["status"] in ("warn", "fail"):
            print(f"            expected: {check['expected']}")
            print(f"            observed: {check['observed']}")


def print_cost(cost):
    pairs, work = cost["pairs"], cost["multiply_adds"]
    print("  cost")
    print(f"    pairs          {pairs['allowed_total']} allowed of {pairs['dense_total']} "
          f"({100 * pairs['allowed_fraction']:.1f} %)")
    print("    multiply-adds  " + ", ".join(
        f"{name} {work[name]}" for name in ("Q", "K", "V", "S", "H", "Y")) +
        f"; total {work['total']}")
    print(f"    bytes          {cost['bytes']['all_intermediates']} for all tensors, "
          f"{cost['bytes']['score_matrix']} of them for one score matrix")
    for row in cost["scaling"]:
        print("    scaling        " + ", ".join(f"{k} {v}" for k, v in row.items()))


def print_ablation(ablation):
    print(f"  ablation: {ablation['target']} {ablation['change']}")
    print(f"    changed {' '.join(ablation['changed']) or 'nothing'}; "
          f"unchanged {' '.join(ablation['unchanged']) or 'nothing'}")
    for claim in ablation["claims"]:
        print(f"    {'holds ' if claim['holds'] else 'BROKEN'} {claim['object']}: {claim['says']}")


def show(url, name, request):
    print(f"\n=== {name}: POST /v1/attention with examples/{name}.json")
    answer = post(f"{url}/v1/attention", request)
    print_tensors("tensors", answer["tensors"], answer["shapes"])
    if answer.get("gradients"):
        print_tensors("gradients", {k: v for k, v in answer["gradients"].items()
                                    if isinstance(v, list)}, {})
    for ablation in answer.get("ablations", []):
        print_ablation(ablation)
    print_audit(answer["audit"])
    print_cost(answer["cost"])
    for warning in answer["warnings"]:
        print(f"  warning: {warning}")
    return answer["audit"]["status"] == ("fail" if "inject" in request else "pass")


def alive(url):
    try:
        return urllib.request.urlopen(f"{url}/health/live", timeout=2).status == 200
    except (OSError, urllib.error.URLError):
        return False


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binary", default="build/attentiond")
    options.add_argument("--port", type=int, default=8080)
    options.add_argument("names", nargs="*", help="examples to send; all when none is named")
    asked = options.parse_args()
    url, own = f"http://127.0.0.1:{asked.port}", None
    if asked.port == 0 or not alive(url):
        own = subprocess.Popen([asked.binary, "--port", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
        line = own.stdout.readline()
        if "listening on " not in line:
            sys.exit(f"{asked.binary} did not start")
        url = line.split()[-1]
    print(f"server: {url}")
    try:
        names = asked.names or sorted(path.stem for path in EXAMPLES.glob("*.json"))
        passed = [show(url, name, json.loads((EXAMPLES / f"{name}.json").read_text()))
                  for name in names]
    finally:
        if own:
            own.terminate()
            own.wait(10)
    print(f"\n{sum(passed)} of {len(passed)} examples audited as they should be: "
          "no finding, except where a fault is injected")
    sys.exit(0 if all(passed) and passed else 1)


if __name__ == "__main__":
    main()
