// The suggested tags, and the user's verdict on each.

import { $, change, inside, made, nameOf, score, show } from "./dom.js";

const list = $("tags");
export const verdictOf = (verdict) => ({ true: "right", false: "wrong" })[verdict] ?? "undecided";
const VISIBLE = 0.005; // the smallest change that two digits show

export class Tags {
  open = undefined; // the label whose evidence is shown
  #rows = new Map(); // label → its row
  #scores = new Map(); // label → score, best first
  #verdicts = new Map(); // label → true (accepted) or false (rejected)
  #fresh = new Set(); // added labels that were new
  #ruled = Infinity; // suggestions that the rules of the store would give; further ones are more

  /** `decided(label, verdict, before)`; `opened(label, place)`: show its evidence there; `closed()`. */
  constructor({ decided, opened, closed }) {
    Object.assign(this, { decided, opened, closed });
    list.addEventListener("click", (event) => {
      const kind = event.target.closest("button")?.classList;
      const { label } = event.target.closest(".tag") ?? {};
      if (kind?.contains("verdict")) this.toggle(label, kind.contains("accept"));
      else if (kind?.contains("label")) this.toggleEvidence(label);
    });
  }

  get size() {
    return this.#rows.size;
  }

  get suggested() {
    return [...this.#scores.keys()];
  }

  get accepted() {
    return this.#with(true);
  }

  get rejected() {
    return this.#with(false);
  }

  get undecided() {
    return this.#with(undefined);
  }

  #with(verdict) {
    return [...this.#rows.keys()].filter((label) => this.#verdicts.get(label) === verdict);
  }

  /** Show suggestions; `compare`: with the change of each score; `ruled`: how many the store's rules give. */
  show(suggestions, compare, ruled = Infinity) {
    this.#ruled = ruled;
    const before = compare ? this.#scores : new Map();
    this.#scores = new Map(suggestions.map(({ label, score }) => [label, score]));
    this.#arrange();
    for (const [label, row] of this.#rows) {
      const step = this.#scores.get(label) - before.get(label);
      const fresh = before.size && this.#scores.has(label) && !before.has(label) ? "new" : "";
      row.querySelector(".change").textContent = Math.abs(step) >= VISIBLE ? change(step) : fresh;
      row.classList.toggle("down", step < 0);
    }
  }

  /** Drop all suggestions and show these decisions. */
  reset(accepted, rejected) {
    this.close();
    this.#scores = new Map();
    const verdicts = (labels, verdict) => labels.map((label) => [label, verdict]);
    this.#verdicts = new Map([...verdicts(accepted, true), ...verdicts(rejected, false)]);
    this.#arrange();
  }

  /** Accept a label; `fresh`: the store does not have it. */
  add(label, fresh) {
    if (fresh) this.#fresh.add(label);
    this.decide(label, true);
  }

  /** A verdict: true, false, or undefined for none. */
  decide(label, verdict) {
    const before = this.#verdicts.get(label);
    if (verdict === false && this.#fresh.has(label) && !this.#scores.has(label)) verdict = undefined; // nothing to reject
    if (verdict === undefined) this.#verdicts.delete(label);
    else this.#verdicts.set(label, verdict);
    this.#arrange();
    this.decided(label, verdict, before);
  }

  toggle(label, verdict) {
    this.decide(label, this.#verdicts.get(label) === verdict ? undefined : verdict);
  }

  acceptAll() {
    for (const label of this.undecided) this.decide(label, true);
  }

  /** The label whose row has the focus. */
  get current() {
    return document.activeElement.closest(".tag")?.label;
  }

  /** Focus the row of a label, or the first. */
  focus(label) {
    const row = this.#rows.get(label) ?? list.firstElementChild;
    row?.querySelector(".label").focus();
    return Boolean(row);
  }

  /** Focus the next or previous row. */
  step(by) {
    const labels = [...this.#rows.keys()];
    const at = labels.indexOf(this.current);
    this.focus(labels[at < 0 ? 0 : at + by] ?? labels[at]);
  }

  toggleEvidence(label) {
    const opens = this.open !== label && this.#scores.has(label);
    this.close();
    if (opens) this.opened((this.open = label), this.#evidence(true));
  }

  close() {
    if (this.open === undefined) return;
    this.#evidence(false).replaceChildren();
    this.open = undefined;
    this.closed();
  }

  #evidence(shown) {
    const row = this.#rows.get(this.open);
    const place = row.querySelector(".evidence");
    row.querySelector(".label").ariaExpanded = String(shown);
    place.hidden = !shown;
    return place;
  }

  #arrange() {
    const focused = this.current;
    if (!this.#scores.has(this.open)) this.close();
    const labels = new Set([...this.suggested, ...this.#verdicts.keys()]);
    this.#rows = new Map([...labels].map((label) => [label, this.#rows.get(label) ?? newRow(label)]));
    const best = Math.max(1, ...this.#scores.values());
    for (const [label, row] of this.#rows) this.#fill(row, this.#scores.get(label), this.#verdicts.get(label), best);
    [...this.#scores.keys()].forEach((label, i) => {
      const { classList } = this.#rows.get(label);
      classList.toggle("beyond", i >= this.#ruled);
      classList.toggle("line", i === this.#ruled);
    });
    place([...this.#rows.values()]);
    if (focused !== undefined && this.current === undefined) this.focus(focused);
  }

  #fill(row, value, verdict, best) {
    const at = inside(row);
    const known = value !== undefined;
    row.classList.toggle("accepted", verdict === true);
    row.classList.toggle("rejected", verdict === false);
    at(".state").textContent = verdictOf(verdict);
    at(".state").classList.toggle("unseen", verdict === undefined);
    at(".accept").ariaPressed = String(verdict === true);
    at(".reject").ariaPressed = String(verdict === false);
    at(".label").ariaExpanded = known ? String(this.open === row.label) : null;
    at(".score").textContent = known ? score(value) : verdict ? "added" : "";
    at(".score").title = value ?? "";
    at(".bar").hidden = !known;
    at("i").style.setProperty("--part", Math.max(0, (value ?? 0) / best).toFixed(4));
  }
}

function newRow(label) {
  const row = made("tag-row");
  row.label = label;
  const at = inside(row);
  show(label, at("bdi"));
  at(".accept").ariaLabel = `Accept ${nameOf(label)}`;
  at(".reject").ariaLabel = `Reject ${nameOf(label)}`;
  return row;
}

/** Replace the rows; those that stay keep focus and animation. */
function place(rows) {
  const kept = new Set(rows);
  for (const old of [...list.children]) if (!kept.has(old)) old.remove();
  rows.forEach((row, i) => row === list.children[i] || list.insertBefore(row, list.children[i]));
}
