"""Requests each URL of its input on a pool's connection, as pools of databases do: it checks
the connection first, and connects again, by the name, if it is gone."""
import select
import socket
import sys
from urllib.parse import urlsplit

pool = {}


def connection(at):
    c = pool.pop(at, None)
    if c and select.select([c], [], [], 0)[0]:  # the server has closed it
        c.close()
        c = None
    return c or socket.create_connection((at.hostname, at.port), timeout=60)


def ask(at):
    c = connection(at)
    c.sendall(f"GET / HTTP/1.1\r\nHost: {at.hostname}\r\n\r\n".encode())
    head, _, body = c.recv(65536).partition(b"\r\n\r\n")
    if b"200 OK" not in head:
        raise OSError(head)
    pool[at] = c
    return body.decode()


for line in sys.stdin:
    try:
        print("ok", ask(urlsplit(line.strip())), flush=True)
    except OSError as e:
        print("failed", e, flush=True)
