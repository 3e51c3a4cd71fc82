"""A client that asks a web server on this host at random moments. Ends when it is killed.

python bench/detect/paced_requests.py PORT REQUESTS_PER_SECOND
"""

import http.client
import random
import sys
import time


def main() -> None:
    """Ask."""
    port, rate = int(sys.argv[1]), float(sys.argv[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while True:
        time.sleep(random.expovariate(rate))
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()  # servers end connections after so many requests


if __name__ == "__main__":
    main()
