"""server_limits.py - sizes, queues, deadlines, slow clients.  Each test starts its own server.

Not here: framing (server_framing.py), start and stop (server_process.py).
Start reading at TESTS.
"""
import json
import socket
import struct
import threading
import time

from wire import OK_BODY, Server, chunks, eventually, generated, request, rows_lasting, slow_body

PATH = "/v1/attention"


def in_background(function):
    """Runs the function in a thread; returns a function that waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()), daemon=True)
    thread.start()

    def wait():
        thread.join(60)
        return result[0]
    return wait


def busy(server, count, seconds=1.5):
    """Starts this many requests of about so long and waits until they must be under way."""
    rows = rows_lasting(server.binary, seconds)
    waits = [in_background(lambda: server.ask("POST", PATH, slow_body(rows)))
             for _ in range(count)]
    time.sleep(0.25)
    return waits


def body_limit_declared(binary):
    with Server(binary, "--body-max", 1000) as server:
        with server.connect() as wire:
            wire.send(request("POST", PATH, b"", {"Content-Length": "1001"}) + b" ")
            answer = wire.response()
            assert answer.status == 413 and answer.is_problem(), answer.status
            problem = answer.json()
            assert (int(problem["expected"]), int(problem["observed"])) == (1000, 1001), problem
            assert "1000" in problem["detail"] and "1001" in problem["detail"], problem
            assert wire.is_closed()
        exact = OK_BODY + b" " * (1000 - len(OK_BODY))
        assert server.ask("POST", PATH, exact).status == 200
        assert server.works()


def body_limit_chunked(binary):
    with Server(binary, "--body-max", 1000) as server:
        with server.connect() as wire:
            wire.send(request("POST", PATH, b"", [("Content-Length", None),
                                                  ("Transfer-Encoding", "chunked")]))
            wire.send_quietly(chunks(OK_BODY + b" " * 1001, 100))
            answer = wire.response()
            assert answer.status == 413 and answer.is_problem(), answer.status
            assert wire.is_closed()
        assert server.works()


def body_limit_on_get(binary):
    with Server(binary, "--body-max", 1000) as server:
        assert server.ask("GET", "/health/live", b"x" * 1001).status == 413
        assert server.ask("GET", "/health/live", b"x" * 1000).status == 200


def budget_over_all_requests(binary):
    with Server(binary, "--body-max", 100000, "--body-total-max", 100000) as server:
        head = request("POST", PATH, b"", {"Content-Length": "90000"})
        with server.connect() as first, server.connect() as second:
            first.send(head + b" " * 80000)
            time.sleep(0.2)
            second.send_quietly(head + b" " * 80000)
            answer = second.response()
            assert answer.status == 503 and answer.is_problem(), answer.status
            assert int(answer["retry-after"]) >= 1
        large = OK_BODY + b" " * 90000
        assert eventually(lambda: server.ask("POST", PATH, large).status == 200), "given back"


def queue_full(binary):
    with Server(binary, "--workers", 1, "--queue-max", 1) as server:
        waits = busy(server, 1, 3) + busy(server, 1, 3)
        begun = time.monotonic()
        answer = server.ask("POST", PATH, slow_body(64))
        assert answer.status == 503 and answer.is_problem(), answer.status
        assert int(answer["retry-after"]) >= 1
        assert server.ask("POST", PATH, OK_BODY).status == 200, "cheap calls need no worker"
        assert time.monotonic() - begun < 2, "refused at once"
        assert [wait().status for wait in waits] == [200, 200]
        assert server.works()


def health_beside_work(binary):
    with Server(binary, "--workers", 1) as server:
        waits = busy(server, 3)
        slowest = 0.0
        for _ in range(20):
            for path in ("/health/live", "/health/ready"):
                begun = time.monotonic()
                assert server.ask("GET", path).status == 200
                slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 1, slowest
        assert all(wait().status == 200 for wait in waits)


def deadline_in_work(binary):
    rows_lasting(binary, 6)
    with Server(binary, "--deadline", 100, "--workers", 1) as server:
        begun = time.monotonic()
        answer = server.ask("POST", PATH, slow_body(rows_lasting(binary, 6)))
        assert answer.status == 504 and answer.is_problem(), answer.status
        assert time.monotonic() - begun < 4.0, "it stops soon after the deadline"
        assert eventually(server.works)


def deadline_in_queue(binary):
    with Server(binary, "--deadline", 400, "--workers", 1) as server:
        waits = busy(server, 3)
        answers = [wait() for wait in waits]
        assert {a.status for a in answers} <= {200, 504}, [a.status for a in answers]
        details = [a.json()["detail"] for a in answers if a.status == 504]
        assert any("waited" in detail for detail in details), details
        assert eventually(server.works)


def closes_within(wire, seconds, drip=b"x", every=0.1):
    """Drips bytes until the server ends the connection; the time it took, and what came."""
    begun = time.monotonic()
    wire.sock.settimeout(every)
    while time.monotonic() - begun < seconds:
        try:
            wire.sock.sendall(drip)
            if not wire.more():
                return time.monotonic() - begun
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - begun
    raise AssertionError(f"still open after {seconds} s")


def dripping_request_line(binary):
    with Server(binary, "--idle-timeout", 1, "--request-timeout", 1) as server:
        with server.connect() as wire:
            wire.send(b"GET /")
            assert closes_within(wire, 4) > 0.5


def dripping_header(binary):
    with Server(binary, "--idle-timeout", 1, "--request-timeout", 1) as server:
        with server.connect() as wire:
            wire.send(b"GET /health/live HTTP/1.1\r\nHost: t\r\nX-A: ")
            closes_within(wire, 4)
            assert wire.rest.startswith(b"HTTP/1.1 408 "), wire.rest[:80]


def dripping_fast(binary):
    """A flood of small pieces hides the end of the input from whoever reads it."""
    with Server(binary, "--request-timeout", 1) as server:
        wires = [server.connect() for _ in range(20)]
        for wire in wires:
            wire.send(b"GET /health/live HTTP/1.1\r\nHost: t\r\n")
        begun, open_wires = time.monotonic(), set(wires)
        while open_wires and time.monotonic() - begun < 6:
            for wire in list(open_wires):
                try:
                    wire.sock.sendall(b"x")
                except OSError:
                    open_wires.discard(wire)
            time.sleep(0.001)
        assert not open_wires, len(open_wires)
        assert server.works()


def dripping_body(binary):
    with Server(binary, "--idle-timeout", 1, "--request-timeout", 1) as server:
        with server.connect() as wire:
            wire.send(request("POST", PATH, b"", {"Content-Length": "5000"}))
            took = closes_within(wire, 4)
            answer = wire.response()
            assert answer.status == 408 and answer.is_problem(), answer.status
            assert 0.8 < took < 3.0, took
        assert server.works()
        assert '"status":408' in server.log()


def silent_connection(binary):
    with Server(binary, "--idle-timeout", 1) as server:
        with server.connect() as fresh, server.connect() as used:
            used.send(request())
            assert used.response().status == 200
            assert fresh.is_closed(4) and used.is_closed(4)


def slow_reader(binary):
    with Server(binary, "--request-timeout", 1) as server:
        with server.connect(receive_bytes=4096) as wire:
            wire.send(request("POST", PATH, generated(384, **{"return": ["S", "M", "A"]})))
            got, begun = 0, time.monotonic()
            while time.monotonic() - begun < 60:
                try:
                    piece = wire.sock.recv(64)
                except OSError:
                    break
                if not piece:
                    break
                got += len(piece)
                time.sleep(0.05)
            assert time.monotonic() - begun < 40, "a reader that drips is ended"
        assert server.works()
        assert eventually(lambda: '"path":"/v1/attention"' in server.log())
        line = next(json.loads(line) for line in server.log().split("\n") if PATH in line)
        assert line["status"] == 200 and line["error"] == "client_gone", line
        assert line["bytes_out"] > got, "bytes_out is the answer's size, as README says"


def unread_files_stay_whole(binary):
    """Files are sent from where they were computed: other work must not write over them."""
    accept = {"Accept": "application/vnd.safetensors"}
    bodies = [generated(700, dtype="float32", inputs={"X": {"init": "normal", "seed": seed}})
              for seed in (1, 2, 3)]

    def tensors(answer):
        assert answer.status == 200, answer.status
        return answer.body[8 + int.from_bytes(answer.body[:8], "little"):]

    with Server(binary, "--workers", 2) as server:
        right = [tensors(server.ask("POST", PATH, body, accept)) for body in bodies]
        assert len(right[0]) > 3 * 4 * 700 * 700 and right[0] != right[1]
        wires = [server.connect(receive_bytes=4096) for _ in range(6)]
        for n, wire in enumerate(wires):
            wire.send(request("POST", PATH, bodies[n % 3], accept))
        for _ in range(3):
            for n, body in enumerate(bodies):
                assert tensors(server.ask("POST", PATH, body, accept)) == right[n]
        for n, wire in enumerate(wires):
            assert tensors(wire.response()) == right[n % 3], n
            wire.sock.close()
        assert server.works()


def connections_at_limit(binary):
    with Server(binary, "--connection-max", 16, "--idle-timeout", 1) as server:
        wires = [server.connect() for _ in range(60)]
        assert eventually(server.works, 10), "idle connections make room"
        for wire in wires:
            wire.sock.close()


def one_more_connection_waits(binary):
    """None is refused: whoever comes last is served once another goes."""
    with Server(binary, "--connection-max", 8) as server:
        wires = [server.connect() for _ in range(8)]
        for wire in wires:
            wire.send(request())
            assert wire.response().status == 200
        last = server.connect()
        last.send(request())
        last.sock.settimeout(0.5)
        try:
            assert not last.sock.recv(1), "nobody answers yet"
            raise AssertionError("the ninth connection was closed")
        except TimeoutError:
            pass
        last.sock.settimeout(10)
        wires[3].sock.close()
        assert last.response().status == 200
        for wire in wires + [last]:
            wire.sock.close()
        assert server.works()


def many_slow_connections(binary):
    with Server(binary, "--request-timeout", 2) as server:
        wires = [server.connect() for _ in range(400)]
        for wire in wires:
            wire.send(b"POST /v1/attention HTTP/1.1\r\nHost: t\r\n")
        begun = time.monotonic()
        assert server.works() and time.monotonic() - begun < 1.0
        assert all(wire.response().status == 408 for wire in wires)
        for wire in wires:
            wire.sock.close()


def client_gone_before_answer(binary):
    with Server(binary, "--workers", 1) as server:
        for _ in range(3):
            with server.connect() as wire:
                wire.send(request("POST", PATH, slow_body(2048)))
        for _ in range(20):
            with server.connect() as wire:
                wire.send(request("POST", PATH, OK_BODY))
        assert eventually(server.works, 30)


def client_gone_frees_its_worker(binary):
    body = slow_body(rows_lasting(binary, 6))
    with Server(binary, "--workers", 1) as server:
        with server.connect() as wire:
            wire.send(request("POST", PATH, body))
            time.sleep(0.5)
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        begun = time.monotonic()
        assert server.ask("POST", PATH, slow_body(64)).status == 200
        assert time.monotonic() - begun < 3, time.monotonic() - begun
        assert eventually(lambda: '"status":499' in server.log() and
                          '"error":"client_gone"' in server.log(), 3), server.log()


def half_closed_client_is_answered(binary):
    body = slow_body(rows_lasting(binary, 1))
    with Server(binary, "--workers", 1) as server, server.connect() as wire:
        wire.send(request("POST", PATH, body) + request("POST", PATH, OK_BODY))
        wire.sock.shutdown(socket.SHUT_WR)
        assert [wire.response().status for _ in range(2)] == [200, 200]


def half_closed_clients_in_a_queue(binary):
    """The end of the input is there when the library reads again behind each answer."""
    with Server(binary, "--workers", 1) as server:
        wires = [server.connect() for _ in range(20)]
        for n, wire in enumerate(wires):
            wire.send(request("POST", PATH, OK_BODY if n % 4 else slow_body(512)))
            wire.sock.shutdown(socket.SHUT_WR)
        assert [wire.response().status for wire in wires] == [200] * 20
        for wire in wires:
            wire.sock.settimeout(5)
            assert wire.sock.recv(1) == b"", "closed once it is answered"
            wire.sock.close()


def ended_inside_a_request(binary):
    """Bytes and the end of the input arrive together: the connection is not kept."""
    whole = request("POST", PATH, OK_BODY)
    body = whole.index(b"\r\n\r\n") + 4
    with Server(binary, "--connection-max", 8) as server:
        for cut in (10, body - 10, body, body + 20):
            for _ in range(12):
                with server.connect() as wire:
                    wire.send(whole[:cut])
        begun = time.monotonic()
        assert server.works() and time.monotonic() - begun < 5
        server.terminate()
        assert server.wait() == 0
        assert time.monotonic() - begun < 7, "nobody is waited for"


def parallel_load(binary):
    with Server(binary) as server:
        def client():
            with server.connect() as wire:
                for n in range(50):
                    body = OK_BODY if n % 5 else b"{"
                    wire.send(request("POST", PATH, body))
                    status = wire.response().status
                    if status != (200 if n % 5 else 400):
                        return status
            return 0
        assert [wait() for wait in [in_background(client) for _ in range(16)]] == [0] * 16
        assert server.works()


TESTS = [body_limit_declared, body_limit_chunked, body_limit_on_get, budget_over_all_requests,
         queue_full, health_beside_work, deadline_in_work, deadline_in_queue,
         dripping_request_line, dripping_header, dripping_fast, dripping_body,
         silent_connection, slow_reader, unread_files_stay_whole,
         connections_at_limit, one_more_connection_waits, many_slow_connections, client_gone_before_answer, client_gone_frees_its_worker,
         half_closed_client_is_answered, half_closed_clients_in_a_queue,
         ended_inside_a_request,
         parallel_load]
