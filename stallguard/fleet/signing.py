"""Signs what members of a fleet order, so that a store can only pass orders on, never give any.

Who can write to the store's folder or bucket could else start a program on each machine.  The signature is HMAC-SHA-256
(RFC 2104) with the fleet's token over the kind and the content.  An order names its job, so it cannot be moved to
another one; an old order that is put back is refused by the log of its job, which is never removed.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.records import Damaged


class _Signed(msgspec.Struct, frozen=True):
    content: str
    signature: str


def proof(token: str, fleet: str) -> str:
    """Return what only a member can compute of its fleet's name: a store's card has it, so another token is noticed."""
    return _signature(token, "fleet", fleet.encode())


def sign(token: str, kind: str, content: bytes) -> bytes:
    """Return `content` (JSON) with its signature.  `kind`: what it is: no order passes for another kind."""
    return jsontext.exact(_Signed(content.decode("ascii"), _signature(token, kind, content)))


def verified(token: str, kind: str, data: bytes) -> bytes:
    """Return the content that `sign` was given.  Raises Damaged."""
    try:
        found = jsontext.decode(data, _Signed)
        content = found.content.encode("ascii")
    except UNREADABLE as error:
        raise Damaged(f"it is not a signed order: {error}") from error
    if not hmac.compare_digest(_signature(token, kind, content), found.signature):
        raise Damaged("its signature is not of this fleet: its token is another, or it was changed")
    return content


def _signature(token: str, kind: str, content: bytes) -> str:
    return hmac.new(bytes.fromhex(token), kind.encode() + b"\0" + content, hashlib.sha256).hexdigest()
