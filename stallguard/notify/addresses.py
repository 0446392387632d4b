"""Apprise addresses: one sender each, and the reason why a service did not accept a message.

Apprise is imported (0.1 s, 13 MB) when an address is first used, never in the thread that decides.  It reports a
refusal as False and logs the reason, which is collected from its logger.  An address contains secrets: no text of an
address that Apprise itself does not show leaves this module.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from stallguard.notify.message import Notification

NO_APPRISE = (
    "notify.urls is set and Apprise is not installed: the addresses are not used; "
    "install stallguard from its clone with the extra: uv tool install --force '.[notify]'"
)
LEAST_SECRET = 4  # characters of a part of an address that is removed from a message
KINDS = {"give_up": "failure", "stall": "warning", "restart": "warning", "finish": "success"}  # others: info


def has_apprise() -> bool:
    """Return whether the extra `notify` is installed."""
    try:
        return importlib.util.find_spec("apprise") is not None
    except (ImportError, ValueError):  # a finder of the user's own refuses
        return False


def names(urls: Sequence[str]) -> list[str]:
    """Return a name for each address that shows no secret: its scheme, and its number if there are several."""
    schemes = [url.partition("://")[0] if "://" in url else "address" for url in urls]
    several, seen, found = Counter(schemes), Counter[str](), []
    for scheme in schemes:
        seen[scheme] += 1
        found.append(f"{scheme} {seen[scheme]}" if several[scheme] > 1 else scheme)
    return found


def trouble(url: str) -> str:
    """Return why nothing can be sent to an address; "" if its form is right."""
    if _service(url) is not None:
        return ""
    return (
        "Apprise does not understand the address: https://appriseit.com/services describes the form of each"
    )


def unusable(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the addresses that Apprise does not understand."""
    return tuple(name for name, url in zip(names(urls), urls, strict=True) if trouble(url))


def refuse(_told: Notification) -> None:
    """Send nothing, for want of Apprise.  Raises OSError."""
    raise OSError(NO_APPRISE)


def sender(url: str) -> Callable[[Notification], None]:
    """Return a sender for an address.  It raises OSError with what Apprise says if the message is not accepted."""

    def send(note: Notification) -> None:
        import logging

        import apprise

        from stallguard.notify.apprise_warnings import NewestWarning

        service, reasons = _service(url), NewestWarning()
        if service is None:
            raise OSError(trouble(url))
        logger = logging.getLogger("apprise")
        logger.addHandler(reasons)
        try:
            kind = apprise.NotifyType(KINDS.get(note.event, "info"))
            accepted = service.notify(title=note.title, body=note.text, notify_type=kind)
        finally:
            logger.removeHandler(reasons)
        if not accepted:
            raise OSError(without_secrets(reasons.text or "the service did not accept it", url, service))

    return send


@cache
def _service(url: str) -> Any:
    """Return Apprise's object for an address, None if it does not understand it."""
    import apprise

    asset = apprise.AppriseAsset(app_id="stallguard", app_desc="stallguard", app_url="")
    try:
        return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    except ValueError:  # before version 2 of Apprise, of urllib: "Invalid IPv6 URL"
        return None


def without_secrets(text: str, url: str, service: Any) -> str:
    """Return `text` without the parts of an address that Apprise hides when it shows the address."""
    shown = service.url(privacy=True)
    parts = {part for part in re.split(r"[^\w.-]+", url) if len(part) >= LEAST_SECRET and part not in shown}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "***")
    return text
