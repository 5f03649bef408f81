"""Draw docs/architecture.svg: the packages of ripml in their layers, with an arrow for each import between them.

The layers come from the import contract in pyproject.toml and the arrows from the imports in the source, so the picture
cannot disagree with the code. An arrow that follows from others is left out: where `store` imports `tagging` and
`tagging` imports `model`, there is no arrow from `store` to `model`.

An arrow that crosses a layer runs through a lane between the boxes of that layer; arrows to the same package share it.
The order within each layer is the one with the fewest crossings and the shortest arrows.

    python docs/_site/architecture.py > docs/architecture.svg
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from pathlib import Path
from random import Random

import grimp
from importlinter import api

ROOT = Path(__file__).resolve().parents[2]
METHOD = {"labels", "regression", "neighbors", "decoding", "model"}  # tinted: the method itself

WIDTH, MARGIN, GUTTER = 1020, 40, 52  # GUTTER: the height between two layers, where arrows run
LANE, GAP, TITLE, LINE, PADDING = 10, 24, 24, 17, 9  # GAP: the least space between two items of a layer
STARTS = 12  # random orders to start from
CHARACTER = 7.4  # mean width of a character of the list of modules, in pixels


@dataclass(frozen=True)
class Item:
    """A box with its lines of text, or a lane for the arrows to another package (no lines)."""

    name: str
    layer: int
    lines: tuple[str, ...] = ()

    @property
    def is_box(self) -> bool:
        """Whether this is a package and not a lane."""
        return bool(self.lines)

    @property
    def width(self) -> float:
        """The width in pixels."""
        return max(120, 24 + CHARACTER * max(len(line) for line in self.lines)) if self.is_box else LANE


Segment = tuple[Item, Item]
Order = list[list[Item]]


def layers() -> list[list[str]]:
    """The packages of each layer, top layer first, as the import contract has them."""
    contract = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"][0]
    return [[name.strip() for name in layer.replace("|", ":").split(":")] for layer in contract["layers"]]


def package_of(module: str) -> str:
    """The package (or single module) of ripml that a module belongs to; "" for ripml itself."""
    return [*module.split("."), ""][1]


def imports(graph: grimp.ImportGraph, packages: set[str]) -> set[tuple[str, str]]:
    """(importer, imported) for every two packages, without the pairs that follow from others."""
    pairs = {
        (package_of(importer), package_of(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    pairs = {(a, b) for a, b in pairs if a != b and a in packages and b in packages}
    return {pair for pair in pairs if not reachable(*pair, pairs - {pair})}


def reachable(start: str, end: str, pairs: set[tuple[str, str]]) -> bool:
    """Whether a chain of imports leads from one package to another."""
    found, waiting = set(), [start]
    while waiting:
        package = waiting.pop()
        for imported in sorted(b for a, b in pairs if a == package and b not in found):
            found.add(imported)
            waiting.append(imported)
    return end in found


def boxes(graph: grimp.ImportGraph) -> list[list[Item]]:
    """A box for each package, with the names of its modules."""
    result = []
    for number, packages in enumerate(layers()):
        row = []
        for name in packages:
            children = sorted(child.rpartition(".")[2] for child in graph.find_children(f"ripml.{name}"))
            listed = ", ".join(children) or "one module"
            columns = max(22, min(46, round(len(listed) / 2.8)))
            row.append(Item(name, number, (*textwrap.wrap(listed, columns, break_on_hyphens=False),)))
        result.append(row)
    return result


def route(rows: Order, pairs: set[tuple[str, str]]) -> tuple[Order, set[Segment], list[Segment]]:
    """Add the lanes that arrows need; return the rows, the segments between layers and the arrows within a layer."""
    box = {item.name: item for row in rows for item in row}
    rows = [list(row) for row in rows]
    segments, level = set(), []
    for importer, imported in sorted(pairs):
        start, end = box[importer], box[imported]
        if start.layer == end.layer:
            level.append((start, end))
            continue
        lanes = [Item(imported, number) for number in range(start.layer + 1, end.layer)]
        for lane in lanes:
            if lane not in rows[lane.layer]:
                rows[lane.layer].append(lane)
        segments |= set(pairwise([start, *lanes, end]))
    return rows, segments, level


def centres(row: list[Item]) -> dict[Item, float]:
    """Where the middle of each item is, with the free space shared out evenly between them."""
    free = WIDTH - 2 * MARGIN - sum(item.width for item in row)
    gap = max(float(GAP), free / (len(row) + 1))
    x = MARGIN + gap if free > 0 else MARGIN
    result = {}
    for item in row:
        result[item] = x + item.width / 2
        x += item.width + gap
    return result


def cost(place: dict[Item, float], segments: list[Segment], level: list[Segment]) -> float:
    """What an order is judged by: crossings first, then the sideways length of arrows."""
    spans = [(place[a], place[b], a.layer) for a, b in segments]
    crossings = sum(
        (p[0] - q[0]) * (p[1] - q[1]) < 0 for p, q in combinations(spans, 2) if p[2] == q[2] and p[0] != q[0]
    )
    sideways = sum(abs(start - end) for start, end, _ in spans) + 2 * sum(abs(place[a] - place[b]) for a, b in level)
    return 400 * crossings + sideways


def arrange(rows: Order, segments: set[Segment], level: list[Segment]) -> dict[Item, float]:
    """Find the order of every layer by trying all orders of one layer at a time until nothing improves."""
    place = {item: x for row in rows for item, x in centres(row).items()}
    ordered = sorted(segments, key=segment_name)
    improved = True
    while improved:
        improved = False
        for number, row in enumerate(rows):
            near = [pair for pair in ordered if number in (pair[0].layer, pair[1].layer)]
            inside = [pair for pair in level if pair[0].layer == number]
            best = cost(place, near, inside)
            for candidate in permutations(row):
                trial = {**place, **centres(list(candidate))}
                if (value := cost(trial, near, inside)) < best - 1e-6:
                    best, place, improved = value, trial, True
    return place


def straighten(place: dict[Item, float], rows: Order, segments: set[Segment]) -> dict[Item, float]:
    """Move items towards those they are joined to, keeping their order, so that arrows run down and not across."""
    joined: dict[Item, list[Item]] = defaultdict(list)
    for start, end in segments:
        joined[start].append(end)
        joined[end].append(start)
    for _ in range(60):
        for row in rows:
            ordered = sorted(row, key=lambda item: place[item])
            wanted = {
                item: (sum(place[other] for other in joined[item]) + WIDTH / 4) / (len(joined[item]) + 0.5)
                for item in ordered
            }
            # The middle of the picture counts as half an item, so that nothing drifts to one side.
            half_way = {item: (place[item] + wanted[item]) / 2 for item in ordered}
            mirrored = pushed_right({item: WIDTH - x for item, x in half_way.items()}, ordered[::-1])
            x = {item: (x + WIDTH - mirrored[item]) / 2 for item, x in pushed_right(half_way, ordered).items()}
            place = {**place, **x}
    return place


def pushed_right(place: dict[Item, float], ordered: list[Item]) -> dict[Item, float]:
    """Push items apart that are too close: to the right first, and back to the left where the layer ends."""
    x = dict(place)
    x[ordered[0]] = max(x[ordered[0]], MARGIN + ordered[0].width / 2)
    for left, right in pairwise(ordered):
        x[right] = max(x[right], x[left] + (left.width + right.width) / 2 + GAP)
    x[ordered[-1]] = min(x[ordered[-1]], WIDTH - MARGIN - ordered[-1].width / 2)
    for right, left in pairwise(reversed(ordered)):
        x[left] = min(x[left], x[right] - (left.width + right.width) / 2 - GAP)
    return x


def best_layout(rows: Order, segments: set[Segment], level: list[Segment]) -> dict[Item, float]:
    """The best of some layouts, each improved from another random order."""
    random, candidates = Random(0), []
    for _ in range(STARTS):
        place = straighten(arrange(rows, segments, level), rows, segments)
        candidates.append((cost(place, sorted(segments, key=segment_name), level), place))
        rows = [random.sample(row, len(row)) for row in rows]
    return min(candidates, key=lambda candidate: candidate[0])[1]


def segment_name(segment: Segment) -> tuple[int, str, str]:
    """What segments are sorted by, so that every run draws the same picture."""
    return segment[0].layer, segment[0].name, segment[1].name


def ports(segments: set[Segment], place: dict[Item, float]) -> dict[tuple[Segment, bool], float]:
    """The x of both ends of every segment: spread along the edge of a box, in the middle of a lane."""
    ends: dict[tuple[Item, bool], list[Segment]] = defaultdict(list)
    for segment in segments:
        for item, is_start in zip(segment, (True, False), strict=True):
            ends[item, is_start].append(segment)
    result = {}
    for (item, is_start), attached in ends.items():
        attached.sort(key=lambda pair: (place[pair[is_start]], pair[is_start].name))
        spread = min(34.0, (item.width - 40) / max(1, len(attached) - 1)) if item.is_box else 0.0
        for i, segment in enumerate(attached):
            result[segment, is_start] = place[item] + spread * (i - (len(attached) - 1) / 2)
    return result


def rectangle(style: str, x: float, y: float, width: float, height: float) -> str:
    """A box with round corners."""
    return f'<rect {style} x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{height:.0f}" rx="7"/>'


def draw() -> str:
    """The picture as SVG."""
    graph = grimp.build_graph("ripml", cache_dir=None)
    rows = boxes(graph)
    names = {item.name for row in rows for item in row}
    rows, segments, level = route(rows, imports(graph, names))
    place = best_layout(rows, segments, level)

    # The top and the bottom of each layer: as high as its tallest box.
    tops, bottoms, y = [], [], 24.0
    for row in rows:
        tops.append(y)
        y += TITLE + 2 * PADDING + LINE * max(len(item.lines) for item in row)
        bottoms.append(y)
        y += GUTTER
    height = y - GUTTER + 24

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="t d">',
        '<title id="t">Packages of ripml and their imports</title>',
        f'<desc id="d">{len(rows)} layers; imports go down only. Top layer first: '
        + "; ".join(", ".join(sorted(item.name for item in row if item.is_box)) for row in rows)
        + ".</desc>",
        "<style>text{font-family:system-ui,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}"
        ".n{font-size:16.5px;font-weight:600;fill:#134e4a}.m{font-size:13.2px;fill:#475569}.l{font-size:13px;fill:#94a3b8}"
        ".a{fill:none;stroke:#64748b;stroke-width:1.4}.b{fill:#fff;stroke:#94a3b8}.c{fill:#ccfbf1;stroke:#0f766e}</style>",
        '<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 .8 7.5 4 0 7.2z" fill="#64748b"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="#f8fafc"/>',
    ]
    for number, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)):
        out.append(rectangle('fill="#eef2f6"', 12, top - 10, WIDTH - 24, bottom - top + 20))
        out.append(f'<text class="l" x="24" y="{(top + bottom) / 2 + 4:.0f}">{len(rows) - number}</text>')

    # Arrows first, so that boxes lie above them. A lane is a straight line through its layer.
    x_of, head = ports(segments, place), ' marker-end="url(#h)"'
    for segment in sorted(segments, key=segment_name):
        start, end = segment
        x0, x1, y0, y1 = x_of[segment, True], x_of[segment, False], bottoms[start.layer], tops[end.layer]
        bend = (y1 - y0) * 0.55
        curve = f"M{x0:.1f} {y0:.0f}C{x0:.1f} {y0 + bend:.0f} {x1:.1f} {y1 - bend:.0f} {x1:.1f} {y1:.0f}"
        out.append(f'<path class="a" d="{curve}"{head if end.is_box else ""}/>')
    out.extend(
        f'<path class="a" d="M{place[lane]:.1f} {tops[lane.layer]:.0f}V{bottoms[lane.layer]:.0f}"/>'
        for lane in sorted(place, key=lambda lane: (lane.layer, lane.name))
        if not lane.is_box
    )
    for start, end in level:
        side = 1 if place[start] < place[end] else -1
        x0, x1 = place[start] + side * start.width / 2, place[end] - side * end.width / 2
        out.append(f'<path class="a" d="M{x0:.1f} {tops[start.layer] + 24:.0f}H{x1:.1f}"{head}/>')

    for item in sorted((item for item in place if item.is_box), key=lambda item: (item.layer, item.name)):
        x, top, bottom = place[item] - item.width / 2, tops[item.layer], bottoms[item.layer]
        kind = "c" if item.name in METHOD else "b"
        out.append(rectangle(f'class="{kind}"', x, top, item.width, bottom - top))
        out.append(f'<text class="n" x="{x + 12:.1f}" y="{top + PADDING + 14:.0f}">{item.name}</text>')
        for i, line in enumerate(item.lines):
            y = top + PADDING + TITLE + LINE * (i + 0.75)
            out.append(f'<text class="m" x="{x + 12:.1f}" y="{y:.0f}">{line}</text>')
    out.append("</svg>")
    return "\n".join(out)


if __name__ == "__main__":
    print(draw())
