"""Pages in a browser: Chromium of the system, controlled by Playwright (extra "dev")."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from benchmarks.reproduction import drawing
from benchmarks.reproduction.sections import Cell, Chart, Section, Series, TableBlock
from robustmf import Observed, RobustMF
from robustmf.cli.demo_records import synthetic_record, tracks_record
from robustmf.report import demo_page

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed (extra 'dev')"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="axe-playwright-python is not installed (extra 'dev')",
)
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"
    ),
]

HOSTILE_IDS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"onmouseover="alert(1)',
    "<a href='javascript:alert(1)'>x</a>",
    "&lt;b&gt;${alert(1)}{{1+1}}",
    "",
    "x" * 3000,
    "שלום עולם",
    "\u202egnp.exe",
    "line\nbreak\ttab",
]
PHONE_WIDTH = 375
DESKTOP_WIDTH = 1440

#: The hover labels of the rows on the map, the last plot; Plotly limits the rate of hover events.
HOVER = """async () => {
  const plot = [...document.querySelectorAll('.js-plotly-plot')].at(-1), shown = [];
  for (const [n, text] of plot.data[0].text.entries()) if (!text.includes('user')) {
    Plotly.Fx.hover(plot, [{ curveNumber: 0, pointNumber: n }]);
    await new Promise(done => setTimeout(done, 80));
    shown.push(plot.querySelector('.hoverlayer')?.textContent);
  }
  return shown;
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(
            executable_path=CHROMIUM, args=["--enable-unsafe-swiftshader"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a fit with problematic ids, one with points in space, and that of the demo."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    X = (
        3
        + 0.5 * rng.standard_normal((80, 2)) @ rng.standard_normal((50, 2)).T
        + 0.1 * rng.standard_normal((80, 50))
    )
    X[np.arange(len(HOSTILE_IDS)), np.arange(len(HOSTILE_IDS))] += 9
    X[20:60, 30] = 5.0
    i, j = np.nonzero(np.ones_like(X))
    rows = [*HOSTILE_IDS, *(f"user {k}" for k in range(80))][:80]
    columns = [*HOSTILE_IDS, *(f"item {k}" for k in range(50))][:50]
    entries = Observed.from_triplets(
        row=[rows[k] for k in i], col=[columns[k] for k in j], value=X.ravel()
    )
    RobustMF(2, bias=True, validation_fraction=0.1, random_state=0).fit(entries).report(
        folder / "fit.html", at_most=0.01
    )
    points = np.column_stack([rng.standard_normal((60, 3)), np.ones(60)])
    tracks = rng.standard_normal((12, 4)) @ points.T + 0.01 * rng.standard_normal((12, 60))
    RobustMF(4, random_state=0).fit(tracks).report(folder / "tracks.html", tracks=True)
    demo_page.write(synthetic_record(60, 0), tracks_record(0), folder / "demo.html")
    numbers = TableBlock(
        ["method", *(f"m = {m}" for m in (250, 500, 1000, 2000, 4000))],
        [[Cell("ours"), *[Cell("0.1±0.01", True)] * 5]],
        "RMSE",
    )
    curves = [
        Chart(
            f"c{k}",
            "Curves.",
            "seconds",
            "RMSE",
            [Series("ours", [0.1, 1, 10], [3, 1, 0.1])],
            log_x=True,
            log_y=True,
        )
        for k in range(2)
    ]
    section = Section("table1", "Table 1", "What it shows.", [numbers, *curves])
    drawing.write_html([section], folder / "reproduction.html", "Reproduction", "All tables.")
    return folder


class Visit:
    """An open page with its errors, dialogs and requests."""

    def __init__(self, browser, path, width, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 500
        )
        self.page = self.context.new_page()
        self.errors = []
        self.dialogs = []
        self.requests = []
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss())
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "document.querySelectorAll('.js-plotly-plot .main-svg').length > 0"
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(PHONE_WIDTH, "dark"), (DESKTOP_WIDTH, "light")])
@pytest.mark.parametrize("name", ["fit", "tracks", "demo", "reproduction"])
def test_page_has_no_errors_fits_the_screen_and_is_accessible(browser, pages, name, width, scheme):
    with Visit(browser, pages / f"{name}.html", width, scheme) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        plots = page.query_selector_all(".js-plotly-plot")
        assert len(plots) >= 2
        for plot in plots:
            assert 0.6 * min(width, 440) < plot.bounding_box()["width"] <= width
        ink = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
        assert ink == ("rgb(230, 233, 236)" if scheme == "dark" else "rgb(27, 31, 36)")
        serious = [
            (found["id"], [node["html"][:200] for node in found["nodes"]])
            for found in axe.Axe().run(page).response["violations"]
            if found["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert visit.errors == []
        assert visit.requests == [(pages / f"{name}.html").as_uri()]


def test_ids_are_not_interpreted(browser, pages):
    with Visit(browser, pages / "fit.html", DESKTOP_WIDTH) as visit:
        page = visit.page
        shown = page.eval_on_selector_all(
            "#entries bdi", "cells => cells.map(cell => cell.textContent)"
        )
        assert {
            "<script>alert(1)</script>",
            "</script><script>alert(1)</script>",
            "(empty)",
            "שלום עולם",
            "\\u202egnp.exe",
        } <= set(shown)
        assert max(map(len, shown)) == 60
        assert (
            page.query_selector_all(
                "main img, main a, main bdi *, main [onmouseover], main [onerror]"
            )
            == []
        )
        for plot in page.query_selector_all(".js-plotly-plot"):
            plot.hover()
        labels = page.evaluate(HOVER)
        assert len(labels) == len(HOSTILE_IDS)
        literal = [key for key in HOSTILE_IDS if key and key.isprintable() and len(key) < 60]
        assert {f"row \u2068{key}\u2069" for key in [*literal, "(empty)"]} <= set(labels)
        assert page.query_selector_all("svg a, svg image[href^=x], svg script") == []
        assert visit.dialogs == []
        assert visit.errors == []


def column(page, table, k):
    return page.eval_on_selector_all(
        f"#{table} tbody tr:not([hidden]) td:nth-child({k})",
        "cells => cells.map(cell => cell.textContent)",
    )


@pytest.mark.parametrize("width", [PHONE_WIDTH, DESKTOP_WIDTH])
def test_table_sorts_and_filters(browser, pages, width):
    with Visit(browser, pages / "fit.html", width) as visit:
        page = visit.page
        scores = "cells => cells.map(cell => Number(cell.dataset.number))"
        first = page.eval_on_selector_all("#entries td:nth-child(5)", scores)
        assert first == sorted(first)
        assert len(first) > 15
        head = page.locator("#entries th", has_text="score")
        head.get_by_role("button").click()
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert page.eval_on_selector_all("#entries td:nth-child(5)", scores) == sorted(
            first, reverse=True
        )
        value = page.locator("#entries th", has_text="value").get_by_role("button")
        value.focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") is None
        values = page.eval_on_selector_all("#entries td:nth-child(3)", scores)
        assert values == sorted(values)
        page.get_by_label("Search").first.fill("ALERT(1) script")
        found = column(page, "entries", 1)
        assert 0 < len(found) < len(first)
        assert page.inner_text("#entries [role=status]") == f"{len(found)} of {len(first)} shown"
        page.get_by_label("Search").first.fill("no such text")
        assert column(page, "entries", 1) == []
        page.get_by_label("Search").first.fill("")
        assert len(column(page, "entries", 1)) == len(first)
        assert visit.errors == []


def test_plots_respond(browser, pages):
    with Visit(browser, pages / "tracks.html", DESKTOP_WIDTH) as visit:
        page = visit.page
        scene = page.locator(".js-plotly-plot").first
        box = scene.bounding_box()
        eye = (
            "() => JSON.stringify(document.querySelector('.js-plotly-plot')"
            "._fullLayout.scene._scene.getCamera().eye)"
        )
        before = page.evaluate(eye)
        x = box["x"] + box["width"] / 2
        y = box["y"] + box["height"] / 2
        for _ in range(20):  # a scene that is not drawn yet ignores the mouse
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(x + 120, y + 40, steps=5)
            page.mouse.up()
            page.wait_for_timeout(500)
            if page.evaluate(eye) != before:
                break
        assert page.evaluate(eye) != before
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(
            "getComputedStyle(document.querySelector('.xtick text')).fill === 'rgb(230, 233, 236)'"
        )
        page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
        page.wait_for_function(
            "document.querySelector('.js-plotly-plot .main-svg').clientWidth <= 375"
        )
        assert visit.errors == []
