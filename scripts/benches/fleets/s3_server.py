"""A local S3 server for a bench, with one bucket."""

from __future__ import annotations

import contextlib
import logging
import os
import urllib.request
from collections.abc import Iterator

NAME = "fleet"
URL = f"s3://{NAME}/lab"  # of a store


@contextlib.contextmanager
def bucket(host: str) -> Iterator[dict[str, str]]:
    """Serve S3 at an address; yield the variables that name it, which this process has too."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{address}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    os.environ.update(found)
    made = urllib.request.Request(f"{found['AWS_ENDPOINT_URL']}/{NAME}", method="PUT")  # noqa: S310 - http alone
    with urllib.request.urlopen(made, timeout=10):  # noqa: S310 - as above
        pass
    try:
        yield found
    finally:
        server.stop()
