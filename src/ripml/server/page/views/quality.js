// Quality: what can be applied unseen, and how good the model is by label, by frequency, by version and over time.

import { $, element, when } from "../dom.js";
import { Figures } from "../figures.js";

const POLL = 1000; // milliseconds between looks at a report
const LIBRARY = "page/vendor/uPlot";
const LABELS = 1000;
const COPIES = 100;

/** The library of charts, once. */
let library;
function loaded() {
  const parts = [
    Object.assign(element("link", ""), { rel: "stylesheet", href: `${LIBRARY}.min.css` }),
    Object.assign(element("script", ""), { src: `${LIBRARY}.iife.min.js` }),
  ];
  const wait = (part) =>
    new Promise((resolve, reject) => {
      part.onload = resolve;
      part.onerror = () => reject(new Error("The charts could not be loaded."));
      document.head.append(part);
    });
  library ??= Promise.all(parts.map(wait)).catch((error) => {
    library = null;
    throw error;
  });
  return library;
}

export default class Quality {
  #page;
  #store = null;
  #figures;
  #overview;
  #timer;
  #open = false;

  constructor(place, page) {
    this.#page = page;
    this.#figures = new Figures({ link: page.address });
    for (const id of ["quality-measure", "quality-begin"]) $(id).addEventListener("click", () => this.#begin());
    $("quality-learning-begin").addEventListener("click", () => this.#beginCurve());
  }

  keys = { letters: { "/": () => $("quality-filter").focus(), r: () => this.#begin() } };

  help = [
    ["/", "Filter labels"],
    ["r", "Measure each label again", "writes"],
  ];

  async open() {
    this.#open = true;
    const { store } = this.#page;
    if (store !== this.#store) {
      this.#store = store;
      $("quality-all").hidden = $("quality-small").hidden = true;
      $("quality-state").textContent = "Loading …";
    }
    await this.#load();
  }

  close() {
    this.#open = false;
    clearTimeout(this.#timer);
  }

  /** The model was refitted. */
  changed() {
    this.#load();
  }

  async #load() {
    const store = this.#store;
    clearTimeout(this.#timer);
    try {
      const [overview, report, curve, audit] = await Promise.all([store.quality(), store.report(LABELS), store.learningCurve(), store.audit(COPIES), loaded()]);
      if (store !== this.#store || !this.#open) return;
      this.#page.calm();
      this.#overview = overview;
      this.#draw(report, curve, audit);
    } catch (error) {
      if (store === this.#store) this.#page.failed(error, () => this.#load());
    }
  }

  #draw(report, curve, { near_copies }) {
    const { version, rows, enough, ...known } = this.#overview;
    const measured = report.version !== null;
    this.#figures.draw({ ...report, ...known, curve, near_copies, enough, rows: measured ? report.rows : rows });
    this.#figures.seen();
    const running = report.status === "running";
    $("quality-measure").hidden = !measured || !enough;
    $("quality-measure").ariaDisabled = $("quality-begin").ariaDisabled = String(running);
    const changed = measured && version > report.version ? " The store has changed since." : "";
    const last = measured ? `Measured ${when(report.last)}.${changed}` : "";
    $("quality-state").textContent = { running: "Measuring; this page shows the result when it is there.", failed: report.detail }[report.status] ?? (enough ? last : "");
    const fitting = curve.status === "running";
    const button = $("quality-learning-begin");
    Object.assign(button, { hidden: false, textContent: fitting ? "Fitting …" : curve.twice ? "Measure the curve again" : "Measure the curve", ariaDisabled: String(fitting) });
    if (curve.status === "failed") $("quality-learning-about").textContent = curve.detail;
    if ((running || fitting) && this.#open) this.#timer = setTimeout(() => this.#follow(running, fitting), POLL);
  }

  /** Wait for the end of the work that is under way. */
  async #follow(...under) {
    const store = this.#store;
    try {
      const jobs = await Promise.all([store.report(1), store.learningCurve()]);
      if (store !== this.#store || !this.#open) return;
      if (jobs.every(({ status }, i) => (status === "running") === under[i])) this.#timer = setTimeout(() => this.#follow(...under), POLL);
      else await this.#load();
    } catch (error) {
      this.#page.failed(error, () => this.#load());
    }
  }

  async #begin() {
    if (!this.#page.writes || !this.#overview?.enough || $("quality-begin").ariaDisabled === "true") return;
    await this.#started(() => this.#store.beginReport());
  }

  async #beginCurve() {
    if ($("quality-learning-begin").ariaDisabled !== "true") await this.#started(() => this.#store.beginLearningCurve());
  }

  async #started(call) {
    try {
      await call();
      await this.#load();
    } catch (error) {
      this.#page.failed(error);
    }
  }
}
