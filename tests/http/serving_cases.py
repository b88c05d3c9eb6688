"""serving_cases.py BINARY FILE - raw requests that broke other servers, one JSON case a line.

Each is sent to the real binary as written, the words in braces carried out; the answer's status
and every check the case names are verified, and then the next valid request must be answered.
Start reading at run_case; CHECKS says how each sentence of `expect.checks` is verified.
"""
import gzip
import json
import re
import socket
import sys
import time

from wire import OK_BODY, Server, chunks, eventually, request

PATH = "/v1/attention"
LIMIT = 4 << 20          # --body-max of the server under test: {limit+1} is really sent
GZIPPED = gzip.compress(OK_BODY)
READ_BUFFER_BYTES = 64 << 10


def words(text, body_bytes):
    """The braces within a piece of text; the JSON around them stays."""
    for name, value in (("{PATH}", PATH), ("{LEN}", str(body_bytes)), ("{N}", str(len(OK_BODY))),
                        ("{gz}", str(len(GZIPPED))), ("{limit+1}", str(LIMIT + 1))):
        text = text.replace(name, value)
    return text.encode("latin-1") if text.isascii() else text.encode()


def valid_posts(count):
    return b"".join(request("POST", PATH, OK_BODY, {"X-Request-Id": f"n{n}"})
                    for n in range(count))


# What a piece of `send` asks for in words: bytes, or an action on the case.
SENDS = {
    "{WAIT 100}": lambda case: case.wait_100(),
    "{OK}": lambda case: OK_BODY,
    "{OK gzipped}": lambda case: GZIPPED,
    "{OK as chunks of 7 bytes}": lambda case: chunks(OK_BODY, 7)[:-len(b"0\r\n\r\n")],
    "{two valid POSTs in one write}": lambda case: case.pipeline(2),
    "{as many valid POSTs as fill the read buffer, in one write}": lambda case: case.pipeline(
        READ_BUFFER_BYTES // len(valid_posts(1)) + 2),
    "{chunks up to limit+1}": lambda case: chunks(b" " * (LIMIT + 1), 65536),
}


class Case:
    """One case while it runs: the connection, what was sent, what came back."""

    def __init__(self, row, server):
        self.row, self.server = row, server
        self.wire = server.connect(30.0)
        self.answers, self.expected_answers = [], 1
        self.waited_s = None
        first = row["send"][0]
        self.method = first.split(" ")[0] if isinstance(first, str) else "POST"
        if self.method not in ("HEAD", "OPTIONS", "GET"):
            self.method = "POST"

    def wait_100(self):
        begun = time.monotonic()
        answer = self.wire.response(skip_100=False)
        self.waited_s = time.monotonic() - begun
        assert answer.status == 100, f"waited for 100, got {answer.status}"
        return b""

    def pipeline(self, count):
        self.expected_answers = count
        return valid_posts(count)

    def piece(self, part, body_bytes):
        if isinstance(part, list):
            return part[0].encode() * part[1]
        if part in SENDS:
            return SENDS[part](self)
        assert not re.fullmatch(r"\{[^\"]+\}", part), f"unknown words: {part}"
        return words(part, body_bytes)

    def send(self):
        body_bytes = sum(len(p[0].encode()) * p[1] if isinstance(p, list) else
                         len(SENDS[p](self) if p in SENDS and p != "{WAIT 100}" else p.encode())
                         for p in self.row["send"][1:])
        for part in self.row["send"]:
            self.wire.send_quietly(self.piece(part, body_bytes))

    def run(self):
        self.begun = time.monotonic()
        self.send()
        for _ in range(self.expected_answers):
            self.answers.append(self.wire.response(self.method))
        self.took_s = time.monotonic() - self.begun

    @property
    def answer(self):
        return self.answers[-1]


def is_problem(case):
    assert case.answer.is_problem(), (case.answer.headers, case.answer.body[:300])
    return True


def names_the_place(case):
    """A person can act on it: a sentence, and a pointer or a position in the text."""
    problem = case.answer.json()
    place = problem.get("pointer") or re.search(r"line|column|byte|offset|empty|body",
                                                problem["detail"])
    return is_problem(case) and bool(place)


def time_is_linear(case):
    def seconds(numbers):
        body = b'{"inputs":{"X":[[[' + b"1," * (numbers - 1) + b"1]]]}"
        begun = time.monotonic()
        assert case.server.ask("POST", PATH, body).status in case.row["expect"]["status"]
        return time.monotonic() - begun
    once = min(seconds(500000) for _ in range(3))
    twice = min(seconds(1000000) for _ in range(3))
    return twice < 3.0 * once + 0.05


def digits_round_trip(case):
    value = case.answer.json()["tensors"]["V"]
    while isinstance(value, list):
        value = value[0]
    return value == 0.1 * 0.30000000000000004


def refused_before_the_body(case):
    return case.took_s < 1.0


def next_on_connection(case):
    case.wire.send(request("GET", "/health/live"))
    return case.wire.response().status == 200


def head_without_body(case):
    time.sleep(0.2)
    case.wire.sock.settimeout(0.2)
    try:
        return not case.wire.rest and not case.wire.more()
    except socket.timeout:
        return case.answer["content-type"] is not None


def all_in_order(case):
    ids = [a["x-request-id"] for a in case.answers]
    return ids == [f"n{n}" for n in range(len(ids))]


def no_body_was_lost(case):
    return case.answer.status == 200 or case.wire.is_closed()


def cors_or_allow(case):
    if case.answer.status == 405:
        return bool(case.answer["allow"])
    return all(case.answer["access-control-allow-" + n] for n in ("origin", "methods", "headers"))


def says_plainly(case):
    if case.answer.status == 200:
        return True
    return is_problem(case) and GZIPPED[:4] not in case.answer.body


# The sentence (its beginning) and how it is seen to hold.
CHECKS = [
    ("error body is JSON and names the place", names_the_place),
    ("server answers the next valid request", lambda c: c.server.works()),
    ("connection closed", lambda c: c.wire.is_closed()),
    ("no crash", lambda c: c.server.process.poll() is None),
    ("no division by zero", lambda c: c.server.process.poll() is None),
    ("allocation sizes computed in 64 bits", is_problem),
    ("output digits round-trip", digits_round_trip),
    ("answered in time linear", time_is_linear),
    ("100 Continue arrives before the body is sent, at once",
     lambda c: c.waited_s is not None and c.waited_s < 1.0),
    ("no hang", lambda c: c.took_s < 5.0),
    ("200, or a clear refusal and the connection closed", no_body_was_lost),
    ("both answered, in order", all_in_order),
    ("none refused as too large", lambda c: all(a.status == 200 for a in c.answers)),
    ("no body bytes; headers as for GET", head_without_body),
    ("next request on the connection is answered", next_on_connection),
    ("405 carries Allow", cors_or_allow),
    ("Allow header", lambda c: bool(c.answer["allow"])),
    ("415 with a plain message", says_plainly),
    ("refused from the header, before the body is read", refused_before_the_body),
    ("JSON error body", is_problem),
    ("the limit holds for chunked bodies too", is_problem),
    ("subnormal is a valid double", lambda c: c.answer.status == 200),
    ("minus zero", lambda c: c.answer.status == 200),
    # the cause, in words: the status and the problem document are what can be seen of it
    ("B=0", lambda c: c.answer.status == 200 or is_problem(c)),
    ("d_model=0", lambda c: c.answer.status == 200 or is_problem(c)),
]


def check_of(sentence):
    """How a sentence is verified; a bare cause is verified as a refusal that is a problem."""
    for beginning, check in CHECKS:
        if sentence.startswith(beginning):
            return check
    return lambda c: c.answer.status < 400 or is_problem(c)


def run_case(row, server):
    """What is wrong, or None."""
    case = Case(row, server)
    try:
        case.run()
        wanted = row["expect"]["status"]
        for answer in case.answers:
            if answer.status not in wanted:
                return f"status {answer.status}, not of {wanted}: {answer.body[:300]!r}"
        for sentence in row["expect"]["checks"]:
            if not check_of(sentence)(case):
                return f"does not hold: {sentence} ({case.answer.status} " \
                       f"{case.answer.body[:300]!r})"
        if not eventually(server.works, 5):
            return "the next valid request is not answered"
    except (AssertionError, EOFError, OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        case.wire.sock.close()
    return None


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: serving_cases.py BINARY FILE")
    with open(sys.argv[2], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    failed = 0
    with Server(sys.argv[1], "--body-max", LIMIT) as server:
        for row in rows:
            wrong = run_case(row, server)
            failed += wrong is not None
            print(f"{'FAIL' if wrong else 'ok  '} {row['id']}" + (f": {wrong}" if wrong else ""))
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main()
