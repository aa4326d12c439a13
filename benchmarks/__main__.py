"""``python -m benchmarks``: run a benchmark, the reproduction of the paper, or write the pages."""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import records, registry
from benchmarks.measure import announce

#: Commands that are not benchmarks, and what they do.
COMMANDS = {
    "all": "Run every benchmark and write its record; without a GPU or a data set it is skipped.",
    "tables": "Write docs/background/benchmarks.md and numerics.json from records and code.",
    "reproduce": "Run the experiments behind the paper's tables and figures.",
    "report": "Write the tables and figures of the reproduction from its records.",
    "same_results": "Record the bits of several hundred results, or compare two such records.",
}

#: Types of options by their annotation; a number may be written as 1e6.
_TYPES: dict[str, Any] = {
    "int": lambda text: int(float(text)),
    "float": float,
    "str": str,
    "Path | None": Path,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name = arguments[0] if arguments else "--list"
    if name in ("-h", "--help", "--list"):
        print(_listing())
        return 0
    if name == "all":
        return _all()
    if name == "tables":
        from benchmarks import page  # noqa: PLC0415 - only this command needs it

        print(page.write())
        return 0
    if name in COMMANDS:
        return int(_module(name).main(arguments[1:]) or 0)
    if name not in registry.NAMES:
        print(f"there is no benchmark {name!r}\n\n{_listing()}", file=sys.stderr)
        return 2
    return _run(name, arguments[1:])


def _module(command: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    inside = {"reproduce": "reproduction.reproduce", "report": "reproduction.report"}
    return import_module(f"benchmarks.{inside.get(command, command)}")


def _listing() -> str:
    width = 2 + max(map(len, (*registry.NAMES, *COMMANDS)))
    lines = ["usage: python -m benchmarks NAME [options]; NAME --help lists the options", ""]
    lines += [f"  {name:{width}}{registry.description(name)}" for name in registry.NAMES]
    return "\n".join([*lines, "", *(f"  {name:{width}}{text}" for name, text in COMMANDS.items())])


def _parser(name: str) -> argparse.ArgumentParser:
    """Options of the benchmark from the signature of its ``run``, and those common to all."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=registry.description(name),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for option in inspect.signature(registry.load(name).run).parameters.values():
        parser.add_argument(
            "--" + option.name.replace("_", "-"),
            type=_TYPES[option.annotation],
            default=option.default,
            help=" ",
        )
    parser.add_argument("--small", action="store_true", help="run with the smallest sizes")
    parser.add_argument("--record", action="store_true", help=f"write records/{name}.json")
    parser.add_argument("--output", type=Path, help="write the record to this file")
    return parser


def _run(name: str, arguments: Sequence[str]) -> int:
    parser = _parser(name)
    options = vars(parser.parse_args(arguments))
    small, record, output = (options.pop(key) for key in ("small", "record", "output"))
    if small and record:
        parser.error("--small runs are not recorded; use --output")
    benchmark = registry.load(name)
    if small:
        options |= benchmark.SMALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits with few iterations do not converge
        results = records.plain(benchmark.run(**options))
    print(benchmark.table(results))
    if record or output:
        announce(f"Record: {records.save(name, options, results, output)}")
    return 0


def _all() -> int:
    """Run all benchmarks; those that lack a device, a package or data are reported."""
    for name in registry.NAMES:
        announce(f"== {name}: {registry.description(name)}")
        try:
            _run(name, ["--record"])
        except (ImportError, FileNotFoundError, RuntimeError) as error:
            announce(f"{name} was not run: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
