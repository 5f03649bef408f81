"""What notebooks show: small pieces of HTML and SVG without scripts, files or addresses, readable in light and dark.

Text has the colour of the notebook, and everything else is a tint of it or of one accent that both backgrounds bear, so
that nothing has to be known about the theme. Whatever comes from data goes through `text`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["card", "curve", "figures", "note", "rank_bars", "share_bar", "table", "text"]

_STYLE = """
.ripml{max-width:60rem;margin:.25rem 0 1rem;color:inherit;font:14px/1.5 system-ui,"Noto Sans",sans-serif;
overflow-wrap:anywhere}
.ripml *{box-sizing:border-box}
.ripml h3,.ripml h4{margin:0;color:inherit;font-size:1.0625rem;font-weight:600;line-height:1.4}
.ripml h4{font-size:.9375rem}
.ripml p{margin:.375rem 0 0}
.ripml .soft{opacity:.9}
.ripml .figures{display:flex;flex-wrap:wrap;gap:.5rem 2.25rem;margin:.75rem 0 0}
.ripml .figures div{min-width:4.5rem}
.ripml .figures dt{opacity:.9;font-weight:400;font-size:.8125rem}
.ripml .figures dd{margin:0;font-size:1.375rem;line-height:1.3;font-variant-numeric:tabular-nums}
.ripml .plots{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;margin:1rem 0 0}
.ripml figure{margin:0;flex:0 1 20rem}
.ripml figcaption{margin-bottom:.25rem;opacity:.9;font-size:.8125rem}
.ripml svg{display:block;width:100%;height:auto;overflow:visible}
.ripml svg text{fill:currentColor;font:11px system-ui,"Noto Sans",sans-serif;font-variant-numeric:tabular-nums}
.ripml table{width:auto;margin:.75rem 0 0;border:0;border-collapse:collapse;color:inherit;font-size:.875rem}
.ripml tr{background:none!important;color:inherit}
.ripml th,.ripml td{padding:.25rem 1.25rem .25rem 0;border:0;border-top:1px solid #8884;
text-align:start!important;vertical-align:top;white-space:normal;color:inherit}
.ripml thead th{border-top:0;opacity:.9;font-weight:400}
.ripml .n{font-variant-numeric:tabular-nums;white-space:nowrap}
.ripml .bar{display:inline-block;width:6rem;height:.5rem;margin-inline-end:.5rem;border-radius:.25rem;
background:#8883;vertical-align:middle}
.ripml .bar i{display:block;height:100%;border-radius:inherit;background:#2f9e8f}
.ripml .label{display:inline-block;margin:.125rem .375rem 0 0;padding:0 .5rem;border:1px solid #8886;
border-radius:1rem;font-size:.8125rem}
.ripml .source{max-height:18rem;margin:.625rem 0 0;padding:.625rem .875rem;overflow:auto;
border:1px solid #8884;border-radius:.5rem;white-space:pre-wrap;line-height:1.7}
.ripml mark{padding:.1em .05em;border-radius:.2em;background:none;color:inherit}
.ripml mark.for{background:rgb(47 158 143/var(--tone,.3));box-shadow:inset 0 -2px #2f9e8f}
.ripml mark.against{text-decoration:underline wavy 1.5px currentColor;text-underline-offset:.2em}
.ripml details{margin:.625rem 0 0}
.ripml summary{cursor:pointer}
.ripml summary strong{margin-inline-end:.75rem}
.ripml section+section,.ripml .answer+.answer{margin-top:1rem;padding-top:.75rem;border-top:1px solid #8884}
@media (forced-colors:active){.ripml mark.for{outline:1px solid}.ripml .bar i{background:Highlight}}
"""
_ACCENT = "#2f9e8f"
_WIDTH, _HEIGHT = 320, 150  # of a plot, with room for its numbers:
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 8, 8, 34


def text(value: Any) -> str:
    """A value as text that HTML cannot mistake for tags.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value))


def card(title: str, *parts: str) -> str:
    """Pieces of HTML under a title, with the styles that they need."""
    heading = f"<h3>{text(title)}</h3>" if title else ""
    style = _STYLE.replace("\n", "")
    return f'<style>{style}</style><div class="ripml" dir="auto">{heading}{"".join(parts)}</div>'


def note(sentence: str) -> str:
    """A sentence in a softer tone.

    >>> note("1 < 2")
    '<p class="soft">1 &lt; 2</p>'
    """
    return f'<p class="soft">{text(sentence)}</p>'


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Numbers, each under its name.

    >>> figures([("labels", "1,200")])
    '<dl class="figures"><div><dt>labels</dt><dd>1,200</dd></div></dl>'
    """
    cells = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in values)
    return f'<dl class="figures">{"".join(cells)}</dl>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; `columns` are names."""
    head = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def share_bar(share: float) -> str:
    """A number from 0 to 1 as a bar and in digits.

    >>> share_bar(0.5)
    '<span class="n"><span class="bar" aria-hidden="true"><i style="width:50%"></i></span>0.500</span>'
    """
    width = 100 * min(max(share, 0.0), 1.0)
    bar = f'<span class="bar" aria-hidden="true"><i style="width:{width:.3g}%"></i></span>'
    return f'<span class="n">{bar}{share:.3f}</span>'


def rank_bars(caption: str, values: Sequence[tuple[str, float]]) -> str:
    """Numbers from 0 to 1 as bars, each with its name and value."""
    step = _HEIGHT / max(len(values), 1)
    parts = []
    for i, (name, value) in enumerate(values):
        y, width = i * step + step / 2, 210 * min(max(value, 0.0), 1.0)
        parts.append(
            f'<text x="0" y="{y + 4:.1f}">{text(name)}</text>'
            f'<rect x="38" y="{y - 9:.1f}" width="210" height="18" rx="4" fill="#888" fill-opacity=".2"/>'
            f'<rect x="38" y="{y - 9:.1f}" width="{width:.1f}" height="18" rx="4" fill="{_ACCENT}"/>'
            f'<text x="258" y="{y + 4:.1f}">{100 * value:.1f} %</text>'
        )
    said = ", ".join(f"{name} {100 * value:.1f} %" for name, value in values)
    return _figure(caption, said, "".join(parts))


def curve(caption: str, x_name: str, said: str, x: Sequence[float], y: Sequence[float], low: float = 0.0) -> str:
    """A line through points with x from 0 to 1 and y from `low` to 1; `said` is what it says, for those who listen."""
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(a: float, b: float) -> str:
        return f"{_LEFT + across * a:.1f},{_TOP + down * (1 - (b - low) / (1 - low)):.1f}"

    parts = []
    for i in range(3):
        level = low + (1 - low) * i / 2
        height = place(0, level).split(",")[1]
        parts.append(
            f'<path d="M{_LEFT},{height}H{_WIDTH - _RIGHT}" stroke="currentColor" stroke-opacity=".18"/>'
            f'<text x="{_LEFT - 6}" y="{float(height) + 4:.1f}" text-anchor="end">{100 * level:.0f} %</text>'
        )
        across_at = place(i / 2, low).split(",")[0]
        anchor = ("start", "middle", "end")[i]
        parts.append(f'<text x="{across_at}" y="{_HEIGHT - 18}" text-anchor="{anchor}">{50 * i} %</text>')
    points = " ".join(place(a, min(max(b, low), 1.0)) for a, b in zip(x, y, strict=True))
    parts.append(
        f'<polyline points="{points}" fill="none" stroke="{_ACCENT}" stroke-width="2.5" stroke-linejoin="round"/>'
    )
    parts.append(f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 2}" text-anchor="middle">{text(x_name)}</text>')
    return _figure(caption, said, "".join(parts))


def _figure(caption: str, said: str, drawing: str) -> str:
    return (
        f"<figure><figcaption>{text(caption)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(f"{caption}: {said}")}">'
        f"{drawing}</svg></figure>"
    )
