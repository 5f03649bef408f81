// Helpers. Names and texts are untrusted: always set them as textContent.

export const $ = (id) => document.getElementById(id);

/** A copy of a template's element. */
export const made = (template) => $(template).content.firstElementChild.cloneNode(true);

export const inside = (node) => (selector) => node.querySelector(selector);

/** An element with a text and children. */
export function element(tag, text, ...children) {
  const node = document.createElement(tag);
  node.append(text, ...children);
  return node;
}

const names = Object.create(null); // label → name

export const remember = (found) => Object.assign(names, found);
export const nameOf = (label) => names[label] ?? label;

/** Show the name of a label, with the label as title. */
export function show(label, node = element("bdi", "")) {
  node.textContent = nameOf(label);
  node.title = label in names ? label : "";
  return node;
}

export const chips = (labels) => labels.map((label) => element("li", "", show(label)));

/** Only for screen readers. */
export const unseen = (text) => Object.assign(element("span", text), { className: "unseen" });

/** Tell screen readers. */
export function say(sentence) {
  $("say").textContent = "";
  requestAnimationFrame(() => ($("say").textContent = sentence));
}

const format = (options) => (value) => value.toLocaleString(undefined, options).replace("-", "−");
const TWO = { minimumFractionDigits: 2, maximumFractionDigits: 2 };
export const number = format();
export const score = format(TWO);
export const change = format({ ...TWO, signDisplay: "always" });
export const percent = format({ style: "percent" });
export const precise = format({ style: "percent", minimumFractionDigits: 1 });
export const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;

export const when = (time) => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Debounce: call after a pause without further calls. */
export function later(call, milliseconds) {
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(call, milliseconds);
  };
  wait.stop = () => clearTimeout(timer);
  return wait;
}

/** A value in storage, which may be blocked; `value`: a new one, null removes it. */
export function kept(storage, name, value) {
  try {
    if (value) window[storage].setItem(name, value);
    if (value === null) window[storage].removeItem(name);
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}
