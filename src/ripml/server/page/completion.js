// A combobox over all labels (ARIA: list autocomplete with automatic selection).

import { latest } from "./api.js";
import { count, element, later, nameOf, say, show } from "./dom.js";

const NEW = "new label";

export class Completion {
  #active = 0;
  #picks = false; // Enter was pressed before the response
  #ask = latest();
  #soon = later(() => this.#look(), 120);

  /** `search(prefix, signal)` finds labels, `pick(name, fresh)` takes one, `leave()` is Escape in an empty field; `fresh`: offer new ones. */
  constructor(field, list, { search, pick, leave = () => {}, failed, fresh = false }) {
    Object.assign(this, { field, list, search, pick, leave, failed, fresh });
    field.addEventListener("input", () => {
      this.#picks = false;
      if (field.value.trim()) this.#soon();
      else this.#close();
    });
    field.addEventListener("keydown", (event) => this.#key(event));
    field.addEventListener("blur", () => this.#close());
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    list.addEventListener("click", (event) => this.#take(event.target.closest("li")));
  }

  focus() {
    this.field.focus();
  }

  #close() {
    this.#soon.stop();
    this.#ask.drop();
    this.#picks = false;
    this.list.hidden = true;
    this.list.replaceChildren();
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }

  async #look() {
    const typed = this.field.value.trim();
    if (!typed) return;
    try {
      const answer = await this.#ask((signal) => this.search(typed, signal));
      if (answer) this.#show(typed, answer.labels);
    } catch (error) {
      this.#close();
      this.failed(error);
    }
  }

  #show(typed, labels) {
    const options = labels.map(({ name, count: n, retired }) => [name, retired ? "retired" : count(n, "document")]);
    if (this.fresh && !labels.some(({ name }) => nameOf(name) === typed)) options.push([typed, NEW]);
    const option = ([name, fact]) => element("li", "", show(name), element("span", fact));
    this.list.replaceChildren(...options.map((one, i) => Object.assign(option(one), { role: "option", id: `${this.list.id}-${i}`, picks: [one[0], one[1] === NEW] })));
    say(labels.length ? count(labels.length, "label") : this.fresh ? "A new label" : "No label");
    if (!options.length) return this.#close();
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.#select(0);
    if (this.#picks) this.#take(this.list.children[0]);
  }

  #select(i) {
    const n = this.list.children.length;
    this.#active = (i + n) % n;
    [...this.list.children].forEach((option, at) => (option.ariaSelected = String(at === this.#active)));
    this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.#active}`);
    this.list.children[this.#active].scrollIntoView({ block: "nearest" });
  }

  #take(option) {
    if (!option) return;
    this.field.value = "";
    this.#close();
    this.pick(...option.picks);
  }

  #key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.list.hidden ? this.#look() : this.#select(this.#active + step);
    else if (event.key === "Enter") this.list.hidden ? (this.#picks = true) : this.#take(this.list.children[this.#active]);
    else if (event.key === "Escape") {
      if (!this.field.value) this.leave();
      this.field.value = "";
      this.#close();
    } else return;
    event.preventDefault();
  }
}
