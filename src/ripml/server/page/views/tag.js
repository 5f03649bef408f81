// Tag: text → suggested tags → decisions → the store, and again.

import { latest } from "../api.js";
import { Completion } from "../completion.js";
import { Decisions } from "../decisions.js";
import { $, count, kept, later, nameOf, number, say, score } from "../dom.js";
import { Editor } from "../editor.js";
import { Tags, verdictOf } from "../tags.js";

const PAUSE = 300; // milliseconds without typing before tags are requested
const MOST = 1000; // tags of one request
const EXAMPLES = 100; // documents of which one is tried
const UNFAMILIAR = 0.01; // the familiarity up to which a text is unlike anything known

const same = (a, b) => a.length === b.length && a.every((label) => b.includes(label));

/** Numbers of labels, as in "2 right, 1 wrong". */
const counts = (groups) =>
  Object.entries(groups).filter(([, { length }]) => length).map(([what, { length }]) => `${number(length)} ${what}`).join(", ");

export default class Tag {
  #page;
  #store = null;
  #stored = null; // {id, text, accepted, rejected, complete}, if the text is a document of the store
  #row = null; // {table, number, text, last}, if the text is a row of a table
  #n = null; // number of tags to request; null: the store's rules
  #undo = []; // for Ctrl+Z: {run, then, id}, latest last; with an id if it changed the store
  #busy = false; // a change is in progress
  #asking = { suggest: latest(), explain: latest(), document: latest() };
  #soon = later(() => this.#suggest(), PAUSE);
  // Once more tags were asked for, they come before the end of the list is seen.
  #end = new IntersectionObserver(([entry]) => entry.isIntersecting && this.#n && this.#more(), { rootMargin: "400px" });
  #editor;
  #tags;
  #completion;
  #decisions;

  constructor(place, page) {
    this.#page = page;
    const { failed } = page;
    this.#tags = new Tags({
      decided: (label, verdict, before) => {
        if (!this.#busy) this.#undo.push({ run: () => this.#tags.decide(label, before) });
        kept("localStorage", "ripml-decided", "yes");
        this.#note("");
        say(`${nameOf(label)}: ${verdictOf(verdict)}`);
      },
      opened: (label, place) => this.#showEvidence(label, place),
      closed: () => {
        this.#asking.explain.drop();
        this.#editor.unmark();
        $("legend").hidden = true;
      },
    });
    this.#editor = new Editor({
      changed: (whole, typed) => {
        if (whole) this.#begin();
        if (whole) page.go("tag", {}, { replace: true }); // it is not the document of the address
        this.#tags.close();
        this.#asking.suggest.drop();
        this.#note("");
        if (this.#editor.blank) this.#soon.stop();
        else if (typed) this.#soon();
        else this.#suggest();
      },
      opened: (files) => page.take(files),
      read: (file) => this.#store.read(file),
    });
    this.#completion = new Completion($("add"), $("options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label, fresh) => this.#tags.add(label, fresh),
      leave: () => this.#tags.focus() || this.#editor.focus(),
      failed,
      fresh: true,
    });
    this.#decisions = new Decisions({
      undone: (sentence, id, document) => {
        this.#undo = this.#undo.filter((entry) => entry.id !== id);
        if (this.#stored?.id === id) this.#stored = document;
        return this.#changed(sentence);
      },
      edit: (document) => this.#edit(document),
      failed,
    });
    const clicks = {
      learn: () => this.#learn(),
      undo: () => this.#takeBack(),
      next: () => this.#next(),
      more: () => this.#more(),
      try: () => this.#try(),
      copy: ({ target }) => target.dataset.as && this.#copy(target.dataset.as),
    };
    for (const [id, call] of Object.entries(clicks)) $(id).addEventListener("click", call);
    $("complete").addEventListener("change", ({ target: { checked } }) => {
      this.#undo.push({ run: () => this.#setComplete(!checked) });
      this.#setComplete(checked);
    });
  }

  /** Show the text again, or a document of the store. */
  async open(query) {
    const { store } = this.#page;
    if (store !== this.#store) {
      if (this.#store) this.#begin();
      this.#store = store;
      this.#undo = [];
      this.#note("");
      this.#decisions.use(store).catch(this.#page.failed);
    } else this.#decisions.load().catch(this.#page.failed);
    const dropped = this.#page.texts.splice(0);
    if (dropped.length) return typeof dropped[0] === "string" ? this.#editor.set(dropped[0]) : this.#openFiles(dropped);
    if (query.has("table")) return this.#readRow(query.get("table"), Number(query.get("row")));
    const id = query.get("document");
    if (id !== null && this.#stored?.id !== id) await this.#read(id);
    else this.#suggest();
    if (this.#editor.blank && matchMedia("(pointer: fine)").matches) this.#editor.focus();
  }

  close() {
    this.#soon.stop();
    this.#asking.suggest.drop();
    this.#asking.explain.drop();
  }

  /** The number of documents, or what the user may do, was read anew. */
  render() {
    this.#render();
  }

  keys = {
    letters: {
      j: () => this.#tags.step(1),
      k: () => this.#tags.step(-1),
      a: this.#writing(this.#onRow((label) => this.#tags.toggle(label, true))),
      x: this.#writing(this.#onRow((label) => this.#tags.toggle(label, false))),
      A: this.#writing(() => this.#tags.acceptAll()),
      c: this.#writing(() => $("complete").click()),
      e: this.#onRow((label) => this.#tags.toggleEvidence(label)),
      "/": this.#writing(() => this.#completion.focus()),
      y: () => this.#tags.size && this.#copy(),
      t: () => this.#editor.focus(),
      n: () => this.#next(),
    },
    enter: () => this.#suggest({ focus: true }),
    save: () => this.#learn(),
    undo: () => this.#takeBack(),
    step: (by) => this.#tags.step(by),
    escape: (target) => {
      const { open } = this.#tags;
      this.#tags.close();
      if (target === $("text") || open !== undefined) this.#tags.focus(open);
      else this.#editor.focus();
    },
  };

  help = [
    ["Ctrl Enter", "Suggest now and go to the tags"],
    ["j k", "Next or previous tag (or arrow keys)"],
    ["a", "The tag is right (again: undecided)", "writes"],
    ["x", "The tag is wrong (again: undecided)", "writes"],
    ["Shift A", "Accept all undecided tags", "writes"],
    ["c", "These are all the tags", "writes"],
    ["e", "Evidence for the tag"],
    ["/", "Add a tag", "writes"],
    ["y", "Copy the tags, one on each line"],
    ["Ctrl S", "Learn", "writes"],
    ["Ctrl Z", "Undo (outside text fields)", "writes"],
    ["t", "Go to the text (Esc: to the tags)"],
    ["n", "New text, or next file or row"],
  ];

  #onRow(call) {
    return () => this.#tags.current !== undefined && call(this.#tags.current);
  }

  #writing(call) {
    return () => this.#page.writes && call();
  }

  /** Start another text, with these decisions. */
  #begin({ accepted = [], rejected = [], complete = false } = {}) {
    this.#stored = this.#n = this.#row = null;
    this.#undo = this.#undo.filter((entry) => entry.id !== undefined);
    $("complete").checked = complete;
    $("unlike").hidden = true;
    this.#tags.reset(accepted, rejected);
  }

  async #openFiles(files) {
    try {
      await this.#editor.open(files);
    } catch (error) {
      this.#page.failed(error); // the next file can be opened
      this.#render();
    }
  }

  /** Show a row of a table that was tagged. */
  async #readRow(table, number) {
    if (this.#row?.table === table && this.#row.number === number) return this.#suggest();
    const [job, found] = await Promise.all([this.#store.table(table), this.#store.rows(table, number, 1)]);
    const [row] = found.rows;
    if (!row) throw new Error(`${job.name} has no row ${number + 1} yet.`);
    this.#editor.set(row.text, `${job.name} · row ${number + 1}`);
    this.#row = { table, number, text: row.text, last: number + 1 >= found.done };
    this.#page.go("tag", { table, row: number }, { replace: true });
    this.#render();
  }

  /** The next file, or row of the table, or an empty text. */
  async #next() {
    const row = this.#row;
    try {
      if (row && !row.last) await this.#readRow(row.table, row.number + 1);
      else if (row) this.#page.go("tables", { job: row.table });
      else await this.#editor.next();
    } catch (error) {
      this.#page.failed(error);
    }
  }

  /** Show a document of the store. */
  async #read(id) {
    const document = await this.#asking.document((signal) => this.#store.document(id, signal));
    if (document) this.#edit(document);
  }

  #edit(document) {
    this.#editor.set(document.text ?? "");
    this.#begin(document);
    this.#stored = { ...document, text: this.#editor.text };
    this.#page.go("tag", { document: document.id }, { replace: true });
    this.#render();
    this.#tags.focus();
  }

  /** What the user says about the text. */
  #said() {
    const { accepted, rejected } = this.#tags;
    return { text: this.#editor.text, accepted, rejected, complete: $("complete").checked };
  }

  /** Whether the other tags are wrong. */
  #setComplete(complete) {
    $("complete").checked = complete;
    this.#note(complete ? "Undecided tags count as wrong." : "Nothing is learnt of undecided tags.");
  }

  async #suggest({ compare = false, focus = false } = {}) {
    const tags = this.#tags;
    const text = this.#editor.text;
    this.#soon.stop();
    if (this.#editor.blank || !this.#store) return this.#render();
    $("tags").ariaBusy = "true";
    this.#render();
    try {
      const n = this.#n;
      const ask = (signal) => Promise.all([this.#store.suggest(text, n, signal), n && this.#store.suggest(text, null, signal)]);
      const [answer, ruled] = (await this.#asking.suggest(ask)) ?? [];
      if (!answer) return;
      this.#page.calm();
      const { open } = tags;
      tags.close();
      tags.show(answer.labels, compare, ruled?.labels.length);
      const unlike = (answer.familiarity ?? 1) <= UNFAMILIAR;
      $("unlike").hidden = !unlike;
      if (open !== undefined) tags.toggleEvidence(open);
      const best = answer.labels.slice(0, 5).map(({ label, score: value }) => `${nameOf(label)} ${score(value)}`);
      const found = best.length ? `${count(answer.labels.length, "tag")}: ${best.join(", ")}` : "No tags";
      say(unlike ? `${$("unlike").textContent} ${found}` : found);
    } catch (error) {
      this.#page.failed(error, () => this.#suggest());
    }
    $("tags").ariaBusy = "false";
    this.#render();
    if (focus && !tags.focus()) this.#completion.focus();
  }

  #more() {
    if ($("tags").ariaBusy === "true") return;
    this.#n = Math.min(Math.max(10, 2 * this.#tags.suggested.length), MOST);
    this.#suggest().then(() => {
      this.#end.disconnect(); // what is seen is told when it is observed
      this.#end.observe($("more"));
    });
  }

  /** A text of the store. */
  async #try() {
    try {
      const { documents } = await this.#store.documents(EXAMPLES);
      const { id } = documents[Math.floor(Math.random() * documents.length)];
      this.#editor.set((await this.#store.document(id)).text ?? "");
    } catch (error) {
      this.#page.failed(error);
    }
  }

  /** Copy the tags that are right, or all that are not wrong while none is. */
  async #copy(as = "lines") {
    const { accepted, undecided } = this.#tags;
    const labels = accepted.length ? accepted : undecided;
    const named = labels.map(nameOf);
    const text = { lines: named.join("\n"), commas: named.join(", "), JSON: JSON.stringify(labels) }[as];
    try {
      await navigator.clipboard.writeText(text);
      this.#page.toast(`${count(labels.length, "tag")} copied.`);
    } catch {
      this.#page.failed(new Error("The browser does not allow copying here. Open the page at localhost or over HTTPS."));
    }
  }

  async #showEvidence(label, place) {
    place.textContent = "Loading …";
    try {
      const n = this.#tags.suggested.indexOf(label) + 1;
      const answer = await this.#asking.explain((signal) => this.#store.explain(this.#editor.text, n, signal));
      if (!answer) return;
      const found = answer.labels.find((one) => one.label === label);
      if (!found) return (place.textContent = "No evidence.");
      const { evidence } = await import("../evidence.js");
      place.replaceChildren(evidence(found));
      this.#editor.mark(found.spans);
      $("legend-label").textContent = nameOf(label);
      $("legend").hidden = !found.spans.length;
      say(`Evidence for ${nameOf(label)}`);
    } catch (error) {
      place.textContent = error.message;
    }
  }

  /** The main button. */
  #task() {
    const stored = this.#stored;
    if (!stored) return this.#editor.waiting || this.#row ? "Learn and next" : "Learn";
    const { text, accepted, rejected, complete } = this.#said();
    if (stored.text !== text) return "Save text";
    const kept = complete === stored.complete && same(stored.accepted, accepted) && (complete || same(stored.rejected, rejected));
    return kept ? "Learnt" : "Save tags";
  }

  /** What has to be done before the text can be learnt. */
  #missing({ accepted, rejected, complete }) {
    if (this.#editor.blank) return "Enter a text first.";
    if (complete && !accepted.length) return "Accept or add a tag first, or uncheck “These are all the tags”.";
    return accepted.length + rejected.length ? "" : "Accept, reject or add a tag first.";
  }

  /** Unless one is in progress. */
  async #change(call) {
    if (!this.#page.writes || this.#busy) return;
    this.#busy = true;
    this.#render();
    try {
      await call();
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
    this.#render();
  }

  #learn() {
    return this.#change(async () => {
      const store = this.#store;
      const stored = this.#stored;
      const editor = this.#editor;
      const row = this.#row; // the server finds what was decided on a row by the id of its document
      const learnt = { ...this.#said(), id: stored?.id ?? (row?.text === editor.text ? `${row.table}-${row.number + 1}` : undefined) };
      const lacks = this.#missing(learnt);
      if (lacks) return this.#note(lacks);
      if (this.#task() === "Learnt") return;
      learnt.id = await store.change(stored, learnt);
      const { id, text, accepted, rejected, complete } = learnt;
      if (store !== this.#store) return;
      this.#decisions.remember(id, text);
      const then = () => {
        if (editor.blank) editor.set(text);
        if (editor.text !== text) return;
        this.#begin(learnt);
        this.#stored = stored;
      };
      const run = () => store.change(learnt, stored);
      this.#undo = [...this.#undo.filter((entry) => entry.id !== undefined), { run, then, id }];
      const next = !stored && (editor.waiting || this.#row);
      if (next) await this.#next();
      else if (editor.text === text) this.#stored = learnt;
      const what = complete ? `Learnt with ${count(accepted.length, "tag")}` : `Learnt: ${counts({ right: accepted, wrong: rejected })}`;
      await this.#changed(`${what}.`, !next);
    });
  }

  #takeBack() {
    return this.#change(async () => {
      const entry = this.#undo.at(-1);
      if (!entry) return this.#note("Nothing to undo.");
      const drop = () => (this.#undo = this.#undo.filter((one) => one !== entry));
      try {
        await entry.run();
      } catch (error) {
        if (error.gone) drop(); // otherwise the user can retry
        throw error;
      }
      drop();
      entry.then?.();
      if (entry.id !== undefined) await this.#changed("Undone.");
    });
  }

  /** The store has another version: show its suggestions; `compare`: with the change of each score. */
  async changed(compare = true) {
    await Promise.all([this.#decisions.load(), compare && this.#suggest({ compare })]).catch(this.#page.failed);
  }

  async #changed(sentence, compare) {
    this.#note(sentence);
    await Promise.all([this.changed(compare), this.#page.look()]).catch(this.#page.failed);
  }

  #note(sentence) {
    $("note").textContent = sentence;
    if (sentence) say(sentence);
    this.#render();
  }

  #render() {
    const tags = this.#tags;
    const editor = this.#editor;
    const stored = this.#stored;
    const { blank } = editor;
    const loading = $("tags").ariaBusy === "true";
    const { accepted: right, rejected: wrong, complete } = this.#said();
    const found = tags.suggested.length;
    const show = (id, when) => ($(id).hidden = !when);
    const write = (id, text) => ($(id).textContent = text);
    write("about", [editor.about, stored && `Document ${stored.id}`].filter(Boolean).join(" · "));
    show("next", !blank || editor.waiting);
    write("next", this.#row?.last ? "Back to the table" : editor.waiting || this.#row ? "Next" : "New");
    const others = complete ? ", all others wrong" : "";
    write("found", right.length + wrong.length ? counts({ right, ...(!complete && { wrong, undecided: tags.undecided }) }) + others : "");
    show("empty", blank && !tags.size);
    show("waiting", !blank && !tags.size && loading);
    show("nothing", !blank && !tags.size && !loading && $("banner").hidden);
    show("more", found && found >= this.#n && found < (this.#page.info?.labels ?? 0));
    show("copy", found + right.length);
    $("copy").firstElementChild.textContent = `Copy ${right.length ? count(right.length, "right tag") : count(tags.undecided.length, "tag")} as`;
    show("first", found && !kept("localStorage", "ripml-decided"));
    show("saving", !blank || tags.size);
    write("learn", this.#task());
    $("learn").ariaDisabled = String(this.#busy || this.#task() === "Learnt");
    show("undo", this.#undo.length && !this.#busy);
  }
}
