// The frame: the selected store, the views and their addresses, problems, theme and help.

import * as api from "./api.js";
import { isTable, takeDrops } from "./drops.js";
import { $, count, element, kept, say } from "./dom.js";
import { describe, listen } from "./keys.js";

const AGAIN = 3000; // milliseconds between checks for the server
const NOTICE = 8000; // milliseconds that a notice stays
const links = [...document.querySelectorAll("#views a:not([hidden])")];
const views = {}; // name → the promise of a view
let stores = [];
let view = null; // the view that is shown
let shown = ""; // its name

/** What a view sees of the frame. */
const page = {
  store: null, // the routes of the selected store
  info: null, // its name, documents and labels
  writes: false, // whether the user may change it
  tables: [], // files that were dropped or chosen, until Tables takes them
  texts: [], // the same for Tag: files, or a string
  failed,
  calm,
  look,
  toast,

  /** The address of a view of the selected store. */
  address(name, query = {}) {
    const words = new URLSearchParams(query).toString();
    return `#${encodeURIComponent(page.store.name)}${name === "tag" ? "" : `/${name}`}${words && `?${words}`}`;
  },

  /** Show a view; `replace`: it is shown already, only its address changes. */
  go(name, query, { replace = false } = {}) {
    const address = page.address(name, query);
    if (replace) return history.replaceState(null, "", address);
    if (address === location.hash) return choose();
    location.hash = address;
  },

  /** Show files where they belong: tables in Tables, others in Tag. */
  take(files, text = "") {
    const [tables, others] = [true, false].map((wanted) => files.filter((file) => isTable(file) === wanted));
    page.tables.push(...tables);
    page.texts.push(...(others.length || tables.length ? others : [text]));
    page.go(tables.length ? "tables" : "tag");
  },

  /** A view has changed the store. */
  changed: () => look().catch(failed),
};

// Views.

/** Store, view and query of an address: `#store/view?query`. */
function parsed(address) {
  const [, store, name, query] = /^#?([^/?]*)\/?([^?]*)\??(.*)$/.exec(address);
  return { store: decoded(store), name: name || "tag", query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A view; its files are loaded when it is first shown. */
async function load(name) {
  const code = import(`./views/${name}.js`).catch(() => {
    throw new api.Problem(0, "A part of the page could not be loaded.");
  });
  code.catch(() => {}); // is told below
  if (!$(name)) {
    const style = Object.assign(element("link", ""), { rel: "stylesheet", href: `page/views/${name}.css` });
    const styled = new Promise((resolve, reject) => Object.assign(style, { onload: resolve, onerror: reject }));
    document.head.append(style);
    const place = Object.assign(element("section", ""), { id: name, className: "view", hidden: true });
    const [markup] = await Promise.all([api.markup(`page/views/${name}.html`), styled]);
    place.append(markup);
    $("toast").before(place);
  }
  const { default: View } = await code;
  return new View($(name), page);
}

/** Show what the address names. */
async function choose() {
  const { store, name, query } = parsed(location.hash);
  const info = stores.find((one) => one.name === store) ?? stores[0];
  if (!info) return failed(new Error("This server has no stores."));
  if (info.name !== page.store?.name) page.store = api.store(info.name);
  const link = links.find(({ dataset }) => dataset.view === name) ?? links[0];
  const { view: wanted } = link.dataset;
  page.info = info;
  $("store").value = info.name;
  document.title = `${wanted === "tag" ? "" : `${link.innerText.trim()} · `}${info.name} · ripml`;
  for (const one of links) {
    one.href = `./${page.address(one.dataset.view)}`; // `#…` alone, scrolled out of the strip, is taken for a skip link
    one.ariaCurrent = one === link ? "page" : null;
  }
  link.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone, the links are a strip
  render();
  shown = wanted;
  try {
    views[wanted] ??= load(wanted);
    const next = await views[wanted];
    if (shown !== wanted) return; // another address was chosen
    if (view !== next) view?.close();
    view = next;
    for (const place of document.querySelectorAll(".view")) place.hidden = place.id !== wanted;
    await view.open(query);
  } catch (error) {
    if (!view || shown !== wanted) delete views[wanted]; // it can be loaded again
    failed(error, choose);
  }
}

// The stores.

async function look() {
  const { stores: all, role } = await api.stores();
  stores = all;
  page.writes = role === "write";
  page.info = stores.find(({ name }) => name === page.store?.name);
  document.documentElement.dataset.role = role;
  render();
  view?.render?.();
}

async function start() {
  try {
    await look();
    calm();
    $("store").replaceChildren(...stores.map(({ name }) => new Option(name)));
    await choose();
  } catch (error) {
    failed(error, start);
  }
}

function render() {
  const { store, info } = page;
  $("store").hidden = stores.length < 2;
  $("store-name").textContent = $("store-name").title = stores.length === 1 ? (store?.name ?? "") : ""; // may be cut
  $("size").replaceChildren(...(info ? [count(info.documents, "document"), element("span", ` · ${count(info.labels, "label")}`)] : []));
  $("card-open").hidden = !store;
}

// Problems and notices.

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

let notice;

/** A notice at the bottom; `undo`: what its button calls. */
function toast(sentence, undo = null) {
  clearTimeout(notice);
  $("toast-text").textContent = sentence;
  $("toast-undo").hidden = !undo;
  $("toast-undo").onclick = async () => {
    $("toast").hidden = true;
    try {
      await undo();
    } catch (error) {
      failed(error);
    }
  };
  $("toast").hidden = false;
  say(sentence);
  const hide = () => {
    if ($("toast").matches(":hover, :focus-within")) notice = setTimeout(hide, NOTICE);
    else $("toast").hidden = true;
  };
  notice = setTimeout(hide, NOTICE);
}

// Theme, help, keys.

function switchTheme() {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  kept("localStorage", "ripml-theme", (dataset.theme = dark ? "light" : "dark"));
}

let card = null; // is loaded when it is first shown

function refitted() {
  toast("The model was refitted.");
  look().catch(failed);
  view?.changed?.();
}

async function showCard() {
  if (!page.store) return;
  try {
    const { Card } = await import("./card.js");
    card ??= new Card({ refitted, failed });
    card.show(page.store);
  } catch (error) {
    failed(error);
  }
}

function showHelp() {
  const at = `1 ${links.length}`;
  describe([...(view?.help ?? []), [at, "The views, from left to right"], ["m", "Model card"], ["?", "This help"]]);
  $("help").showModal();
}

listen(() => {
  const keys = view?.keys ?? {};
  const numbers = Object.fromEntries(links.map((link, i) => [i + 1, () => page.store && link.click()]));
  return { ...keys, letters: { ...numbers, m: showCard, "?": showHelp, ...keys.letters } };
});

const clicks = {
  "card-open": showCard,
  "help-open": showHelp,
  theme: switchTheme,
  "banner-retry": retry,
  "banner-close": calm,
};
for (const [id, call] of Object.entries(clicks)) $(id).addEventListener("click", call);
for (const button of document.querySelectorAll("[data-close]"))
  button.addEventListener("click", () => button.closest("dialog").close());
$("store").addEventListener("change", () => {
  const { name } = parsed(location.hash);
  location.hash = `${encodeURIComponent($("store").value)}${name === "tag" ? "" : `/${name}`}`;
});
addEventListener("hashchange", choose);
takeDrops((files, text) => page.store && page.take(files, text));

start();
