"""Pages: escaping and content."""

from __future__ import annotations

from mutants.mutant import Mutant

_PAGE = "report/test_fit_page.py report/test_page_text.py"
_PLOT = "test_plot.py"
_CHARTS = "report/test_charts.py"

MUTANTS = [
    Mutant(
        "report/page.py",
        "<title>{escape(title)}</title>",
        "<title>{title}</title>",
        _PAGE,
        aimed=True,
    ),
    Mutant("report/page.py", "<h1>{escape(title)}</h1>", "<h1>{title}</h1>", _PAGE, aimed=True),
    Mutant("report/page.py", "<p>{escape(lead)}</p>", "<p>{lead}</p>", _PAGE, aimed=True),
    Mutant(
        "report/page.py",
        "{escape(caption)}</figcaption>",
        "{caption}</figcaption>",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/page.py",
        'f"<strong>{escape(text)}</strong>" if bold else escape(text)',
        'f"<strong>{escape(text)}</strong>" if bold else text',
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/page.py",
        'f"<strong>{escape(text)}</strong>" if bold',
        'f"<strong>{text}</strong>" if bold',
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/page.py",
        '<th scope="col">{escape(cell)}</th>',
        '<th scope="col">{cell}</th>',
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/page.py",
        '<th scope="row">{escape(name)}</th>',
        '<th scope="row">{name}</th>',
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/page.py", "<td>{escape(text)}</td></tr>", "<td>{text}</td></tr>", _PAGE, aimed=True
    ),
    Mutant(
        "report/page.py",
        'label = escape(", ".join(header))',
        'label = ", ".join(header)',
        _PAGE,
        aimed=True,
    ),
    Mutant("report/page.py", '"backslashreplace"', '"strict"', _PAGE, aimed=True),
    Mutant("report/names.py", '"{escape(text)}"', '"{text}"', _PAGE, aimed=True),
    Mutant(
        "report/names.py", "{escape(short(key))}</bdi>", "{short(key)}</bdi>", _PAGE, aimed=True
    ),
    Mutant("report/names.py", "or letter in _BIDI_CONTROLS", "", _PAGE, aimed=True),
    Mutant("report/names.py", '("Cc", "Cs", "Zl", "Zp")', '("Cs", "Zl", "Zp")', _PAGE, aimed=True),
    Mutant("report/names.py", "text[: length - 1]", "text", _PAGE, aimed=True),
    Mutant(
        "report/fit_page.py",
        "*(value, expected, score, escape(reason)),",
        "*(value, expected, score, reason),",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/fit_page.py",
        "(_linked(side, key, numbers), entries, score, escape(reason))",
        "(_linked(side, key, numbers), entries, score, reason)",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/fit_page.py",
        "detail_button(side, number, cell(key))",
        "detail_button(side, number, str(key))",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/fit_page.py",
        "<h2>{escape(title)}</h2>",
        "<h2>{title}</h2>",
        _PAGE,
        equivalent="titles of sections are constants of the module",
        aimed=True,
    ),
    Mutant(
        "report/charts.py",
        "<title>{escape(names[k])}</title>",
        "<title>{names[k]}</title>",
        _PAGE,
        aimed=True,
    ),
    Mutant("report/page.py", '.replace("<", "\\\\u003c")', "", _PAGE, aimed=True),
    Mutant(
        "report/fit_record.py",
        "np.where(bad, entries.expected, entries.values)",
        "entries.values",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "outliers/audit.py",
        "percent = 100 * (1 - clean_share)",
        "percent = 100 * clean_share",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/quantities.py",
        "np.square(singular[:2]).sum()",
        "np.square(singular[:1]).sum()",
        _PAGE,
        aimed=True,
    ),
    Mutant(
        "report/quantities.py",
        "weights, int((size > limit).sum()))",
        "weights, 0)",
        _PAGE,
        aimed=True,
    ),
    # chosen without looking at the tests
    Mutant("plot.py", "[:top][::-1]", "[:top]", _PLOT),
    Mutant("plot.py", "model._model().scaled_residuals(", "model._model().residuals(", _PLOT),
    Mutant(
        "plot.py", "grid.means(np.where(is_bad, predicted, values))", "grid.means(values)", _PLOT
    ),
    Mutant(
        "plot.py",
        'model.row_ids_ if rows == "fitted" else entries.row_ids',
        "model.row_ids_",
        _PLOT,
    ),
    Mutant(
        "plot.py",
        "[_label(ids, int(k)) for k in worst], parse_math=False",
        "[_label(ids, int(k)) for k in worst]",
        _PLOT,
    ),
    Mutant("plot.py", "    ax.set_ylim(m - 0.5, -0.5)\n", "", _PLOT),
    Mutant(
        "report/quantities.py",
        "weight = loss.derivative if loss.concave else loss.weight",
        "weight = loss.weight",
        _CHARTS,
    ),
    Mutant(
        "report/quantities.py", "np.where(counts, counts, np.nan)", "np.maximum(counts, 1)", _PLOT
    ),
    Mutant(
        "report/quantities.py",
        "return sorted(found, key=lambda candidate: candidate.rank)",
        "return found",
        _PLOT,
    ),
    Mutant("report/charts.py", "((finite > 0) | (not log))", "(finite == finite)", _CHARTS),
    Mutant("report/charts.py", "np.where(observed[..., None], ", "np.where(True, ", _CHARTS),
    Mutant(
        "report/charts.py",
        "<title>{escape(name)}</title></rect>",
        "<title>{name}</title></rect>",
        _PAGE,
    ),
    Mutant("report/search_table.py", "csv_text(str(cell))", "str(cell)", _PAGE),
    Mutant("report/page.py", "<small>{escape(note)}</small>", "<small>{note}</small>", _PAGE),
    Mutant("report/fit_record.py", "[: _OPTIONS.max_marked]", "", _PAGE),
    Mutant(
        "report/fit_record.py",
        "grid.means(np.where(bad, entries.expected, entries.values))",
        "grid.means(entries.values)",
        _PAGE,
    ),
]
