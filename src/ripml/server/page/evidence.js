// Evidence for a label.

import { change, chips, count, element, inside, made, percent, score } from "./dom.js";

const BEST = 2; // examples and words that are shown at once
const NAMED = 4; // words of the first sentence
const BEFORE = 60; // characters of an example before its first word

export function evidence({ score: all, examples, others, regression, named, features }) {
  const node = made("evidence");
  const at = inside(node);
  const shown = examples.reduce((sum, { share }) => sum + share, 0);
  const texts = Object.entries({
    "from the examples below": shown, "from other examples": others, "from words": regression, "from its names": named,
  }).filter(([, share]) => share / all >= 0.005).map(([from, share]) => `${percent(share / all)} ${from}`);
  at("details p").textContent = `Score ${score(all)}${texts.length ? `: ${texts.join(", ")}` : ""}.`;
  const words = features.filter(([, pull]) => Math.abs(pull) >= 0.005);
  const found = merged(examples);
  const shared = wordsOf(words.filter(([, pull]) => pull > 0).map(([name]) => String(name)));
  at(".because").append(...because(shared.slice(0, NAMED), found));
  fill(at(".words"), words.map(([name, pull]) => word(name, pull, Math.abs(pull / words[0][1]))));
  const shownOf = (some) => some.map((one) => example(one, all, shared));
  fill(at(".examples"), shownOf(found.slice(0, BEST)));
  fill(at(".others"), shownOf(found.slice(BEST)));
  return node;
}

/** One sentence: what the text shares with how many documents. */
function because(words, examples) {
  const n = examples.reduce((sum, { n_rows: rows }) => sum + rows, 0);
  const list = words.flatMap((one, i) => [i ? ", " : "", element("b", "", element("bdi", one))]);
  const documents = n ? `${count(n, "document")} tagged so` : "";
  if (!list.length) return documents ? [`Because it is like ${documents}.`] : ["Because of many words that say a little each."];
  return ["Because of ", ...list, documents ? ` as in ${documents}.` : "."];
}

/** The words of the features, each once: "apple" of "apple (title)". */
const wordsOf = (names) => [...new Set(names.map((name) => name.replace(/ \(.*\)$/, "")))];

/** A text from near its first shared word on, with these words marked. */
function excerpt(text, words) {
  const escaped = words.map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const start = (one) => (/^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u.test(one) ? one : `(?<![\\p{L}\\p{N}])${one}`);
  if (!escaped.length) return [text];
  const pattern = new RegExp(`(${escaped.map(start).join("|")})`, "giu");
  const first = text.search(pattern);
  const from = first > 2 * BEFORE ? text.lastIndexOf(" ", first - BEFORE) + 1 : 0;
  return [from ? "… " : "", ...text.slice(from, from + 600).split(pattern).map((part, i) => (i % 2 ? Object.assign(element("mark", part), { className: "for" }) : part))];
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

function example({ documents, labels, share, n_rows: rows }, all, shared) {
  const node = made("example");
  const at = inside(node);
  const { id, text } = documents[0] ?? {};
  at(".excerpt").append(...excerpt(text ?? "", shared));
  at("span").textContent = percent(all > 0 ? share / all : 0);
  at("bdi").textContent = rows > 1 ? `${rows} documents with these tags` : (id ?? "");
  at(".chips").append(...chips(labels));
  return node;
}
