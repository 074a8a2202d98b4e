"""The page of the papers' protocols: ``python -m benchmarks.preset_page > docs/papers/presets.md``.

Each row is a statement of a preset: the words of the paper, and what they set.
"""

from __future__ import annotations

from credibly.papers import PRESETS

HEAD = """# Presets

`--preset NAME` trains with the settings of a paper, for example `credibly train coco:PATH --preset
spa-coco --out runs/x`. A configuration file overrides the preset, and flags override both. The
table quotes each paper and shows the settings that follow. "Ours" marks choices that the paper does
not state.

`python -m benchmarks.preset_page` writes this page.

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
            f"| `{name}` | data from `{kind}:` | "
            + ", ".join(f"`{key} = {str(value).lower()}`" for key, value in options.items())
            + " |"
            for kind, options in preset.of_data.items()
        ]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
