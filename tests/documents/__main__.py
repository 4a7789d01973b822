"""Writes the generated pages and parts of pages."""

from __future__ import annotations

from tests.documents.made import MADE, ROOT


def main() -> None:
    """Write each page that is not fresh."""
    for name, make in MADE.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
