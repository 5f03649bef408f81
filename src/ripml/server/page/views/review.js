// Review: one question at a time, about new documents or about tags that an audit doubts.

import { latest } from "../api.js";
import { Completion } from "../completion.js";
import { $, chips, count, element, kept, made, nameOf, number, percent, say, show } from "../dom.js";
import { marked } from "../marks.js";

const BATCH = 5; // documents of one request
const MOST = 1000;
const POLL = 1000; // milliseconds between looks at an audit
const SHOWN = 10; // decisions that can be edited
const SWIPE = 90; // pixels
const NEAR = 2; // similar documents of each kind
const ALL = Symbol("all"); // the last question about a new document

/** Who reviews: people who share a key, or need none, get different documents. */
const reviewer = kept("sessionStorage", "ripml-reviewer") ?? kept("sessionStorage", "ripml-reviewer", Math.random().toString(36).slice(2));

/** Counts of what was decided since the view was opened. */
const none = () => ({ documents: 0, right: 0, wrong: 0, first: 0, asked: 0, like: 0 });

export default class Review {
  #page;
  #store = null;
  #queue = "new"; // or "doubtful"
  #coming = []; // documents
  #skipped = new Set(); // ids of documents about which nothing was said
  #current = null; // {id, text, labels, findings, …}, and here also questions, at, answers: Map label → true or false
  #done = []; // decisions, latest first
  #numbers = none();
  #busy = false;
  #timer;
  #asking = latest();
  #explaining = latest();

  constructor(place, page) {
    this.#page = page;
    const clicks = { no: () => this.#answer(false), yes: () => this.#answer(true), skip: () => this.#answer(), begin: () => this.#begin() };
    for (const [id, call] of Object.entries(clicks)) $(`review-${id}`).addEventListener("click", call);
    for (const button of place.querySelectorAll("[data-queue]"))
      button.addEventListener("click", () => page.go("review", button.dataset.queue === "new" ? {} : { queue: button.dataset.queue }));
    this.completion = new Completion($("review-add"), $("review-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => this.#add(label),
      leave: () => $("review-yes").focus(),
      failed: page.failed,
      fresh: true,
    });
    this.#takeSwipes($("review-card"));
  }

  async open(query) {
    const { store } = this.#page;
    const queue = query.get("queue") === "doubtful" ? "doubtful" : "new";
    if (store !== this.#store || queue !== this.#queue) {
      if (this.#store) this.#give(this.#store, [this.#current, ...this.#coming].filter(Boolean));
      if (store !== this.#store) this.#done = [];
      this.#store = store;
      this.#queue = queue;
      this.#coming = [];
      this.#skipped = new Set();
      this.#numbers = none();
      this.#current = null;
    }
    for (const button of document.querySelectorAll("[data-queue]")) button.ariaPressed = String(button.dataset.queue === queue);
    this.#drawDone();
    if (this.#current) return this.#draw();
    await this.#next();
  }

  close() {
    clearTimeout(this.#timer);
    this.#asking.drop();
    this.#explaining.drop();
  }

  keys = {
    letters: {
      y: () => this.#answer(true),
      n: () => this.#answer(false),
      s: () => this.#answer(),
      d: () => this.#finish(),
      u: () => this.#back(),
      "/": () => !$("review-adding").hidden && this.completion.focus(),
      ArrowRight: () => this.#answer(true),
      ArrowLeft: () => this.#answer(false),
    },
    undo: () => this.#back(),
    save: () => this.#finish(),
  };

  help = [
    ["y", "Yes (or the right arrow, or swipe right)"],
    ["n", "No (or the left arrow, or swipe left)"],
    ["s", "Not sure: nothing is learnt of this tag"],
    ["d", "Done with this document: save what was said and go on"],
    ["u", "Back to the question before (also Ctrl Z)"],
    ["/", "Add a tag"],
  ];

  // The documents.

  async #next() {
    this.#current = null;
    if (!this.#page.writes) return this.#invite("Review needs a key that may write.", "With this one you can read and get tags.");
    if (!this.#coming.length) await this.#fetch();
    if (!this.#coming.length) return;
    const document = this.#coming.shift();
    const labels = document.labels.map(({ label, score }) => ({ label, score }));
    const questions = this.#queue === "new" ? [...labels, { label: ALL }] : document.findings;
    this.#current = { ...document, questions, at: 0, answers: new Map() };
    this.#draw();
    if (this.#queue === "new" && labels.length) this.#explain(this.#current);
  }

  async #fetch() {
    const labelled = this.#queue === "doubtful";
    $("review-card").hidden = $("review-invite").hidden = true;
    $("review-waiting").textContent = "Choosing documents …";
    try {
      const audit = labelled ? await this.#store.audit(1) : null;
      if (audit?.version === null) return await this.#follow();
      const n = Math.min(BATCH + this.#skipped.size, MOST); // those that were skipped come again
      const answer = await this.#asking((signal) => this.#store.review({ n, caller: reviewer, labelled }, signal));
      if (!answer) return;
      this.#page.calm();
      $("review-waiting").textContent = "";
      this.#coming = answer.documents.filter(({ id }) => !this.#skipped.has(id));
      this.#give(this.#store, answer.documents.filter(({ id }) => this.#skipped.has(id)));
      if (this.#coming.length) return;
      if (audit?.enough === false) this.#invite("Too few documents to doubt a tag.", "What fewer than 100 documents with tags say of each other is mostly chance. Look again when there are more.", "Look again");
      else if (labelled) this.#invite("No tag is in doubt.", "Nothing more was found. Look again after more documents have changed.", "Look again");
      else this.#invite("Nothing waits for review.", "Documents without tags wait here, those first from which the model learns most. What others are looking at is not shown.", "", ["tag", "Open Tag"]);
    } catch (error) {
      $("review-waiting").textContent = "";
      this.#page.failed(error, () => this.#next());
    }
  }

  /** The audit that has to be made first: begin it, or wait for its end. */
  async #follow() {
    const { status, detail, version } = await this.#store.audit(1);
    if (status === "idle" && version !== null) return this.#next(); // of a small store, it is done at once
    if (status === "running") {
      $("review-card").hidden = $("review-invite").hidden = true;
      $("review-waiting").textContent = "Comparing every document with all others … this takes seconds to minutes.";
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#poll().catch(this.#page.failed), POLL);
    } else
      this.#invite("Which tags are wrong, which are missing?", detail ?? "ripml compares every document with all others, without the document itself, and asks you about the tags that do not fit.", "Find doubtful tags");
  }

  async #poll() {
    const { status } = await this.#store.audit(1);
    if (status === "running" || status === "failed") return this.#follow();
    $("review-waiting").textContent = "";
    await this.#next();
  }

  async #begin() {
    try {
      await this.#store.beginAudit();
      this.#skipped = new Set();
      await this.#follow();
    } catch (error) {
      this.#page.failed(error);
    }
  }

  #invite(lead, advice, begin = "", link = null) {
    $("review-card").hidden = true;
    $("review-invite").hidden = false;
    $("review-waiting").textContent = "";
    $("review-lead").textContent = lead;
    $("review-advice").textContent = advice;
    $("review-begin").hidden = !begin;
    $("review-begin").textContent = begin;
    $("review-link").hidden = !link;
    if (link) Object.assign($("review-link"), { href: this.#page.address(link[0]), textContent: link[1] });
    this.#drawNumbers();
    say(lead);
  }

  /** Others may get these documents. */
  #give(store, documents) {
    if (documents.length && this.#page.writes) store.release(documents.map(({ id }) => id)).catch(() => {}); // the leases end
  }

  // Answers.

  get #question() {
    return this.#current?.questions[this.#current.at];
  }

  /** Yes, no, or undefined: do not say. */
  #answer(yes) {
    const current = this.#current;
    const question = this.#question;
    if (!question || this.#busy) return;
    if (question.label === ALL) return this.#finish(yes === true);
    if (yes === undefined) current.answers.delete(question.label);
    else current.answers.set(question.label, yes);
    current.at++;
    if (this.#question) this.#draw();
    else this.#finish();
  }

  #add(label) {
    if (!this.#current) return;
    this.#current.answers.set(label, true);
    this.#draw();
    say(`${nameOf(label)}: added`);
  }

  /** The question before, or the last decision again. */
  async #back() {
    const current = this.#current;
    if (this.#busy) return;
    if (!current?.at) return this.#done.length ? this.#takeBack(this.#done[0]) : say("Nothing to undo.");
    current.at--;
    current.answers.delete(this.#question.label);
    this.#draw();
  }

  /** Save what was said about the document, and show the next; `complete`: these are all its tags. */
  async #finish(complete = false) {
    const current = this.#current;
    if (!current || this.#busy) return;
    this.#busy = true;
    try {
      const entry = this.#queue === "new" ? await this.#decide(current, complete) : await this.#judge(current);
      if (entry) this.#remember(entry, current);
      else this.#skipped.add(current.id);
      if (entry) this.#page.changed();
      this.#busy = false;
      await this.#next();
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
  }

  /** Learn the decisions on a new document; how to take them back. */
  async #decide({ id, text, answers }, complete) {
    const said = (verdict) => [...answers.keys()].filter((label) => answers.get(label) === verdict);
    const before = { id, text, accepted: [], rejected: [], complete: false };
    const after = { id, text, accepted: said(true), rejected: complete ? [] : said(false), complete };
    if (!answers.size && !complete) return null;
    const store = this.#store;
    if (complete && !after.accepted.length) await store.relabel(id, []); // somebody has looked: no tag fits
    else await store.change(before, after);
    return { right: after.accepted, wrong: said(false), undo: () => store.change(after, before) };
  }

  /** Correct the tags that are wrong or missing, and dismiss the findings that are not right. */
  async #judge({ findings, answers }) {
    const store = this.#store;
    const decided = findings.filter(({ label }) => answers.has(label));
    const agrees = ({ kind, label }) => answers.get(label) === (kind === "missing");
    const accepted = decided.filter(agrees);
    const dismissed = decided.filter((finding) => !agrees(finding));
    if (!decided.length) return null;
    if (accepted.length) await store.findings("accept", accepted);
    if (dismissed.length) await store.findings("dismiss", dismissed);
    const said = (verdict) => decided.filter(({ label }) => answers.get(label) === verdict).map(({ label }) => label);
    return { right: said(true), wrong: said(false), undo: () => store.findings("undo", decided) };
  }

  #remember(entry, current) {
    this.#done = [{ ...entry, document: current, queue: this.#queue }, ...this.#done].slice(0, SHOWN);
    this.#count(this.#done[0], 1);
    this.#drawDone();
    say(`Saved: ${entry.right.length} right, ${entry.wrong.length} wrong.`);
  }

  #count({ right, wrong, document, queue }, by) {
    const numbers = this.#numbers;
    const first = document.answers.get(document.labels[0]?.label);
    numbers.documents += by;
    numbers.right += by * right.length;
    numbers.wrong += by * wrong.length;
    if (queue === "new" && first !== undefined) (numbers.asked += by), (numbers.first += by * first);
    if (queue === "new") numbers.like += by * document.n_like;
  }

  /** Undo a decision, and ask about its document again. */
  async #takeBack(entry) {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await entry.undo();
      this.#done = this.#done.filter((one) => one !== entry);
      this.#count(entry, -1);
      this.#page.changed();
      if (entry.queue === this.#queue) {
        if (this.#current) this.#coming.unshift(this.#current);
        this.#current = { ...entry.document, at: 0, answers: new Map(entry.document.answers) };
        this.#draw();
      }
      say("Undone.");
    } catch (error) {
      this.#page.failed(error);
    }
    this.#busy = false;
    this.#drawDone();
  }

  // Evidence.

  async #explain(current) {
    try {
      const answer = await this.#explaining((signal) => this.#store.explain(current.text, current.labels.length, signal));
      if (!answer || current !== this.#current) return;
      current.spans = new Map(answer.labels.map(({ label, spans }) => [label, spans]));
      this.#drawText();
    } catch {
      // The question can be answered without it.
    }
  }

  /** Similar documents that carry the label, and that do not. */
  async #drawNear({ label, carriers = [], others = [] }) {
    const near = $("review-near");
    const groups = [carriers.slice(0, NEAR), others.slice(0, NEAR)];
    near.hidden = !groups.flat().length;
    if (near.hidden) return;
    const read = ({ document: id }) => this.#store.document(id).catch(() => null);
    const found = await Promise.all(groups.map((group) => Promise.all(group.map(read))));
    if (this.#question?.label !== label) return;
    [...near.children].forEach((section, i) => {
      const shown = found[i].filter(Boolean);
      section.hidden = !shown.length;
      section.querySelector("ol").replaceChildren(...shown.map((one) => this.#nearRow(one)));
    });
  }

  #nearRow({ text, accepted }) {
    const excerpt = Object.assign(element("p", text), { className: "excerpt", dir: "auto" });
    const list = Object.assign(element("ul", "", ...chips(accepted)), { className: "chips" });
    return element("li", "", excerpt, list);
  }

  // Drawing.

  #draw() {
    const { questions, at, answers, carried, n_like: like } = this.#current;
    const { label, kind, score, probability: left, doubt } = this.#question;
    const all = label === ALL;
    const isNew = this.#queue === "new";
    $("review-card").hidden = false;
    $("review-invite").hidden = true;
    $("review-waiting").textContent = "";
    this.#drawText();
    const shown = isNew ? [...answers].filter(([, yes]) => yes).map(([one]) => one) : carried;
    $("review-chips").replaceChildren(...chips(shown));
    const waiting = like ? `: ${count(like, "similar document")} may gain from it` : "";
    $("review-why").textContent = isNew ? `The model learns most from this document${waiting}.` : "";
    $("review-place").textContent = all ? "Last question" : `Tag ${number(at + 1)} of ${number(questions.length - isNew)}`;
    if (all) $("review-question").textContent = shown.length ? "Are these all its tags?" : "Is it right that no tag fits?";
    else $("review-question").replaceChildren("Does ", show(label), " belong to this text?");
    const about = { wrong: `The document has this tag; it is wrong with a probability of ${percent(doubt ?? 0)}.`, missing: `The document does not have this tag; it is missing with a probability of ${percent(doubt ?? left ?? 0)}.` };
    $("review-about").textContent = all ? "Yes: all other tags are wrong. No: nothing is learnt of the others." : kind ? about[kind] : `The model gives it ${percent(Math.min(1, score))}.`;
    $("review-skip").querySelector("span").textContent = "Not sure";
    $("review-skip").hidden = all;
    $("review-adding").hidden = !isNew;
    if (all || isNew) $("review-near").hidden = true;
    else this.#drawNear(this.#question).catch(this.#page.failed);
    this.#drawNumbers();
    say($("review-question").textContent);
  }

  #drawText() {
    const { text, spans } = this.#current;
    const found = spans?.get(this.#question.label) ?? [];
    $("review-text").replaceChildren(...(found.length ? marked(text, found) : [text]));
  }

  #drawNumbers() {
    const { documents, right, wrong, first, asked, like } = this.#numbers;
    $("review-progress").textContent = documents ? `${count(documents, "document")} reviewed` : "";
    const parts = [`${number(right)} right, ${number(wrong)} wrong`];
    if (asked) parts.push(`the first tag was right in ${number(first)} of ${number(asked)}`);
    if (like) parts.push(`now the nearest example for ${count(like, "other document")}`);
    $("review-brought").textContent = documents ? `${parts.join("; ")}.` : "Your last ten decisions appear here, and can be changed.";
  }

  #drawDone() {
    $("review-last").replaceChildren(...this.#done.map((entry) => this.#row(entry)));
    this.#drawNumbers();
  }

  #row(entry) {
    const { right, wrong, document } = entry;
    const row = made("decision");
    const at = (selector) => row.querySelector(selector);
    const struck = chips(wrong);
    for (const chip of struck) chip.className = "wrong";
    at(".excerpt").textContent = document.text.slice(0, 200);
    at(".chips").append(...chips(right), ...struck);
    at("time").remove();
    Object.assign(at(".edit"), { textContent: "Open", ariaLabel: `Open: ${document.text.slice(0, 60)}`, onclick: () => this.#page.go("tag", { document: document.id }) });
    Object.assign(at(".back"), { textContent: "Change", ariaLabel: `Change: ${document.text.slice(0, 60)}`, onclick: () => this.#takeBack(entry) });
    return row;
  }

  /** Touch: the card follows the finger; far enough to a side is an answer. */
  #takeSwipes(card) {
    let from = null;
    const far = (event) => event.clientX - from.x;
    card.addEventListener("pointerdown", (event) => {
      const control = event.target.closest("button, input, a, li[role=option]");
      from = event.pointerType === "touch" && !control && this.#current ? { x: event.clientX, y: event.clientY } : null;
    });
    card.addEventListener("pointermove", (event) => {
      if (from) card.style.translate = `${far(event)}px`;
    });
    const end = (event) => {
      if (!from) return;
      const by = event.type === "pointerup" ? far(event) : 0;
      from = null;
      card.style.translate = "";
      if (Math.abs(by) >= SWIPE) this.#answer(by > 0);
    };
    for (const kind of ["pointerup", "pointercancel"]) card.addEventListener(kind, end);
  }
}
