// Labels that may be one or two, and near copies with different tags: lists for the view Quality, and for its file.

import { $, chips, count, element, number, percent, show, unseen } from "./dom.js";

const FIRST = 6; // entries that are shown at once
const KINDS = {
  same: ({ together, rows, other_rows: others }) => `${count(together, "document")} carry both, of ${number(rows + others - together)} that carry one.`,
  alike: ({ rows, other_rows: others }) => `The names are alike: ${count(rows, "document")}, and ${number(others)}.`,
  subsumed: ({ together, rows }) => `${number(together)} of the ${count(rows, "document")} with the first carry the second too.`,
};

export class Relations {
  /** `link(name, query)`: the address of a view, or null. */
  constructor(link) {
    this.link = link;
  }

  /** `pairs` and `splits` as a report has them, `copies` as an audit, or null where there was none. */
  draw({ pairs = [], splits = [], near_copies: copies = [] }) {
    this.#fill("one", pairs.filter(({ kind }) => kind !== "subsumed"), (pair) => this.#pair(pair, " and "));
    this.#fill("implied", pairs.filter(({ kind }) => kind === "subsumed"), (pair) => this.#pair(pair, " → "));
    this.#fill("two", splits, (split) => this.#split(split));
    this.#fill("copies", copies, (copy) => this.#copy(copy));
  }

  #fill(name, entries, row) {
    const list = $(`quality-${name}`);
    list.closest("section").hidden = !entries.length;
    const more = Object.assign(element("button", `${number(entries.length - FIRST)} more`), { className: "quiet more-entries" });
    more.addEventListener("click", () => {
      const shown = list.children.length - 1;
      list.classList.add("all");
      more.parentElement.replaceWith(...entries.slice(FIRST).map(row));
      (list.children[shown].querySelector("a") ?? list).focus();
    });
    list.classList.remove("all");
    list.replaceChildren(...entries.slice(0, FIRST).map(row), ...(entries.length > FIRST ? [element("li", "", more)] : []));
  }

  #to(node, view, query) {
    const address = this.link(view, query);
    return address ? Object.assign(element("a", "", node), { href: address }) : node;
  }

  #label(label) {
    return this.#to(show(label), "labels", { label });
  }

  #document(id) {
    return this.#to(element("bdi", id), "tag", { document: id });
  }

  #pair(pair, between) {
    const arrow = between === " → " ? [Object.assign(element("span", between), { ariaHidden: "true" }), unseen(" is nearly always carried with ")] : [between];
    const names = element("p", "", this.#label(pair.label), ...arrow, this.#label(pair.other));
    return element("li", "", names, hint(KINDS[pair.kind](pair)));
  }

  #split({ label, rows, groups }) {
    const parts = groups.map(({ share, words, examples }) => {
      const typical = words.length ? words.slice(0, 5).join(", ") : "no words of its own";
      const links = examples.slice(0, 3).flatMap((id, i) => [i ? ", " : " · such as ", this.#document(id)]);
      return element("li", "", `${percent(share)}: `, element("bdi", typical), ...links);
    });
    return element("li", "", element("p", "", this.#label(label), ` · ${count(rows, "document")}`), Object.assign(element("ul", "", ...parts), { className: "hint" }));
  }

  #copy({ documents: [one, other], similarity, only }) {
    const names = element("p", "", this.#document(one), " and ", this.#document(other), ` · ${percent(similarity)} alike`);
    const tags = only.map((labels, i) => {
      const list = labels.length ? chips(labels) : [element("li", "none")];
      return element("div", "", hint(i ? "Only the second" : "Only the first"), Object.assign(element("ul", "", ...list), { className: "chips" }));
    });
    return element("li", "", names, Object.assign(element("div", "", ...tags), { className: "only" }));
  }
}

const hint = (sentence) => Object.assign(element("p", sentence), { className: "hint" });
