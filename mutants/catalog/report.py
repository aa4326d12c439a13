"""Pages: escaping and content."""

from __future__ import annotations

from mutants.mutant import Mutant

_PAGE = "report/test_fit_page.py report/test_page_text.py"

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
]
