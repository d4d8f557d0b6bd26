"""What a page shows of a file that an agent has left. Everything in it is somebody else's word.

Markdown is rendered without HTML and cleaned once more by a list of what may stay: no picture or
link of it makes a browser ask anybody for anything until a person clicks. All else is text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import Invalid
from agentq.core.states import State

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_BYTES_MAX = 512 << 10
_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif",
             "webp": "image/webp"}  # fmt: skip
_PICTURE_BYTES_MAX = 8 << 20
_TAGS = frozenset(
    [
        "a",
        "abbr",
        "b",
        "blockquote",
        "br",
        "code",
        "dd",
        "del",
        "dl",
        "dt",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "strong",
        "sub",
        "sup",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)


def preview(service: Service, who: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """A file of a task (`name`, and `epoch` for an older attempt), its `result`, or its `context`:
    as Markdown, a diff, text, or a picture to fetch."""
    ref, name = query.get("task", ""), query.get("name", "")
    what = query.get("what", "artifact")
    if what == "context":
        return _shown("context.md", service.context(who, ref).encode("utf-8", "surrogateescape"))
    if what == "result":
        task = service.task(who, ref)
        report, file = task.details.report, None
        if task.state is State.COMPLETE:
            _, file = service.open_result(who, ref)
        elif report is not None and report.result:
            _, _, file = service.open_artifact(who, ref, report.result, 0)
        if file is None:
            return _shown("result.md", task.summary.encode("utf-8", "replace"))
        with file:
            return _shown(report.result if report else "result.md", file.read(_BYTES_MAX + 1))
    if what != "artifact" or not name:
        raise Invalid("A preview is of an artifact by its name, or of its result or context.")
    epoch = query.get("epoch", "0")
    if not (epoch.isascii() and epoch.isdigit()) or len(epoch) > 9:
        raise Invalid(f"An epoch is a whole number, got {epoch[:20]!r}.")
    _, info, file = service.open_artifact(who, ref, name, int(epoch))
    with file:
        kind = _PICTURES.get(_ending(name))
        if kind is not None and info.size <= _PICTURE_BYTES_MAX:
            return {"kind": "picture", "type": kind, "name": name, "size": info.size}
        return {**_shown(name, file.read(_BYTES_MAX + 1)), "size": info.size}


def _shown(name: str, data: bytes) -> dict[str, Any]:
    cut = len(data) > _BYTES_MAX
    data = data[:_BYTES_MAX]
    found: dict[str, Any] = {"name": name, "size": len(data), "cut": cut}
    if b"\0" in data[:8000]:
        return {**found, "kind": "binary"}
    text = data.decode("utf-8", "replace")
    ending = _ending(name)
    if ending in ("md", "markdown"):
        return {**found, "kind": "markdown", "html": rendered(text), "text": text}
    kind = "diff" if ending in ("diff", "patch") else "text"
    return {**found, "kind": kind, "text": text}


def rendered(text: str) -> str:
    """Markdown as HTML that runs nothing and fetches nothing."""
    import nh3

    return nh3.clean(
        _markdown().render(text),
        tags=set(_TAGS),
        attributes={"a": {"href", "title"}, "code": {"class"}, "td": {"align"}, "th": {"align"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # No pictures: showing one asks whoever it names.
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""
