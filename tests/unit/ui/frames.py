"""How long the page's tasks take at 5,000 nodes, in milliseconds: `python -m tests.unit.ui.frames [SLOWER]`.

A task of more than 50 ms delays the next frame so that people see it. Chromium tells these (Long Tasks API). With
SLOWER it runs so many times slower than this machine.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.unit.ui.conftest import CHROMIUM, HEIGHT, WIDTH, Site
from tests.unit.ui.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARK_MS = 100
OBSERVE = """() => { window.tasks = [];
new PerformanceObserver(list => tasks.push(...list.getEntries().map(one => Math.round(one.duration))))
  .observe({entryTypes: ['longtask']}); }"""
SCROLL = """async rows => { const box = document.getElementById('nodes');
for (let frame = 0; frame < 120; frame++) { box.scrollTop += rows * 90; await new Promise(requestAnimationFrame); } }"""


def longest(page: Page) -> int:
    """The longest task since the last call, 0 if none took more than 50 ms."""
    page.wait_for_timeout(500)
    found: list[int] = page.evaluate("() => tasks.splice(0)")
    return max(found, default=0)


def main(slower: int) -> int:
    from playwright.sync_api import sync_playwright

    world = World()
    world.grow()
    with sync_playwright() as play, Site(world) as site:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page = site.visit(tab)
        page.wait_for_timeout(1000)
        tab.context.new_cdp_session(tab).send("Emulation.setCPUThrottlingRate", {"rate": slower})
        page.evaluate(OBSERVE)
        figures = {}
        for number in range(10):
            world.shown = [*world.shown[:-1], world.shown[-1].__class__(name=f"new-{number}", state="ok")]
            page.wait_for_timeout(300)
        figures["a change of a node"] = longest(page)
        page.locator("#q").press_sequentially("node-49", delay=80)
        figures["typing a search"] = longest(page)
        page.locator("#q").fill("")
        longest(page)
        for rows in (1, 15):
            page.evaluate(SCROLL, rows)
            figures[f"scrolling {rows} rows a frame"] = longest(page)
        browser.close()
    for what, milliseconds in figures.items():
        shown = f"{milliseconds} ms" if milliseconds else "under 50 ms"
        print(f"{what}: the longest task {shown}, mark {MARK_MS} ms")
    return int(max(figures.values()) > MARK_MS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
