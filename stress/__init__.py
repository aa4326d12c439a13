"""Attempts to break robustmf: each check makes cases, and says how many it tried and which of them failed.

``make stress`` runs them all and prints a table; CI runs each with a few cases (``tests/stress/test_stress.py``). A check is a module in
``stress/checks`` with

- ``TITLE``: what is tried, in a few words;
- ``CASES`` and ``FEW``: how many cases for the table, and in CI;
- ``run(tally, cases, seed)``: make the cases, each inside ``with tally.case(label):``.
"""
