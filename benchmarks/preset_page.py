"""The page of the papers' protocols: ``python -m benchmarks.preset_page > docs/papers/presets.md``.

Each row is a statement of a preset: the words of the paper, and what they set.
"""

from __future__ import annotations

from credibly.papers import PRESETS

HEAD = """# Presets

`--preset NAME` sets what a paper says: `credibly train coco:PATH --preset spa-coco --out runs/x`. A
configuration file overrides the preset, and flags override both. The papers' own words, and what
each becomes; this page is written by `python -m benchmarks.preset_page`.

| preset | the paper | settings |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    lines = []
    for name, preset in PRESETS.items():
        lines += [
            f"| `{name}` | {each.words} | {', '.join(f'`{value}`' for value in each.values())} |"
            for each in preset.statements
        ]
        lines += [
            f"| `{name}` | of `{kind}:` | "
            + ", ".join(f"`{key} = {str(value).lower()}`" for key, value in options.items())
            + " |"
            for kind, options in preset.of_data.items()
        ]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
