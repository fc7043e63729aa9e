"""Draws the pictures of the page for the docs: `python -m tests.unit.ui.screenshots`."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import sync_playwright

from extender.ui.sources import Rest
from tests.unit.ui.conftest import CHROMIUM, Site
from tests.unit.ui.world import GANGS, PODS, QUEUES, World, training

FOLDER = Path(__file__).parents[3] / "docs/img"
CHOSEN = {"light": "", "dark": "pod=research%2Fsegment-0"}


def draw() -> None:
    """One picture of each theme; the dark one shows an explanation."""
    with sync_playwright() as play, Site(World()) as site:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        site.world.rested = Rest(QUEUES, GANGS, PODS[:-1])
        for theme, chosen in CHOSEN.items():
            context = browser.new_context(viewport={"width": 1360, "height": 900})
            page = site.visit(context.new_page(), chosen)
            page.select_option("#theme", theme)
            site.world.shown[2] = training("h100-2", site.world.shown[2].model, 1)
            page.wait_for_timeout(1500)
            page.screenshot(path=FOLDER / f"page-{theme}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    draw()
