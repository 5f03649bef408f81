// Recent decisions, from the store's history: the last change of each document.

import { $, chips, inside, made, unseen, when } from "./dom.js";

const KINDS = { learn: "learnt", decide: "some tags decided", relabel: "tags changed", replace: "text changed", forget: "forgotten" };
const LIMIT = 60; // changes
const SHOWN = 8; // documents
const EXCERPT = 200; // characters

/** What was known "before" or "after" a change; null if the document did not exist. */
function known(change, side) {
  const { [side]: accepted, [`rejected_${side}`]: rejected } = change;
  return accepted && { accepted, rejected: rejected ?? [], complete: !rejected && accepted.length > 0 };
}

/** Whether nothing was known of a document before a change. */
const blank = ({ before, rejected_before: rejected }) => before?.length === 0 && !rejected;

/** The last change of each document; a decision that was made anew counts as one with the step before it. */
function lastOf(changes) {
  const last = new Map();
  let compacted = false; // older entries do not tell whether the document existed
  for (const change of changes) {
    const { id, kind, number } = change;
    const later = last.get(id);
    compacted ||= kind === "compact";
    if (!(kind in KINDS) || id == null) continue;
    if (!later) last.set(id, { ...change, added: kind === "learn" || (kind === "decide" && !change.before && !compacted) });
    else if (later.kind === "decide" && later.number === number + 1 && blank(later) && kind.startsWith("re"))
      Object.assign(later, { kind: kind === "replace" ? kind : "decide", before: change.before, rejected_before: change.rejected_before });
  }
  return [...last.values()];
}

export class Decisions {
  #store = null;
  #texts = new Map(); // id → text, also of documents forgotten here

  /** `undone(sentence, id, document)`: as it is now, or null; `edit(document)`. */
  constructor({ undone, edit, failed }) {
    Object.assign(this, { undone, edit, failed });
  }

  use(store) {
    this.#store = store;
    this.#texts.clear();
    return this.load();
  }

  remember(id, text) {
    this.#texts.set(id, text);
  }

  async load() {
    const store = this.#store;
    const last = lastOf((await store.history(LIMIT)).changes);
    const shown = last.filter(({ id, kind }) => kind !== "forget" || this.#texts.has(id)).slice(0, SHOWN);
    await Promise.all(shown.map((change) => this.#read(store, change)));
    if (store !== this.#store) return;
    const inside = $("recent").contains(document.activeElement);
    $("recent").replaceChildren(...shown.map((change) => this.#row(change)));
    $("none").hidden = shown.length > 0;
    if (inside) $("recent").querySelector("button:not([hidden])")?.focus();
  }

  async #read(store, { id, kind }) {
    if (kind === "forget" || this.#texts.has(id)) return;
    const { text = "" } = await store.document(id).catch(() => ({})); // forgotten by now
    this.#texts.set(id, text);
  }

  #row(change) {
    const { id, kind, added, before, time } = change;
    const row = made("decision");
    const at = inside(row);
    const gone = kind === "forget";
    const name = (this.#texts.get(id) || id).slice(0, EXCERPT);
    const { accepted, rejected } = known(change, gone ? "before" : "after") ?? { accepted: [], rejected: [] };
    row.classList.toggle("gone", gone);
    at(".excerpt").textContent = name;
    const wrong = chips(rejected);
    for (const chip of wrong) {
      chip.className = "wrong";
      chip.prepend(unseen("wrong: "));
    }
    at(".chips").append(...chips(accepted), ...wrong);
    at("time").textContent = `${KINDS[kind]} · ${when(time)}`;
    at("time").dateTime = time;
    this.#button(at(".edit"), "Edit", name, !gone, async () => this.edit(await this.#store.document(id)));
    this.#button(at(".back"), gone ? "Restore" : "Undo", name, added || (before && kind !== "replace"), () => this.#undo(change));
    return row;
  }

  #button(button, verb, name, can, call) {
    button.hidden = !can;
    button.textContent = verb;
    button.ariaLabel = `${verb}: ${name}`;
    button.onclick = () => call().catch(this.failed);
  }

  async #undo(change) {
    const { id, kind } = change;
    const [from, to] = ["after", "before"].map((side) => known(change, side)).map((one) => one && { id, text: this.#texts.get(id), ...one });
    await this.#store.change(from, to);
    this.undone(kind === "forget" ? "Restored." : "Undone.", id, to);
  }
}
