"""Notices through Apprise: Telegram, Slack, mail, and a hundred others, each by an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentq.core.errors import Invalid, Unavailable
from agentq.plugins.hooks import Notice, hookimpl
from agentq.plugins.notice_text import body_of, subject_of

if TYPE_CHECKING:
    import apprise

_WORST = ("info", "warning", "urgent")


class NoticeService:
    """One service that Apprise knows."""

    def __init__(self, service: apprise.Apprise) -> None:
        self._service = service

    def send(self, notices: Sequence[Notice]) -> None:
        import apprise

        worst = max((each["severity"] for each in notices), key=_WORST.index)
        kind = {
            "info": apprise.NotifyType.INFO,
            "warning": apprise.NotifyType.WARNING,
            "urgent": apprise.NotifyType.FAILURE,
        }[worst]
        sent = self._service.notify(
            body=body_of(notices), title=subject_of(notices), notify_type=kind,
            body_format=apprise.NotifyFormat.TEXT,
        )  # fmt: skip
        if not sent:
            raise Unavailable("The service did not take the message; what it said is in its log.")


@hookimpl
def notify(options: Mapping[str, Any]) -> NoticeService:
    try:
        import apprise
    except ImportError as error:
        raise Unavailable(
            f"Notices by mail, Telegram, Slack and others need a library that is not installed"
            f" ({error}).",
            "pip install 'agentq-orchestrator[notify]'",
        ) from error
    url = options.get("url")
    if not isinstance(url, str) or not url:
        raise Invalid("A target of the plugin apprise needs a url.", 'As in url = "env:OPS_URL".')
    service = apprise.Apprise()
    if not service.add(url):  # never shown: it holds a secret
        scheme = url.partition("://")[0][:20]
        raise Invalid(
            f"Apprise does not understand the address, which begins with {scheme!r}.",
            "See https://github.com/caronc/apprise/wiki for how addresses are written.",
        )
    return NoticeService(service)
