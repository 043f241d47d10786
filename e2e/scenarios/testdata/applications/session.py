"""Requests each URL of its input with one requests.Session, which keeps connections."""
import sys

import requests

session = requests.Session()
for line in sys.stdin:
    try:
        print("ok", session.get(line.strip(), timeout=60).text, flush=True)
    except requests.RequestException as e:
        print("failed", e, flush=True)
