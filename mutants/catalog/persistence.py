"""Model files and the writing of files."""

from __future__ import annotations

from mutants.mutant import Mutant

_ATOMIC = "io/test_atomic.py -k 'not killed and not fault'"
_FAULTS = "io/test_atomic.py -k 'fault and page and full'"
_FILE = "io/test_model_file.py -k 'by_name or refused_with'"
_GENERATORS = "io/test_forged_files.py -k 'generator or state or position'"
_SIZES = "io/test_forged_files.py -k 'gigabytes or sizes or padding or types or dtypes'"
_CONTENT = "io/test_forged_files.py -k 'bounds or weights or factors or empty_row'"
_VALUES = "io/test_forged_files.py -k 'ids or impossible'"

MUTANTS = [
    Mutant(
        "io/atomic.py",
        "                os.fsync(descriptor)\n        with",
        "                pass\n        with",
        _ATOMIC,
        aimed=True,
    ),
    Mutant(
        "io/atomic.py",
        "            os.replace(temporary, target)",
        "            target.write_bytes(temporary.read_bytes())",
        _ATOMIC,
        aimed=True,
    ),
    Mutant(
        "io/atomic.py", "        _flush_folder(target.parent)", "        pass", _ATOMIC, aimed=True
    ),
    Mutant("io/atomic.py", "            temporary.unlink()", "            pass", _FAULTS),
    Mutant("io/atomic.py", "with suppress(OSError):", "if True:", _ATOMIC),
    Mutant("io/atomic.py", "Path(os.path.realpath(name))", "Path(name)", _ATOMIC),
    Mutant("io/atomic.py", "secrets.token_hex(8)", "'0123456789abcdef'", _ATOMIC),
    Mutant("io/atomic.py", " | os.O_EXCL", "", _ATOMIC),
    Mutant(
        "io/atomic.py",
        "            os.fchmod(descriptor, permissions)  # the umask may have removed some",
        "            pass",
        _ATOMIC,
    ),
    Mutant("io/atomic.py", "0o666 if mode is None else stat.S_IMODE(mode)", "0o666", _ATOMIC),
    Mutant(
        "io/atomic.py",
        "        raise type(error)(error.errno, error.strerror, name) from error",
        "        raise",
        _FAULTS,
    ),
    Mutant("io/atomic.py", "or not (mode is None or stat.S_ISREG(mode))", "", _ATOMIC),
    Mutant(
        "io/atomic.py",
        "        if error.errno not in _CANNOT_FLUSH_FOLDERS:\n            raise",
        "        raise",
        _ATOMIC,
    ),
    Mutant("io/atomic.py", "    if len(encoded) <= _MAX_NAME_BYTES:", "    if True:", _ATOMIC),
    Mutant("io/atomic.py", "'[0-9a-f]' * 16", "'?' * 16", _ATOMIC),
    Mutant(
        "io/model_file.py",
        "    if computed.hexdigest() != digest:",
        "    if False:",
        "io/test_model_file.py -k 'altered_byte or other_length'",
    ),
    Mutant("io/model_file.py", "    if version != VERSION:", "    if False:", _FILE),
    Mutant("io/model_file.py", "    if decoder.unused:", "    if False:", _FILE),
    Mutant(
        "io/encoding.py",
        "        return self.unused.pop(name)",
        "        return self.unused[name]",
        _FILE,
    ),
    Mutant("io/encoding.py", "        if self._budget < 0:", "        if False:", _SIZES),
    Mutant(
        "io/encoding.py",
        "        self._budget -= len(items) * wanted.itemsize",
        "        self._budget = min(self._budget, len(items))",
        _SIZES,
    ),
    Mutant(
        "io/encoding.py",
        '    _require_same_form(state, generator.state, "state")',
        "    pass",
        _GENERATORS,
    ),
    Mutant("io/encoding.py", '    "pos": 624,', '    "pos": 625,', _GENERATORS),
    Mutant(
        "io/encoding.py",
        '    "buffer_pos": 4,',
        '    "buffer_pos": 5,',
        _GENERATORS,
    ),
    Mutant(
        "io/encoding.py",
        "        same = value.shape == reference.shape and",
        "        same =",
        _GENERATORS,
    ),
    Mutant(
        "io/encoding.py",
        "    if not _NUMBER_TYPE.fullmatch(_require_type(str, name)):",
        "    if False:",
        _SIZES,
    ),
    Mutant(
        "io/encoding.py",
        "        if not _ITEM_TYPE.fullmatch(_require_type(str, dtype)):",
        "        if False:",
        _SIZES,
    ),
    Mutant(
        "io/encoding.py",
        "CONTENT_ERRORS = (LookupError, TypeError, ",
        "CONTENT_ERRORS = (LookupError, ",
        "io/test_forged_files.py -k impossible",
    ),
    Mutant("io/model_state.py", "    if len(set(ids)) < size:", "    if False:", _VALUES),
    Mutant("io/model_state.py", "        if not _is_id(key):", "        if False:", _VALUES),
    Mutant("io/model_state.py", "bool(key == key)", "True", _VALUES),
    Mutant("io/model_state.py", '    "reg_": 0,', '    "reg_": -np.inf,', _VALUES),
    Mutant("io/model_state.py", "        and pointers[0] == 0\n", "", _CONTENT, aimed=True),
    Mutant(
        "io/model_state.py",
        "        and (np.diff(pointers) >= 0).all()\n",
        "",
        _CONTENT,
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "        and pointers[-1] == len(indices) == len(values)\n",
        "        and len(indices) == len(values)\n",
        _CONTENT,
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "        and indices.min() >= 0\n        and indices.max() < shape[1]\n        and np.isfinite(values)",
        "        and indices.max() < shape[1]\n        and np.isfinite(values)",
        _CONTENT,
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "        and indices.max() < shape[1]\n        and np",
        "        and indices.max() <= shape[1]\n        and np",
        _CONTENT,
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "        and _ascend_within_rows(pointers, indices)\n",
        "",
        _CONTENT,
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "    ascends[pointers] = True  # between two rows\n",
        "",
        _CONTENT,
        aimed=True,
    ),
    Mutant("io/model_state.py", "        and weights.min() >= 0\n", "", _CONTENT),
    Mutant("io/model_state.py", "or not np.isfinite(array).all():", "or False:", _CONTENT),
    Mutant(
        "estimator/saving.py",
        "    if n_columns != model.shape[1]:",
        "    if False:",
        _VALUES,
        aimed=True,
    ),
    Mutant("estimator/saving.py", "    if reserved:", "    if False:", _FILE),
    Mutant(
        "io/model_file.py",
        "    except CONTENT_ERRORS as error:\n",
        "    except LookupError as error:\n",
        "io/test_forged_files.py -k impossible",
        aimed=True,
    ),
    Mutant(
        "io/model_file.py",
        '        reason = " ".join(str(error).split())\n        raise ModelFileError(f"{os',
        '        reason = str(error)\n        raise ModelFileError(f"{os',
        "io/test_forged_files.py -k several_lines",
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        '    if state["theta_"] != state["loss_"].theta:',
        "    if False:",
        _VALUES,
    ),
    Mutant(
        "io/model_state.py",
        "((reliability >= 0) & (reliability <= 1))",
        "(reliability >= 0)",
        "io/test_forged_files.py -k probabilities",
    ),
    Mutant(
        "io/model_state.py",
        "    if collisions > _MAX_COLLISIONS:",
        "    if False:",
        _VALUES,
    ),
    Mutant(
        "io/model_state.py",
        "index.min() >= 0 and index.max() < size",
        "index.max() < size",
        "io/test_forged_clusters.py",
    ),
    Mutant(
        "io/model_state.py",
        "(of_side > _LEAST_SCALE) & (of_side < 1 / _LEAST_SCALE)",
        "of_side > 0",
        "io/test_forged_files.py -k squares",
        aimed=True,
    ),
    Mutant(
        "io/model_state.py",
        "    found = max(entry, weight, u, v, prediction)",
        "    found = max(entry, u, v, prediction)",
        "io/test_forged_files.py -k squares",
        aimed=True,
    ),
    Mutant(
        "estimator/saving.py",
        "        bounds_of(estimator, model.bounds)",
        "        pass",
        "io/test_forged_files.py -k several",
    ),
    Mutant(
        "io/checkpoint.py",
        '        elif not state["ended"]:',
        "        elif False:",
        "io/test_refused_checkpoints.py -k cannot_be_written",
    ),
]
