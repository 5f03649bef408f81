// Words that support or oppose a label, marked in a text.

import { element } from "./dom.js";

const FAINT = 0.04; // of the strongest pull: not marked

/** From code points, as the server counts, to UTF-16 units. */
function places(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (place) => place;
  const starts = [0];
  for (const point of text) starts.push(starts.at(-1) + point.length);
  return (place) => starts[place];
}

/** Split spans, which may overlap, into pieces that do not. */
function pieces(spans) {
  const steps = new Map();
  const step = (place, pull) => steps.set(place, (steps.get(place) ?? 0) + pull);
  for (const { start, end, pull } of spans) step(start, pull), step(end, -pull);
  const cuts = [...steps].sort((a, b) => a[0] - b[0]);
  let pull = 0;
  return cuts.slice(0, -1).map(([start, by], i) => ({ start, end: cuts[i + 1][0], pull: (pull += by) }));
}

/** The text as nodes; stronger words get a larger `--strength`. */
export function marked(text, spans) {
  const place = places(text);
  const most = Math.max(...spans.map(({ pull }) => Math.abs(pull)));
  const nodes = [];
  let done = 0;
  for (const { start, end, pull } of pieces(spans)) {
    const strength = Math.abs(pull) / most;
    if (!(strength >= FAINT)) continue;
    nodes.push(text.slice(done, place(start)));
    const mark = element("mark", text.slice(place(start), (done = place(end))));
    mark.className = pull > 0 ? "for" : "against";
    mark.style.setProperty("--strength", strength.toFixed(2));
    nodes.push(mark);
  }
  return [...nodes, text.slice(done)];
}
