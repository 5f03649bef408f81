// Evidence for a label.

import { change, chips, element, inside, made, percent, score } from "./dom.js";

export function evidence({ score: all, examples, others, regression, named, features }) {
  const node = made("evidence");
  const at = inside(node);
  const shown = examples.reduce((sum, { share }) => sum + share, 0);
  const texts = Object.entries({
    "from the examples below": shown, "from other examples": others, "from words": regression, "from its names": named,
  }).filter(([, share]) => share / all >= 0.005).map(([from, share]) => `${percent(share / all)} ${from}`);
  at("p").textContent = `Score ${score(all)}${texts.length ? `: ${texts.join(", ")}` : ""}.`;
  const words = features.filter(([, pull]) => Math.abs(pull) >= 0.005);
  fill(at(".words"), words.map(([name, pull]) => word(name, pull, Math.abs(pull / words[0][1]))));
  fill(at(".examples"), merged(examples).map((shown) => example(shown, all)));
  return node;
}

// A document that is both a row and its labels is shown once.
function merged(examples) {
  const found = new Map();
  for (const one of examples) {
    const key = one.n_rows === 1 && one.documents.length ? one.documents[0].id : one;
    found.set(key, { ...one, share: one.share + (found.get(key)?.share ?? 0) });
  }
  return [...found.values()].sort((a, b) => b.share - a.share);
}

function fill(part, items) {
  part.hidden = !items.length;
  part.lastElementChild.append(...items);
}

function word(name, pull, strength) {
  const node = element("li", "", element("bdi", String(name)), element("span", change(pull)));
  node.className = pull > 0 ? "for" : "against";
  node.style.setProperty("--strength", strength.toFixed(2));
  return node;
}

function example({ documents, labels, share, n_rows: rows }, all) {
  const node = made("example");
  const at = inside(node);
  const { id, text } = documents[0] ?? {};
  at(".excerpt").textContent = text ?? "";
  at("span").textContent = percent(all > 0 ? share / all : 0);
  at("bdi").textContent = rows > 1 ? `${rows} documents with these tags` : (id ?? "");
  at(".chips").append(...chips(labels));
  return node;
}
