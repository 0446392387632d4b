"""What the errors of obstore mean.  It has few classes; what happened is in the text, with S3's answer."""

from __future__ import annotations

import html
import re

LONGEST = 300  # characters of a reason
NO_BUCKET = "<Code>NoSuchBucket</Code>"
_WRONG_REGION = re.compile(
    r"<Code>(?:PermanentRedirect|AuthorizationHeaderMalformed)</Code>|redirect without LOCATION",
    re.IGNORECASE,
)
_DETAILS = "\n\nDebug source:"  # begins the second part of a text: the values in Rust
_S3_SAYS = re.compile(r"<Error>.*?<Message>([^<]+)</Message>", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_SERVER = re.compile(r"Error performing [A-Z]+ (\w+://[^/?\s]+)")
_TIMEOUT = re.compile(r"kind: Timeout\b|\bTimedOut\b")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_SYSTEM_SAYS = re.compile(r'(?:message|error): "([^"]+)"')


def is_missing_bucket(error: BaseException) -> bool:
    """Return whether S3 says that there is no such bucket.  obstore's class is also that of a key that is not there."""
    return NO_BUCKET in str(error)


def is_wrong_region(error: BaseException) -> bool:
    """Return whether S3 says that the bucket is in another region.  Nothing was done then."""
    return bool(_WRONG_REGION.search(str(error)))


def reason(error: BaseException) -> str:
    """Return in a line why a request failed."""
    text, _, details = str(error).partition(_DETAILS)
    if says := _S3_SAYS.search(text):
        found = html.unescape(says[1])
    elif status := _STATUS.search(text):
        found = f"its server answers {status[1].strip()}"
    elif is_wrong_region(error):
        found = "the bucket is in another region than the one that is set"
    elif "HTTP error" in text:
        found = _of_network(text, details)
    elif "No CA certificates" in details:
        found = "this system has no certificates of authorities; name a file of them with AWS_CA_BUNDLE"
    else:
        found = text
    return " ".join(found.split())[:LONGEST] or type(error).__name__


def _of_network(text: str, details: str) -> str:
    server = found[1] if (found := _SERVER.search(text)) else "its server"
    if _TIMEOUT.search(details):
        return f"{server} does not answer in time"
    if refused := _CERTIFICATE.search(details):
        return f"the certificate of {server} is not accepted: {refused[1]}"
    says = _SYSTEM_SAYS.findall(details)
    return f"{server} cannot be reached: {says[-1]}" if says else f"{server} cannot be reached"
