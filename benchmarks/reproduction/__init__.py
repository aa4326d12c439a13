"""The paper's evaluation: one module per table or figure, from a plan of runs to records."""
