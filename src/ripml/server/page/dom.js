// What every part of the page needs. Names and texts are data: set as textContent, always.

export const $ = (id) => document.getElementById(id);

/** The element of a template, as new. */
export const made = (template) => $(template).content.firstElementChild.cloneNode(true);

/** An element with a text and children. */
export function element(tag, text, ...children) {
  const node = document.createElement(tag);
  node.append(text, ...children);
  return node;
}

export const chips = (labels) => labels.map((label) => element("li", "", element("bdi", label)));

/** Tell those who listen instead of look. */
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

/** A call that is made when it was not asked for again so long. */
export function later(call, milliseconds) {
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(call, milliseconds);
  };
  wait.stop = () => clearTimeout(timer);
  return wait;
}

/** A value in storage, which may be refused; `value`: a new one, null for none. */
export function kept(storage, name, value) {
  try {
    if (value) window[storage].setItem(name, value);
    if (value === null) window[storage].removeItem(name);
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}
