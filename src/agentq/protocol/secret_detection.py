"""Whether a text seems to hold a secret: keys, tokens and passwords have no place in a message.

Each rule is a shape that ordinary prose and code do not have. They are conservative on purpose: a
false alarm stops somebody's work, so task ids, UUIDs, commit hashes, digests, names in code,
templates (`$TOKEN`, `<password>`) and the examples of manuals pass.

Every submitted text is looked at, so clean text must cost next to nothing. First comes one pass
that every secret triggers and most prose does not (`_suspicious`). Then each rule asks for its
prefix, and rules are grouped by a single character that is found faster still. Nothing is
compiled before it is needed, because most commands never need it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

#: A separator, or the A or S of a key without one, then a long run of key characters; an assigned
#: value; a URL with a password; a key file's first line. Each rule below implies one of these.
#: Dots come in rows of hundreds: after one of them nothing but the first is tried.
_SUSPICIOUS = (
    r"[-_:=.AS](?:"
    r"[A-Za-z0-9+/_=-]{14}"
    r"|(?<=[-:=])(?:"
    r"(?<=[:=])[\"'\s]{0,4}(?:[A-Za-z0-9+/_=.~!@#$%^&*-]{12}|[Bb]earer|[Bb]asic|[Tt]oken)"
    r"|(?<=:)//[^\s/@]{0,310}@"
    r"|(?<=-)----BEGIN"
    r"))"
)


class _Rule(NamedTuple):
    """A shape: `regex` after `prefix`. The group `secret`, or the whole match, is the secret."""

    name: str
    prefix: str
    regex: str
    is_secret: Callable[[re.Match[str]], bool]


def _looks_like_a_key(match: re.Match[str]) -> bool:
    key = match.group()
    varied = len(set(key)) >= 8 and (_has_digit(key) or _has_both_cases(key))
    return varied and not _pattern(_STAND_IN).search(key)


def _is_a_real_password(match: re.Match[str]) -> bool:
    user, password = _user_before(match), match["secret"]
    if password == user or password.lower() in _COMMON_STAND_INS:
        return False  # guest:guest, user:password: every manual has them
    return not _pattern(_STAND_IN).search(password)


def _is_authorized(match: re.Match[str]) -> bool:
    return _looks_random(match["secret"])


def _is_assigned_to_a_key_word(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 40) : match.start()].rstrip(" \t\"'").lower()
    return (
        before.endswith(_KEY_WORD_ENDINGS)
        and bool(_pattern(_KEY_WORD).search(before))
        and _looks_random(match["secret"])
    )


def _always(match: re.Match[str]) -> bool:
    return bool(match)


def _keys(name: str, prefixes: str, regex: str) -> tuple[_Rule, ...]:
    """Rules for keys with a prefix of their own, standing apart from other words."""
    return tuple(
        # Looking back after the prefix, not before it, lets the search skip ahead to the prefix.
        # It tells sk-… from task-….
        _Rule(
            name,
            prefix,
            rf"{re.escape(prefix)}(?<![A-Za-z0-9_]{re.escape(prefix)}){regex}(?![A-Za-z0-9])",
            _looks_like_a_key,
        )
        for prefix in prefixes.split()
    )


#: Grouped by a character that each secret of the group contains.
_RULES: dict[str, tuple[_Rule, ...]] = {
    "_": (
        *_keys("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]{36,255}"),
        *_keys("GitHub fine-grained token", "github_pat_", "[A-Za-z0-9_]{40,255}"),
        *_keys("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", "[A-Za-z0-9]{16,255}"),
        *_keys("webhook signing secret", "whsec_", "[A-Za-z0-9+/=]{24,128}"),
        *_keys("agentq token", "agq_", "[A-Za-z0-9_-]{43}"),
        *_keys("npm token", "npm_", "[A-Za-z0-9]{36}"),
        *_keys("Hugging Face token", "hf_", "[A-Za-z0-9]{34,40}"),
        *_keys("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{64}"),
    ),
    "-": (
        _Rule(
            "private key",
            "-----BEGIN ",
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]++|-(?!----))*+-----END [A-Z0-9 ]{0,60}-----"
            # Not possessive: early releases of Python 3.11 would take a space too many. Nothing
            # follows that could fail, so there is nothing to come back for.
            r"|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*)",
            _always,  # its first line says what it is, whatever follows
        ),
        *_keys("age private key", "AGE-SECRET-KEY-1", "[A-Z0-9]{50,100}"),
        *_keys("Anthropic key", "sk-ant-", "[A-Za-z0-9_-]{24,300}"),
        *_keys("OpenAI key", "sk-", "(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,300}"),
        *_keys("OpenAI key", "sk-", "[A-Za-z0-9]{32,128}"),
        *_keys("GitLab token", "glpat-", "[A-Za-z0-9_.-]{20,300}"),
        *_keys("Slack token", "xox", "[abceoprs]-[A-Za-z0-9-]{16,300}"),
        *_keys("Slack app token", "xapp-", "[0-9]-[A-Za-z0-9-]{16,300}"),
        *_keys("Google OAuth secret", "GOCSPX-", "[A-Za-z0-9_-]{28}"),
        *_keys("PyPI token", "pypi-", "[A-Za-z0-9_-]{50,1000}"),
    ),
    "A": (
        *_keys("AWS access key id", "AKIA ASIA", "[A-Z2-7]{16}"),
        *_keys("Google API key", "AIza", "[A-Za-z0-9_-]{35}"),
        _Rule(
            "Telegram bot token",
            ":AA",
            r":AA(?<=[0-9]{8}:AA)(?P<secret>[A-Za-z0-9_-]{33})(?![A-Za-z0-9])",
            _looks_like_a_key,
        ),
    ),
    "S": (
        *_keys("SendGrid key", "SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
        *_keys("Twilio key", "SK", "[0-9a-f]{32}"),
    ),
    ".": (
        *_keys("Slack webhook", "hooks.slack.com", "/services/[A-Za-z0-9/]{24,200}"),
        _Rule(
            "JSON web token",
            "eyJ",
            r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\."
            r"[A-Za-z0-9_-]{16,}+",
            _looks_like_a_key,
        ),
    ),
    ":": (
        _Rule(
            "password in a URL",
            "://",
            r"://[^\s:/@?#\"'<>]{0,100}:(?P<secret>[^\s/@\"'<>{}$\[\]]{3,200})@",
            _is_a_real_password,
        ),
        _Rule(
            "authorization header",
            "uthorization",
            r"uthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?i:bearer|basic|token)\s{1,3}"
            r"(?P<secret>[A-Za-z0-9._~+/=-]{16,})",
            _is_authorized,
        ),
    ),
}

_ASSIGNED = _Rule(
    "assigned password or key",
    "",
    # What it is assigned to is looked up afterwards: assignments are rarer than words. The value is
    # only looked at, not taken, because it may hold an assignment itself: env='PASSWORD=…'.
    r"[:=]=?\s{0,3}[\"']?"
    r"(?=(?P<secret>(?!=)[A-Za-z0-9+/_=.~!@#$%^&*-]{12,200}+)(?![A-Za-z0-9(\[{<]))",
    _is_assigned_to_a_key_word,
)
_KEY_WORD_ENDINGS = ("password", "passwd", "pwd", "phrase", "key", "secret", "token")
_KEY_WORD = (
    r"(?:passw(?:or)?d|passphrase|pwd|(?:api|access|private|secret)[_-]?key"
    r"|secret[_-]access[_-]key|secret|(?:auth|access|refresh|api|bot)[_-]?token)\Z"
)
#: Digests and ids: they have much entropy and give access to nothing.
_HASH_OR_ID = (
    r"(?:sha[0-9]+[:-])?[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24}|[0-9a-fA-F]{56}|[0-9a-fA-F]{88})?"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
#: Words joined by separators, such as settings.db_password_v2, a path, a package with a version;
#: or an attribute of an attribute, such as ed25519.Ed25519PrivateKey.
_NAME_IN_CODE = (
    r"[/~.$%@]{0,2}(?:[A-Za-z]{2,}[0-9]{0,3}[/._-]{1,2})*[A-Za-z]+[0-9]{0,3}"
    r"|[A-Za-z_][A-Za-z0-9_]{0,30}(?:\.[A-Za-z_][A-Za-z0-9_]{0,30})+"
)
_STAND_IN = (
    r"[Ee]xample|EXAMPLE|[Pp]laceholder|PLACEHOLDER|[Cc]hange[_-]?[Mm]e|CHANGE[_-]?ME|[Rr]edacted"
    r"|REDACTED|[Yy]our[_-]|YOUR[_-]|dummy|DUMMY|x{6}|X{6}|\*{3}|\.{3}"
)
_COMMON_STAND_INS = {"pass", "passwd", "password", "pw", "pwd", "secret", "guest", "hidden"}


def may_hold_secret(text: str) -> bool:
    """Whether a text has to be looked at closely; if not, none of its parts holds a secret."""
    return _suspicious()(text) is not None


def find_secret(text: str) -> str | None:
    """Return the name of the first rule that `text` breaks, or None for a clean text."""
    if _suspicious()(text) is None:
        return None
    return next((rule.name for rule, _ in _matches(text)), None)


def redact(text: str) -> str:
    """Return `text` with each secret replaced by `[redacted: rule]`; a clean text comes back."""
    while _suspicious()(text) is not None:
        found = [(*match.span(_secret_group(match)), rule.name) for rule, match in _matches(text)]
        if not found:
            break
        text = "".join(_with_replacements(text, sorted(found)))
        # Once more: a replacement can set free what was glued to it.
    return text


def _with_replacements(text: str, found: list[tuple[int, int, str]]) -> Iterator[str]:
    done = 0
    for start, end, name in found:
        if start >= done:  # otherwise it lies in what was just replaced
            yield f"{text[done:start]}[redacted: {name}]"
        done = max(done, end)
    yield text[done:]


def _matches(text: str) -> Iterator[tuple[_Rule, re.Match[str]]]:
    for rule in _possible_rules(text):
        for match in _pattern(rule.regex).finditer(text):
            if rule.is_secret(match):
                yield rule, match


def _possible_rules(text: str) -> Iterator[_Rule]:
    for character, rules in _RULES.items():
        if character in text:
            yield from [rule for rule in rules if rule.prefix in text]
    lower = text.lower()
    if any(word in lower for word in _KEY_WORD_ENDINGS):
        yield _ASSIGNED


@cache
def _suspicious() -> Callable[[str], re.Match[str] | None]:
    return re.compile(_SUSPICIOUS).search


@cache
def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


def _secret_group(match: re.Match[str]) -> str | int:
    return "secret" if "secret" in match.re.groupindex else 0


def _user_before(match: re.Match[str]) -> str:
    return match.string[match.start() + len("://") : match.start("secret") - len(":")]


def _looks_random(value: str) -> bool:
    """Whether nobody would write this as a word, a name in code, a stand-in, a hash or an id."""
    digits = sum(map(str.isdigit, value))
    if digits in (0, len(value)):
        return False
    if not _has_both_cases(value) and (len(value) < 20 or digits < 4):
        return False
    name = value.rstrip(".,!")
    if _pattern(_HASH_OR_ID).fullmatch(name) or _pattern(_NAME_IN_CODE).fullmatch(name):
        return False
    return _entropy_bits(value) >= 3.0 and not _pattern(_STAND_IN).search(value)


def _has_digit(value: str) -> bool:
    return any(map(str.isdigit, value))


def _has_both_cases(value: str) -> bool:
    return value.lower() != value != value.upper()


def _entropy_bits(value: str) -> float:
    """Shannon entropy per character: repeated words stay below 3, random keys come near 4."""
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())
