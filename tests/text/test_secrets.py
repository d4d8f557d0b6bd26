"""Secrets are found, ordinary text passes, and nothing in this file is or looks like a secret.

Every sample is put together at run time from a prefix and seeded noise.
"""

from __future__ import annotations

import random
import string
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentq.protocol.secret_detection import _matches, find_secret, redact

ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "-_"
HEX = "0123456789abcdef"


def noise(length: int, alphabet: str = ALNUM, *, seed: object = 7) -> str:
    """Characters that look random; the first ones make sure of a digit and of both cases."""
    chance = random.Random(f"{seed}/{length}/{alphabet}")
    sure = [c for c in "7qK" if c in alphabet]
    return "".join(sure + [chance.choice(alphabet) for _ in range(length - len(sure))])


def pem(kind: str, *, seed: int, end: bool = True) -> str:
    fence = "-" * 5
    body = "\n".join(noise(64, ALNUM + "+/", seed=(seed, line)) for line in range(5))
    last = f"\n{fence}END {kind}PRIVATE KEY{fence}" if end else ""
    return f"{fence}BEGIN {kind}PRIVATE KEY{fence}\n{body}{last}"


def samples(seed: int = 7) -> dict[str, tuple[str, str]]:
    """For each kind of secret: the rule that names it, and one made up for this run."""
    some = partial(noise, seed=seed)
    upper = string.ascii_uppercase + "234567"
    return {
        "aws": ("AWS access key id", "AKI" + "A" + some(16, upper)),
        "aws-session": ("AWS access key id", "ASI" + "A" + some(16, upper)),
        **{
            f"github-{letter}": ("GitHub token", f"gh{letter}" + "_" + some(36))
            for letter in "pousr"
        },
        "github-fine": ("GitHub fine-grained token", "github" + "_pat_" + some(82, ALNUM + "_")),
        "gitlab": ("GitLab token", "glpat" + "-" + some(20, URL_SAFE)),
        "anthropic": ("Anthropic key", "sk-" + "ant-api03-" + some(95, URL_SAFE)),
        "openai": ("OpenAI key", "sk" + "-" + some(48)),
        "openai-project": ("OpenAI key", "sk" + "-proj-" + some(120, URL_SAFE)),
        "slack": ("Slack token", "xox" + "b-" + some(12, string.digits) + "-" + some(24)),
        "slack-app": ("Slack app token", "xapp" + "-1-" + some(60)),
        "slack-hook": ("Slack webhook", "https://hooks." + "slack.com/services/T" + some(40)),
        "stripe": ("Stripe key", "sk" + "_live_" + some(24)),
        "stripe-test": ("Stripe key", "rk" + "_test_" + some(24)),
        "webhook": ("webhook signing secret", "whsec" + "_" + some(32)),
        "google": ("Google API key", "AI" + "za" + some(35, URL_SAFE)),
        "google-oauth": ("Google OAuth secret", "GOCSPX" + "-" + some(28, URL_SAFE)),
        "agentq": ("agentq token", "agq" + "_" + some(43)),
        "npm": ("npm token", "npm" + "_" + some(36)),
        "pypi": ("PyPI token", "pypi" + "-" + some(150, URL_SAFE)),
        "hugging-face": ("Hugging Face token", "hf" + "_" + some(34, string.ascii_letters)),
        "telegram": ("Telegram bot token", some(10, string.digits) + ":" + "AA" + some(33)),
        "sendgrid": ("SendGrid key", "SG" + "." + some(22) + "." + some(43)),
        "twilio": ("Twilio key", "S" + "K" + some(32, HEX)),
        "digitalocean": ("DigitalOcean token", "dop" + "_v1_" + some(64, HEX)),
        "age": ("age private key", "AGE-SECRET" + "-KEY-1" + some(58, upper)),
        "jwt": ("JSON web token", f"ey{'J' + some(33)}.ey{'J' + some(60)}.{some(43)}"),
        "pem": ("private key", pem("RSA ", seed=seed)),
        "pem-plain": ("private key", pem("", seed=seed)),
        "pem-cut-off": ("private key", pem("OPENSSH ", seed=seed, end=False)),
        "database": ("password in a URL", "postgresql://agentq:" + some(9) + "@db.internal/queue"),
        "database-weak": ("password in a URL", "redis://:" + "tr0ub4dor" + "@cache:6379/0"),
        "bearer": ("authorization header", "Authorization: Bearer " + some(40)),
        "bearer-json": ("authorization header", '{"authorization": "Bearer ' + some(30) + '"}'),
        "password": ("assigned password or key", "DB_PASSWORD=" + some(18)),
        "password-quoted": ("assigned password or key", '{"password": "' + some(16) + '!"}'),
        "camel-case": ("assigned password or key", 'dbPassword: "' + some(14) + '"'),
        "api-key": ("assigned password or key", "api_key: " + some(32, HEX + "g")),
        "aws-secret": (
            "assigned password or key",
            "aws_secret_access_key = " + some(40, ALNUM + "+/"),
        ),
    }  # fmt: skip


SAMPLES = samples()


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize(
    "around",
    ["{}", "Use {} to call it.", "key='{}'", "line\n{}\nline", "x=1, {}, y=2", "(`{}`)", "{}."],
)  # fmt: skip
def test_every_kind_is_found_and_named(kind: str, around: str) -> None:
    rule, secret = SAMPLES[kind]
    assert find_secret(around.replace("{}", secret)) == rule


@given(st.integers(), st.sampled_from(list(SAMPLES)))
def test_the_first_look_lets_no_secret_through(seed: int, kind: str) -> None:
    rule, secret = samples(seed)[kind]
    assert find_secret(secret) == rule


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_is_redacted(kind: str) -> None:
    rule, secret = SAMPLES[kind]
    redacted = redact(f"before {secret} after {secret} end")
    assert redacted.startswith("before ") and redacted.endswith(" end")
    assert redacted.count(f"[redacted: {rule}]") == 2
    assert find_secret(redacted) is None
    assert all(part not in redacted for part in secret.split() if "7" in part[1:])


def test_only_the_secret_of_a_url_or_an_assignment_is_redacted() -> None:
    password = noise(18)
    assert (
        redact(f"mysql://app:{password}@db/x") == "mysql://app:[redacted: password in a URL]@db/x"
    )
    assert redact(f"PASSWORD={password};") == "PASSWORD=[redacted: assigned password or key];"


def test_what_two_rules_find_is_redacted_once() -> None:
    token = "ghp" + "_" + noise(36)
    assert redact(f"API_TOKEN={token} and more") == "API_TOKEN=[redacted: GitHub token] and more"
    # Also where one finds more than the other.
    inside = redact(f"https://app:{token}.{noise(8)}@host/x")
    assert inside == "https://app:[redacted: GitHub token]@host/x"


def test_all_secrets_of_one_text_are_redacted() -> None:
    text = "\n".join(secret for _, secret in SAMPLES.values())
    redacted = redact(text)
    assert find_secret(redacted) is None
    assert redacted.count("[redacted: ") == len(SAMPLES)


SHA = noise(40, HEX)
DIGEST = noise(64, HEX)
UUID = "-".join(noise(n, HEX) for n in (8, 4, 4, 4, 12))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Review the architecture and identify risks.",
        "Use sk-learn and scikit-learn; the sk-learn-pipeline-for-classification is documented.",
        "password: see vault",
        "password: ask-the-on-call-engineer",
        "The password=<your password> goes into the vault, api_key=$API_KEY too.",
        "password=${DB_PASSWORD} api_key: {{ secrets.API_KEY_PRODUCTION_V2 }}",
        "password = settings.database_password_v2",
        "api_key=os.environ['SERVICE_API_KEY_2']",
        "password=getpass.getpass('password for production db2: ')",
        "private_key = ed25519.Ed25519PrivateKey.generate()",
        "secret: my-kubernetes-secret-v2",
        "token budget: 200000 tokens, max_tokens=4096, tokens_per_minute: 1000000",
        "api_key = ************************",
        "password=CHANGEME_before_Release_1",
        "postgresql://user:password@localhost:5432/db and amqp://guest:guest@localhost/",
        "postgresql://user:$PGPASSWORD@host/db, postgres://user:<password>@host/db",
        "https://example.org/a/b?c=d#e and git@host:group/project.git",
        "file:///shared/tasks/task-123.md",
        "curl -H 'Authorization: Bearer $TOKEN' https://example.org",
        "Authorization: Bearer <the-token-from-the-login-response-1>",
        "AKIA" + "IOSFODNN7" + "EXAMPLE",
        "ghp_" + "x" * 36,
        "sk-" + "ant-" + "x" * 40,
        "AKIA is a prefix, ghp_ is another, and so are glpat- and npm_config_registry.",
        f"commit {SHA} fixes it, digest sha256:{DIGEST}, id {UUID}",
        f"secret={SHA} password: {DIGEST} api_key={UUID}",
        f"idempotency_key={UUID} key={noise(32)}",
        f"task-{noise(12, HEX)} and task-{noise(32, HEX)} and desk-{noise(40, HEX)}",
        f"traceparent: 00-{noise(32, HEX)}-{noise(16, HEX)}-01",
        "-----BEGIN CERTIFICATE-----\n" + noise(64) + "\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "A private key stays on the host. The eyJ prefix marks a web token.",
        "src/agentq/stores/postgres/statements/claim_ready_tasks.sql:120: SELECT",
        "self.assertEqual(parse_duration('1h30m'), 5400)  # see test_what_people_write",
        "x" * 10_000,
        "=" * 10_000,
        "Passwort: siehe Tresor. Le mot de passe : voir le coffre. 密码：见保险库",
    ],
)
def test_ordinary_text_passes_unchanged(text: str) -> None:
    assert find_secret(text) is None
    assert redact(text) == text


def test_our_own_code_passes() -> None:
    sources = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
    assert sources
    assert {path.name: found for path in sources if (found := find_secret(path.read_text()))} == {}


@given(st.text())
@example("-----BEGIN PRIVATE KEY-----" * 3)
@example("://" * 100 + "@")
@example("eyJ" * 1000)
def test_any_text_is_answered_and_redacted_text_is_clean(text: str) -> None:
    redacted = redact(text)
    assert find_secret(redacted) is None
    assert (redacted == text) == (find_secret(text) is None)


@given(
    st.lists(
        st.one_of(
            st.sampled_from([secret for _, secret in SAMPLES.values()]),
            st.text(alphabet="aA0 :=_-./@\"'\n", max_size=8),
        ),
        max_size=6,
    )
)
def test_secrets_glued_to_anything_never_survive_twice(parts: list[str]) -> None:
    text = "".join(parts)
    assert (find_secret(text) is None) == (next(_matches(text), None) is None)
    redacted = redact(text)
    assert find_secret(redacted) is None
    assert redact(redacted) == redacted


@pytest.mark.parametrize(
    "hostile",
    [
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJ",
        "-eyJ",
        "pypi-",
        "a=",
        "a://",
        "password=",
        "sk-",
        "a:",
        "A",
        "://x:",
    ],
)
def test_hostile_repetition_stays_linear(hostile: str) -> None:
    # A quadratic rule would need minutes for these, and the suite's time limit would say so.
    assert len(redact(hostile * (1_000_000 // len(hostile)))) > 0
