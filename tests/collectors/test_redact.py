"""No secret leaves in a bundle, whichever way it came in; what is no secret stays readable."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stallguard.collectors.redact import Redactor, is_secret_name, mark

from . import made_up

SECRET_NAMES = [
    "password", "DB_PASSWORD", "PGPASSWORD", "api_key", "apiKey", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY",
    "auth-token", "authToken", "client_secret", "hf_token", "passphrase", "SESSION_COOKIE", "X-Amz-Signature",
]  # fmt: skip
HARMLESS_NAMES = [
    "epochs", "batch_size", "pin_memory", "tokenizers", "max_tokens", "author", "keyboard", "monkey", "PWD",
    "input_signature", "key", "TOKENIZERS_PARALLELISM", "secretary_count", "compass", "KeyError",
]  # fmt: skip

# Long and odd enough not to be part of any other word here.
secrets = st.text(string.ascii_letters + string.digits + "!#$%*+-./?^_~|", min_size=8, max_size=40).filter(
    lambda text: text[0].isalnum() and text[-1].isalnum()
)
names = st.sampled_from(SECRET_NAMES)
prose = st.text(string.ascii_letters + string.digits + " .,:;()[]{}<>'\"/\\=\n\t-é", max_size=60)


def clean():
    return Redactor({}, (), "/home/ada")


def absent(secret, *texts):
    """Assume that the secret is no part of what surrounds it by chance."""
    assume(all(secret not in text for text in [*texts, "".join(map(mark, ("secret", "known", "url", "token")))]))


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_that_tell_a_secret(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_names_that_only_look_like_it(name):
    assert not is_secret_name(name)


FORMS = {
    "assignment": "{name}={secret}",
    "spaced": "{name} = {secret}",
    "colon": "{name}: {secret}",
    "quoted": "{name}='{secret}'",
    "json": '{{"{name}": "{secret}"}}',
    "repr": "{{'{name}': '{secret}'}}",
    "option": "--{name} {secret}",
    "option with =": "--{name}={secret}",
    "argv as json": '["--{name}", "{secret}", "x"]',
    "escaped json": '"{{\\"{name}\\": \\"{secret}\\"}}"',
    "query": "https://host.example/x?a=1&{name}={secret}&b=2",
    "shell": "export {name}={secret}; python t.py",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@given(name=names, secret=secrets, before=prose, after=prose)
def test_a_value_under_a_telling_name_is_gone_from_any_text(form, name, secret, before, after):
    absent(secret, before, after, form, name)
    announced = clean().text(f"{before}\n{form.format(name=name, secret=secret)}\n{after}")
    assert secret not in announced
    assert "[removed: " in announced  # a secret with the form of a token is called that


@given(user=secrets.filter(lambda text: "/" not in text), secret=secrets, path=secrets)
def test_a_password_in_an_address_is_gone(user, secret, path):
    absent(secret, user, path)
    announced = clean().text(f"cloning https://{user}:{secret}@host.example:8080/{path} now")
    assert secret not in announced
    assert "host.example:8080" in announced


def test_addresses_without_a_password_stay():
    plain = "see https://keras.io/api and http://localhost:6006/#scalars and file:///data/x.h5"
    assert clean().text(plain) == plain


@pytest.mark.parametrize("known_from", ["environment", "arguments"])
@given(secret=secrets, before=prose, after=prose)
def test_a_secret_of_the_environment_or_command_line_is_gone_wherever_it_was_printed(known_from, secret, before, after):
    absent(secret, before, after)
    assume(not secret.startswith("-"))
    redactor = (
        Redactor({"WANDB_API_KEY": secret})
        if known_from == "environment"
        else Redactor({}, ["t.py", "--key-api-key", secret])
    )
    assert secret not in redactor.text(f"{before}{secret}{after}")


@given(values=st.dictionaries(st.text(string.ascii_uppercase + "_", min_size=1, max_size=20), secrets, max_size=8))
def test_only_harmless_variables_show_their_values(values):
    announced = clean().environment(values | {"TF_CPP_MIN_LOG_LEVEL": "3", "MY_OWN_THING": "unguessable"})
    assert announced["TF_CPP_MIN_LOG_LEVEL"] == "3"
    assert announced["MY_OWN_THING"] == mark("variable")
    assert set(values) <= set(announced)


@given(name=names, secret=secrets)
def test_a_secret_name_hides_even_a_harmless_variable(name, secret):
    assert clean().environment({f"TF_{name}": secret})[f"TF_{name}"].startswith("[removed")


@given(name=names, secret=secrets)
def test_arguments_follow_the_same_rules_as_text(name, secret):
    absent(secret, name)
    for words in (["t.py", f"--{name}", secret], ["t.py", f"--{name}={secret}"], ["t.py", f"{name}={secret}"]):
        announced = clean().arguments(words)
        assert secret not in " ".join(announced)
        assert announced[0] == "t.py"
        assert secret not in clean().text(" ".join(words))


@given(name=names, secret=secrets)
def test_values_nested_in_json_follow_them_too(name, secret):
    absent(secret, name, "argvdeep--")
    value = {"argv": ["t.py", f"--{name}", secret], "deep": [{name: secret}, [f"{name}={secret}"]], "n": 3}
    announced = clean().value(value)
    assert secret not in json.dumps(announced)
    assert announced["n"] == 3


MADE = {
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2" * 9,
    "github fine": "github_pat_" + "A1b2" * 10,
    "gitlab": "glpat-" + "x1Y2" * 5,
    "hugging face": "hf_" + "aBcD" * 8,
    "openai": "sk-proj-" + "a1-B" * 8,
    "slack": "xoxb-123456789012-" + "Ab1" * 8,
    "slack hook": "hooks.slack.com/services/T000/B000/XXXX",
    "google": "AIza" + "Sy1_-" * 7,
    "telegram": "123456789:AA" + "h_1-" * 9,
    "npm": "npm_" + "a1B2" * 9,
    "pypi": "pypi-" + "AgEI" * 8,
    "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
}


@pytest.mark.parametrize("token", MADE.values(), ids=MADE.keys())
@pytest.mark.parametrize("around", ["{}", "using {} now", "'{}'", "x={}", "a/{}/b", "({})"])
def test_tokens_of_known_make_are_gone(token, around):
    announced = clean().text(around.format(token))
    assert token not in announced
    assert "[removed: " in announced


@pytest.mark.parametrize(("around", "secret"), made_up.MADE.values(), ids=made_up.MADE.keys())
def test_secrets_of_the_forms_of_detect_secrets_are_gone(around, secret):
    text = around.format(secret)
    for announced in (clean().text(text), json.dumps(clean().value({"line": text, "argv": ["sh", "-c", text]}))):
        assert secret not in announced
        assert not set(secret.split()) & set(announced.split())
        assert "[removed: " in announced


@pytest.mark.parametrize("form", made_up.FORMS.values(), ids=made_up.FORMS.keys())
@pytest.mark.parametrize("name", made_up.KEYWORDS)
def test_each_keyword_of_detect_secrets_tells_a_secret(name, form):
    quoted = '"{secret}"' in form or "'{secret}'" in form or '={secret}"' in form
    for secret in ["hunter2-x", "two words"] if quoted else ["hunter2-x"]:
        announced = clean().text(form.format(name=name, secret=secret))
        assert secret not in announced
        assert "words" not in announced


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        (["curl", "-u", "me:hunter2", "https://host.example"], "hunter2"),
        (["t.py", "-p", "hunter-two"], "hunter-two"),
        (["env", "DB_PASS=two words", "t.py"], "words"),
        (["t.py", "--db-pass=two words"], "words"),
        (["t.py", "--session-id", "two words"], "words"),
    ],
)
def test_arguments_hide_them_whole(words, secret):
    announced = clean().arguments(words)
    assert secret not in " ".join(announced)
    assert announced[0] == words[0]


def test_a_key_of_several_lines_is_gone_from_a_list_of_lines():
    lines = ["before", "-----BEGIN PRIVATE KEY-----", "MIIcut", "-----END PRIVATE KEY-----", "after"]
    assert clean().value(lines) == ["before", mark("key"), "", "", "after"]


@pytest.mark.parametrize("text", made_up.INNOCENT)
def test_ordinary_output_stays(text):
    assert clean().text(text) == text
    assert clean().value([text]) == [text]


def test_headers_keys_and_mail_addresses_are_gone():
    announced = clean().text(
        "Authorization: Basic dXNlcjpwYXNz\nauthorization: Bearer abcdefgh12345\n"
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----\nafter ada@lovelace.example\n"
        "wandb key: 0123456789abcdef0123456789abcdef01234567\n-----BEGIN PRIVATE KEY-----\nMIIcut"
    )
    for secret in ("0123456789abcdef", "dXNlcjpwYXNz", "abcdefgh12345", "MIIEow", "IBAAK", "ada@", "MIIcut"):
        assert secret not in announced
    assert "after" in announced


@given(below=st.text(string.ascii_letters + "/.-_", max_size=30))
def test_home_becomes_a_tilde_and_other_users_are_not_named(below):
    announced = clean().text(f"/home/ada/{below} /Users/grace/{below} /home/adam/x")
    assert "/home/ada/" not in announced
    assert "grace" not in announced
    assert "adam" not in announced
    assert announced.startswith("~/")


@given(text=st.one_of(prose, st.text(max_size=200)), name=names, secret=secrets)
def test_removing_twice_changes_nothing(text, name, secret):
    once = clean().text(f"{text} {name}={secret} https://u:{secret}@h/ {MADE['aws']}")
    assert clean().text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        'File "/usr/lib/python3.11/threading.py", line 327 in wait',
        " 32/100 [=====>.......] - ETA: 3s - loss: 0.3021 - accuracy: 0.9\b\b\r",
        "Epoch 3/20: val_loss improved from 0.41 to 0.39, saving model to best.keras",
        "KeyError: 'loss'; sorted(rows, key=len); tokens: 512 per batch",
        "2026-09-21 15:43:52.602 sample 830 __psynch_cvwait  (in libsystem_kernel.dylib) + 8",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text):
    assert clean().text(text) == text


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_text_pass_unharmed(data):
    announced = clean().data(data)
    if b"[removed" not in announced and b"~" not in announced:
        assert announced == data


def test_a_secret_with_a_name_of_a_thousand_letters_is_removed():
    assert "hunter2" not in clean().text(f"{'layer.' * 160}password=hunter2")


def test_removals_are_counted_by_rule():
    redactor = clean()
    redactor.text("password=a token=b /home/ada/x")
    assert redactor.removed["secret"] == 2
    assert redactor.removed["home"] == 1


@pytest.mark.costly
@pytest.mark.parametrize(
    "flood", ["a" * 400_000, "://a:" * 80_000, "--a " * 100_000, "token=" * 60_000, '\\"' * 200_000, "a-" * 200_000]
)
def test_a_flood_takes_linear_time(flood):
    import time

    began = time.process_time()
    clean().text(flood)
    assert time.process_time() - began < 5
