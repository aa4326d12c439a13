"""Page safety: pages with hostile ids and titles have only the elements of the template."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from robustmf import Observed, RobustMF
from robustmf.exceptions import RobustMFWarning
from robustmf.report import fit_page
from robustmf.report.fit_record import fit_record
from stress.generated import explore
from stress.tally import Tally

TITLE = "pages with hostile ids hold the template's elements and no others"
CASES = 100
FEW = 5

_HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='x",
    "<!--",
    "-->",
    "]]>",
    "&lt;b&gt;",
    "<b>",
    "{{7*7}}",
    "${x}",
    "javascript:alert(1)",
    "</td></tr></table>",
    "</title><h1>",
    "\u2028",
    "\u202e",
    "\x00",
    "\\u003cscript>",
    "%3Cscript%3E",
    "<a href='javascript:x'>",
    "</STYLE>",
    "<ScRiPt>",
    "\ud800",
    "&#60;script&#62;",
    "a" * 500,
)


#: The label of a tick of an axis.
_TICK = ("text", ("class", "text-anchor", "x", "y"))


class Seen(HTMLParser):
    """Elements of a page with the names of their attributes, comments and addresses."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.comments: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count the element and collect its addresses."""
        self.elements[tag, tuple(sorted(name for name, _ in attrs))] += 1
        self.addresses += [
            value or ""
            for name, value in attrs
            if name in ("href", "src", "action", "style") and tag != "div"
        ]

    def handle_comment(self, data: str) -> None:
        """Collect the comment."""
        self.comments.append(data)


def ids() -> st.SearchStrategy[list[str]]:
    """Twelve different ids, most of them hostile."""
    one = (
        st.sampled_from(_HOSTILE)
        | st.text(max_size=30)
        | st.tuples(st.sampled_from(_HOSTILE), st.text(max_size=5)).map("".join)
    )
    return st.lists(one, min_size=12, max_size=12, unique=True)


def drawn(names: list[str], folder: Path) -> Seen:
    """The parsed page of a fit with these row and column names, without the plotting library."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1, 2, 12), rng.uniform(1, 2, 12)) + 0.01 * rng.standard_normal(
        (12, 12)
    )
    X[0, 0] = 9
    X[3, 5] = -9
    # In the given order, so that the flagged entries do not depend on the names.
    entries = Observed.from_dense(X)
    model = RobustMF(1, random_state=0, n_jobs=1, bias=False).fit(
        Observed(entries.rows, entries.shape, names, names)
    )
    path = folder / "page.html"
    fit_page.write(fit_record(model, at_most=0.5), path, names[0])
    text = path.read_text(encoding="utf-8")
    seen = Seen()
    seen.feed(text)
    seen.close()
    return seen


def run(tally: Tally, cases: int, seed: int) -> None:
    """Compare each page with that of harmless names."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        plain = drawn([f"name {k}" for k in range(12)], Path(folder))
        # Labels of an axis that would overlap are left out: few of long names, none of short ones.
        most = drawn(list("abcdefghijkl"), Path(folder)).elements[_TICK]
        fewest = drawn([30 * letter for letter in "abcdefghijkl"], Path(folder)).elements[_TICK]

        def check(names: list[str]) -> None:
            seen = drawn(names, Path(folder))
            # A long name is repeated in a title, the only attribute that depends on names.
            differing = {
                key
                for key in seen.elements | plain.elements
                if seen.elements[key] != plain.elements[key]
            }
            allowed = {("bdi", ()), ("bdi", ("title",)), _TICK}
            assert differing <= allowed, f"elements differ: {differing}"
            assert fewest <= seen.elements[_TICK] <= most, seen.elements[_TICK]
            assert (
                sum(seen.elements[key] for key in (("bdi", ()), ("bdi", ("title",))))
                == plain.elements["bdi", ()]
            )
            assert seen.comments == plain.comments, f"comments {seen.comments}"
            assert seen.addresses == plain.addresses, f"addresses {seen.addresses}"

        explore(tally, ids(), check, cases, seed)
