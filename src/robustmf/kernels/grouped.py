"""Parse rating files that are grouped by item or user (Netflix, KDD Cup) from bytes."""

from __future__ import annotations

from robustmf.kernels.jit import inlined, kernel

#: Results of parsing a line.
FINE, NOT_A_RATING, NO_GROUP, OUT_OF_BOUNDS = 0, 1, 2, 3

#: Character codes, and the largest id.
_NEWLINE, _RETURN, _ZERO, _LARGEST = 10, 13, 48, 2**31 - 1


@inlined
def _integer(text, p):
    """The number at p, its number of digits, and the position of its end."""
    number, first = 0, p
    while _ZERO <= text[p] < _ZERO + 10:
        number = 10 * number + (text[p] - _ZERO)
        p += 1
    return number, p - first, p


@kernel
def parse_grouped(
    text, mark, separator, lowest, highest, begun, members, values, groups, announced, starts
):
    """Parse complete lines.

    ``group mark [count]`` begins a group, ``member separator value [separator …]`` is a rating of
    it. ``starts`` receives the number of ratings before a group, ``announced`` its count or -1;
    ``begun`` is true if the text begins within a group. Returns the numbers of ratings, groups and
    lines, and the problem of the last line.
    """
    n_ratings, n_groups, line, p, problem = 0, 0, 0, 0, FINE
    while p < len(text) and problem == FINE:
        line += 1
        number, digits, p = _integer(text, p)
        kind = text[p]
        if kind in (mark, separator) and 0 < digits <= 10 and number <= _LARGEST:
            value, value_digits, p = _integer(text, p + 1)
            if value_digits > 10 or (kind == separator and value_digits == 0):
                problem = NOT_A_RATING
            elif kind == mark:
                groups[n_groups], announced[n_groups], starts[n_groups] = (
                    number,
                    value if value_digits else -1,
                    n_ratings,
                )
                n_groups += 1
            elif n_groups == 0 and not begun:
                problem = NO_GROUP
            elif value < lowest or value > highest:
                problem = OUT_OF_BOUNDS
            else:
                members[n_ratings], values[n_ratings] = number, value
                n_ratings += 1
                if text[p] == separator:
                    while text[p] != _NEWLINE:
                        p += 1
        elif digits:
            problem = NOT_A_RATING
        if text[p] == _RETURN:
            p += 1
        if problem == FINE and text[p] != _NEWLINE:
            problem = NOT_A_RATING
        p += 1
    return n_ratings, n_groups, line, problem
