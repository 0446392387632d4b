"""Each recipe of docs/notifications.md works: its address is taken from there, and sent to as a user does."""

from __future__ import annotations

import email
import email.policy
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apprise")
pytest.importorskip("trustme")
pytest.importorskip("aiosmtpd")

import trustme

from tests import command_line
from tests.notify import services

ROOT = Path(__file__).parents[2]
RECIPES = dict(
    re.findall(r"^\| ([\w-]+) \| `(\S+://\S+)` \|", (ROOT / "docs/notifications.md").read_text("utf-8"), re.MULTILINE)
)
EXPECTED = {
    "ntfy": ("ntfy.sh", "/"),
    "Slack": ("hooks.slack.com", "/services/T01ABCDEF/B01ABCDEF/abcdefghijklmnopqrstuvwx"),
    "Discord": ("discord.com", "/api/webhooks/"),
    "Telegram": ("api.telegram.org", "/bot123456789:"),
}
TEXT = "This is a test. No training is concerned."


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def proxy(tmp_path: Path, authority: trustme.CA) -> Iterator[services.Proxy]:
    made = services.Proxy(tmp_path, authority)
    yield made
    made.close()


def notify_test(place: Path, environment: dict[str, str], *urls: str) -> subprocess.CompletedProcess[str]:
    lines = json.dumps(list(urls))
    (place / "stallguard.toml").write_text(f"[notify]\ndesktop = false\nurls = {lines}\n")
    env = os.environ | environment | {"STALLGUARD_HOME": str(place / "kept")}
    return command_line.stallguard("notify", "--test", env=env, cwd=place)


def test_the_document_has_a_recipe_for_each_service() -> None:
    assert set(RECIPES) == {*EXPECTED, "e-mail"}


@pytest.mark.waits
@pytest.mark.parametrize("service", sorted(EXPECTED))
def test_the_recipe_reaches_the_service_and_its_refusal_is_reported(
    service: str, proxy: services.Proxy, tmp_path: Path
) -> None:
    done = notify_test(tmp_path, proxy.environment, RECIPES[service])

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\w+: accepted, in \d+\.\d s\n", done.stdout)
    (request,) = proxy.requests
    assert request.host == EXPECTED[service][0]
    assert request.path.startswith(EXPECTED[service][1])
    assert TEXT in request.body.replace("\\u0020", " ")

    proxy.code, proxy.answer = 403, b'{"ok": false, "description": "Forbidden"}'
    refused = notify_test(tmp_path, proxy.environment, RECIPES[service])

    assert refused.returncode == 1
    assert re.match(r"\w+: failed: .*(403|Forbidden|Unauthorized)", refused.stdout)
    secrets = [part for part in re.split(r"[^\w-]+", RECIPES[service]) if len(part) > 20]
    assert not [secret for secret in secrets if secret in refused.stdout + refused.stderr]


def test_a_mail_arrives_encrypted_and_a_wrong_password_is_a_failure(
    proxy: services.Proxy, authority: trustme.CA, tmp_path: Path
) -> None:
    with services.mail_server(authority, "me@example.com", "app-password") as (port, mails):
        address = RECIPES["e-mail"].replace("smtp.example.com", f"localhost:{port}")
        done = notify_test(tmp_path, proxy.environment, address)
        wrong = notify_test(tmp_path, proxy.environment, address.replace("app-password", "another-one"))

    assert (done.returncode, wrong.returncode) == (0, 1), (done, wrong)
    (mail,) = mails
    parsed = email.message_from_string(mail, policy=email.policy.default)
    assert (parsed["to"], parsed["subject"]) == ("me@example.com", "stallguard: a test")
    assert TEXT in mail
    assert "failed" in wrong.stdout
    assert "another-one" not in wrong.stdout


@pytest.mark.waits
def test_each_address_has_its_own_result(proxy: services.Proxy, tmp_path: Path) -> None:
    done = notify_test(tmp_path, proxy.environment, RECIPES["ntfy"], "ntfy://localhost:1/x", "nonsense://secret-key-1")

    assert done.returncode == 1
    first, second, third = done.stdout.splitlines()
    assert first.startswith("ntfy 1: accepted")
    assert second.startswith("ntfy 2: failed: A Connection error")
    assert third.startswith("nonsense: failed: Apprise does not understand the address")
    assert "secret-key-1" not in done.stdout
