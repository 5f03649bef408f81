// Charts with their tables: one call draws both from the same numbers. The global `uPlot` is in vendor/.

import { element, percent, unseen } from "./dom.js";

const HEIGHT = 256;
const FONT = "12px system-ui, sans-serif";
const shown = new Map(); // place → what is drawn there

/** A colour of the theme as the canvas needs it. */
function colour(name) {
  const probe = document.body.appendChild(element("i", ""));
  probe.style.color = `var(--${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** A table with a caption for screen readers; `rows` have as many texts as `head`. */
function table(caption, head, rows) {
  const cells = (tag, texts, scope) => texts.map((text) => Object.assign(element(tag, text), scope && { scope }));
  const top = element("thead", "", element("tr", "", ...cells("th", head, "col")));
  const lines = rows.map(([first, ...rest]) => element("tr", "", ...cells("th", [first], "row"), ...cells("td", rest)));
  const node = element("table", "", Object.assign(element("caption", caption), { className: "unseen" }), top, element("tbody", "", ...lines));
  return node;
}

const swatch = ({ colour: name, dash }) => Object.assign(element("i", ""), { className: `swatch ${name}${dash ? " dashed" : ""}`, ariaHidden: "true" });

/**
 * Draw a chart into a figure, in place of an earlier one.
 *
 * `title` says what it shows; `x`: rising numbers; `names`: their names, if they are things in an order; `xTitle`,
 * `xWrite`; `series`: [{name, values, colour, dash, points, line}], whose values may be null; `low`, `high`: what y
 * shows, by default 0 to 1; `write`: a value as text; `rows`: [head, rows] of the table, by default all values;
 * `diagonal`: also where x is y; `drawn(plot)`: called whenever the canvas was drawn.
 */
export function chart(place, options) {
  const { title, x, xTitle, xWrite = String, names, series, write = percent, rows } = options;
  place.hidden = false;
  shown.get(place)?.plot.destroy();
  const values = series.map(({ name, ...line }) => {
    const value = element("b", "");
    return { item: element("li", "", swatch(line), name, " ", value), value };
  });
  const legend = Object.assign(element("ul", "", ...values.map(({ item }) => item)), { className: "chart-legend" });
  const canvas = Object.assign(element("div", ""), { className: "canvas", role: "img", ariaLabel: `${title}. The numbers are in the table below.` });
  const [head, body] = rows ?? [[xTitle, ...series.map(({ name }) => name)], x.map((at, i) => [names?.[i] ?? xWrite(at), ...series.map((one) => cell(one.values[i], write))])];
  const scroll = Object.assign(element("div", "", table(title, head, body)), { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Table: ${title}` });
  const details = element("details", "", element("summary", "Table", unseen(`: ${title}`)), scroll);
  const open = place.querySelector("details")?.open;
  details.open = Boolean(open);
  place.replaceChildren(legend, canvas, details);
  const hover = (plot) => {
    const { idx } = plot.cursor;
    values.forEach(({ value }, i) => (value.textContent = idx == null || series[i].values[idx] == null ? "" : write(series[i].values[idx])));
  };
  const plot = new uPlot(settings(options, canvas, hover), [x, ...series.map((one) => one.values)], canvas);
  shown.set(place, { plot, options });
}

/** Take a chart away. */
export function clear(place) {
  place.hidden = true;
  shown.get(place)?.plot.destroy();
  shown.delete(place);
}

const cell = (value, write) => (value == null ? "–" : write(value));

function settings({ x, names, xTitle, xWrite = String, series, low = 0, high = 1, write = percent, diagonal, drawn = () => {} }, canvas, hover) {
  const soft = colour("soft");
  const axis = { stroke: soft, font: FONT, labelFont: FONT, ticks: { show: false }, grid: { stroke: colour("line"), width: 1 } };
  const margin = names ? 0.5 : 0;
  const wide = Math.max(canvas.clientWidth, 200);
  const room = names && 16 + 7 * Math.max(...names.map(({ length }) => length)); // pixels of a name
  const step = names ? Math.ceil((names.length * room) / Math.max(1, wide - 60)) : 1;
  const xAxis = { ...axis, size: 32, grid: { show: false } };
  if (xTitle) Object.assign(xAxis, { label: xTitle, labelSize: 20 });
  if (names) Object.assign(xAxis, { splits: () => x.filter((_, i) => i % step === 0), values: (_, at) => at.map((i) => names[i]) });
  else xAxis.values = (_, at) => at.map(xWrite);
  return {
    width: wide,
    height: HEIGHT,
    padding: [12, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: false, range: [(x[0] ?? 0) - margin, (x.at(-1) ?? 1) + margin] }, y: { range: [low, high] } },
    axes: [xAxis, { ...axis, size: 48, values: (_, at) => at.map(write) }],
    series: [{}, ...series.map((one) => line(one))],
    hooks: { setCursor: [hover], drawAxes: diagonal ? [drawDiagonal(soft)] : [], draw: [drawn] },
  };
}

function line({ colour: name, dash, points = false, line: joined = true }) {
  const stroke = colour(name);
  return {
    stroke: joined ? stroke : "transparent",
    width: 2,
    dash: dash ? [6, 4] : undefined,
    spanGaps: true,
    points: { show: points, size: 8, fill: stroke, stroke },
  };
}

const drawDiagonal = (stroke) => (plot) => {
  const { ctx } = plot;
  const at = (value, scale) => plot.valToPos(value, scale, true);
  ctx.save();
  Object.assign(ctx, { strokeStyle: stroke, lineWidth: devicePixelRatio });
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(at(0, "x"), at(0, "y"));
  ctx.lineTo(at(1, "x"), at(1, "y"));
  ctx.stroke();
  ctx.restore();
};

// Size and theme.

function resize() {
  for (const [place, { plot }] of shown) {
    const wide = place.querySelector(".canvas").clientWidth;
    if (wide && wide !== plot.width) plot.setSize({ width: wide, height: HEIGHT });
  }
}

function redraw() {
  for (const [place, { options }] of shown) chart(place, options);
}

addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// Paper is light.
let theme;
addEventListener("beforeprint", () => {
  const { dataset } = document.documentElement;
  theme = dataset.theme;
  dataset.theme = "light";
  redraw();
});
addEventListener("afterprint", () => {
  const { dataset } = document.documentElement;
  if (theme) dataset.theme = theme;
  else delete dataset.theme;
});

/** Give charts their size that were drawn while nobody saw them. */
export const seen = resize;
