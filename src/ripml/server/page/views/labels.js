// Labels: all of them in a list that is as quick for a million, and one of them with what can be done about it.

import { latest } from "../api.js";
import { Completion } from "../completion.js";
import { $, count, element, later, nameOf, number, percent, remember, say, show } from "../dom.js";

const ROW = 44; // pixels, 2.75rem
const PAGE = 100; // labels of one request
const KEPT = 60; // pages
const TALLEST = 12e6; // pixels; browsers cut higher elements off
const FOUND = 200; // labels of a search
const CHILDREN = 60; // narrower labels that are shown
const ORDER = "name";

/** Whether the page has a view. */
const offered = (name) => Boolean(document.querySelector(`#views a[data-view="${name}"]:not([hidden])`));
const quoted = (label) => ["“", show(label), "”"];
const paragraph = (...words) => element("p", "", ...words);

export default class Labels {
  #page;
  #store = null;
  #order = ORDER;
  #pages = new Map(); // of the list: number → labels, or a promise of them
  #found = null; // labels of a search, or null for all
  #total = 0;
  #active = 0; // the row that the keys are at
  #label = ""; // that is shown
  #detail = null;
  #doing = ""; // "rename", "merge" or "retire"
  #into = ""; // the label that another one is merged into
  #done = []; // changes that can be undone, latest first
  #busy = false;
  #searching = latest();
  #opening = latest();
  #previewing = latest();
  #fetchSoon = later(() => this.#fetchShown().catch(this.#page.failed), 30);
  #searchSoon = later(() => this.#typed(), 120);

  constructor(place, page) {
    this.#page = page;
    this.columns = place.firstElementChild;
    const list = $("labels-list");
    list.addEventListener("scroll", () => this.#drawRows());
    list.addEventListener("keydown", (event) => this.#move(event));
    list.addEventListener("click", ({ target }) => {
      const row = target.closest("[data-at]");
      if (row) this.#choose(Number(row.dataset.at));
    });
    new ResizeObserver(() => this.#drawRows()).observe(list);
    $("labels-search").addEventListener("input", () => this.#searchSoon());
    $("labels-search").addEventListener("keydown", (event) => this.#inSearch(event));
    $("labels-order").addEventListener("change", ({ target }) => this.#go({ order: target.value }));
    $("labels-back").addEventListener("click", () => this.#go({ label: "" }));
    $("labels-add").addEventListener("click", () => this.#beginAdd());
    $("labels-add-typed").addEventListener("click", () => this.#beginAdd($("labels-search").value.trim()));
    $("labels-new").addEventListener("submit", (event) => (event.preventDefault(), this.#add()));
    $("labels-new-cancel").addEventListener("click", () => this.#drawDetail());
    for (const button of place.querySelectorAll("[data-do]")) button.addEventListener("click", () => this.#begin(button.dataset.do));
    $("labels-form").addEventListener("submit", (event) => (event.preventDefault(), this.#act()));
    $("labels-cancel").addEventListener("click", () => this.#begin(""));
    $("labels-to").addEventListener("input", () => this.#preview());
    this.completion = new Completion($("labels-into"), $("labels-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => this.#mergeInto(label),
      leave: () => this.#begin(""),
      failed: page.failed,
    });
  }

  async open(query) {
    const { store } = this.#page;
    const order = query.get("order") ?? ORDER;
    const words = query.get("q") ?? "";
    const known = [...$("labels-order").options].some(({ value }) => value === order) ? order : ORDER;
    const again = store !== this.#store || known !== this.#order;
    if (store !== this.#store) this.#done = [];
    this.#store = store;
    this.#order = $("labels-order").value = known;
    if ($("labels-search").value.trim() !== words) $("labels-search").value = words;
    if (again) this.#forget();
    await this.#load(words);
    await this.#openLabel(query.get("label") ?? "");
  }

  close() {
    for (const one of [this.#searching, this.#opening, this.#previewing]) one.drop();
  }

  keys = {
    letters: {
      "/": () => $("labels-search").focus(),
      a: () => this.#page.writes && this.#beginAdd(),
      r: () => this.#begin("rename"),
      g: () => this.#begin("merge"),
      t: () => this.#begin("retire"),
      u: () => this.#undo(),
    },
    undo: () => this.#undo(),
    escape: () => (this.#doing ? this.#begin("") : this.#label && this.#go({ label: "" })),
  };

  help = [
    ["/", "Find a label"],
    ["↑ ↓ Enter", "Move in the list, open a label"],
    ["a", "Add a label", true],
    ["r", "Rename the label", true],
    ["g", "Merge it into another one", true],
    ["t", "Retire it, or suggest it again", true],
    ["u", "Undo the last change of labels (also Ctrl Z)", true],
  ];

  /** Change the address: order, label, q. */
  #go(change) {
    const now = { order: this.#order, label: this.#label, q: $("labels-search").value.trim(), ...change };
    if (now.order === ORDER) delete now.order;
    for (const name of ["label", "q"]) if (!now[name]) delete now[name];
    this.#page.go("labels", now);
  }

  // The list.

  #forget() {
    this.#pages.clear();
    this.#active = 0;
    $("labels-list").scrollTop = 0;
  }

  async #load(words) {
    if (words) return this.#search(words);
    this.#found = null;
    try {
      const { total } = await this.#fetch(Math.floor(this.#active / PAGE));
      this.#total = total;
      this.#page.calm();
      this.#drawList();
    } catch (error) {
      this.#page.failed(error, () => this.#load(words));
    }
  }

  /** A page of the list; it is kept. */
  async #fetch(at) {
    const known = this.#pages.get(at);
    if (known) return known;
    const pages = this.#pages;
    const asked = this.#store.browseLabels(this.#order, at * PAGE, PAGE);
    pages.set(at, asked);
    if (pages.size > KEPT) pages.delete(pages.keys().next().value);
    try {
      const answer = await asked;
      if (pages.get(at) === asked) pages.set(at, answer);
      return answer;
    } catch (error) {
      pages.delete(at);
      throw error;
    }
  }

  async #fetchShown() {
    if (this.#found) return;
    const [first, last] = this.#shown();
    const wanted = [...new Set([Math.floor(first / PAGE), Math.floor(Math.max(first, last - 1) / PAGE)])];
    await Promise.all(wanted.map((at) => this.#fetch(at)));
    this.#drawRows();
  }

  #row(at) {
    if (this.#found) return this.#found[at];
    const page = this.#pages.get(Math.floor(at / PAGE));
    return page?.labels?.[at % PAGE];
  }

  async #typed() {
    this.#searching.drop();
    const words = $("labels-search").value.trim();
    if (!words && this.#found) this.#forget();
    this.#keepAddress();
    await this.#load(words);
  }

  async #search(words) {
    try {
      const answer = await this.#searching((signal) => this.#store.labels(words, signal, FOUND));
      if (!answer) return;
      this.#found = answer.labels;
      this.#total = answer.labels.length;
      this.#active = 0;
      $("labels-list").scrollTop = 0;
      this.#drawList();
      say(this.#total ? count(this.#total, "label") : "No label");
    } catch (error) {
      this.#page.failed(error, () => this.#search(words));
    }
  }

  #keepAddress() {
    const query = { order: this.#order, label: this.#label, q: $("labels-search").value.trim() };
    if (query.order === ORDER) delete query.order;
    for (const name of ["label", "q"]) if (!query[name]) delete query[name];
    this.#page.go("labels", query, { replace: true });
  }

  #inSearch(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") $("labels-list").focus();
    else if (event.key === "Enter") this.#choose(this.#active);
    else if (event.key === "Escape" && event.target.value) (event.target.value = ""), this.#typed();
    else return;
    event.preventDefault();
  }

  #move(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = Math.max(1, Math.floor($("labels-list").clientHeight / ROW) - 1);
    const to = {
      ArrowDown: this.#active + 1,
      ArrowUp: this.#active - 1,
      PageDown: this.#active + rows,
      PageUp: this.#active - rows,
      Home: 0,
      End: this.#total - 1,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.#choose(this.#active);
    else if (to === undefined) return;
    else {
      this.#active = Math.max(0, Math.min(this.#total - 1, to));
      this.#reveal();
    }
    event.preventDefault();
  }

  #choose(at) {
    const row = this.#row(at);
    this.#active = at;
    if (row) this.#go({ label: row.name });
  }

  // A list of many labels is higher than elements can be: from there on, the place of the bar stands for a row.

  get #height() {
    return Math.min(this.#total * ROW, TALLEST);
  }

  /** How far the first row that is to be seen is, in rows. */
  get #top() {
    const { scrollTop, clientHeight } = $("labels-list");
    const most = this.#height - clientHeight;
    return most > 0 ? (Math.min(1, scrollTop / most) * (this.#total * ROW - clientHeight)) / ROW : 0;
  }

  /** The first row that is to be seen, and the one after the last. */
  #shown() {
    const rows = $("labels-list").clientHeight / ROW;
    return [Math.floor(this.#top), Math.min(this.#total, Math.ceil(this.#top + rows))];
  }

  /** Scroll so that the active row is to be seen. */
  #reveal() {
    const list = $("labels-list");
    const rows = list.clientHeight / ROW;
    const top = Math.min(this.#active, Math.max(this.#top, this.#active + 1 - rows));
    const all = this.#total * ROW - list.clientHeight;
    if (top !== this.#top && all > 0) list.scrollTop = ((top * ROW) / all) * (this.#height - list.clientHeight);
    this.#drawRows();
  }

  #drawList() {
    const some = this.#total > 0;
    const words = $("labels-search").value.trim();
    $("labels-list").hidden = !some && Boolean(this.#found);
    $("labels-none").hidden = some || !this.#found;
    $("labels-add-typed").textContent = `Add “${words}”`;
    const more = this.#found && this.#total === FOUND ? `the first ${number(FOUND)} found` : `${number(this.#total)} found`;
    $("labels-total").textContent = this.#found ? more : number(this.#total);
    $("labels-height").style.height = `${this.#height}px`;
    this.#drawRows();
  }

  #drawRows() {
    const list = $("labels-list");
    if (!this.#store || list.hidden) return;
    const [first, last] = this.#shown();
    const offset = this.#top;
    const rows = [];
    let missing = false;
    for (let at = first; at < last; at++) {
      const label = this.#row(at);
      missing ||= !label;
      rows.push(this.#listRow(label, at, (at - offset) * ROW));
    }
    $("labels-rows").replaceChildren(...rows);
    if (first <= this.#active && this.#active < last) list.setAttribute("aria-activedescendant", `labels-${this.#active}`);
    else list.removeAttribute("aria-activedescendant");
    if (missing) this.#fetchSoon();
  }

  #listRow(label, at, top) {
    const row = element("div", "");
    row.role = "option";
    row.id = `labels-${at}`;
    row.className = "labels-row";
    row.dataset.at = at;
    row.style.transform = `translateY(${top}px)`;
    row.ariaSetSize = this.#total;
    row.ariaPosInSet = at + 1;
    row.ariaSelected = String(label?.name === this.#label && this.#label !== "");
    row.classList.toggle("labels-open", Boolean(label) && label.name === this.#label);
    row.classList.toggle("labels-active", at === this.#active);
    if (!label) {
      row.ariaLabel = "Loading …";
      row.append(Object.assign(element("i", ""), { className: "skeleton" }));
    } else row.append(show(label.name), element("span", label.retired ? "retired" : ""), element("span", number(label.count)));
    if (label) row.lastElementChild.title = count(label.count, "document");
    return row;
  }

  // One label.

  async #openLabel(label) {
    const before = this.#label;
    this.#label = label;
    this.columns.dataset.shows = label ? "label" : "list";
    this.#drawRows();
    if (!label) {
      this.#opening.drop();
      this.#detail = null;
      this.#doing = "";
      this.#drawDetail();
      if (before && matchMedia("(max-width: 56rem)").matches) $("labels-list").focus();
      return;
    }
    try {
      const detail = await this.#opening((signal) => this.#store.label(label, signal));
      if (!detail) return;
      remember(detail.concept?.names);
      this.#detail = detail;
      if (before !== label) this.#doing = "";
      this.#drawDetail();
      if (before !== label) say(`${nameOf(label)}: ${count(detail.count, "document")}`);
    } catch (error) {
      this.#detail = null;
      this.#drawDetail();
      this.#page.failed(error, error.gone ? null : () => this.#openLabel(label));
    }
  }

  #address(label) {
    return this.#page.address("labels", { ...(this.#order !== ORDER && { order: this.#order }), label });
  }

  #link(label) {
    return Object.assign(element("a", "", show(label)), { href: this.#address(label) });
  }

  #drawDetail() {
    const detail = this.#detail;
    $("labels-new").hidden = true;
    $("labels-invite").hidden = Boolean(detail);
    $("labels-card").hidden = !detail;
    if (!detail) return;
    const { name, concept } = detail;
    $("labels-path").replaceChildren(...(concept?.path ?? []).flatMap((id) => [this.#link(id), " "]));
    show(name, $("labels-name"));
    $("labels-name").dir = "auto";
    const facts = [nameOf(name) !== name && name, count(detail.count, "document"), detail.retired && "retired: not suggested", !detail.is_label && "not a label of the model yet"];
    if (detail.accepted + detail.rejected) facts.push(`accepted ${number(detail.accepted)} and rejected ${number(detail.rejected)} times in open documents`);
    $("labels-facts").textContent = facts.filter(Boolean).join(" · ");
    $("labels-actions").hidden = !detail.is_label;
    $("labels-retire").textContent = detail.retired ? "Suggest again" : "Retire";
    this.#drawForm();
    this.#drawQuality(detail);
    this.#drawExamples(detail);
    this.#drawConcept(detail);
  }

  #drawQuality({ quality, is_label: known }) {
    const place = $("labels-quality");
    place.replaceChildren();
    if (!known) return;
    place.append(element("h3", "How well it is predicted"));
    if (!quality) {
      const text = element("p", "No report since the server started has this label. ");
      text.className = "hint";
      if (offered("quality")) text.append(Object.assign(element("a", "Measure all labels"), { href: this.#page.address("quality") }));
      return place.append(text);
    }
    const figure = (value, name, meaning) => {
      const part = element("div", "", element("b", value === null ? "–" : percent(value)), element("p", name), Object.assign(element("p", meaning), { className: "hint" }));
      if (value !== null) {
        const meter = Object.assign(element("i", ""), { className: "meter" });
        meter.style.setProperty("--part", value);
        part.children[1].after(meter);
      }
      return part;
    };
    const figures = [
      figure(quality.precision, "Precision", quality.precision === null ? "it was never predicted" : `right of ${number(quality.predicted)} predicted`),
      figure(quality.recall, "Recall", `found of ${number(quality.rows)} documents`),
    ];
    place.append(Object.assign(element("div", "", ...figures), { className: "labels-figures" }));
    if (quality.confused_with.length) {
      const others = quality.confused_with.map(([label, n]) => element("li", "", this.#link(label), element("span", `× ${number(n)}`)));
      place.append(element("h3", "Predicted in its place"), Object.assign(element("ul", "", ...others), { className: "labels-links" }));
    }
    const documents = [
      ["Missed most clearly", quality.missed],
      ["Predicted most wrongly", quality.mistaken],
    ];
    for (const [title, ids] of documents)
      if (ids.length) {
        const links = ids.map((id) => element("li", "", this.#documentLink(id, element("bdi", id))));
        place.append(element("h3", title), Object.assign(element("ul", "", ...links), { className: "labels-links" }));
      }
  }

  #documentLink(id, inside) {
    return Object.assign(element("a", "", inside), { href: this.#page.address("tag", { document: id }) });
  }

  #drawExamples({ name, count: n, examples }) {
    $("labels-examples").hidden = !n;
    const rows = examples.map(({ id, text }) => element("li", "", this.#documentLink(id, Object.assign(element("p", text), { className: "excerpt", dir: "auto" }))));
    $("labels-examples").querySelector("ol").replaceChildren(...rows);
    const all = Object.assign(element("a", `All ${count(n, "document")}`), { href: this.#page.address("documents", { label: name }) });
    $("labels-more").replaceChildren(...(offered("documents") && n ? [all] : []));
  }

  #drawConcept({ name, concept }) {
    const place = $("labels-concept");
    place.replaceChildren();
    if (!concept) return;
    const { path, broader, narrower, related, names_by_language: names, synonyms } = concept;
    if (path.length || narrower.length) place.append(element("h3", "In the vocabulary"), this.#tree(path, name, narrower));
    const links = (title, ids) => {
      if (!ids.length) return;
      const list = ids.map((id) => element("li", "", this.#link(id)));
      place.append(element("h3", title), Object.assign(element("ul", "", ...list), { className: "labels-links" }));
    };
    links("Also broader", broader.filter((id) => !path.includes(id)));
    links("Related", related);
    const languages = [...new Set([...Object.keys(names), ...Object.keys(synonyms)])];
    if (!languages.length) return;
    const called = (language) => [names[language], ...(synonyms[language] ?? [])].filter(Boolean).join(", ");
    const rows = languages.flatMap((language) => [element("dt", language || "any"), Object.assign(element("dd", called(language)), { lang: language, dir: "auto" })]);
    place.append(element("h3", "Names"), Object.assign(element("dl", "", ...rows), { className: "labels-languages" }));
  }

  /** The broader labels, each with the next one below it, the label, and the narrower ones below that. */
  #tree(path, label, narrower) {
    const below = narrower.slice(0, CHILDREN).map((id) => element("li", "", this.#link(id)));
    if (narrower.length > CHILDREN) below.push(element("li", `and ${number(narrower.length - CHILDREN)} more`));
    const self = element("b", "", show(label));
    self.ariaCurrent = "true";
    let branch = element("li", "", self);
    if (below.length) branch.append(element("ul", "", ...below));
    for (const id of [...path].reverse()) branch = element("li", "", this.#link(id), element("ul", "", branch));
    return Object.assign(element("ul", "", branch), { className: "labels-tree" });
  }

  // Changes.

  /** Open the form of a change, or close it. */
  #begin(change) {
    if (change && !(this.#detail?.is_label && this.#page.writes)) return;
    const closed = this.#doing;
    this.#doing = change === this.#doing ? "" : change;
    this.#into = "";
    $("labels-to").value = nameOf(this.#label) === this.#label ? this.#label : "";
    $("labels-into").value = "";
    this.#drawForm();
    const field = { rename: "labels-to", merge: "labels-into", retire: "labels-go" }[this.#doing];
    if (field) $(field).focus();
    if (this.#doing === "rename") $("labels-to").select();
    else if (!this.#doing && closed) document.querySelector(`[data-do="${closed}"]`).focus();
  }

  #drawForm() {
    const doing = this.#doing;
    for (const button of document.querySelectorAll("[data-do]")) button.ariaExpanded = String(button.dataset.do === doing);
    $("labels-form").hidden = !doing;
    $("labels-rename").hidden = doing !== "rename";
    $("labels-merge").hidden = doing !== "merge";
    this.#preview();
  }

  /** Say what would change. */
  async #preview() {
    const { name, count: n, retired } = this.#detail ?? {};
    const say = (...words) => $("labels-preview").replaceChildren(...words);
    $("labels-go").textContent = { rename: "Rename", merge: "Merge", retire: retired ? "Suggest it again" : "Retire" }[this.#doing] ?? "";
    $("labels-go").disabled = this.#doing === "merge" ? !this.#into : this.#doing === "rename" && [name, ""].includes($("labels-to").value.trim());
    if (this.#doing === "rename") say(`${count(n, "document")} will show the new name. Scores stay the same, to the last digit.`);
    else if (this.#doing === "retire")
      say(...(retired ? quoted(name) : ["Nobody gets ", ...quoted(name), " suggested any more"]), retired ? " will be suggested again." : `; the ${count(n, "document")} with it keep it, and it can still be chosen by hand.`);
    else if (this.#doing === "merge" && this.#into) {
      const into = this.#into;
      const found = await this.#previewing((signal) => this.#store.merging(name, into, signal)).catch(this.#page.failed);
      if (!found || into !== this.#into) return;
      const { documents, both, decided } = found;
      const words = [`${count(documents, "document")} will have `, ...quoted(into), " instead of ", ...quoted(name)];
      if (both) words.push(`; ${number(both)} of them ${both === 1 ? "has" : "have"} both already`);
      words.push(".");
      if (decided) words.push(` Decisions on ${count(decided, "open document")} go with it.`);
      say(...words, " ", ...quoted(name), " is removed.");
    } else say();
  }

  #mergeInto(label) {
    if (label === this.#label) return this.#page.toast("A label cannot be merged into itself.");
    this.#into = label;
    $("labels-into").value = nameOf(label);
    this.#preview();
    $("labels-go").focus();
  }

  async #act() {
    const { name, count: n, retired } = this.#detail;
    const doing = this.#doing;
    const to = $("labels-to").value.trim();
    const into = this.#into;
    if ($("labels-go").disabled) return;
    const done = {
      rename: () => [this.#store.changeLabel(name, "rename", { to }), `${nameOf(name)} is now called ${to}.`],
      merge: () => [this.#store.changeLabel(name, "merge", { into }), `${count(n, "document")} ${n === 1 ? "has" : "have"} ${nameOf(into)} instead of ${nameOf(name)}.`],
      retire: () => [this.#store.changeLabel(name, retired ? "reinstate" : "retire"), retired ? `${nameOf(name)} is suggested again.` : `${nameOf(name)} is retired.`],
    }[doing];
    await this.#change(done, name);
  }

  #beginAdd(name = "") {
    $("labels-card").hidden = $("labels-invite").hidden = true;
    $("labels-new").hidden = false;
    this.columns.dataset.shows = "label";
    $("labels-new-name").value = name;
    $("labels-new-words").value = name;
    $("labels-new-name").focus();
  }

  #add() {
    const name = $("labels-new-name").value.trim();
    const words = $("labels-new-words").value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (name) return this.#change(() => [this.#store.addLabel(name, words), `${name} is a label now.`], "");
  }

  /** Make a change, show the label that it leaves, and offer to undo it; `before`: what is shown after that. */
  async #change(make, before) {
    if (this.#busy) return;
    this.#busy = true;
    try {
      const [asked, sentence] = make();
      const { label, change } = await asked;
      this.#done.unshift({ change, label: before });
      this.#doing = "";
      this.#page.toast(sentence, () => this.#undo(change));
      await this.#refresh(label);
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
  }

  async #undo(change = this.#done[0]?.change) {
    const entry = this.#done.find((one) => one.change === change);
    if (!entry) return say("Nothing to undo.");
    if (this.#busy) return;
    this.#busy = true;
    try {
      const { changed_since: since } = await this.#store.undoLabels(change);
      this.#done = this.#done.filter((one) => one !== entry);
      this.#page.toast(since ? `Undone; ${count(since, "document")} had changed since.` : "Undone.");
      await this.#refresh(entry.label);
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
  }

  /** Show the list as it is now, and a label. */
  async #refresh(label) {
    this.#pages = new Map();
    this.#page.changed();
    this.#label = label;
    this.#keepAddress();
    await this.#load($("labels-search").value.trim());
    await this.#openLabel(label);
    if (label) $("labels-name").focus();
  }
}
