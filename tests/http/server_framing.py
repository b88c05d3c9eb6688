"""server_framing.py - where messages begin and end: lengths, chunks, pipelines, Expect.

Not here: what routes answer (server_routes.py).
Start reading at TESTS.
"""
import time

from wire import OK_BODY, chunks, request

PATH = "/v1/attention"
POST = b"POST /v1/attention HTTP/1.1\r\n"
JSON = b"Content-Type: application/json\r\n"


def refused(server, data, statuses):
    """The answer to these bytes is a problem of one of these statuses, and then the end."""
    with server.connect() as wire:
        wire.send_quietly(data)
        answer = wire.response()
        assert answer.status in statuses, (answer.status, statuses, data[:200])
        assert answer.is_problem(), (answer.headers, answer.body)
        assert answer["connection"] == "close", answer.headers
        assert wire.is_closed(), ("not closed", data[:200])
    assert server.works(), "the next request"


def both_framings(server):
    refused(server, POST + b"Host: t\r\n" + JSON + b"Content-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks(b"{}"), [400])
    refused(server, POST + b"Host: t\r\n" + JSON + b"Transfer-Encoding: chunked\r\n"
            b"Content-Length: 4\r\n\r\n" + chunks(b"{}"), [400])


def host_once(server):
    refused(server, b"GET /health/live HTTP/1.1\r\n\r\n", [400])
    refused(server, b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", [400])
    refused(server, b"GET /health/live HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", [400])


def content_length_values(server):
    for value in (b"-1", b"x", b"4 4", b"", b"+4", b"4,4", b"4, 4", b"0x4", b"4.0", b"1e1"):
        refused(server, POST + b"Host: t\r\n" + JSON + b"Content-Length: " + value +
                b"\r\n\r\nabcd", [400])
    refused(server, POST + b"Host: t\r\n" + JSON +
            b"Content-Length: 99999999999999999999999\r\n\r\nabcd", [400, 413])


def content_length_twice(server):
    for second in (b"4", b"5"):
        refused(server, POST + b"Host: t\r\n" + JSON + b"Content-Length: 4\r\nContent-Length: " +
                second + b"\r\n\r\nabcd", [400])


def header_name_with_blank(server):
    refused(server, POST + b"Host: t\r\n" + JSON + b"Content-Length : 4\r\n\r\nabcd", [400])
    refused(server, b"GET /health/live HTTP/1.1\r\nHost: t\r\nX Y: z\r\n\r\n", [400])


def header_control_character(server):
    refused(server, b"GET /health/live HTTP/1.1\r\nHost: t\r\nX-A: a\x01b\r\n\r\n", [400])


def transfer_codings(server):
    for coding in (b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity", b"xchunked"):
        refused(server, POST + b"Host: t\r\n" + JSON + b"Transfer-Encoding: " + coding +
                b"\r\n\r\nabcd", [400, 501])


def chunked_body(server):
    for size in (1, 7, 4096):
        with server.connect() as wire:
            wire.send(request("POST", PATH, b"", [("Content-Length", None),
                                                  ("Transfer-Encoding", "chunked")]))
            wire.send(chunks(OK_BODY, size))
            answer = wire.response()
            assert answer.status == 200, answer.body
            assert wire.is_closed(), "a chunked request ends its connection"


def chunked_malformed(server):
    head = POST + b"Host: t\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    for bad in (b"1\r0\r\n\r\n", b"4\nabcd\r\n0\r\n\r\n", b"-1\r\n", b"0x4\r\nabcd\r\n0\r\n\r\n",
                b"4\r\nabcdX\r\n0\r\n\r\n", b"zz\r\n", b"\r\n", b" 4\r\nabcd\r\n0\r\n\r\n",
                b"fffffffffffffffff\r\nabcd\r\n"):
        with server.connect() as wire:
            wire.send(head + bad)
            answer = wire.response()
            assert answer.status in (400, 413), (bad, answer.status)
            assert answer.is_problem(), (bad, answer.headers, answer.body)
            assert wire.is_closed(), ("not closed", bad)
    assert server.works()


def pipelined(server):
    for count in (2, 40):
        with server.connect() as wire:
            wire.send(b"".join(request("POST", PATH, OK_BODY, {"X-Request-Id": f"p{n}"})
                               for n in range(count)))
            for n in range(count):
                answer = wire.response()
                assert answer.status == 200, answer.body
                assert answer["x-request-id"] == f"p{n}", "out of order"


def pipelined_mixed(server):
    with server.connect() as wire:
        wire.send(request("POST", PATH, OK_BODY) + request("GET", "/nope") +
                  request("HEAD", "/health/live") + request("GET", "/v1/catalog"))
        assert [wire.response(m).status for m in ("POST", "GET", "HEAD", "GET")] == [
            200, 404, 200, 200]


def keep_alive(server):
    with server.connect() as wire:
        for _ in range(20):
            wire.send(request("POST", PATH, OK_BODY))
            assert wire.response().status == 200
            wire.send(request("POST", PATH, b"[]"))
            assert wire.response().status in (400, 422)


def http_1_0(server):
    with server.connect() as wire:
        wire.send(request("POST", PATH, OK_BODY, [("Host", None)], "1.0"))
        assert wire.response().status == 200
        assert wire.is_closed()
    with server.connect() as wire:
        for _ in range(2):
            wire.send(request("POST", PATH, OK_BODY, {"Connection": "keep-alive"}, "1.0"))
            assert wire.response().status == 200


def connection_close(server):
    with server.connect() as wire:
        wire.send(request("GET", "/health/live", headers={"Connection": "close"}))
        assert wire.response().status == 200
        assert wire.is_closed()


def get_with_body(server):
    with server.connect() as wire:
        wire.send(request("GET", "/health/live", b"x" * 50000) + request())
        assert wire.response().status == 200
        assert wire.response().status == 200


def refused_small_body_keeps_connection(server):
    with server.connect() as wire:
        wire.send(request("POST", "/nope", b"x" * 1000) + request())
        assert wire.response().status == 404
        assert wire.response().status == 200


def one_byte_at_a_time(server):
    with server.connect() as wire:
        for byte in request("POST", PATH, OK_BODY):
            wire.send(bytes([byte]))
        assert wire.response().status == 200


def expect_continue(server):
    with server.connect() as wire:
        wire.send(request("POST", PATH, b"", {"Content-Length": str(len(OK_BODY)),
                                              "Expect": "100-continue"}))
        begun = time.monotonic()
        assert wire.response(skip_100=False).status == 100
        assert time.monotonic() - begun < 1.0, "100 must come at once"
        wire.send(OK_BODY)
        assert wire.response().status == 200


def expect_refused(server):
    for headers, status in (({"Content-Length": str(1 << 40)}, 413),
                            ({"Content-Length": "10", "Content-Type": "text/plain"}, 415)):
        with server.connect() as wire:
            wire.send(request("POST", PATH, b"", {"Expect": "100-continue", **headers}))
            answer = wire.response(skip_100=False)
            assert answer.status == status, answer.status
            assert answer.is_problem()


def expect_unknown(server):
    with server.connect() as wire:
        wire.send(request("POST", PATH, OK_BODY, {"Expect": "200-maybe"}))
        answer = wire.response(skip_100=False)
        assert answer.status == 417 and answer.is_problem(), answer.status


def uri_too_long(server):
    for size in (9000, 200000):
        refused(server, request("GET", "/" + "a" * size), [414])


def headers_too_large(server):
    refused(server, request(headers={"X-Big": "a" * 20000}), [431])
    refused(server, request(headers={"X-Big": "a" * 200000}), [431])
    refused(server, request(headers=[(f"X-{n}", "b") for n in range(3000)]), [431])


def refused_answer_survives_sender(server):
    """A client that sends on without listening is not reset, and can still read why."""
    with server.connect() as wire:
        wire.send(request("POST", PATH, b"", {"Content-Length": str(1 << 40)}))
        for _ in range(100):
            wire.send(b"x" * 65536)
            time.sleep(0.005)
        assert wire.response().status == 413


def garbage(server):
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), b"GET\r\n\r\n",
                 b"GET /\r\n\r\n", b"GET / HTTP/1.1 x\r\n\r\n", b"GET / FTP/1.1\r\n\r\n",
                 b"\r\n" * 1000, bytes(1000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with server.connect(2.0) as wire:
            wire.send_quietly(data)
            wire.sock.shutdown(1)
            try:
                while wire.more():
                    pass
            except OSError:
                pass
            assert not wire.rest.startswith(b"HTTP/1.1 2"), data
    assert server.works()


def absolute_target(server):
    assert server.ask("GET", "http://t/health/live").status == 200
    assert server.ask("GET", "http://t:80/health/live?x=1").status == 200


def version_not_spoken(server):
    """What the documents say of the one answer that is the HTTP library's own."""
    with server.connect() as wire:
        wire.send(b"GET /health/live HTTP/3.0\r\nHost: t\r\n\r\n")
        answer = wire.response()
        assert answer.status == 505, answer.status
        assert answer["x-request-id"] is None, answer.headers
        assert wire.is_closed()
    assert server.works(), "the next request"


TESTS = [both_framings, host_once, content_length_values, content_length_twice,
         header_name_with_blank, header_control_character, transfer_codings, chunked_body,
         chunked_malformed, pipelined, pipelined_mixed, keep_alive, http_1_0, connection_close,
         get_with_body, refused_small_body_keeps_connection, one_byte_at_a_time,
         expect_continue, expect_refused, expect_unknown, uri_too_long, headers_too_large,
         refused_answer_survives_sender, garbage, absolute_target, version_not_spoken]
