"""run_server.py BINARY [NAME...] - the HTTP behaviour of the real binary, over raw sockets.

Not here: what the layer computes (run_cases.py and others).
Start reading at main; the tests are in server_*.py.
"""
import sys
import time
import traceback

import server_framing
import server_limits
import server_process
import server_routes
from wire import Server

SHARED = [server_framing, server_routes]         # tests take a running server
OWN = [server_limits, server_process]            # tests take the binary


def attempt(test, argument):
    begun = time.monotonic()
    try:
        test(argument)
    except Exception:  # any failure of a test is one failed test
        print(f"FAIL {test.__module__}.{test.__name__}")
        traceback.print_exc(file=sys.stdout)
        return False
    took = time.monotonic() - begun
    print(f"ok   {test.__module__}.{test.__name__}" + (f" ({took:.1f} s)" if took > 1 else ""))
    return True


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: run_server.py BINARY [NAME...]")
    binary, names = sys.argv[1], sys.argv[2:]
    results = []
    for modules, shared in ((SHARED, True), (OWN, False)):
        for module in modules:
            tests = [t for t in module.TESTS if not names or t.__name__ in names]
            if shared and tests:
                with Server(binary) as server:
                    results += [attempt(test, server) for test in tests]
            else:
                results += [attempt(test, binary) for test in tests]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
