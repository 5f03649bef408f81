// Documents: find them by words and filters, read and open them, change their tags, forget them.

import { latest } from "../api.js";
import { Completion } from "../completion.js";
import { $, chips, count, element, inside, later, made, nameOf, number, say, show, unseen, when } from "../dom.js";
import { marked } from "../marks.js";

const PAUSE = 150; // milliseconds without typing before a search
const PAGE = 30; // documents of one request
const MANY = 10000; // from which on the server does not count
const SHOWN = 12; // tags of a document
const DAY = 24 * 3600 * 1000;
const WORD = /[\p{L}\p{N}\p{M}_]$/u; // a query that ends so may go on
const KINDS = { label: "tag", rejected: "wrong tag", undecided: "undecided tag" };

/** What an address has once; tags it has several times. */
const single = ["q", "state", "since", "until", "prefix", "sort"];

export default class Documents {
  #page;
  #store = null;
  #query = new URLSearchParams(); // as in the address
  #next = null; // the place of the next page
  #total = 0;
  #rows = new Map(); // id → {document, row}
  #picked = new Set(); // the ids of selected documents
  #editing = null; // the row whose tags are edited
  #opened = null; // the id of the document that was opened
  #scrolled = 0;
  #busy = false;
  #undo = []; // what takes the last changes back
  #asking = latest();
  #soon = later(() => this.#typed(), PAUSE);

  constructor(place, page) {
    this.#page = page;
    $("documents-query").addEventListener("input", () => this.#soon());
    $("documents-query").addEventListener("keydown", (event) => {
      if (event.isComposing || !["ArrowDown", "Enter"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Enter") this.#typed();
      else this.#step(1);
    });
    for (const button of place.querySelectorAll("[data-sort]"))
      button.addEventListener("click", () => this.#set("sort", button.dataset.sort === "relevance" ? "" : button.dataset.sort));
    for (const button of place.querySelectorAll("[data-state]"))
      button.addEventListener("click", () => this.#set("state", this.#query.get("state") === button.dataset.state ? "" : button.dataset.state));
    for (const name of ["since", "until", "prefix"]) $(`documents-${name}`).addEventListener("change", ({ target }) => this.#set(name, target.value));
    new Completion($("documents-label"), $("documents-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => this.#set($("documents-kind").value, label),
      failed: page.failed,
    });
    $("documents-next").addEventListener("click", () => this.#more(true));
    new Completion($("documents-bulk-tag"), $("documents-bulk-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => this.#tagPicked(label, $("documents-bulk-what").value === "add"),
      failed: page.failed,
      fresh: true,
    });
    $("documents-bulk-forget").addEventListener("click", () => this.#forgetPicked());
    $("documents-pick-all").addEventListener("click", () => this.#pick([...this.#rows.keys()], true));
    $("documents-pick-none").addEventListener("click", () => this.#pick([...this.#picked], false));
    $("documents-clear").addEventListener("click", () => this.#go(new URLSearchParams()));
    document.addEventListener("click", (event) => event.composedPath().includes($("documents-more")) || ($("documents-more").open = false));
    new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.#more(), { rootMargin: "600px" }).observe($("documents-next"));
  }

  async open(query) {
    const { store } = this.#page;
    const wanted = query.toString();
    const again = store === this.#store && wanted === this.#query.toString() && this.#rows.size;
    if (store !== this.#store) this.#undo = [];
    this.#store = store;
    this.#query = new URLSearchParams(query);
    if (document.activeElement !== $("documents-query")) $("documents-query").value = query.get("q") ?? "";
    this.#drawFilters();
    if (!again) return this.#search();
    scrollTo(0, this.#scrolled);
    await this.#refresh(this.#opened);
  }

  close() {
    this.#scrolled = scrollY;
    this.#soon.stop();
    this.#asking.drop();
  }

  keys = {
    letters: {
      "/": () => $("documents-query").select(),
      j: () => this.#step(1),
      k: () => this.#step(-1),
      e: () => this.#page.writes && this.#current && this.#edit(this.#current),
      f: () => this.#page.writes && this.#current && this.#forget(this.#current),
      x: () => this.#page.writes && this.#current && this.#pick([this.#current], !this.#picked.has(this.#current)),
      u: () => this.#takeBack(),
      n: () => this.#set("sort", this.#query.get("sort") ? "" : "newest"),
    },
    undo: () => this.#takeBack(),
    step: (by) => this.#step(by),
    escape: (target) => {
      if ($("documents-more").open) return this.#closeFilters();
      if (this.#editing) return this.#stopEditing(true);
      if (target !== $("documents-query")) return $("documents-query").select();
      $("documents-query").value = "";
      this.#typed();
    },
  };

  help = [
    ["/", "Search (Esc: clear)"],
    ["j k", "Next or previous document (or arrow keys)"],
    ["Enter", "Open the document in Tag"],
    ["e", "Edit its tags here", "writes"],
    ["f", "Forget it", "writes"],
    ["x", "Select it, to change several at once", "writes"],
    ["u", "Undo (also Ctrl Z)", "writes"],
    ["n", "Newest first, or by relevance"],
  ];

  // The query.

  #typed() {
    this.#soon.stop();
    this.#set("q", $("documents-query").value.trim());
  }

  /** Set what there is one of, "" for none; add or take a tag. */
  #set(name, value) {
    const query = new URLSearchParams(this.#query);
    if (!single.includes(name)) query.has(name, value) ? query.delete(name, value) : query.append(name, value);
    else if (value) query.set(name, value);
    else query.delete(name);
    if (query.toString() !== this.#query.toString()) this.#go(query);
  }

  /** The address carries the query: it can be kept and shared. */
  #go(query) {
    this.#page.go("documents", query, { replace: true });
    this.#query = query;
    if (!query.has("q") && document.activeElement !== $("documents-query")) $("documents-query").value = "";
    this.#drawFilters();
    this.#search();
  }

  /** What the server is asked. */
  #request(after) {
    const asked = new URLSearchParams(this.#query);
    const typed = asked.get("q") ?? "";
    const whole = !WORD.test(typed) || typed.split('"').length % 2 === 0;
    if (!whole) asked.set("q", `${typed}*`);
    for (const name of ["since", "until"]) {
      const day = new Date(`${asked.get(name)}T00:00`);
      if (isNaN(day)) asked.delete(name);
      else asked.set(name, new Date(day.getTime() + (name === "until" ? DAY : 0)).toISOString()); // the whole last day
    }
    asked.set("limit", PAGE);
    if (after) asked.set("after", after);
    return asked;
  }

  async #search() {
    const list = $("documents-list");
    list.ariaBusy = "true";
    try {
      const answer = await this.#asking((signal) => this.#store.search(this.#request(), signal));
      if (!answer) return;
      this.#page.calm();
      this.#stopEditing();
      this.#pick([...this.#picked], false);
      this.#rows = new Map();
      this.#total = answer.total;
      list.replaceChildren();
      this.#add(answer);
      this.#invite();
      say($("documents-found").textContent);
    } catch (error) {
      this.#page.failed(error, () => this.#search());
    }
    list.ariaBusy = "false";
  }

  /** The next page; `move`: with the focus on its first document. */
  async #more(move = false) {
    if (!this.#next || this.#busy) return;
    const after = this.#next;
    this.#busy = true;
    try {
      const answer = await this.#asking((signal) => this.#store.search(this.#request(after), signal));
      if (answer && after === this.#next) {
        const at = this.#rows.size;
        this.#add(answer);
        if (move) this.#focus([...this.#rows.values()][at]);
      }
    } catch (error) {
      this.#page.failed(error, () => this.#more());
    }
    this.#busy = false;
  }

  #add({ documents, next }) {
    const fresh = documents.filter(({ id }) => !this.#rows.has(id));
    for (const document of fresh) this.#rows.set(document.id, { document, row: this.#row(document) });
    $("documents-list").append(...fresh.map(({ id }) => this.#rows.get(id).row));
    this.#next = next;
    $("documents-next").hidden = !next;
    this.#drawFound();
  }

  // Drawing.

  #drawFilters() {
    const query = this.#query;
    for (const button of document.querySelectorAll("#documents [data-state]")) button.ariaPressed = String(button.dataset.state === query.get("state"));
    for (const button of document.querySelectorAll("#documents [data-sort]")) button.ariaPressed = String(button.dataset.sort === (query.get("sort") ?? "relevance"));
    for (const name of ["since", "until", "prefix"]) $(`documents-${name}`).value = query.get(name) ?? "";
    const shown = { since: "from", until: "to", prefix: "id" };
    const set = [...query].filter(([name, value]) => value && (name in KINDS || name in shown));
    const chip = ([name, value]) => {
      const what = name in KINDS ? show(value) : element("bdi", value);
      const cross = Object.assign(element("span", "×"), { ariaHidden: "true" });
      const button = Object.assign(element("button", unseen("Remove the filter "), `${KINDS[name] ?? shown[name]}: `, what, cross), { className: "filter on" });
      button.onclick = () => this.#set(name, name in KINDS ? value : "");
      return element("li", "", button);
    };
    $("documents-filters").replaceChildren(...set.map(chip));
  }

  #drawFound() {
    const total = Math.max(this.#total, this.#rows.size);
    $("documents-found").textContent = this.#total >= MANY ? `${number(MANY)} or more documents` : count(total, "document");
  }

  #invite() {
    const none = !this.#rows.size;
    const all = ![...this.#query].some(([name, value]) => value && name !== "sort");
    $("documents-invite").hidden = !none;
    $("documents-how").hidden = none && all;
    $("documents-lead").textContent = all ? "No documents yet." : "No document matches.";
    $("documents-advice").textContent = all
      ? "Everything that the model learns appears here, and can be found by its words."
      : "Every word has to occur in the text. Try fewer words, the beginning of one as in auto*, or other filters.";
    $("documents-clear").hidden = all;
    Object.assign($("documents-begin"), { hidden: !all, href: this.#page.address("tag") });
  }

  #row(document) {
    const row = made("documents-row");
    const at = inside(row);
    const { id, start, excerpt, marks, characters } = document;
    const cut = start + [...excerpt].length < characters;
    const nodes = excerpt.trim() ? marked(excerpt, marks.map(([from, to]) => ({ start: from, end: to, pull: 1 }))) : ["(empty text)"];
    const open = at(".documents-open");
    open.append(...(start ? ["… "] : []), ...nodes, ...(cut ? [" …"] : []));
    open.href = this.#page.address("tag", { document: id });
    open.onclick = () => (this.#opened = id);
    at(".documents-facts bdi").textContent = id;
    at(".documents-facts span").textContent = characters > 10 * excerpt.length ? count(characters, "character") : "";
    const name = excerpt.slice(0, 60);
    Object.assign(at(".documents-pick"), { ariaLabel: `Select: ${name}`, checked: this.#picked.has(id), onchange: ({ target }) => this.#pick([id], target.checked) });
    Object.assign(at(".edit"), { ariaLabel: `Edit tags: ${name}`, onclick: () => this.#edit(id) });
    Object.assign(at(".forget"), { ariaLabel: `Forget: ${name}`, onclick: () => this.#forget(id) });
    this.#fill(row, document);
    return row;
  }

  /** The tags and the time. */
  #fill(row, { labels, accepted, rejected, changed }, all = false) {
    const at = inside(row);
    const wrong = chips(rejected);
    for (const chip of wrong) {
      chip.className = "wrong";
      chip.prepend(unseen("wrong: "));
    }
    const every = [...chips([...labels, ...accepted]), ...wrong];
    const left = every.length - SHOWN;
    const list = at(".chips");
    list.replaceChildren(...(all || left <= 1 ? every : every.slice(0, SHOWN)));
    if (!all && left > 1) {
      const more = Object.assign(element("button", `${number(left)} more`), { onclick: () => this.#fill(row, { labels, accepted, rejected, changed }, true) });
      list.append(element("li", "", more));
    }
    list.hidden = !every.length;
    at("time").textContent = changed ? when(changed) : "";
    if (changed) at("time").dateTime = changed;
  }

  // Moving about.

  /** The id of the document with the focus. */
  get #current() {
    const row = document.activeElement.closest(".documents-row");
    return [...this.#rows.values()].find((one) => one.row === row)?.document.id;
  }

  #step(by) {
    const all = [...this.#rows.values()];
    const at = all.findIndex(({ document: { id } }) => id === this.#current);
    if (at === 0 && by < 0) return $("documents-query").focus();
    this.#focus(all[at < 0 ? 0 : at + by]);
    if (at + by >= all.length - 5) this.#more();
  }

  #focus(entry) {
    entry?.row.querySelector(".documents-open").focus();
  }

  #closeFilters() {
    $("documents-more").open = false;
    $("documents-more").querySelector("summary").focus();
  }

  // Changes.

  /** Show what is known of a document by now. */
  async #refresh(id) {
    const entry = this.#rows.get(id);
    this.#opened = null;
    if (!entry) return;
    const now = await this.#store.document(id).catch((error) => (error.gone ? null : entry));
    if (now === entry) return;
    if (now) this.#keep(entry, now);
    else this.#drop(id);
  }

  #keep(entry, { accepted, rejected, complete }, changed = entry.document.changed) {
    const known = complete ? { labels: accepted, accepted: [], rejected: [] } : { labels: [], accepted, rejected };
    Object.assign(entry.document, known, { changed });
    this.#fill(entry.row, entry.document);
  }

  #drop(id) {
    const entry = this.#rows.get(id);
    const held = entry.row.contains(document.activeElement);
    const all = [...this.#rows.values()];
    const at = all.indexOf(entry);
    this.#pick([id], false);
    this.#rows.delete(id);
    entry.row.remove();
    this.#total -= this.#total < MANY;
    this.#drawFound();
    this.#invite();
    if (held) this.#focus(all[at + 1] ?? all[at - 1]);
  }

  /** One change at a time; `call` returns how to take it back. */
  async #change(sentence, call) {
    if (this.#busy) return;
    this.#busy = true;
    try {
      const undo = await call();
      this.#undo.push(undo);
      this.#page.toast(sentence, () => this.#takeBack(undo));
      this.#page.changed();
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
  }

  async #takeBack(undo = this.#undo.at(-1)) {
    if (!undo || !this.#undo.includes(undo)) return say("Nothing to undo.");
    this.#undo = this.#undo.filter((one) => one !== undo);
    try {
      await undo();
      say("Undone.");
      this.#page.changed();
    } catch (error) {
      this.#undo.push(undo);
      this.#page.failed(error);
    }
  }

  #forget(id) {
    return this.#change("The document was forgotten.", async () => {
      const store = this.#store;
      const before = await store.document(id);
      const { document: shown } = this.#rows.get(id);
      const at = [...this.#rows.keys()].indexOf(id);
      await store.change(before, null);
      this.#drop(id);
      return async () => {
        await store.change(null, before);
        if (store !== this.#store || this.#rows.has(id)) return;
        const entries = [...this.#rows];
        const entry = { document: shown, row: this.#row(shown) };
        entries.splice(at, 0, [id, entry]);
        this.#rows = new Map(entries);
        $("documents-list").insertBefore(entry.row, $("documents-list").children[at] ?? null);
        this.#total += this.#total < MANY;
        this.#drawFound();
        this.#invite();
        this.#focus(entry);
      };
    });
  }

  // Several at once.

  #pick(ids, yes) {
    for (const id of ids) {
      yes ? this.#picked.add(id) : this.#picked.delete(id);
      const box = this.#rows.get(id)?.row.querySelector(".documents-pick");
      if (box) box.checked = yes;
    }
    const n = this.#picked.size;
    const held = $("documents-bulk").contains(document.activeElement);
    $("documents-bulk").hidden = !n;
    $("documents-picked").textContent = n ? `${count(n, "document")} selected` : "";
    if (!n && held) this.#focus(this.#rows.values().next().value);
  }

  /** Add a tag to all selected documents, or remove it. */
  #tagPicked(label, adds) {
    const without = (labels) => labels.filter((one) => one !== label);
    return this.#changePicked(adds ? `Added ${nameOf(label)}` : `Removed ${nameOf(label)}`, (before) => {
      if (before.accepted.includes(label) === adds) return before;
      const accepted = adds ? [...before.accepted, label] : without(before.accepted);
      return { ...before, accepted, rejected: without(before.rejected), complete: before.complete && accepted.length > 0 };
    });
  }

  #forgetPicked() {
    return this.#changePicked("Forgot", () => null);
  }

  /** Change all selected documents, or none, with one undo; `wanted`: what is to be known of a document, null to forget it. */
  async #changePicked(verb, wanted) {
    const store = this.#store;
    const changes = [];
    try {
      for (const id of this.#picked) {
        const before = await store.document(id);
        const after = wanted(before);
        if (after !== before) changes.push({ before, after, changed: this.#rows.get(id)?.document.changed });
      }
    } catch (error) {
      return this.#page.failed(error);
    }
    if (!changes.length) return this.#page.toast("Nothing to change: that is so already.");
    const done = [];
    const back = async () => {
      for (const change of done.toReversed()) {
        await store.change(change.after, change.before);
        done.pop();
        const entry = this.#rows.get(change.before.id);
        if (entry && store === this.#store) this.#keep(entry, change.before, change.changed);
      }
      if (changes.some(({ after }) => !after) && store === this.#store) await this.#search(); // forgotten ones come back to their places
    };
    await this.#change(`${verb}: ${count(changes.length, "document")}.`, async () => {
      try {
        for (const change of changes) {
          await store.change(change.before, change.after);
          done.push(change);
          $("documents-picked").textContent = `${number(done.length)} of ${count(changes.length, "document")} …`;
        }
      } catch (error) {
        await back().catch(() => {});
        throw error;
      }
      const now = new Date().toISOString();
      for (const { before, after } of changes) {
        const entry = this.#rows.get(before.id);
        if (entry && after) this.#keep(entry, after, now);
        else if (entry) this.#drop(before.id);
      }
      return back;
    });
    this.#pick([], true); // what is selected still
  }

  async #edit(id) {
    try {
      this.#stopEditing();
      const before = await this.#store.document(id);
      const entry = this.#rows.get(id);
      if (entry) this.#showEditor(entry, before);
    } catch (error) {
      this.#page.failed(error);
    }
  }

  #showEditor(entry, before) {
    const form = made("documents-editor");
    const at = inside(form);
    let accepted = [...before.accepted];
    const draw = () => {
      at(".chips").replaceChildren(...accepted.map((label) => {
        const remove = Object.assign(element("button", "×"), { type: "button", ariaLabel: `Remove ${nameOf(label)}` });
        remove.onclick = () => {
          accepted = accepted.filter((one) => one !== label);
          draw();
          at("#documents-add").focus();
          say(`${nameOf(label)}: removed`);
        };
        return element("li", "", show(label), remove);
      }));
    };
    draw();
    at("[type=checkbox]").checked = before.complete;
    this.#editing = entry;
    const { row } = entry;
    row.querySelector(".documents-editing").replaceChildren(form);
    row.querySelector(".documents-editing").hidden = false;
    row.querySelector(".documents-main > .chips").hidden = true;
    new Completion(at("#documents-add"), at("#documents-add-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => {
        accepted = [...new Set([...accepted, label])];
        draw();
        say(`${nameOf(label)}: added`);
      },
      leave: () => this.#stopEditing(true),
      failed: this.#page.failed,
      fresh: true,
    });
    at("button.quiet").onclick = () => this.#stopEditing(true);
    form.onsubmit = (event) => {
      event.preventDefault();
      const rejected = before.rejected.filter((label) => !accepted.includes(label));
      this.#save(entry, before, { ...before, accepted, rejected, complete: at("[type=checkbox]").checked && accepted.length > 0 });
    };
    at("#documents-add").focus();
  }

  #save(entry, before, after) {
    return this.#change("The tags were saved.", async () => {
      const store = this.#store;
      await store.change(before, after);
      this.#stopEditing(true);
      this.#keep(entry, after, new Date().toISOString());
      return async () => {
        await store.change(after, before);
        this.#keep(entry, before);
      };
    });
  }

  #stopEditing(focus = false) {
    const entry = this.#editing;
    if (!entry) return;
    this.#editing = null;
    const place = entry.row.querySelector(".documents-editing");
    place.replaceChildren();
    place.hidden = true;
    this.#fill(entry.row, entry.document);
    if (focus) this.#focus(entry);
  }
}
