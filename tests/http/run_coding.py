#!/usr/bin/python3
"""Content codings: which one is chosen, and that the same answer comes out of each.

usage: run_coding.py BINARY
gzip is unpacked by Python, zstd by the library through ctypes.
Not here: how lists are read in full (tests/server/test_srv_pack.c).
"""
import ctypes
import gzip
import json
import sys

from client import Service, Tally
from wire import OK_BODY, generated

PATH = "/v1/attention"
CHOICES = [  # Accept-Encoding, coding of the answer
    (None, None), ("", None), ("identity", None), ("gzip", "gzip"), ("zstd", "zstd"),
    ("gzip, zstd", "zstd"), ("zstd;q=0.5, gzip;q=0.8", "gzip"), ("*", "zstd"),
    ("zstd;q=0, *", "gzip"), ("gzip;q=0", None), ("gzip;q=0.4, identity;q=0.5", None),
    ("gzip;q=0.5, identity;q=0.5", "gzip"), ("br, deflate", None), ("GZIP", "gzip"),
    ("identity;q=0, gzip;q=0.001", "gzip"),
]


def unzstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    library.ZSTD_decompress.restype = ctypes.c_size_t
    size = library.ZSTD_getFrameContentSize(data, ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(size)
    got = library.ZSTD_decompress(out, ctypes.c_size_t(size), data,
                                  ctypes.c_size_t(len(data)))
    assert got == size, "zstd: %d of %d bytes" % (got, size)
    return out.raw


UNPACK = {None: bytes, "gzip": gzip.decompress, "zstd": unzstd}


def ask(service, accepted, body=OK_BODY, accept="application/json", method="POST",
        path=PATH):
    headers = {"Content-Type": "application/json", "Accept": accept}
    if accepted is not None:
        headers["Accept-Encoding"] = accepted
    return service.send(method, path, body, headers)


def told(data):
    answer = json.loads(data)
    return {k: v for k, v in answer.items() if k not in ("request_id", "timing_ms")}


def choices(service):
    plain = told(ask(service, None)[2])
    for accepted, coding in CHOICES:
        status, headers, data = ask(service, accepted)
        assert status == 200
        assert headers.get("Content-Encoding") == coding, (accepted, headers.items())
        assert "Accept-Encoding" in ", ".join(headers.get_all("Vary")), headers.items()
        assert told(UNPACK[coding](data)) == plain, accepted


def large_and_again(service):
    """Contexts are used again: one answer must not leave anything in the next."""
    for rows in (700, 3, 300, 700):
        body = generated(rows, 16, dtype="float32")
        plain = told(ask(service, None, body)[2])
        for coding in ("gzip", "zstd", "zstd", "gzip"):
            headers, data = ask(service, coding, body)[1:]
            assert headers["Content-Encoding"] == coding
            assert told(UNPACK[coding](data)) == plain, (rows, coding)
            assert len(data) < 0.6 * len(ask(service, None, body)[2]), (rows, coding)


def what_is_not_packed(service):
    """Short answers, problems, and files, whose bytes hardly shrink."""
    for body, accept, path in ((b"{", "application/json", PATH),
                               (OK_BODY, "application/vnd.safetensors", PATH)):
        headers = ask(service, "gzip, zstd", body, accept, "POST", path)[1]
        assert headers.get("Content-Encoding") is None, headers.items()
    assert ask(service, "gzip", None, method="GET",
               path="/health/live")[1].get("Content-Encoding") is None


def head_and_get(service):
    got = ask(service, "gzip", None, method="GET", path="/v1/catalog")
    assert got[1]["Content-Encoding"] == "gzip"
    assert told(gzip.decompress(got[2])) == told(
        ask(service, None, None, method="GET", path="/v1/catalog")[2])
    head = ask(service, "gzip", None, method="HEAD", path="/v1/catalog")
    assert (head[0], head[2], head[1]["Content-Encoding"]) == (200, b"", "gzip")


def main():
    tally = Tally()
    with Service(sys.argv[1]) as service:
        for case in (choices, large_and_again, what_is_not_packed, head_and_get):
            try:
                case(service)
                tally.record(case.__name__, [])
            except AssertionError as wrong:
                tally.record(case.__name__, [str(wrong)[:400]])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
