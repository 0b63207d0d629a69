"""Servers and clients of patterns for which no real program was found; the client logs each request.

patterns.py serve PORT [nagle]
patterns.py ask PATTERN ADDRESS PORT LOAD SECONDS LOG
"""
import os
import socket
import struct
import sys
import threading
import time
from collections import deque

SIZE = 64  # bytes of a request and of its answer
WORK = 50_000  # ns
POLL = 0.3  # s
# The first byte of a request says how it is answered.
PLAIN, WORKED, POLLED, NEVER, COUNTED = b"p", b"w", b"l", b"n", b"c"


def nodelay(connection, on):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, on)


def answer(connection, nagle):
    if nagle:
        connection.send(b"a" * (SIZE // 2))
        connection.send(b"b" * (SIZE // 2))
    else:
        connection.send(b"a" * SIZE)


def serve(connection, nagle):
    nodelay(connection, not nagle)
    rest, counted = b"", 0
    while chunk := connection.recv(65536):
        rest += chunk
        whole = len(rest) // SIZE
        for kind in (rest[i * SIZE : i * SIZE + 1] for i in range(whole)):
            if kind in (WORKED, COUNTED):
                until = time.perf_counter_ns() + WORK
                while time.perf_counter_ns() < until:
                    pass
            if kind == POLLED:
                time.sleep(POLL)
            if kind == COUNTED:
                counted += 1
            elif kind != NEVER:
                answer(connection, nagle)
        if counted and whole:
            connection.send(struct.pack("!Q", counted))
        rest = rest[whole * SIZE :]


def listen(port, nagle):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, nagle), daemon=True).start()


def ask(address, kind, window, split, seconds, path):
    """One connection, with so many requests in flight, each in two writes where it is split."""
    connection = socket.create_connection(address)
    nodelay(connection, True)
    end = time.perf_counter_ns() + seconds * 10**9
    request = kind * SIZE
    parts = (request[:16], request[16:]) if split else (request,)
    sent, done, rest, counted = deque(), [], b"", 0
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
    while time.perf_counter_ns() < end:
        while len(sent) < window:
            sent.append(time.perf_counter_ns())
            for part in parts:
                connection.send(part)
        try:
            rest += connection.recv(65536)
        except BlockingIOError:  # the load is over
            break
        at = time.perf_counter_ns()
        if kind == COUNTED:
            acks = len(rest) // 8 * 8
            total = struct.unpack_from("!Q", rest, acks - 8)[0] if acks else counted
            answers, counted, rest = total - counted, total, rest[acks:]
        else:
            answers, rest = len(rest) // SIZE, rest[len(rest) // SIZE * SIZE :]
        for _ in range(answers):
            began = sent.popleft()
            done.append((began, 200, at - began))
    if kind == NEVER:
        done += [(began, -1, time.perf_counter_ns() - began) for began in sent]
    with open(f"{path}.{os.getpid()}", "w") as log:
        log.writelines(f"{began // 1000}\t{status}\t{ns / 1000:.1f}\n" for began, status, ns in done)


def connections(pattern, load):
    """What is asked on each connection: how, with how many in flight, and whether in two writes."""
    return {
        "nagle": [(PLAIN, 1, False)] * load,
        "header-body": [(PLAIN, 1, True)] * load,
        "serial-pipelined": [(WORKED, load, False)],
        "appends": [(COUNTED, load, False)],
        "long-poll": [(POLLED, 1, False)] + [(PLAIN, 1, False)] * load,
        "unanswered": [(NEVER, 1, False), (PLAIN, 1, False)] * (load // 2),
    }[pattern]


if sys.argv[1] == "serve":
    listen(int(sys.argv[2]), "nagle" in sys.argv)
else:
    pattern, host, port, load, seconds, path = sys.argv[2:]
    for one in connections(pattern, int(load)):
        if os.fork() == 0:  # a process each: no lock of Python's between a read and its time
            ask((host, int(port)), *one, int(seconds), path)
            os._exit(0)
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            break
        if status:
            sys.exit(1)
