"""The paper's evaluation: one file a table or figure. A plan of runs goes in, records come out, and nothing else."""
