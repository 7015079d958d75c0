"""An S3-compatible server on loopback: who may use it, and how it is looked into without mooring's help."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ACCESS, SECRET = "AKIATESTINGTESTING", "secret-of-the-analyst"
BUCKETS = ("ward", "elsewhere", "dask")


def settings(port: int) -> dict[str, str]:
    """The analyst's, as variables of the environment; they lead to the server at this port."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def moto() -> Iterator[int]:
    """The server, with empty buckets; its port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        for bucket in BUCKETS:
            asked(port, "PUT", f"/{bucket}")
        yield port
    finally:
        server.stop()


def asked(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Ask the server something that needs no credentials."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body=body)
    answer = connection.getresponse()
    response = answer.status, answer.read()
    connection.close()
    return response


@contextmanager
def amazons_own(port: int) -> Iterator[Any]:
    """A client that is none of ours."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
    )
    yield client
    client.close()
