"""Lists of what is expected not to work, and patterns of names."""

import fnmatch
import re


class Entry:
    """A line of such a list: `NAME | TEXT | REASON`."""

    def __init__(self, line, where):
        parts = [part.strip() for part in line.split(" | ")]
        # (A name may have two parts: what the server gets, what the client gets.)
        if len(parts) < 3 or not all(parts):
            raise ValueError(f"{where}: not `NAME | TEXT | REASON`: {line}")
        self.name = " | ".join(parts[:-2])
        self.text, self.reason = parts[-2:]
        self.used = False


def read(file):
    """The entries of a file; `#` begins a comment."""
    entries = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            entries.append(Entry(line, f"{file.name}:{number}"))
    return entries


def like(pattern, name):
    """Shell patterns with `*` and `?` only."""
    text = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(text, name) is not None


def match(entries, name):
    """The entry for a name."""
    for entry in entries:
        if like(entry.name, name):
            entry.used = True
            return entry
    return None


def chosen(patterns, name):
    """Is it like one of these? All are, where there are none."""
    return not patterns or any(like(p, name) or fnmatch.fnmatchcase(name, p) for p in patterns)
