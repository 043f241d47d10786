"""Prints the addresses of a name as Python tells them."""
import socket
import sys

try:
    for *_, address in socket.getaddrinfo(sys.argv[1], 80, type=socket.SOCK_STREAM):
        print(address[0])
except socket.gaierror as e:
    print(e)
    sys.exit(1)
