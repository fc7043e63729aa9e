"""The page in Chromium: what it shows, and what a viewer does."""

from __future__ import annotations

import time
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.ui.conftest import Site
from tests.unit.ui.world import HOSTILE, MANY, MODELS, training

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_DRAWN = 60
"""Nodes that may be in the document, of however many."""


def names(page: Page) -> list[str]:
    return page.locator(".node strong").all_inner_texts()


def wait_for_names(page: Page, expected: list[str]) -> None:
    page.wait_for_function(
        "expected => JSON.stringify([...document.querySelectorAll('.node strong')].map(one => one.textContent))"
        " === JSON.stringify(expected)",
        arg=expected,
    )


def chosen(page: Page) -> str:
    return page.evaluate("location.hash")  # type: ignore[no-any-return]


def wait_for_panel(page: Page, text: str) -> str:
    page.wait_for_function("text => document.getElementById('detail').innerText.includes(text)", arg=text)
    return page.locator("#detail").inner_text()


def test_nodes_queues_gangs_and_pending_pods_are_shown(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    assert names(page)[:2] == ["a100-9", "a100-mig-0"]
    assert page.locator("#nodes-count").inner_text() == str(len(site.world.shown))
    assert page.locator(".node").nth(1).locator(".gpu").count() == 28
    assert page.locator("#queues .row").count() == 5
    llm = page.locator("#queues .row", has_text="llm")
    assert llm.get_attribute("aria-level") == "3"
    assert "31 used · 43 requested · share 33 · quota 20 · borrows 11" in llm.inner_text()
    assert "lends 9" in page.locator("#queues .row", has_text="production").inner_text()
    used = page.locator("#queues .row", has_text="production").locator(".used")
    assert used.evaluate("one => one.offsetWidth / one.parentElement.offsetWidth") == pytest.approx(15 / 66, abs=0.02)
    gang = page.locator("#gangs .row", has_text="research/llm-next").inner_text()
    assert "0 of 12 members running, minimum 12" in gang
    assert "starts in 12 min at the earliest" in gang
    first = page.locator("#line .row").first.inner_text()
    assert "research/segment-0" in first
    assert "starts in 3 min at the earliest" in first


def test_a_gpu_is_drawn_by_what_sits_on_it(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    boards = page.locator(".node").first.locator("[data-cell]")
    states = [boards.nth(i).locator(".gpu").get_attribute("class") for i in range(4)]
    assert states == ["gpu sick", "gpu cordoned", "gpu kept", "gpu part"]
    assert "XID 79" in (boards.first.get_attribute("aria-label") or "")
    assert boards.nth(3).locator("i").count() == 1
    assert page.locator("#state-sick").inner_text() == "sick 1"


def test_search_and_filters_choose_and_are_kept_in_the_url(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.fill("#q", "H100-2")
    wait_for_names(page, ["h100-2"])
    assert chosen(page) == "#q=H100-2"
    page.click("#clear")
    page.click("#state-sick")
    wait_for_names(page, ["a100-9"])
    assert page.locator(".board.faint").count() == 3
    page.click("#state-sick")
    page.select_option("#model", "NVIDIA L4")
    wait_for_names(page, [f"l4-{i}" for i in range(7)])
    page.click("#clear")
    page.select_option("#queue", "research")
    wait_for_names(page, ["a100-9", "a100-mig-0", "a100-mig-1", *(f"h100-{i}" for i in range(6))])
    page.wait_for_function("() => document.querySelectorAll('#line .row').length === 2")
    page.select_option("#queue", "vision")
    wait_for_names(page, [])
    page.wait_for_function("() => document.querySelectorAll('#line .row').length === 1")
    page.select_option("#namespace", "prod")
    page.wait_for_function("() => !document.querySelector('#line-none').hidden")
    assert chosen(page) == "#namespace=prod&queue=vision"


def test_a_url_shows_the_same_again(site: Site, tab: Page) -> None:
    page = site.visit(tab, "model=NVIDIA+L4&q=l4-3&pod=research%2Fsegment-0")
    assert names(page) == ["l4-3"]
    assert page.input_value("#q") == "l4-3"
    assert page.input_value("#model") == "NVIDIA L4"
    wait_for_panel(page, "request at most 40 GiB")


def test_a_click_on_a_pod_explains_it(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator("#line [data-cell]").first.click()
    panel = wait_for_panel(page, "What to do: request at most 40 GiB")
    assert site.world.explained == ["research/segment-0"]
    for sentence in (
        "research/segment-0 is pending",
        "number 1 of 3 pending",
        "once research/train-3 has ended",
        "9 nodes: no GPU with 60 GiB free",
        "GPU 1 of h100-2 is reserved for it: not all of it is free yet",
    ):
        assert sentence in panel
    assert "pod=research%2Fsegment-0" in chosen(page)


def test_a_click_on_a_gpu_names_its_pods_and_each_can_be_explained(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator(".node", has_text="h100-0").locator("[data-cell]").nth(2).click()
    panel = wait_for_panel(page, "research/train-2")
    assert "h100-0, GPU 2" in panel
    page.locator("#detail").get_by_role("button", name="research/train-2").click()
    wait_for_panel(page, "research/train-2 is pending")


def test_links_between_the_gpus_of_a_node_are_shown_on_demand(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator(".node", has_text="h100-0").locator("[data-cell]").nth(2).click()
    page.get_by_role("button", name="Links between its GPUs").click()
    page.locator(".links table").wait_for()
    assert page.locator(".links tbody tr").first.inner_text().split() == ["0", "–", *["NV18"] * 3, *["SYS"] * 4]
    assert page.locator(".links .nvlink").count() == 24
    page.locator(".node", has_text="l4-1").locator("[data-cell]").first.click()
    page.get_by_role("button", name="Links between its GPUs").click()
    wait_for_panel(page, "Node l4-1 tells no links.")


def test_a_gang_shows_why_it_waits_and_its_members(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator("#gangs [data-cell]", has_text="llm-next").click()
    panel = wait_for_panel(page, "12 needed, 8 free")
    assert "research/llm-next-0" in panel


def test_an_unknown_pod_is_an_answer(site: Site, tab: Page) -> None:
    page = site.visit(tab, "pod=research%2Fgone")
    wait_for_panel(page, "gone not found")


LOGIN_ENDED = "Your login has ended: reload this page."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 401, "json": {}}, LOGIN_ENDED),
        (
            {"status": 302, "headers": {"location": "https://login.example.com/"}},
            LOGIN_ENDED,
        ),
        ({"status": 502, "body": "<html>"}, "The server of the page failed with status 502."),
        ({"status": 403, "json": {"error": "you may not"}}, "you may not"),
        (None, "The server of the page does not answer."),
    ],
)
def test_what_fails_is_told_in_a_sentence(site: Site, tab: Page, answer: dict[str, Any] | None, said: str) -> None:
    page = site.visit(tab)
    page.route("**/api/explain/**", lambda route: route.abort() if answer is None else route.fulfill(**answer))
    page.locator("#line [data-cell]").first.click()
    wait_for_panel(page, said)


def test_hostile_names_are_text(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    tab.on("dialog", lambda _: pytest.fail("a name ran"))
    page.locator(".node", has_text="a100-9").locator("[data-cell]").nth(3).click()
    wait_for_panel(page, f"prod/{HOSTILE}")
    page.locator("#line [data-cell]", has_text="onerror").click()
    wait_for_panel(page, f"prod/{HOSTILE} is pending")
    assert page.locator("main img, aside img").count() == 0


def test_the_keyboard_reaches_everything(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.locator("#nodes [tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert "GPU 2 kept" in page.evaluate("document.activeElement.ariaLabel")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.closest('.node').querySelector('strong').textContent") == "l4-6"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    wait_for_panel(page, "a100-9, GPU 0")
    page.keyboard.press("Escape")
    assert page.locator("#detail").is_hidden()
    assert "GPU 0 sick" in page.evaluate("document.activeElement.ariaLabel")


def test_changes_come_by_themselves_and_keep_the_focus(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator("#nodes [tabindex='0']").focus()
    model = next(iter(MODELS))
    site.world.shown = [training("a100-9", model, 8), *site.world.shown[1:-1], training("zz-new", model, 0)]
    page.wait_for_function("() => document.getElementById('happenings').innerText.includes('node zz-new is new')")
    assert "prod/api-lost has left a100-9" in page.locator("#happenings").inner_text()
    assert page.evaluate("document.activeElement.closest('.node').querySelector('strong').textContent") == "a100-9"
    assert "gang phases" in (page.locator("#bar").get_attribute("aria-label") or "")


def test_a_what_if_is_asked_with_the_pods_queue_and_answered(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    page.locator("#line .row", has_text="research/segment-0").locator("[data-cell]").click()
    wait_for_panel(page, "What if?")
    page.locator("#detail-body").get_by_role("button", name="What if?").click()
    form = page.locator("form.whatif")
    assert form.get_by_label("Namespace").input_value() == "research"
    form.get_by_label("Pods").fill("3")
    form.get_by_label("each requests").fill("2")
    form.get_by_label("start together").check()
    form.locator("[name=of]").select_option("gpus")
    form.get_by_label("with more nodes like").fill("h100-0")
    form.get_by_role("button", name="Ask").click()
    told = wait_for_panel(page, "would start in about 45 min")
    assert "With 1 more node like h100-0" in told
    assert f"Once prod/{HOSTILE} has ended" in told
    assert "what-if on h100-2, GPU 1, 2" in told
    (asked,) = site.world.asked
    assert asked["spec"]["pods"][0]["count"] == 3
    assert asked["spec"]["nodes"] == [{"like": "h100-0", "count": 1}]
    form.get_by_label("each requests").fill("0")
    assert form.evaluate("one => one.checkValidity()") is False


def test_of_many_nodes_few_are_in_the_document(site: Site, tab: Page) -> None:
    site.world.grow()
    page = site.visit(tab)
    assert page.locator("#nodes-count").inner_text() == str(MANY)
    assert page.locator(".node").count() < MOST_DRAWN
    page.locator("#nodes [tabindex='0']").focus()
    page.keyboard.press("End")
    assert names(page)[-1] == f"node-{MANY - 1}"
    assert page.locator(".node").count() < MOST_DRAWN


def test_the_theme_is_the_systems_or_the_chosen_one(site: Site, tab: Page) -> None:
    page = site.visit(tab)
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => {ground} !== '{light}'")
    page.select_option("#theme", "light")
    page.wait_for_function(f"() => {ground} === '{light}'")
    page.reload()
    page.wait_for_function(f"() => {ground} === '{light}'")


def test_a_phone_needs_no_sideways_scrolling(site: Site, tab: Page) -> None:
    tab.set_viewport_size({"width": 360, "height": 740})
    page = site.visit(tab)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_print_shows_all_nodes_that_are_chosen(site: Site, tab: Page) -> None:
    tab.set_viewport_size({"width": 700, "height": 500})
    page = site.visit(tab)
    assert page.locator(".node").count() < len(site.world.shown)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".node").count() == len(site.world.shown)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".node").count() < len(site.world.shown)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("panel", ["", "links", "pod=research%2Fsegment-0"])
def test_axe_finds_nothing(site: Site, tab: Page, theme: Any, panel: str) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-core is missing: make setup")
    tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page = site.visit(tab, panel if "=" in panel else "")
    if panel == "links":
        page.locator(".node", has_text="h100-0").locator("[data-cell]").first.click()
        page.get_by_role("button", name="Links between its GPUs").click()
        page.locator(".links table").wait_for()
    elif panel:
        wait_for_panel(page, "What to do")
    else:
        page.locator("#whatif").click()
        page.get_by_role("button", name="Ask").click()
        wait_for_panel(page, "would start in about 45 min")
    page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    assert [
        (each["id"], each["nodes"][0]["html"][:200], each["nodes"][0]["failureSummary"]) for each in found["violations"]
    ] == []


def test_a_tab_out_of_sight_has_no_stream_and_catches_up(site: Site, tab: Page) -> None:
    """A browser has six connections to a server: six open tabs left none for a question."""
    tab.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.away === true });")
    page = site.visit(tab)
    turn = "(away) => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }"
    for away in (False, True, False):
        page.evaluate(turn, away)
        wait_for_stream(site, there=not away)


def wait_for_stream(site: Site, *, there: bool) -> None:
    end = time.monotonic() + 20.0
    while site.board.watched is not there:
        assert time.monotonic() < end
        time.sleep(0.02)
