"""A bucket is reached as by every program for S3, and its credentials are renewed; secrets stay in memory."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("obstore")
pytest.importorskip("botocore")

from stallguard.errors import StallguardError
from stallguard.fleet.store import StoreError, bucket_access
from stallguard.fleet.store.bucket_access import EARLY, PAUSE, Access, BucketAccess, from_variables
from stallguard.fleet.store.opening import open_store
from stallguard.worker import living
from tests.fleet.scripted_s3 import MADE, credentials, refusal, serving

# Of botocore on Python 3.12 and later.
pytestmark = pytest.mark.filterwarnings("ignore:datetime:DeprecationWarning")
ROOT = Path(__file__).parents[3]
ASKS_FOR_A_CODE = """
[default]
role_arn = arn:aws:iam::123456789012:role/lab
source_profile = base
mfa_serial = arn:aws:iam::123456789012:mfa/me
[profile base]
aws_access_key_id = AKIDBASE
aws_secret_access_key = s3cr3t
"""
FIXED = {"AWS_ACCESS_KEY_ID": "AKIDFIXED", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home, in which no setting for S3 is left."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def in_process(monkeypatch):
    """Ask botocore in this process, for what is done with its answer; others start the process that asks."""

    def asked(bucket, options=()):
        try:
            found = bucket_access.settings(bucket, find_region=bucket_access.FIND_REGION in options)
        except Exception as error:
            raise StoreError(f"s3://{bucket}: {' '.join(str(error).split())}") from error
        return msgspec.convert(found, Access)

    monkeypatch.setattr(bucket_access, "asked", asked)


in_this_process = pytest.mark.usefixtures("in_process")


@pytest.fixture
def server():
    """Yield a server that takes what is written."""
    with serving(MADE) as found:
        yield found


def variables(monkeypatch, **named):
    for name, value in named.items():
        monkeypatch.setenv(name, value)


def signer(server):
    """Return the access key and the region with which the last request was signed."""
    return re.search(r"Credential=(\w+)/\d+/([\w-]+)/s3/", server.headers[-1]["authorization"]).groups()


def program(home, seconds, key="AKIDPROGRAM"):
    """Return a command that gives credentials, and the file in which it writes that it was asked."""
    asked, script = home / "asked", home / "give.py"
    script.write_text(
        "import datetime, json, pathlib, os\n"
        f"with open({str(asked)!r}, 'a') as file:\n"
        "    file.write(pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text().replace(chr(0), ' ') + chr(10)\n"
        "               if os.path.exists('/proc') else chr(10))\n"
        f"end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds={seconds})\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId={key!r}, SecretAccessKey='s3cr3t', SessionToken='t0k3n',\n"
        "                       Expiration=end.isoformat())))\n"
    )
    return f"{sys.executable} {script}", asked


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_variables_name_credentials_region_and_address(home, server, monkeypatch, name):
    (home / ".aws").rmdir()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    variables(monkeypatch, **FIXED, AWS_DEFAULT_REGION="eu-west-1", AWS_SESSION_TOKEN="t0k3n", **{name: server.url})
    monkeypatch.setattr(bucket_access, "asked", lambda *_: pytest.fail("a process was started"))
    open_store("s3://bucket/lab").replace("k", b"1")
    assert server.requests == ["PUT /bucket/lab/k"]
    assert signer(server) == ("AKIDFIXED", "eu-west-1")
    assert server.headers[-1]["x-amz-security-token"] == "t0k3n"


@pytest.mark.costly
def test_the_address_of_s3_goes_before_that_of_all_services(home, server, monkeypatch):
    variables(monkeypatch, **FIXED, AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_ENDPOINT_URL_S3=server.url)
    open_store("s3://bucket/lab").replace("k", b"1")
    (home / ".aws").rmdir()
    open_store("s3://bucket/lab").replace("k", b"1")
    assert len(server.requests) == 2


@in_this_process
def test_a_profile_names_credentials_region_and_address(home, server, monkeypatch):
    (home / ".aws/config").write_text(f"[profile lab]\nregion = ap-south-1\nendpoint_url = {server.url}\n")
    (home / ".aws/credentials").write_text("[lab]\naws_access_key_id = AKIDLAB\naws_secret_access_key = s3cr3t\n")
    variables(monkeypatch, AWS_PROFILE="lab")
    open_store("s3://bucket/lab").replace("k", b"1")
    assert signer(server) == ("AKIDLAB", "ap-south-1")
    assert "x-amz-security-token" not in server.headers[-1]


@in_this_process
def test_files_of_other_names_are_read(home, server, monkeypatch):
    (home / "c").write_text(f"[default]\nservices = own\n[services own]\ns3 =\n  endpoint_url = {server.url}\n")
    (home / "s").write_text("[default]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = s3cr3t\n")
    variables(monkeypatch, AWS_CONFIG_FILE=str(home / "c"), AWS_SHARED_CREDENTIALS_FILE=str(home / "s"))
    open_store("s3://bucket/lab").replace("k", b"1")
    assert signer(server) == ("AKIDOTHER", "us-east-1")


@in_this_process
def test_variables_of_obstore_that_other_programs_do_not_know_change_nothing(home, server, monkeypatch):
    variables(monkeypatch, **FIXED, AWS_ENDPOINT_URL=server.url, AWS_SKIP_SIGNATURE="true", AWS_BUCKET="other")
    variables(monkeypatch, AWS_CONDITIONAL_PUT="disabled", AWS_VIRTUAL_HOSTED_STYLE_REQUEST="true")
    assert open_store("s3://bucket/lab").create("k", b"1")
    assert server.requests == ["PUT /bucket/lab/k"]
    assert signer(server) == ("AKIDFIXED", "us-east-1")
    assert server.headers[-1]["if-none-match"] == "*"


@pytest.mark.costly
def test_the_role_of_a_machine_gives_credentials(home, server, monkeypatch):
    with serving(credentials("AKIDROLE", 3600)) as role:
        full = role.url.replace("localhost", "127.0.0.1") + "/role"
        variables(monkeypatch, AWS_CONTAINER_CREDENTIALS_FULL_URI=full, AWS_ENDPOINT_URL=server.url)
        store = open_store("s3://bucket/lab")
        for _ in range(3):
            store.replace("k", b"1")
        assert role.requests == ["GET /role"]
    assert signer(server) == ("AKIDROLE", "us-east-1")
    assert server.headers[-1]["x-amz-security-token"] == "t0k3n"


@in_this_process
def test_a_role_of_another_profile_is_assumed(home, server, s3_server, monkeypatch):
    """The server of the tests has roles too."""
    (home / ".aws/config").write_text(
        f"[profile lab]\nrole_arn = arn:aws:iam::123456789012:role/lab\nsource_profile = base\nregion = us-east-1\n"
        f"services = own\n[services own]\ns3 =\n  endpoint_url = {server.url}\n"
        f"sts =\n  endpoint_url = {s3_server['AWS_ENDPOINT_URL']}\n"
    )
    (home / ".aws/credentials").write_text("[base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s3cr3t\n")
    variables(monkeypatch, AWS_PROFILE="lab")
    open_store("s3://bucket/lab").replace("k", b"1")
    assert signer(server)[0].startswith("ASIA")
    assert server.headers[-1]["x-amz-security-token"]


@pytest.mark.costly
@in_this_process
@pytest.mark.parametrize(
    ("named", "endpoint", "is_in_host"),
    [
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "https://bucket.s3.eu-west-1.amazonaws.com", True),
        ({"AWS_REGION": "eu-west-1"}, "https://bucket.s3.eu-west-1.amazonaws.com", True),
        ({"AWS_DEFAULT_REGION": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn", True),
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
         "https://bucket.s3.dualstack.eu-west-1.amazonaws.com", True),
        ({"AWS_ENDPOINT_URL": "http://minio:9000/base"}, "http://minio:9000/base", False),
    ],
    ids=["region", "its other name", "another partition", "dualstack", "own server"],
)  # fmt: skip
def test_the_address_is_that_to_which_botocore_would_send(home, monkeypatch, named, endpoint, is_in_host):
    variables(monkeypatch, **FIXED, **named)
    found = bucket_access.asked("bucket")
    assert (found.endpoint, found.is_in_host) == (endpoint, is_in_host)


@pytest.mark.costly
@in_this_process
def test_a_bucket_of_another_region_is_found_there(home, monkeypatch):
    """S3 refuses a request that is signed for another region, and says which one it has to be."""

    def answer(method, path, _):
        if "/us-east-1/s3/" in server.headers[-1]["authorization"]:
            return refusal("PermanentRedirect", "wrong", 301, **{"x-amz-bucket-region": "eu-west-1"})
        if method == "HEAD":  # it can write, and not list
            return refusal("AccessDenied", "Access Denied", 403, **{"x-amz-bucket-region": "eu-west-1"})
        return MADE

    with serving(answer) as server:
        variables(monkeypatch, **FIXED, AWS_ENDPOINT_URL=server.url)
        store = open_store("s3://bucket/lab")
        store.replace("k", b"1")
        assert signer(server) == ("AKIDFIXED", "eu-west-1")
        server.requests.clear()
        assert store.create("k2", b"1")
        assert server.requests == ["PUT /bucket/lab/k2"]  # it is not asked for again


@pytest.mark.costly
@in_this_process
def test_a_certificate_of_an_own_authority_is_accepted_if_its_file_is_named(home, monkeypatch):
    trustme = pytest.importorskip("trustme")
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(str(home / "ca.pem"))
    with serving(MADE, tls) as server:
        variables(monkeypatch, **FIXED, AWS_ENDPOINT_URL=server.url)
        with pytest.raises(StoreError, match=f"the certificate of {server.url} is not accepted: UnknownIssuer"):
            open_store("s3://bucket/lab").replace("k", b"1")
        variables(monkeypatch, AWS_CA_BUNDLE=str(home / "ca.pem"))
        open_store("s3://bucket/lab").replace("k", b"1")
        monkeypatch.delenv("AWS_CA_BUNDLE")
        (home / ".aws/config").write_text(f"[default]\nca_bundle = {home / 'ca.pem'}\n")
        open_store("s3://bucket/lab").replace("k", b"1")
        assert len(server.requests) == 2
        variables(monkeypatch, AWS_CA_BUNDLE=str(home / "absent.pem"))
        with pytest.raises(StoreError, match=r"absent\.pem"):
            open_store("s3://bucket/lab").replace("k", b"1")


@pytest.mark.costly
def test_a_proxy_that_variables_name_is_used(home, server, monkeypatch):
    variables(monkeypatch, **FIXED, AWS_ENDPOINT_URL="http://bucket.example", HTTP_PROXY=server.url)
    variables(monkeypatch, http_proxy=server.url)
    open_store("s3://bucket/lab").replace("k", b"1")
    assert server.requests == ["PUT http://bucket.example/bucket/lab/k"]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.costly
@in_this_process
def test_credentials_are_asked_for_again_before_they_end_and_not_before(home):
    command, asked = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    clock = [time.time()]
    access = BucketAccess("bucket", os.environ, lambda: clock[0])
    first = access.current()
    clock[0] += 3600 - EARLY - 60
    assert access.current() is first
    assert len(asked.read_text().splitlines()) == 1
    program(home, 9000, "AKIDNEXT")
    clock[0] += 120
    until(lambda: access.current().key == "AKIDNEXT")
    assert len(asked.read_text().splitlines()) == 2


@pytest.mark.costly
@in_this_process
def test_no_request_waits_for_new_credentials_while_the_old_ones_are_valid(home):
    command, asked = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    clock = [time.time()]
    access = BucketAccess("bucket", os.environ, lambda: clock[0])
    program(home, 9000, "AKIDNEXT")
    script, gate = home / "give.py", home / "gate"
    waits = f"import time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.02)\n"
    script.write_text(script.read_text().replace("end =", f"{waits}end ="))
    clock[0] += 3600 - EARLY + 60
    assert access.current().key == "AKIDPROGRAM"
    until(lambda: len(asked.read_text().splitlines()) == 2)
    assert access.current().key == "AKIDPROGRAM"
    gate.touch()
    until(lambda: access.current().key == "AKIDNEXT")
    assert len(asked.read_text().splitlines()) == 2


@in_this_process
def test_credentials_that_have_ended_are_waited_for(home):
    """As after a night in which the machine slept."""
    command, _ = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    clock = [time.time()]
    access = BucketAccess("bucket", os.environ, lambda: clock[0])
    program(home, 9000, "AKIDNEXT")
    clock[0] += 3700
    assert access.current().key == "AKIDNEXT"


@pytest.mark.costly
@in_this_process
def test_credentials_that_live_for_a_short_time_are_not_asked_for_with_each_request(home):
    command, asked = program(home, 60)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    clock = [time.time()]
    access = BucketAccess("bucket", os.environ, lambda: clock[0])
    before = asked.read_text()
    for _ in range(29):
        clock[0] += 1
        access.current()
    assert not [one for one in living() if one.name == "credentials"]
    assert asked.read_text() == before
    clock[0] += 5
    access.current()
    until(lambda: asked.read_text() != before)


@pytest.mark.costly
@in_this_process
def test_the_old_credentials_hold_while_no_new_ones_are_given_and_then_the_reason_is_said(home):
    command, asked = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    clock = [time.time()]
    access = BucketAccess("bucket", os.environ, lambda: clock[0])
    (home / "give.py").write_text("import sys\nsys.exit('log in again')")
    clock[0] += 3600 - EARLY + 60
    assert access.current().key == "AKIDPROGRAM"
    clock[0] += EARLY
    with pytest.raises(StoreError, match=r"s3://bucket: .*log in again"):
        access.current()
    program(home, 9000)
    clock[0] += PAUSE / 2
    with pytest.raises(StoreError, match="log in again"):  # it is not asked with each request
        access.current()
    clock[0] += PAUSE
    assert access.current().key == "AKIDPROGRAM"
    assert len(asked.read_text().splitlines()) == 2


@pytest.mark.costly
@in_this_process
def test_a_store_writes_with_the_new_credentials(home, server, monkeypatch):
    command, _ = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\nendpoint_url = {server.url}\n")
    store = open_store("s3://bucket/lab")
    store.replace("k", b"1")
    program(home, 9000, "AKIDNEXT")
    clock = time.time() + 3600
    store._access._now = lambda: clock
    store.replace("k", b"1")
    assert signer(server)[0] == "AKIDNEXT"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("", "there are no credentials"),
        ("[default]\ncredential_process = /bin/false\n", "s3://bucket: "),
        ("[default\n", "s3://bucket: .*config"),
        (ASKS_FOR_A_CODE, "asks for a code"),
    ],
    ids=["none", "a program that fails", "a damaged file", "a code"],
)
def test_credentials_that_are_missing_are_one_clear_error(home, config, says):
    (home / ".aws/config").write_text(config)
    with pytest.raises(StoreError, match=says):
        open_store("s3://bucket/lab")


def test_a_profile_that_does_not_exist_is_named(home, monkeypatch):
    variables(monkeypatch, AWS_PROFILE="absent")
    with pytest.raises(StoreError, match=r"profile \(absent\) could not be found"):
        open_store("s3://bucket/lab")


def test_a_program_that_gives_no_answer_costs_a_limited_time(home, monkeypatch):
    (home / ".aws/config").write_text("[default]\ncredential_process = /bin/sleep 60\n")
    monkeypatch.setattr(bucket_access, "LIMIT", 2.0)
    began = time.monotonic()
    with pytest.raises(StoreError, match="credentials are not given within 2 s"):
        open_store("s3://bucket/lab")
    assert time.monotonic() - began < 20


def test_a_missing_package_for_credentials_is_named_with_the_extra(home, monkeypatch):
    (home / "hide" / "botocore").mkdir(parents=True)
    (home / "hide" / "botocore" / "__init__.py").write_text("raise ModuleNotFoundError('x', name='botocore')")
    monkeypatch.setenv("PYTHONPATH", f"{home / 'hide'}:{ROOT}")
    with pytest.raises(StallguardError, match="needs a package that is missing: botocore") as raised:
        open_store("s3://bucket/lab")
    assert "stallguard-train[fleet]" in raised.value.cure


@pytest.mark.costly
def test_secrets_are_in_no_argument_and_no_text(home, server):
    command, asked = program(home, 3600)
    (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\nendpoint_url = {server.url}\n")
    store = open_store("s3://bucket/lab")
    server.answer = refusal("AccessDenied", "Access Denied")
    with pytest.raises(StoreError) as raised:
        store.replace("k", b"1")
    said = [repr(store._access.current()), str(raised.value), repr(raised.value.__cause__), asked.read_text()]
    if Path("/proc").exists():
        assert bucket_access.__name__ in said[-1]  # the arguments of the process that asks
    assert not [text for text in said if "s3cr3t" in text or "t0k3n" in text]


@pytest.mark.costly
def test_what_waits_has_not_imported_what_asks_for_credentials(home, server):
    (home / ".aws/credentials").write_text("[default]\naws_access_key_id = AKIDLAB\naws_secret_access_key = s3cr3t\n")
    code = (
        "import sys; from stallguard.fleet.store.opening import open_store;"
        "open_store('s3://bucket/lab').replace('k', b'1');"
        "print([name for name in sys.modules if name.partition('.')[0] in ('botocore', 's3fs', 'aiohttp')])"
    )
    env = {**os.environ, "AWS_ENDPOINT_URL": server.url}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
    assert signer(server) == ("AKIDLAB", "us-east-1")


@pytest.mark.costly
def test_the_answer_has_what_an_access_needs(home, monkeypatch):
    variables(monkeypatch, **FIXED)
    done = subprocess.run(
        [sys.executable, "-m", bucket_access.__name__, "bucket"], capture_output=True, text=True, check=True
    )
    assert {*json.loads(done.stdout)} == {*Access.__struct_fields__}


@pytest.mark.parametrize("without", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"])
def test_variables_alone_are_enough_only_if_all_are_there(tmp_path, without):
    env = {**FIXED, "AWS_ENDPOINT_URL": "http://minio:9000", "HOME": str(tmp_path)}
    assert from_variables(env)
    assert from_variables({name: value for name, value in env.items() if name != without}) is None
    assert from_variables({**env, "AWS_PROFILE": "lab"}) is None
    (tmp_path / ".aws").mkdir()
    assert from_variables(env) is None
