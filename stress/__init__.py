"""Attempts to break robustmf: each check generates cases, and reports their number and failures.

``make stress`` runs all checks and prints a table; CI runs each with a few cases
(``tests/stress/test_stress.py``). A check is a module in ``stress/checks`` with

- ``TITLE``: a short description;
- ``CASES`` and ``FEW``: the number of cases for the table, and in CI;
- ``run(tally, cases, seed)``: run the cases, each inside ``with tally.case(label):``.
"""
