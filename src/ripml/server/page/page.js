// The page: text → suggested tags → decisions → the store, and again.

import * as api from "./api.js";
import { Card } from "./card.js";
import { Completion } from "./completion.js";
import { Decisions } from "./decisions.js";
import { $, count, kept, later, nameOf, number, say, score } from "./dom.js";
import { Editor } from "./editor.js";
import { evidence } from "./evidence.js";
import { listen } from "./keys.js";
import { Tags, verdictOf } from "./tags.js";

const PAUSE = 300; // milliseconds without typing before tags are requested
const MOST = 1000; // tags of one request
const UNFAMILIAR = 0.01; // the familiarity up to which a text is unlike anything known
const AGAIN = 3000; // milliseconds between checks for the server

const state = {
  stores: [],
  store: null, // the selected one
  writes: false, // whether the user may change it
  stored: null, // {id, text, accepted, rejected, complete}, if the text is a document of the store
  n: null, // number of tags to request; null: the store's rules
  undo: [], // for Ctrl+Z: {run, then, id}, latest last; with an id if it changed the store
  busy: false, // a change is in progress
};

const asking = { suggest: api.latest(), explain: api.latest() };
const soon = later(() => suggest(), PAUSE);

const editor = new Editor((whole, typed) => {
  if (whole) begin();
  tags.close();
  asking.suggest.drop();
  note("");
  if (editor.blank) soon.stop();
  else if (typed) soon();
  else suggest();
});

const tags = new Tags({
  decided(label, verdict, before) {
    if (!state.busy) state.undo.push({ run: () => tags.decide(label, before) });
    note("");
    say(`${nameOf(label)}: ${verdictOf(verdict)}`);
  },
  opened: showEvidence,
  closed() {
    asking.explain.drop();
    editor.unmark();
    $("legend").hidden = true;
  },
});

const completion = new Completion({
  search: (prefix, signal) => state.store.labels(prefix, signal),
  pick: (label, fresh) => tags.add(label, fresh),
  leave: () => tags.focus() || editor.focus(),
  failed,
});

const decisions = new Decisions({
  undone(sentence, id, document) {
    state.undo = state.undo.filter((entry) => entry.id !== id);
    if (state.stored?.id === id) state.stored = document;
    return changed(sentence);
  },
  edit(document) {
    editor.set(document.text ?? "");
    begin(document);
    state.stored = { ...document, text: editor.text };
    render();
    tags.focus();
  },
  failed,
});

const card = new Card({ refitted: () => changed("The model was refitted."), failed });

/** Start another text, with these decisions. */
function begin({ accepted = [], rejected = [], complete = false } = {}) {
  state.stored = state.n = null;
  state.undo = state.undo.filter((entry) => entry.id !== undefined);
  $("complete").checked = complete;
  $("unlike").hidden = true;
  tags.reset(accepted, rejected);
}

/** What the user says about the text. */
const said = () => ({ text: editor.text, accepted: tags.accepted, rejected: tags.rejected, complete: $("complete").checked });

/** Whether the other tags are wrong. */
function setComplete(complete) {
  $("complete").checked = complete;
  note(complete ? "Undecided tags count as wrong." : "Nothing is learnt of undecided tags.");
}

async function suggest({ compare = false, focus = false } = {}) {
  const { store, n } = state;
  const text = editor.text;
  soon.stop();
  if (editor.blank || !store) return;
  $("tags").ariaBusy = "true";
  render();
  try {
    const answer = await asking.suggest((signal) => store.suggest(text, n, signal));
    if (!answer) return;
    calm();
    const { open } = tags;
    tags.close();
    tags.show(answer.labels, compare);
    const unlike = (answer.familiarity ?? 1) <= UNFAMILIAR;
    $("unlike").hidden = !unlike;
    if (open !== undefined) tags.toggleEvidence(open);
    const best = answer.labels.slice(0, 5).map(({ label, score: value }) => `${nameOf(label)} ${score(value)}`);
    const found = best.length ? `${count(answer.labels.length, "tag")}: ${best.join(", ")}` : "No tags";
    say(unlike ? `${$("unlike").textContent} ${found}` : found);
  } catch (error) {
    failed(error, suggest);
  }
  $("tags").ariaBusy = "false";
  render();
  if (focus && !tags.focus()) completion.focus();
}

async function showEvidence(label, place) {
  place.textContent = "Loading …";
  try {
    const answer = await asking.explain((signal) => state.store.explain(editor.text, tags.suggested.indexOf(label) + 1, signal));
    if (!answer) return;
    const found = answer.labels.find((one) => one.label === label);
    if (!found) return (place.textContent = "No evidence.");
    place.replaceChildren(evidence(found));
    editor.mark(found.spans);
    $("legend-label").textContent = nameOf(label);
    $("legend").hidden = !found.spans.length;
    say(`Evidence for ${nameOf(label)}`);
  } catch (error) {
    place.textContent = error.message;
  }
}

const same = (a, b) => a.length === b.length && a.every((label) => b.includes(label));

/** The main button. */
function task() {
  if (!state.stored) return editor.waiting ? "Learn and next" : "Learn";
  if (state.stored.text !== editor.text) return "Save text";
  const { accepted, rejected, complete } = said();
  const { stored } = state;
  const kept = complete === stored.complete && same(stored.accepted, accepted) && (complete || same(stored.rejected, rejected));
  return kept ? "Learnt" : "Save tags";
}

/** What has to be done before the text can be learnt. */
function missing({ accepted, rejected, complete }) {
  if (editor.blank) return "Enter a text first.";
  if (complete && !accepted.length) return "Accept or add a tag first, or uncheck “These are all the tags”.";
  return accepted.length + rejected.length ? "" : "Accept, reject or add a tag first.";
}

/** Unless one is in progress. */
async function change(call) {
  if (!state.writes || state.busy) return;
  state.busy = true;
  render();
  try {
    await call();
  } catch (error) {
    failed(error);
  }
  state.busy = false;
  render();
}

const learn = () =>
  change(async () => {
    const { store, stored } = state;
    const learnt = { ...said(), id: stored?.id };
    const lacks = missing(learnt);
    if (lacks) return note(lacks);
    if (task() === "Learnt") return;
    learnt.id = await store.change(stored, learnt);
    const { id, text, accepted, rejected, complete } = learnt;
    if (store !== state.store) return;
    decisions.remember(id, text);
    const then = () => {
      if (editor.blank) editor.set(text);
      if (editor.text !== text) return;
      begin(learnt);
      state.stored = stored;
    };
    const run = () => store.change(learnt, stored);
    state.undo = [...state.undo.filter((entry) => entry.id !== undefined), { run, then, id }];
    const next = !stored && editor.waiting;
    if (next) await editor.next();
    else if (editor.text === text) state.stored = learnt;
    const what = complete ? `Learnt with ${count(accepted.length, "tag")}` : `Learnt: ${counts({ right: accepted, wrong: rejected })}`;
    await changed(`${what}.`, !next);
  });

const undo = () =>
  change(async () => {
    const entry = state.undo.at(-1);
    if (!entry) return note("Nothing to undo.");
    const drop = () => (state.undo = state.undo.filter((one) => one !== entry));
    try {
      await entry.run();
    } catch (error) {
      if (error.gone) drop(); // otherwise the user can retry
      throw error;
    }
    drop();
    entry.then?.();
    if (entry.id !== undefined) await changed("Undone.");
  });

/** The store has changed: reload what shows it. */
async function changed(sentence, compare = true) {
  note(sentence);
  await Promise.all([decisions.load(), look(), compare && suggest({ compare })]).catch(failed);
}

// The stores.

async function look() {
  const { stores, role } = await api.stores();
  state.stores = stores;
  state.writes = role === "write";
  document.documentElement.dataset.role = role;
  render();
}

async function start() {
  try {
    await look();
    calm();
    $("store").replaceChildren(...state.stores.map(({ name }) => new Option(name)));
    await choose();
  } catch (error) {
    failed(error, start);
  }
}

/** Select the store named in the URL, or the first. */
async function choose() {
  const named = state.stores.find(({ name }) => `#${encodeURIComponent(name)}` === location.hash) ?? state.stores[0];
  if (!named) return failed(new Error("This server has no stores."));
  if (named.name === state.store?.name) return;
  if (state.store) begin();
  state.store = api.store(named.name);
  state.undo = [];
  $("store").value = named.name;
  document.title = `${named.name} · ripml`;
  card.use(state.store);
  note("");
  suggest();
  await decisions.use(state.store).catch(failed);
}

// Problems.

let again = null; // the failed call
let timer;

function failed(error, repeat = null) {
  again = repeat;
  $("banner-text").textContent = error.message;
  $("banner-retry").hidden = !again;
  $("banner").hidden = false;
  clearTimeout(timer);
  if (error.away && again) timer = setTimeout(wait, AGAIN);
}

/** The server is down: continue when it is back. */
async function wait() {
  if (await api.ready()) retry();
  else timer = setTimeout(wait, AGAIN);
}

function retry() {
  const repeat = again;
  calm();
  repeat?.();
}

function calm() {
  clearTimeout(timer);
  again = null;
  $("banner").hidden = true;
}

// Rendering.

/** Numbers of labels, as in "2 right, 1 wrong". */
const counts = (groups) =>
  Object.entries(groups).filter(([, { length }]) => length).map(([what, { length }]) => `${number(length)} ${what}`).join(", ");

function note(sentence) {
  $("note").textContent = sentence;
  if (sentence) say(sentence);
  render();
}

function render() {
  const { store, stores, stored, busy } = state;
  const { blank } = editor;
  const info = stores.find(({ name }) => name === store?.name);
  const loading = $("tags").ariaBusy === "true";
  const { accepted: right, rejected: wrong, complete } = said();
  const found = tags.suggested.length;
  const show = (id, when) => ($(id).hidden = !when);
  const write = (id, text) => ($(id).textContent = text);
  show("store", stores.length > 1);
  write("store-name", stores.length === 1 ? store?.name : "");
  write("size", info ? `${count(info.documents, "document")} · ${count(info.labels, "label")}` : "");
  show("card-open", store);
  write("about", [editor.about, stored && `Document ${stored.id}`].filter(Boolean).join(" · "));
  show("next", !blank || editor.waiting);
  write("next", editor.waiting ? "Next" : "New");
  const others = complete ? ", all others wrong" : "";
  write("found", right.length + wrong.length ? counts({ right, ...(!complete && { wrong, undecided: tags.undecided }) }) + others : "");
  show("empty", blank && !tags.size);
  show("waiting", !blank && !tags.size && loading);
  show("nothing", !blank && !tags.size && !loading && $("banner").hidden);
  show("more", found && found >= state.n && found < info.labels);
  show("saving", !blank || tags.size);
  write("learn", task());
  $("learn").ariaDisabled = String(busy || task() === "Learnt");
  show("undo", state.undo.length && !busy);
}

function switchTheme() {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  kept("localStorage", "ripml-theme", (dataset.theme = dark ? "light" : "dark"));
}

const show = { help: () => $("help").showModal(), card: () => state.store && card.show() };
const step = (by) => tags.step(by);
const onRow = (call) => () => tags.current !== undefined && call(tags.current);
const writing = (call) => () => state.writes && call();

listen({
  suggest: () => suggest({ focus: true }),
  learn,
  undo,
  step,
  escape(target) {
    const { open } = tags;
    tags.close();
    if (target === $("text") || open !== undefined) tags.focus(open);
    else editor.focus();
  },
  letters: {
    j: () => step(1),
    k: () => step(-1),
    a: writing(onRow((label) => tags.toggle(label, true))),
    x: writing(onRow((label) => tags.toggle(label, false))),
    A: writing(() => tags.acceptAll()),
    c: writing(() => $("complete").click()),
    e: onRow((label) => tags.toggleEvidence(label)),
    "/": writing(() => completion.focus()),
    t: () => editor.focus(),
    n: () => editor.next(),
    m: show.card,
    "?": show.help,
  },
});

const clicks = {
  learn,
  undo,
  next: () => editor.next(),
  more() {
    state.n = Math.min(Math.max(10, 2 * tags.suggested.length), MOST);
    suggest();
  },
  "card-open": show.card,
  "help-open": show.help,
  theme: switchTheme,
  "banner-retry": retry,
  "banner-close": calm,
};
for (const [id, call] of Object.entries(clicks)) $(id).addEventListener("click", call);
for (const button of document.querySelectorAll("[data-close]"))
  button.addEventListener("click", () => button.closest("dialog").close());
$("complete").addEventListener("change", ({ target: { checked } }) => {
  state.undo.push({ run: () => setComplete(!checked) });
  setComplete(checked);
});
$("store").addEventListener("change", () => (location.hash = encodeURIComponent($("store").value)));
addEventListener("hashchange", choose);

if (matchMedia("(pointer: fine)").matches) editor.focus();
start();
