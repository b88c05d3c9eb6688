"""server_routes.py - paths, methods, media types, CORS and request ids.

Not here: framing (server_framing.py), limits and deadlines (server_limits.py).
Start reading at TESTS.
"""
import json
import re

from wire import OK_BODY, eventually, request

PATH = "/v1/attention"
GETS = ["/v1/catalog", "/v1/examples", "/openapi.yaml", "/health/live", "/health/ready"]
POSTS = ["/v1/attention", "/v1/plan"]


def get_and_head(server):
    for path in GETS:
        got = server.ask("GET", path)
        assert got.status == 200, (path, got.status)
        head = server.ask("HEAD", path)
        assert head.status == 200, path
        for name in ("content-type", "content-length", "cache-control"):
            assert head[name] == got[name], (path, name, head[name], got[name])
        with server.connect() as wire:
            wire.send(request("HEAD", path) + request("GET", "/health/live"))
            wire.response("HEAD")
            assert wire.response().status == 200, "no byte of a body after HEAD"


def health_is_json(server):
    assert server.ask("GET", "/health/live").json()["status"] == "live"
    assert server.ask("GET", "/health/ready").json()["status"] == "ready"
    assert server.ask("GET", "/health/ready")["content-type"] == "application/json"


def examples_by_name(server):
    listed = server.ask("GET", "/v1/examples").json()
    assert listed, "at least one example"
    unknown = server.ask("GET", "/v1/examples/no-such-example")
    assert unknown.status == 404 and unknown.is_problem()
    assert server.ask("GET", "/v1/examples/..%2f..%2fetc%2fpasswd").status == 404


def unknown_paths(server):
    for path in ("/", "/v1", "/v1/", "/v1/attention/", "//v1/attention", "/v1/attention/x",
                 "/V1/attention", "/v1%2Fattention", "/v1/./attention", "/health", "/health/",
                 "/v1/examples/", "/v1/examples/a/b", "/v1/examples/%00", "/v1/examples/%zz",
                 "/" + "x" * 5000):
        for method in ("GET", "POST"):
            body = OK_BODY if method == "POST" else None
            answer = server.ask(method, path, body)
            if (method, path) == ("GET", "/"):
                continue
            assert answer.status == 404, (method, path, answer.status)
            assert answer.is_problem(), (method, path, answer.body)


def wrong_methods(server):
    for path, allow in [(p, "GET, HEAD, OPTIONS") for p in GETS] + [(p, "POST, OPTIONS")
                                                                   for p in POSTS]:
        for method in ("DELETE", "PUT", "PATCH", "TRACE", "FOO", "get"):
            answer = server.ask(method, path)
            assert answer.status == 405, (method, path, answer.status)
            assert answer["allow"] == allow, (path, answer["allow"])
            assert answer.is_problem()
    assert server.ask("GET", PATH).status == 405
    assert server.ask("HEAD", PATH).status == 405
    assert server.ask("POST", "/v1/catalog", b"{}").status == 405


def query_is_ignored(server):
    assert server.ask("GET", "/health/live?x=1&y").status == 200
    assert server.ask("GET", "/health/live?").status == 200
    assert server.ask("POST", PATH + "?a=%zz", OK_BODY).status == 200


def preflight(server):
    answer = server.ask("OPTIONS", PATH, headers={
        "Origin": "http://a", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type"})
    assert answer.status == 204, answer.status
    assert answer["access-control-allow-origin"] == "*"
    assert "POST" in answer["access-control-allow-methods"]
    assert "content-type" in answer["access-control-allow-headers"].lower()
    assert answer["vary"] == "Origin"
    assert answer["allow"] == "POST, OPTIONS"
    for path in ("/nope", "*"):
        assert server.ask("OPTIONS", path).status == 204, path


def cors_on_every_answer(server):
    for answer in (server.ask("GET", "/health/live", headers={"Origin": "http://a"}),
                   server.ask("GET", "/nope", headers={"Origin": "http://a"}),
                   server.ask("POST", PATH, b"{", {"Origin": "http://a"}),
                   server.ask("POST", PATH, OK_BODY, {"Origin": "http://a"}),
                   server.ask("POST", PATH, b"", {"Content-Length": "x"})):
        assert answer["access-control-allow-origin"] == "*", answer.status
        exposed = answer["access-control-expose-headers"].lower()
        assert "x-request-id" in exposed and "retry-after" in exposed


def request_id_taken_over(server):
    for sane in ("a", "A.b_c-9", "x" * 128):
        answer = server.ask("GET", "/nope", headers={"X-Request-Id": sane})
        assert answer["x-request-id"] == sane
        assert answer.json()["request_id"] == sane
    answer = server.ask("POST", PATH, OK_BODY, {"X-Request-Id": "mine"})
    assert answer.json()["request_id"] == "mine"


def request_id_made(server):
    seen = set()
    for insane in (None, "", "a b", "a\"b", "x" * 129, "é", "<script>"):
        for _ in range(3):
            headers = {} if insane is None else {"X-Request-Id": insane}
            given = server.ask("GET", "/health/live", headers=headers)["x-request-id"]
            assert re.fullmatch("[0-9a-f]{16}", given), given
            assert given not in seen, "an id twice"
            seen.add(given)


def content_types(server):
    for good in ("application/json", "Application/JSON", "application/json; charset=utf-8",
                 'application/json;charset="UTF-8"', "application/json ; x=1"):
        answer = server.ask("POST", PATH, OK_BODY, {"Content-Type": good})
        assert answer.status == 200, (good, answer.status)
    for bad in (None, "", "text/plain", "application/jsonp", "application/x-www-form-urlencoded",
                "application/json; charset=latin-1", "multipart/form-data; boundary=x", "*/*"):
        answer = server.ask("POST", PATH, OK_BODY, {"Content-Type": bad})
        assert answer.status == 415, (bad, answer.status)
        assert answer.is_problem()


def content_encodings(server):
    assert server.ask("POST", PATH, OK_BODY, {"Content-Encoding": "identity"}).status == 200
    for bad in ("gzip", "br", "zstd", "deflate", "identity, gzip", "x"):
        answer = server.ask("POST", PATH, OK_BODY, {"Content-Encoding": bad})
        assert answer.status == 415 and answer.is_problem(), (bad, answer.status)
        assert "Content-Encoding" in answer.json()["detail"]


def accepts(server):
    for good in (None, "", "*/*", "application/*", "application/json", "text/html, */*;q=0.1",
                 "application/json;q=0.5", "text/html;q=0, application/json",
                 "application/json;q=0.001, */*;q=0", "APPLICATION/JSON"):
        for method, path, body in (("POST", PATH, OK_BODY), ("GET", "/v1/catalog", None)):
            answer = server.ask(method, path, body, {"Accept": good})
            assert answer.status == 200, (good, path, answer.status)
    for bad in ("text/html", "image/*", "application/json;q=0", "*/*;q=0", "application/*;q=0.0",
                "application/xml, text/plain"):
        for method, path, body in (("POST", PATH, OK_BODY), ("GET", "/v1/catalog", None)):
            answer = server.ask(method, path, body, {"Accept": bad})
            assert answer.status == 406 and answer.is_problem(), (bad, path, answer.status)
    anything_else = {"Accept": "application/json;q=0, */*"}
    assert server.ask("GET", "/v1/catalog", None, anything_else).status == 406
    answer = server.ask("POST", PATH, OK_BODY, anything_else)
    assert (answer.status, answer["content-type"]) == (200, "application/vnd.safetensors")
    twice = [("Accept", "text/html"), ("Accept", "application/json")]
    assert server.ask("GET", "/v1/catalog", headers=twice).status == 200
    assert server.ask("GET", "/health/live", headers={"Accept": "text/plain"}).status == 200


def length_required(server):
    with server.connect() as wire:
        wire.send(f"POST {PATH} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\r\n"
                  .encode())
        answer = wire.response()
        assert answer.status == 411 and answer.is_problem(), answer.status


def answer_headers(server):
    for answer in (server.ask("POST", PATH, OK_BODY), server.ask("POST", PATH, b"{"),
                   server.ask("GET", "/v1/catalog"), server.ask("GET", "/nope")):
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["cache-control"]
        assert answer["x-request-id"]
        assert answer["date"]
    assert server.ask("POST", PATH, OK_BODY)["cache-control"] == "no-store"


def log_lines(server):
    answer = server.ask("POST", PATH + "?q=1", OK_BODY, {"X-Request-Id": "log-1"})
    server.ask("GET", '/a"b\\c', headers={"X-Request-Id": "log-2"})
    assert eventually(lambda: all(f'"log-{n}"' in server.log() for n in (1, 2)))
    lines = [json.loads(line) for line in server.log().split("\n")[:-1]]
    assert lines[0]["event"] == "start"
    one = next(line for line in lines if line.get("request_id") == "log-1")
    assert (one["method"], one["path"], one["status"], one["error"]) == (
        "POST", PATH, 200, None), one
    assert one["bytes_in"] == len(OK_BODY) and one["bytes_out"] == len(answer.body), one
    assert set(one["ms"]) == {"total", "queue", "parse", "compute", "write"}, one
    assert one["ms"]["total"] > 0
    two = next(line for line in lines if line.get("request_id") == "log-2")
    assert two["path"] == '/a"b\\c' and two["status"] == 404 and two["error"], two


TESTS = [get_and_head, health_is_json, examples_by_name, unknown_paths, wrong_methods,
         query_is_ignored, preflight, cors_on_every_answer, request_id_taken_over,
         request_id_made, content_types, content_encodings, accepts, length_required,
         answer_headers, log_lines]
