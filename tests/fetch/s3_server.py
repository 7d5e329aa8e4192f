"""A server that speaks S3 on loopback (moto), in a process of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3

BUCKET = "weights"


class S3Server:
    """A running server; ``environment`` lets a client find it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """Return the vendor's own client, to look at what is there."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )

    def keys(self, prefix: str) -> dict[str, int]:
        """Return every object under a prefix and its size."""
        found = self.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for entry in found.get("Contents", [])}

    def content(self, key: str) -> bytes:
        """Return an object whole."""
        found: bytes = self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return found


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Serve one empty bucket until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": ""},
    )
    try:
        _wait_for(port)
        server = S3Server(port)
        server.client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(port)
