#!/usr/bin/python3
"""Many connections that all ask at the same moment, again and again: none may be left waiting.

usage: run_lockstep.py BINARY
128 connections of one I/O thread are as many events as the HTTP library takes at once,
which once made it sleep on them (server/srv_epoll.c).
"""
import selectors
import sys
import time

from client import Tally
from wire import OK_BODY, Server, request

COUNTS = [64, 127, 128, 129, 256]
ROUNDS, LATE_S = 20, 10


def round_of(wires, message):
    """Everybody sends, then everybody reads; how many were answered in time."""
    for wire in wires:
        wire.send(message)
    waiting = selectors.DefaultSelector()
    for wire in wires:
        waiting.register(wire.sock, selectors.EVENT_READ, wire)
    until, answered = time.monotonic() + LATE_S, 0
    while answered < len(wires) and time.monotonic() < until:
        for key, _ in waiting.select(0.5):
            waiting.unregister(key.fileobj)
            assert key.data.response().status == 200
            answered += 1
    return answered


def lockstep(binary, count):
    with Server(binary, "--io-threads", 1) as server:
        wires = [server.connect() for _ in range(count)]
        for message in (request("POST", "/v1/attention", OK_BODY), request("GET", "/health/live")):
            for turn in range(ROUNDS):
                answered = round_of(wires, message)
                if answered < count:
                    return ["round %d: %d of %d were answered" % (turn, answered, count)]
        for wire in wires:
            wire.sock.close()
    return []


def main():
    tally = Tally()
    for count in COUNTS:
        tally.record("%d connections" % count, lockstep(sys.argv[1], count))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
