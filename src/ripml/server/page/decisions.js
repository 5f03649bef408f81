// Recent decisions, from the store's history: the last change of each document.

import { $, chips, inside, made, when } from "./dom.js";

const KINDS = { learn: "learnt", relabel: "tags changed", replace: "text changed", forget: "forgotten" };
const LIMIT = 60; // changes
const SHOWN = 8; // documents
const EXCERPT = 200; // characters

export class Decisions {
  #store = null;
  #texts = new Map(); // id → text, also of documents forgotten here

  /** `undone(sentence, id, labels)`: its labels now, or null; `edit(document)`. */
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
    const last = new Map();
    for (const change of (await store.history(LIMIT)).changes)
      if (change.kind in KINDS && change.id != null && !last.has(change.id)) last.set(change.id, change);
    const known = [...last.values()].filter(({ id, kind }) => kind !== "forget" || this.#texts.has(id));
    const shown = known.slice(0, SHOWN);
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
    const { id, kind, before, after, time } = change;
    const row = made("decision");
    const at = inside(row);
    const gone = kind === "forget";
    const name = (this.#texts.get(id) || id).slice(0, EXCERPT);
    const can = { learn: true, relabel: before, forget: before };
    row.classList.toggle("gone", gone);
    at(".excerpt").textContent = name;
    at(".chips").append(...chips((gone ? before : after) ?? []));
    at("time").textContent = `${KINDS[kind]} · ${when(time)}`;
    at("time").dateTime = time;
    this.#button(at(".edit"), "Edit", name, !gone, async () => this.edit(await this.#store.document(id)));
    this.#button(at(".back"), gone ? "Restore" : "Undo", name, can[kind], () => this.#undo(change));
    return row;
  }

  #button(button, verb, name, can, call) {
    button.hidden = !can;
    button.textContent = verb;
    button.ariaLabel = `${verb}: ${name}`;
    button.onclick = () => call().catch(this.failed);
  }

  async #undo({ id, kind, before }) {
    if (kind === "learn") await this.#store.forget(id);
    else if (kind === "relabel") await this.#store.relabel(id, before);
    else await this.#store.learn({ id, text: this.#texts.get(id), labels: before });
    this.undone(kind === "forget" ? "Restored." : "Undone.", id, kind === "learn" ? null : before);
  }
}
