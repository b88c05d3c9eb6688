"""server_process.py - options, start, signals, exit codes.  Each test runs the binary itself.

Not here: requests (server_framing.py, server_routes.py).
Start reading at TESTS.
"""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

from server_limits import busy, in_background
from wire import OK_BODY, Server, eventually, request, slow_body

PATH = "/v1/attention"


def run(binary, *flags, env=None):
    """Exit code, standard output, standard error of a run that ends by itself."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ATTENTIOND_")}
    environment.update(env or {})
    done = subprocess.run([binary, *flags], capture_output=True, timeout=10, env=environment,
                          check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def version_and_help(binary):
    code, out, err = run(binary, "--version")
    assert code == 0 and err == "" and re.search(r"\d+\.\d+\.\d+", out), (code, out, err)
    code, out, err = run(binary, "--help")
    assert code == 0 and err == "", (code, err)
    flags = re.findall(r"^  --([a-z-]+) \(ATTENTIOND_([A-Z_]+)\)$", out, re.M)
    assert len(flags) >= 17, flags
    for flag, variable in flags:
        assert flag.replace("-", "_").upper() == variable
    assert out.count("default ") >= len(flags)


def wrong_options(binary):
    wrong = [("--port", "x"), ("--port", "-1"), ("--port", "65536"), ("--port", "80 "),
             ("--port", ""), ("--port",), ("--port=",), ("--workers", "0"), ("--workers", "99"),
             ("--queue-max", "1.5"), ("--body-max", "1k"), ("--deadline", "0x10"), ("--nope",),
             ("nope",), ("-p", "1"), ("--log", "xml"), ("--cors-origins", "a.example"),
             ("--cors-origins", "http://a/path"), ("--body-max", "99999999999999999999"),
             ("--workers", "31", "--io-threads", "31"), ("--connection-max", "1000000"),
             ("--body-max", "2000", "--body-total-max", "1000"),
             ("--drain-time", "10", "--drain-wait", "20")]
    for flags in wrong:
        code, out, err = run(binary, *flags)
        assert code == 2 and out == "" and err.startswith("attentiond: "), (flags, code, err)
        assert err.count("\n") == 1, err
    code, _, err = run(binary, env={"ATTENTIOND_QUEUE_MAX": "many"})
    assert code == 2 and "ATTENTIOND_QUEUE_MAX" in err and "many" in err, err


def flag_before_environment(binary):
    env = {"ATTENTIOND_BODY_MAX": "500"}
    with Server(binary, env=env) as server:
        assert server.ask("POST", PATH, OK_BODY + b" " * 500).status == 413
    with Server(binary, "--body-max=5000", env=env) as server:
        assert server.ask("POST", PATH, OK_BODY + b" " * 500).status == 200


def wrong_host(binary):
    for host in ("localhost", "1.2.3", "::g"):
        code, out, err = run(binary, "--host", host)
        assert code in (1, 2) and out == "" and host in err, (host, code, err)


def port_in_use(binary):
    with Server(binary) as server:
        code, out, err = run(binary, "--port", str(server.port))
        assert code == 1 and out == "" and str(server.port) in err, (code, out, err)
        assert server.works()


def ipv6(binary):
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        return
    with Server(binary, host="::1") as server:
        assert re.fullmatch(r"listening on http://\[::1\]:\d+\n", server.first_line)
        assert server.works()


def one_line_on_stdout(binary):
    with Server(binary) as server:
        assert re.fullmatch(r"listening on http://127\.0\.0\.1:\d+\n", server.first_line)
        server.works()
        server.ask("GET", "/nope")
        server.terminate()
        assert server.wait() == 0
        assert server.process.stdout.read() == b""


def terminate_idle(binary):
    for number in (signal.SIGTERM, signal.SIGINT):
        with Server(binary) as server, server.connect() as wire:
            wire.send(request())
            wire.response()
            begun = time.monotonic()
            server.process.send_signal(number)
            assert server.wait() == 0
            assert time.monotonic() - begun < 2.0, "an idle connection holds nothing up"
            events = [json.loads(line)["event"] for line in server.log().splitlines()]
            assert [e for e in events if e != "request"] == ["start", "drain", "stop"], events


def terminate_at_once(binary):
    """The signal may come before main waits for it, and may reach any thread."""
    for _ in range(20):
        with Server(binary) as server:
            server.terminate()
            assert server.wait() == 0


def terminate_finishes_requests(binary):
    with Server(binary, "--workers", 1) as server:
        waits = busy(server, 2)
        server.terminate()
        answers = [wait() for wait in waits]
        assert [a.status for a in answers] == [200, 200], [a.status for a in answers]
        assert all(a["connection"] == "close" for a in answers)
        assert server.wait() == 0


def terminate_in_time(binary):
    with Server(binary, "--workers", 1, "--drain-time", 1500) as server:
        waits = busy(server, 1)
        waits += [in_background(lambda: server.ask("POST", PATH, slow_body(30000)))
                  for _ in range(3)]
        time.sleep(0.2)
        begun = time.monotonic()
        server.terminate()
        assert server.wait() == 0
        assert time.monotonic() - begun < 3.0
        statuses = {wait().status for wait in waits[:1]}
        assert statuses <= {200, 503, 504}, statuses


def terminate_with_dripping_client(binary):
    with Server(binary, "--drain-time", 1000) as server, server.connect() as wire:
        wire.send(request("POST", PATH, b"", {"Content-Length": "100"}) + b"{")
        time.sleep(0.1)
        server.terminate()
        assert server.wait() == 0


def ready_while_draining(binary):
    with Server(binary, "--drain-wait", 1500) as server:
        assert server.ask("GET", "/health/ready").status == 200
        server.terminate()
        assert eventually(lambda: server.ask("GET", "/health/ready").status == 503, 1)
        draining = server.ask("GET", "/health/ready")
        assert draining.json()["status"] == "draining" and draining["retry-after"]
        assert server.ask("GET", "/health/live").status == 200
        assert server.works(), "work is still done until the socket closes"
        assert server.wait() == 0


def second_signal(binary):
    with Server(binary, "--drain-wait", 8000) as server:
        server.terminate()
        time.sleep(0.3)
        assert server.process.poll() is None
        server.terminate()
        begun = time.monotonic()
        server.wait()
        assert time.monotonic() - begun < 4.0


def healthcheck(binary):
    with Server(binary) as server:
        port = str(server.port)
        assert run(binary, "--healthcheck", "--port", port)[0] == 0
        assert run(binary, "--healthcheck", env={"ATTENTIOND_PORT": port,
                                                 "ATTENTIOND_HOST": "0.0.0.0"})[0] == 0
    code, _, err = run(binary, "--healthcheck", "--port", port)
    assert code == 1 and err, code


def broken_pipe(binary):
    with Server(binary) as server:
        for _ in range(50):
            with server.connect() as wire:
                wire.send(request("POST", PATH, OK_BODY) * 5)
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                     struct.pack("ii", 1, 0))
        assert server.works()
        assert server.process.poll() is None


def terminate_answers_what_was_sent(binary):
    """Requests that no thread has read yet when the signal comes are answered, too."""
    for workers, io_threads in ((1, 1), (2, 2), (2, 1), (3, 5)):
        with Server(binary, "--workers", workers, "--io-threads", io_threads) as server:
            wires = [server.connect() for _ in range(60)]
            for wire in wires:
                wire.send(request())
                assert wire.response().status == 200
            server.process.send_signal(signal.SIGSTOP)
            for wire in wires:
                wire.send(request("POST", PATH, OK_BODY))
            server.terminate()
            server.process.send_signal(signal.SIGCONT)
            assert {wire.response().status for wire in wires} == {200}
            assert server.wait() == 0
            for wire in wires:
                wire.sock.close()


def terminate_waits_for_what_is_on_its_way(binary):
    """A request that a connection brings shortly after the signal; a loaded machine may be late."""
    def answered_late():
        with Server(binary) as server, server.connect() as wire:
            wire.send(request())
            assert wire.response().status == 200
            server.terminate()
            time.sleep(0.03)
            try:
                wire.send(request("POST", PATH, OK_BODY))
                return wire.response().status == 200
            except (OSError, AssertionError, EOFError):
                return False
    assert any(answered_late() for _ in range(5))


def threads_and_cores(binary):
    """Where the log says so, each core has a worker and an I/O thread to itself; else no
    thread is bound."""
    cores = os.sched_getaffinity(0)
    n = min(len(cores), 15)
    for affinity in ("auto", "off"):
        with Server(binary, "--affinity", affinity, "--workers", n, "--io-threads", n) as server:
            wires = [server.connect() for _ in range(8 * n)]
            for wire in wires:
                wire.send(request())
                assert wire.response().status == 200
            bound = json.loads(server.log().splitlines()[0])["bound_to_cores"]
            assert affinity == "auto" or bound is False
            tasks = f"/proc/{server.process.pid}/task"
            masks = [os.sched_getaffinity(int(task)) for task in os.listdir(tasks)]
            for core in cores if bound else ():
                assert masks.count({core}) >= 2, (core, masks)
            if not bound:
                assert all(mask == cores for mask in masks), masks
            for wire in wires:
                wire.sock.close()


def log_off(binary):
    with Server(binary, "--log", "off") as server:
        server.works()
        server.terminate()
        server.wait()
        assert server.log() == ""


def log_nobody_reads(binary):
    """A full pipe on standard error must not stop the service."""
    process = subprocess.Popen([binary, "--port", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    port = int(process.stdout.readline().rsplit(b":", 1)[1])
    try:
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.sendall(request() * 60)
                seen = b""
                while seen.count(b"HTTP/1.1 200") < 60:
                    seen += sock.recv(65536)
    finally:
        process.kill()
        process.communicate()


def cors_list(binary):
    with Server(binary, "--cors-origins", "https://a.example,http://b.example:81") as server:
        listed = server.ask("GET", "/nope", headers={"Origin": "http://b.example:81"})
        assert listed["access-control-allow-origin"] == "http://b.example:81"
        for origin in ("http://b.example", "https://a.example.evil", "null"):
            answer = server.ask("GET", "/health/live", headers={"Origin": origin})
            assert answer["access-control-allow-origin"] is None, origin
            assert answer["vary"] == "Origin"
    with Server(binary, "--cors-origins", "") as server:
        answer = server.ask("GET", "/health/live", headers={"Origin": "http://a"})
        assert answer["access-control-allow-origin"] is None and answer["vary"] is None


TESTS = [version_and_help, wrong_options, flag_before_environment, wrong_host, port_in_use, ipv6,
         one_line_on_stdout, terminate_idle,
         terminate_at_once, terminate_finishes_requests, terminate_in_time,
         terminate_with_dripping_client, ready_while_draining, second_signal, healthcheck, terminate_answers_what_was_sent,
         terminate_waits_for_what_is_on_its_way,
         threads_and_cores,
         broken_pipe, log_off, log_nobody_reads, cors_list]
