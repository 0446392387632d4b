"""Made-up secrets of each form that detect-secrets knows (keywords and plug-ins), and ordinary output.

None of them was ever valid.  They are put together from parts, so that no scanner of this repository finds them.
"""

from __future__ import annotations

HEX = "0123456789abcdef" * 4
MIXED = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cF" * 3

# What stands around it: {} is the secret.
KEYWORDS = (
    "api_key apikey API_KEY auth_key service_key serviceKey account_key db_key database_key priv_key private_key"
    " client_key clientkey db_pass DB_PASS SMTP_PASS database_pass key_pass keypass password passwd pwd secret"
    " contrasena contraseña ENCRYPTION_KEY session_id sessionid SESSION_ID mysql_pw api_key_2 token access_token"
).split()
FORMS = {
    "=": "{name}={secret}",
    "spaced": "{name} = {secret}",
    ":": "{name}: {secret}",
    ":=": "{name} := {secret}",
    "quoted": '{name}="{secret}"',
    "single": "{name} = '{secret}'",
    "bytes": "{name} = b'{secret}'",
    "json": '{{"{name}": "{secret}"}}',
    "index": 'config["{name}"] = "{secret}"',
    "compared": 'if {name} == "{secret}":',
    "semicolon": '{name} "{secret}";',
    "option": "--{name} {secret}",
    "whole in quotes": '["-e", "{name}={secret}"]',
}
SHAPES = {
    "aws id": "AK" + "IA" + "Q3EGRIPUDXV5TWNC",
    "aws id of another kind": "A3" + "TX" + "Q3EGRIPUDXV5TWNC",
    "azure storage": ("DefaultEndpointsProtocol=https;AccountKey={};EndpointSuffix=core", MIXED[:86] + "=="),
    "aws secret": ('aws_connect(key, "{}")', MIXED[:40]),
    "artifactory": "AK" + "C" + MIXED[:20],
    "artifactory password": "AP" + "B" + MIXED[:20],
    "basic auth": ("https://me:{}@host.example/x", "S3cretOfMine"),
    "cloudant": ("https://account:{}@account.cloudant.com", HEX),
    "cloudant key": ('cloudant_apikey = "{}"', "abcdefghijklmnopqrstuvwx"),
    "discord": "M" + MIXED[:23] + "." + MIXED[3:9] + "." + MIXED[:27],
    "github": "gh" + "s_" + MIXED[:36],
    "gitlab": "gl" + "dt-" + MIXED[:20],
    "gitlab runner": "GR" + "1348941" + MIXED[:20],
    "gitlab trigger": "gl" + "ptt-" + MIXED[:40],
    "ibm iam": ('ibm-cloud-iam_api_key: "{}"', MIXED[:44]),
    "ibm pass": ("iam_pass={}", MIXED[:44]),
    "ibm cos": ("cos_secret_access_key={}", HEX[:48]),
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJub2JvZHkifQ." + MIXED[:43],
    "jwt of two parts": "ey" + "JhbGciOiJub25lIn0." + "eyJzdWIiOiJub2JvZHkifQ==",
    "mailchimp": HEX[:32] + "-us" + "12",
    "npm": ("//registry.example/:_authToken={}", "01234567-89ab-cdef-0123-456789abcdef"),
    "openai": "sk" + "-" + MIXED[:20] + "T3BlbkFJ" + MIXED[:20],
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + MIXED[:80],
    "sendgrid": "S" + "G." + MIXED[:22] + "." + MIXED[:43],
    "slack": "xo" + "xp-" + "123456789012-123456789012-" + HEX[:24],
    "slack hook": "hooks.slack" + ".com/services/T0123ABCD/B0123ABCD/" + MIXED[:24],
    "softlayer": ("sl_api_key={}", HEX),
    "softlayer address": ("http://api.softlayer.com/soap/v3.1/{}", HEX),
    "square": "sq" + "0csp-" + MIXED[:43],
    "stripe": "rk" + "_live_" + MIXED[:24],
    "telegram": "1234567890" + ":" + "B" + MIXED[:34],
    "twilio": "A" + "C" + HEX[:32],
    "twilio key": "S" + "K" + HEX[:32],
    "private key": ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}\n-----END PGP PRIVATE KEY BLOCK-----", MIXED),
    "ssh2": ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", MIXED),
    "putty": ("PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\n{}\nPrivate-MAC: 00", MIXED),
    "curl": ("curl -u me:{} https://host.example/", "hunter2"),
    "curl, long": ("curl --user 'me:{}' https://host.example/", "hunter2"),
    "mysql": ("mysql -u root -p {} base", "hunter-two"),
    "mysql, together": ("mysqldump -u root -p{} base", "hunter2"),
    "docker": ("docker login -p '{}' host.example", "two words"[:3] + "hunter"),
    "of two words": ('DB_PASSWORD="{}" python train.py', "two words of it"),
    "of two words in a list": ("['train.py', '--db-password=two', 'smtp_pass={}']", "words of it"),
}  # fmt: skip
MADE = {name: made if isinstance(made, tuple) else ("printed {} by the script", made) for name, made in SHAPES.items()}

# Ordinary output of a training.
INNOCENT = (
    "loss=0.3 val_loss: 0.41 - accuracy: 0.9123 - lr=3e-4",
    "keyboard=qwerty keypoints: 17 monkey=1 key=lambda x: x, sorted(rows, key=len)",
    "token_count=512 tokens_per_second: 1834 max_tokens=4096 eos_token=2 pad_token: <pad> token_accuracy: 0.71",
    "pass=3 pass: 2 first_pass: 12 ms forward_pass=0.8 backward_pass=1.2",
    "Epoch 3/20 - 12/782 [>.....] - ETA: 41s - loss: 1.0231 - top_5: 0.88",
    "saving to /data/runs/2026/model-0003.keras and C:\\runs\\model.h5",
    "python -u train.py --epochs 3 -b 32; docker run -u 1000:1000 -p 8080:80 -p 6006 image",
    "mkdir -p out && pytest -p no:randomly && ssh -p 2222 host",
    "author=ada compass: north bypass=1 secretary_count=3 passes: 4 passed=3 session: 2",
    "AC power, APPLICATION=train, APACHE_HOME=/opt, SKIP, task-name-that-is-long-enough",
    "2026-11-24 10:00:00 INFO train.py:33 step 12000: grad_norm=0.71 mem=3.2GB",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b of tf-2.18.1, sha256: 9f86d081884c7d659a2feaa0",
    "{'batch_size': 32, 'optimizer': 'adam', 'callbacks': ['early_stopping'], 'seed': 123456789}",
)
