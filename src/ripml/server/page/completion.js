// A combobox over all labels (ARIA: list autocomplete with automatic selection).

import { latest } from "./api.js";
import { $, count, element, later, nameOf, say, show } from "./dom.js";

const field = $("add");
const list = $("options");
const NEW = "new label";

export class Completion {
  #active = 0;
  #picks = false; // Enter was pressed before the response
  #ask = latest();
  #soon = later(() => this.#look(), 120);

  /** `search(prefix, signal)` finds labels, `pick(name, fresh)` adds one, `leave()` is Escape in an empty field. */
  constructor({ search, pick, leave, failed }) {
    Object.assign(this, { search, pick, leave, failed });
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
    field.focus();
  }

  #close() {
    this.#soon.stop();
    this.#ask.drop();
    this.#picks = false;
    list.hidden = true;
    list.replaceChildren();
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  async #look() {
    const typed = field.value.trim();
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
    if (!labels.some(({ name }) => nameOf(name) === typed)) options.push([typed, NEW]);
    const option = ([name, fact]) => element("li", "", show(name), element("span", fact));
    list.replaceChildren(...options.map((one, i) => Object.assign(option(one), { role: "option", id: `option-${i}`, picks: [one[0], one[1] === NEW] })));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    this.#select(0);
    say(labels.length ? count(labels.length, "label") : "A new label");
    if (this.#picks) this.#take(list.children[0]);
  }

  #select(i) {
    const n = list.children.length;
    this.#active = (i + n) % n;
    [...list.children].forEach((option, at) => (option.ariaSelected = String(at === this.#active)));
    field.setAttribute("aria-activedescendant", `option-${this.#active}`);
    list.children[this.#active].scrollIntoView({ block: "nearest" });
  }

  #take(option) {
    if (!option) return;
    field.value = "";
    this.#close();
    this.pick(...option.picks);
  }

  #key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) list.hidden ? this.#look() : this.#select(this.#active + step);
    else if (event.key === "Enter") list.hidden ? (this.#picks = true) : this.#take(list.children[this.#active]);
    else if (event.key === "Escape") {
      if (!field.value) this.leave();
      field.value = "";
      this.#close();
    } else return;
    event.preventDefault();
  }
}
