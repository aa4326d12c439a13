"""Readers of data files, and output of the command line."""

from __future__ import annotations

from mutants.mutant import Mutant

_RATINGS = "io/reading/test_ratings.py"
_MATRIX = "io/reading/test_matrix_files.py"
_TEXT = "cli/test_untrusted_text.py -k 'not terminal and not disk and not closed'"
_TERMINAL = "cli/test_untrusted_text.py -k 'terminal or notes'"

_WIDE = "io/reading/test_wide.py -k 'not memory and not long_lines'"

MUTANTS = [
    Mutant(
        "io/reading/parquet.py",
        '        require_plausible_size(source, length, "bytes of text")\n',
        "",
        _RATINGS + " -k lower_limit",
        aimed=True,
    ),
    Mutant(
        "io/reading/parquet.py",
        "int(lengths[np.asarray(column.indices.drop_null())].sum())",
        "int(lengths.sum())",
        _RATINGS + " -k lower_limit",
        aimed=True,
    ),
    Mutant(
        "io/reading/parquet.py",
        "source, OPTIONS.row_bytes * file.metadata.num_rows,",
        "source, 0,",
        _RATINGS + " -k implausible",
    ),
    Mutant("io/reading/size_checks.py", "if max(shape) > max(", "if min(shape) > max(", _MATRIX),
    Mutant(
        "io/reading/options.py", "small_shape: int = 10**6", "small_shape: int = 2 * 10**6", _MATRIX
    ),
    Mutant(
        "io/reading/source.py",
        "        if self._left < 0:",
        "        if False:",
        _RATINGS + " -k implausibly",
    ),
    Mutant(
        "io/reading/source.py",
        "return stream if compression is None else self._bounded(stream)",
        "return stream",
        _RATINGS + " -k implausibly",
    ),
    Mutant(
        "io/reading/source.py",
        'return self._bounded(cast("BinaryIO", archive.open(self.member)))',
        'return cast("BinaryIO", archive.open(self.member))',
        _RATINGS + " -k implausibly",
    ),
    Mutant(
        "io/reading/matrix_market.py",
        'packed=source.path.suffix != ".mtx",',
        "packed=True,",
        _MATRIX,
        aimed=True,
    ),
    Mutant(
        "io/reading/matrix_market.py",
        "    wrong = ~((i >= 0) & ",
        "    wrong = ~(",
        _MATRIX,
        aimed=True,
    ),
    Mutant(
        "io/reading/matrix_market.py", "    i = numbers[:, 0] - 1", "    i = numbers[:, 0]", _MATRIX
    ),
    Mutant(
        "io/reading/matrix_market.py",
        'sign = 1 if header.symmetry == "symmetric" else -1',
        "sign = 1",
        _MATRIX,
    ),
    Mutant(
        "io/reading/npz.py",
        "            matrix.check_format(full_check=True)",
        "            pass",
        _MATRIX,
        equivalent="Observed.from_sparse checks again",
    ),
    Mutant("io/reading/npz.py", "size + member.tell() != info.file_size", "False", _MATRIX),
    Mutant(
        "data/observed.py",
        "            X = consistent_sparse(X)",
        "            pass",
        "data/test_observed.py -k 'inconsistent or modify'",
    ),
    Mutant(
        "io/reading/layout.py",
        "            if line[end + 1 : end + 2] == quote:",
        "            if False:",
        _TEXT,
    ),
    Mutant(
        "io/reading/layout.py",
        "        elif line[position : position + 1] == quote:",
        "        elif False:",
        _TEXT,
    ),
    Mutant(
        "io/reading/delimited.py",
        "        parse_options.newlines_in_values = simple",
        "        parse_options.newlines_in_values = False",
        _TEXT,
    ),
    Mutant(
        "io/reading/delimited.py",
        "for number, line in records(source.text(), layout.delimiter):",
        "for number, line in enumerate(source.text(), 1):",
        _TEXT,
    ),
    Mutant(
        "io/reading/filtered_copy.py",
        "for lines in _records(stream, layout.delimiter):",
        "for lines in _blocks(stream):",
        _TEXT,
    ),
    Mutant(
        "io/reading/filtered_copy.py",
        "            if is_open or b'\"' in line:",
        "            if not is_open and b'\"' in line:",
        _TEXT,
    ),
    Mutant("cli/output.py", "        return csv_text(value)", "        return value", _TEXT),
    Mutant(
        "report/names.py",
        '("=", "+", "-", "@", "\\t"',
        '("=", "+", "-", "\\t"',
        _TEXT,
    ),
    Mutant(
        "cli/output.py", "if is_terminal(sys.stdout) else text", "if False else text", _TERMINAL
    ),
    Mutant(
        "cli/output.py",
        "    print(_NOT_PRINTED.sub(",
        "    print((lambda _, text: text)(",
        _TERMINAL,
    ),
    Mutant(
        "cli/output.py",
        "    typer.secho(plain(text), err=True, dim=True)",
        "    typer.secho(text, err=True, dim=True)",
        _TERMINAL,
    ),
    Mutant(
        "cli/output.py",
        "table.add_column(Text(plain(name)), overflow",
        "table.add_column(name, overflow",
        _TERMINAL,
    ),
    Mutant(
        "cli/errors.py",
        'plain(" ".join(as_options(text).split()))',
        '" ".join(as_options(text).split())',
        _TERMINAL,
    ),
    Mutant(
        "cli/cluster.py",
        'dashboard_address=f"{_LOOPBACK}:0"',
        'dashboard_address=":0"',
        "cli/test_cluster_options.py",
    ),
    Mutant(
        "cli/cluster.py",
        'protocol not in ("tls", "wss", "inproc") and not',
        "not",
        "cli/test_cluster_options.py -k noted",
    ),
    Mutant(
        "cli/cluster.py",
        "        return ip_address(host).is_loopback",
        "        return not ip_address(host).is_global",
        "cli/test_cluster_options.py -k noted",
    ),
    Mutant("io/reading/wide.py", "[0-9]{1,640}", "[0-9]+", _WIDE, aimed=True),
    Mutant("io/reading/wide.py", 'r"\\s*-?[0-9]{1', 'r"\\s*-*[0-9]{1', _WIDE, aimed=True),
    Mutant(
        "io/reading/wide.py",
        "            if len(fields) != layout.n_fields:",
        "            if False:",
        _WIDE,
    ),
    Mutant(
        "io/reading/wide.py",
        "            cells = pc.if_else(pc.is_in(cells, missing), None, cells)\n",
        "",
        _WIDE,
    ),
    Mutant(
        "io/reading/delimited.py",
        "skip_rows=header_lines(source, layout)",
        "skip_rows=int(bool(layout.names))",
        "io/reading/test_wide.py -k blank",
        aimed=True,
    ),
    Mutant(
        "io/reading/filtered_copy.py",
        "is_entry[: first + 1] = [False] * (first + 1)",
        "is_entry[0] = False",
        "io/reading/test_wide.py -k blank",
        aimed=True,
    ),
    Mutant(
        "io/reading/filtered_copy.py",
        "                header = not lines[first].strip()",
        "                header = False",
        "io/reading/test_wide.py io/reading/test_ratings.py -k blank",
    ),
    Mutant(
        "io/reading/parquet.py",
        "times[name] == 1 and _is_string",
        "_is_string",
        "io/reading/test_ratings.py -k same_name",
    ),
    Mutant(
        "io/reading/layout.py",
        "_INTEGER.fullmatch(one) and -(2**63) <= int(one) < 2**63",
        "_INTEGER.fullmatch(one)",
        "io/reading/test_ratings.py -k beyond_64",
        aimed=True,
    ),
    Mutant(
        "io/reading/wide.py",
        "np.where(np.isin(values, missing), np.nan, values)",
        "values",
        _WIDE,
    ),
    Mutant(
        "io/reading/filtered_copy.py",
        "fields[position] = layout.missing_field",
        'fields[position] = ""',
        "io/reading/test_notations.py",
    ),
    Mutant(
        "io/reading/pairs.py",
        "if side.integers and not isinstance(ids[-1], int):",
        "if False:",
        "io/reading/test_ratings.py -k 'pairs or integers'",
    ),
]
