// The model card, and the refit.

import { $, count, element, number, precise, when } from "./dom.js";

const POLL = 1000; // milliseconds
const TABLES = { settings: "Settings", chosen: "Chosen automatically", rules: "Suggestion rules" };

const rows = (values, write = written) =>
  Object.entries(values).map(([name, value]) => element("div", "", element("dt", name), element("dd", write(value))));

/** A setting as text. */
function written(value) {
  if (value === null || value === "") return "—";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isInteger(value) ? number(value) : String(+value.toPrecision(6));
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value) ? value.map(written) : Object.entries(value).map(([name, one]) => `${name} ${written(one)}`);
  return parts.join(", ") || "—";
}

function table(title, values) {
  const list = element("dl", "", ...rows(values));
  list.className = "table";
  return element("div", "", element("h3", title), list);
}

export class Card {
  /** `refitted()`: a new model is in use. */
  constructor({ refitted, failed }) {
    Object.assign(this, { refitted, failed });
    $("refit").addEventListener("click", () => this.#refit());
  }

  async show(store = this.store) {
    this.store = store;
    try {
      const [card, refit] = await Promise.all([store.card(), store.refitting()]);
      this.#fill(card);
      this.#state(refit);
      if (!$("card").open) $("card").showModal();
      if (this.running) this.#follow();
    } catch (error) {
      this.failed(error);
    }
  }

  #fill(card) {
    const { documents, labels, version, features, left_out_precision: precision, warm } = card;
    $("card-title").textContent = card.name;
    $("card-figures").replaceChildren(...rows({ documents, labels, features: features.count, version }));
    const bars = rows(precision ?? {}, precise);
    bars.forEach((bar, i) => bar.style.setProperty("--part", Object.values(precision)[i]));
    $("card-precision").replaceChildren(...bars);
    $("card-precision-part").hidden = !bars.length;
    const { learnt, forgotten, relabelled, decided, labels_added } = warm;
    const changes = { learnt, forgotten, relabelled, decided, "labels added": labels_added };
    const parts = Object.entries(changes).filter(([, n]) => n).map(([what, n]) => `${number(n)} ${what}`);
    const advice = warm.refit_pays ? " A refit is recommended." : "";
    $("card-since").textContent = `${parts.join(", ") || "No changes"} since the model was fitted.${advice}`;
    const tables = { ...card, settings: { features: features.kind, ...card.settings } };
    const filled = Object.keys(TABLES).filter((name) => Object.keys(tables[name] ?? {}).length);
    $("card-tables").replaceChildren(...filled.map((name) => table(TABLES[name], tables[name])));
  }

  #state({ status, detail, last }) {
    this.running = status === "running";
    $("refit").ariaDisabled = String(this.running);
    const texts = { running: "Refitting; the current model stays in use.", failed: detail };
    $("refit-state").textContent = texts[status] ?? (last ? `Last refit: ${when(last)}.` : "");
  }

  async #refit() {
    if (this.running) return;
    this.#state({ status: "running" });
    await this.#tried(() => this.store.refit());
  }

  /** Poll until it is done, even if the card is closed. */
  #follow() {
    const { store } = this;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => store === this.store && this.#tried(() => store.refitting()), POLL);
  }

  async #tried(call) {
    try {
      const refit = await call();
      this.#state(refit);
      if (this.running) return this.#follow();
      if (refit.status === "failed") return;
      if ($("card").open) await this.show();
      this.refitted();
    } catch (error) {
      this.#state({ status: "failed", detail: error.message });
    }
  }
}
