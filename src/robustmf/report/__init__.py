"""HTML pages drawn from records: a record holds all results, and a page only displays them."""
