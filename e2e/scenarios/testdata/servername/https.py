"""Requests a URL twice, over one connection, and prints the last answer."""
import sys

import requests

session = requests.Session()
session.get(sys.argv[2], verify=sys.argv[1])
print(session.get(sys.argv[2], verify=sys.argv[1]).text, end="")
