"""Attempts to break robustmf: each trial makes cases, and says how many it tried and which of them failed.

``make torture`` runs them all and prints a table; CI runs each with a few cases (``tests/test_torture.py``). A trial is a module in
``stress/trials`` with

- ``TITLE``: what is tried, in a few words;
- ``CASES`` and ``FEW``: how many cases for the table, and in CI;
- ``run(tally, cases, seed)``: make the cases, each inside ``with tally.case(label):``.
"""
