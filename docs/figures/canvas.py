"""A small SVG canvas for the figures of the docs, in a light and a dark version."""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Theme:
    """The colours of a figure.

    Args:
        name: the ending of its file.
        back: background.
        panel: background of a panel.
        line: borders and grids.
        text: text.
        soft: secondary text.
        marks: the series; those of Okabe and Ito, which colour-blind people can distinguish.
    """

    name: str
    back: str
    panel: str
    line: str
    text: str
    soft: str
    marks: tuple[str, ...]


LIGHT = Theme(
    "light", "#ffffff", "#f6f8fa", "#d0d7de", "#1f2328", "#59636e", ("#6e7781", "#0072b2", "#d55e00", "#007a5a")
)
DARK = Theme(
    "dark", "#0d1117", "#161b22", "#3d444d", "#f0f6fc", "#9198a1", ("#9ea7b3", "#56b4e9", "#e69f00", "#3fd1a5")
)


@dataclass
class Canvas:
    """Shapes and texts of one figure.

    Args:
        width: in pixels.
        height: in pixels.
        theme: its colours.
        title: the text for screen readers.
    """

    width: int
    height: int
    theme: Theme
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, fill: str, line: str, *, dashed: bool = False) -> None:
        """Add a rounded rectangle."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="{fill}" stroke="{line}"{dash}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 14,
        fill: str = "",
        mono: bool = False,
        bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """Add a line of text; y is its base line."""
        style = f'font-size="{size:g}" fill="{fill or self.theme.text}" text-anchor="{anchor}"'
        style += f' font-family="{MONO}"' if mono else ""
        style += ' font-weight="600"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>')

    def path(self, data: str, colour: str, *, wide: float = 1.5, arrow: bool = False, dashed: bool = False) -> None:
        """Add a line, with an arrow at its end or without."""
        end = ' marker-end="url(#arrow)"' if arrow else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{data}" fill="none" stroke="{colour}" stroke-width="{wide:g}"{dash}{end}/>')

    def area(self, data: str, colour: str) -> None:
        """Add a filled shape that lets others show through."""
        self.parts.append(f'<path d="{data}" fill="{colour}" fill-opacity="0.16"/>')

    def svg(self) -> str:
        """The whole figure as a text."""
        theme = self.theme
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="{SANS}">\n<title>{escape(self.title)}</title>\n'
            '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{theme.soft}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{theme.back}"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"
