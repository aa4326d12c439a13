"""The comparison of two records."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from benchmarks.same_results.content import flatten, is_number


def same(one: Any, other: Any) -> bool:
    """Return whether two stored fields are equal; NaN equals NaN, and the type counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(one.get(key) == other.get(key) for key in ("sha256", "dtype", "shape"))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def amount(one: Any, other: Any) -> str:
    """Describe how far two stored fields are apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in ("dtype", "shape"):
            if one[key] != other[key]:
                return f"{key} {one[key]} -> {other[key]}"
        if "rms" not in one:
            return "other labels"
        pairs = zip(one["values"], other["values"], strict=True)
        finite = [abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        largest = max(finite, default=0.0)
        unit = max(one["rms"], other["rms"]) or 1.0
        return f"{largest / unit:.1e} of the root mean square, in {len(finite)} values"
    if is_number(one) and is_number(other) and not isinstance(one, bool):
        relative = abs(one - other) / (max(abs(one), abs(other)) or 1.0)
        return f"{one!r} -> {other!r} ({relative:.1e} relative)"
    short = [
        str(value["shape"]) if isinstance(value, dict) else repr(value) for value in (one, other)
    ]
    return f"{short[0][:80]} -> {short[1][:80]}"


def renamed_fields(one: dict[str, Any], other: dict[str, Any]) -> dict[str, str]:
    """Return fields that are in one case only and have a counterpart with the same content."""
    left = [name for name in other if name not in one]
    found: dict[str, str] = {}
    for name, value in one.items():
        if name not in other:
            matches = [new for new in left if same(value, other[new])]
            if matches:
                found[name] = matches[0]
                left.remove(matches[0])
    return found


def differences(
    one: dict[str, Any], other: dict[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a case that differ, with the amount, and those that were renamed."""
    if "raises" in one or "raises" in other:
        kinds = [case.get("raises", "a result") for case in (one, other)]
        return ({} if kinds[0] == kinds[1] else {"raises": f"{kinds[0]} -> {kinds[1]}"}), {}
    renamed = renamed_fields(one, other)
    taken = {*renamed, *renamed.values()}
    found: dict[str, str] = {}
    for name in [*one, *(name for name in other if name not in one)]:
        if name in taken:
            continue
        if name not in other or name not in one:
            found[name] = f"only in the {'first' if name in one else 'second'} record"
        elif not same(one[name], other[name]):
            found[name] = amount(one[name], other[name])
    return found, renamed


def same_fields(one: Any, other: Any) -> bool:
    """Return whether two results have the same fields."""
    pair = [dict(flatten(value)) for value in (one, other)]
    return differences(*pair) == ({}, {})


def compare(first: Path, second: Path, only: str | None) -> int:
    """Print what differs between two records; return 1 if a result differs, else 0."""
    records = [json.loads(path.read_text()) for path in (first, second)]
    one, other = (
        {
            name: case
            for name, case in found["cases"].items()
            if only is None or re.search(only, name)
        }
        for found in records
    )
    for key, value in records[0]["environment"].items():
        if records[1]["environment"].get(key) != value:
            now = records[1]["environment"].get(key)
            print(f"environment: {key} {value} -> {now}; bits may differ for this reason")
    equal = 0
    wording = 0
    renamed: dict[str, str] = {}
    different = []
    for name in [name for name in one if name in other]:
        found, new_names = differences(one[name], other[name])
        renamed |= new_names
        wording += any(field.startswith("text.") for field in found)
        results = {field: how for field, how in found.items() if not field.startswith("text.")}
        if results:
            different.append(name)
            print(name)
            for field, how in results.items():
                print(f"    {field}: {how}")
        else:
            equal += 1
    missing = [name for name in one if name not in other]
    added = [name for name in other if name not in one]
    for label, names in (("first", missing), ("second", added)):
        for name in names:
            print(f"{name}: only in the {label} record")
    for old, new in renamed.items():
        print(f"renamed, with the same content: {old} -> {new}")
    print(
        f"{equal} cases are equal, {len(different)} differ, "
        f"{len(missing) + len(added)} are in one record only"
    )
    print(f"the wording of messages differs in {wording} cases (not counted)")
    return int(bool(different or missing or added))
