"""An application of 16 connections to Redis that do not ask for TCP_NODELAY, and are used all the time. It writes how
many have it whenever that changes: seconds since the machine's start, and the number."""
import socket
import time

connections = [socket.create_connection(("127.0.0.1", 6379)) for _ in range(16)]
before = None
with open("/run/nodelay", "w", buffering=1) as told:
    while True:
        for connection in connections:
            connection.sendall(b"PING\r\n")
            assert connection.recv(16) == b"+PONG\r\n"
        now = sum(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for c in connections)
        if now != before:
            told.write(f"{time.monotonic():.3f} {now}\n")
            before = now
        time.sleep(0.005)
