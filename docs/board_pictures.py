"""Pictures of the board: `.venv/bin/python docs/board_pictures.py` makes those of the guide again.

With `--all FOLDER` every page is taken in both themes at three widths, to be looked at.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agentq.core import access  # noqa: E402
from docs.board_scene import Scene, scene  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = ROOT / "docs" / "pictures"
WIDTHS = {"wide": (1400, 860), "middle": (820, 1100), "phone": (390, 800)}
#: Each page: its address, and what is there when all of it is.
VIEWS = {
    "board": ("", ".card"),
    "waiting": ("waiting", ".decision .diff"),
    "task": ("tasks/task-cart", ".diff"),
    "runs": ("runs", ".list"),
    "run": ("runs/run-release-42", ".meter"),
    "organisation": ("organisation", ".tree"),
    "numbers": ("numbers", ".sums td"),
    "system": ("system", ".list"),
}


class Picture(NamedTuple):
    """A picture of the guide."""

    name: str
    view: str
    scheme: str
    size: tuple[int, int]


SHOWN = (
    Picture("board", "board", "light", (1400, 760)),
    Picture("waiting", "waiting", "light", (1200, 860)),
    Picture("run", "run", "dark", (1200, 620)),
    Picture("numbers", "numbers", "dark", (1200, 760)),
)


def opened(found: Scene, url: str, browser: Browser, size: tuple[int, int], scheme: str) -> Page:
    page = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme,  # type: ignore[arg-type]
        timezone_id="UTC", locale="en-GB",
    ).new_page()  # fmt: skip
    page.goto(f"{url}/login?code={found.app.login_code(access.person('ann'))}")
    page.click("button")
    page.wait_for_selector("html[data-ready=yes]")
    return page


def take(page: Page, view: str, target: Path) -> None:
    where, sign = VIEWS[view]
    page.evaluate("where => { location.hash = where }", f"#/{where}")
    page.wait_for_selector(sign)
    page.wait_for_timeout(400)  # until what is fetched beside it is drawn, too
    page.screenshot(path=target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page, theme and width")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        print("chromium is not installed: tests/servers/install.sh installs it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with scene(Path(folder)) as (found, url):
            if options.all:
                take_all(found, url, browser, options.all)
            else:
                take_shown(found, url, browser)
        browser.close()
    return 0


def take_all(found: Scene, url: str, browser: Browser, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for name, size in WIDTHS.items():
            page = opened(found, url, browser, size, scheme)
            for view in VIEWS:
                take(page, view, target / f"{view}-{scheme}-{name}.png")
            page.context.close()


def take_shown(found: Scene, url: str, browser: Browser) -> None:
    PICTURES.mkdir(exist_ok=True)
    for each in SHOWN:
        page = opened(found, url, browser, each.size, each.scheme)
        file = PICTURES / f"{each.name}.png"
        take(page, each.view, file)
        page.context.close()
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
