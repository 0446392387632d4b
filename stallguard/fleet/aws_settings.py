"""Writes what other programs for S3 would use for a bucket: `python -m stallguard.fleet.aws_settings BUCKET`.

botocore knows all places: profiles, SSO, roles, programs that give credentials, instances, endpoints of partitions.  It
takes 40 MB, so it is imported here, in a process that ends (bucket_access.py), and never in one that waits for jobs.
The credentials go to standard output, which is a pipe to the process that asks: neither to arguments nor to a file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

CONNECT, READ = 5, 10  # s, of a request for the region of a bucket
FIND_REGION = "--find-region"
ANY_REGION = "aws-global"  # botocore's name for "none was named"; such requests are signed for us-east-1


def main(bucket: str, *options: str) -> int:
    """Write the settings as JSON, or the error; 1 if there is one."""
    try:
        found = settings(bucket, find_region=FIND_REGION in options)
    except ImportError as error:
        found = {"missing": error.name or str(error)}
    except EOFError:  # this process has no terminal: that of a service has none either
        found = {"error": "its profile asks for a code (mfa_serial), which cannot be entered here"}
    except Exception as error:  # noqa: BLE001 - each kind of botocore, and of the programs that it runs
        found = {"error": " ".join(str(error).split()) or type(error).__name__}
    sys.stdout.write(json.dumps(found))
    return int("endpoint" not in found)


def settings(bucket: str, *, find_region: bool) -> dict[str, Any]:
    """Return credentials, region and address of a bucket.  Raises what botocore raises.

    `find_region`: ask S3 in which region the bucket is, because the one that is set is wrong.
    """
    import botocore.session

    session = botocore.session.get_session()
    credentials = session.get_credentials()
    if credentials is None:
        raise ValueError("there are no credentials: no profile, no variables, no role of this machine")
    keys = credentials.get_frozen_credentials()
    region = session.get_config_variable("region") or os.environ.get("AWS_REGION")
    if find_region:
        region = _region_of(session, bucket, region) or region
    url, region = _address(session, bucket, region)
    # As `aws configure export-credentials` reads it: there is no public name for it.
    expires = getattr(credentials, "_expiry_time", None)
    verify = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return {
        "key": keys.access_key,
        "secret": keys.secret_key,
        "token": keys.token,
        "expires": expires.timestamp() if expires else None,
        "region": region,
        "ca_bundle": verify or None,
        **_endpoint(url, bucket),
    }


def _endpoint(url: str, bucket: str) -> dict[str, Any]:
    """Return the address without the bucket if it is in the path, and whether it is in the host's name."""
    parts = urlsplit(url)
    server, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    in_path = path == f"/{bucket}" or path.endswith(f"/{bucket}")
    return {
        "endpoint": server + (path.removesuffix(f"/{bucket}") if in_path else path),
        "is_in_host": not in_path,
    }


def _address(session: Any, bucket: str, region: str | None) -> tuple[str, str]:
    """Return the URL to which botocore would send a request for a bucket, without sending it, and the region."""
    from botocore import UNSIGNED
    from botocore.awsrequest import AWSResponse
    from botocore.config import Config

    client = session.create_client("s3", region_name=region, config=Config(signature_version=UNSIGNED))
    urls: list[str] = []

    def answer(request: Any, **_: object) -> Any:
        urls.append(request.url)
        return AWSResponse(request.url, 200, {}, _NoBody())

    client.meta.events.register("before-send.s3.HeadBucket", answer)
    client.head_bucket(Bucket=bucket)
    named = client.meta.region_name
    return urls[0], "us-east-1" if named in (None, ANY_REGION) else named


class _NoBody:
    """What botocore reads as the body of an answer."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield nothing."""
        yield b""


def _region_of(session: Any, bucket: str, region: str | None) -> str | None:
    """Ask S3 in which region a bucket is; None if it does not say."""
    from botocore.config import Config
    from botocore.exceptions import ClientError

    tries = {"total_max_attempts": 2}
    config = Config(connect_timeout=CONNECT, read_timeout=READ, retries=tries)
    client = session.create_client("s3", region_name=region, config=config)
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as error:  # S3 names the region also to who must not read the bucket
        answer = error.response
    found = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("x-amz-bucket-region")
    return str(found) if found else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
