// The quality of a model as charts, sentences and tables: for the view Quality, and for the file of `ripml report --html`.

import { chart, clear, seen } from "./charts.js";
import { $, count, element, nameOf, number, percent, precise, score, show } from "./dom.js";
import { Relations } from "./relations.js";

const WANTED = [0.9, 0.95, 0.98, 0.99]; // precisions to choose
const START = 0.95;
const FEW = 20; // tags of a bin or decisions of a month, below which their share is mostly chance
const ROW = 40; // pixels of a row of the table
const MORE = 10; // rows that are made above and below those that are seen

const day = (time) => (time ? new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" }) : "unknown");
const month = (name) => new Date(`${name}-15T00:00Z`).toLocaleDateString(undefined, { month: "short", year: "2-digit", timeZone: "UTC" });
const share = (value) => (value == null ? "–" : precise(value));

/** The last place of falling levels that is at least `level`; −1 if there is none. */
function placeOf(levels, level) {
  let low = 0;
  let high = levels.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (levels[middle] >= level) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The place with the largest share of at least a precision, as `RIPML.automation` chooses it; −1 if there is none. */
export const bestPlace = ({ least }, wanted) => least.findLastIndex((value) => value >= wanted);

export class Figures {
  #data;
  #applied = "rows"; // or "labels"
  #confidence; // of the slider
  #plot; // the chart
  #line; // that shows it there

  /** `link(view, query)`: the address of a view, or null. */
  constructor({ link = () => null } = {}) {
    this.table = new LabelTable((label) => link("labels", { label }));
    this.relations = new Relations(link);
    $("quality-confidence").addEventListener("input", ({ target }) => this.#move(Number(target.value)));
    for (const button of document.querySelectorAll("[data-applied]"))
      button.addEventListener("click", () => this.#apply(button.dataset.applied));
    $("quality-presets").append(
      ...WANTED.map((wanted) => {
        const button = element("button", `${percent(wanted)} right`);
        button.addEventListener("click", () => this.#want(wanted));
        return button;
      }),
    );
  }

  /** Draw all that is known; `data`: as `Quality.to_json` has it, some of it perhaps not measured. */
  draw(data) {
    this.#data = data;
    const measured = data.bands?.length > 0;
    $("quality-small").hidden = data.enough;
    $("quality-all").hidden = !data.enough;
    $("quality-about").textContent = data.enough ? `${count(data.rows, "document")} with tags, each judged by a model that had not seen it` : "";
    if (!data.enough) {
      const what = `${count(data.rows, "document")} with tags ${data.rows === 1 ? "is" : "are"} too few to measure: the figures would be mostly chance.`;
      $("quality-small-why").textContent = `${what} Quality is shown from 100 on.`;
      return;
    }
    $("quality-unmeasured").hidden = measured;
    $("quality-measured").hidden = !measured;
    this.#drawFigures();
    this.#apply(this.#applied);
    this.#drawFits();
    this.#drawDrift();
    this.#drawLearning();
    this.relations.draw(data);
    if (!measured) return;
    this.#drawCalibration();
    this.#drawBands();
    this.table.fill(data.labels);
  }

  /** The view is shown again. */
  seen() {
    seen();
  }

  #drawFigures() {
    const { precision, micro_precision, micro_recall, micro_f1, calibration_error, recall_with_twice, fits } = this.#data;
    const fit = fits?.at(-1);
    const first = precision?.["P@1"] ?? fit?.precision["P@1"];
    const facts = {
      "best tag right": share(first),
      ...(micro_f1 == null ? {} : { "predicted tags right": share(micro_precision), "right tags predicted": share(micro_recall), "micro-F1": score(micro_f1) }),
      "calibration error": share(calibration_error ?? fit?.calibration_error),
      ...(recall_with_twice == null ? {} : { "right tags predicted with twice the documents, about": share(recall_with_twice) }),
    };
    const rows = Object.entries(facts).filter(([, value]) => value !== "–");
    $("quality-figures").replaceChildren(...rows.map(([name, value]) => element("div", "", element("dt", name), element("dd", value))));
  }

  // What can be applied unseen.

  get #curve() {
    return this.#data.automation?.[this.#applied];
  }

  #apply(what) {
    this.#applied = what;
    for (const button of document.querySelectorAll("[data-applied]")) button.ariaPressed = String(button.dataset.applied === what);
    const curve = this.#curve;
    const none = !curve?.threshold.length;
    $("quality-unseen").hidden = none;
    $("quality-unseen-none").hidden = !none;
    if (none) {
      const least = what === "rows" ? "100 documents" : "300 tags";
      $("quality-unseen-none").textContent = curve
        ? `This cannot be promised yet: the last fit left out fewer than ${least} to count. Add documents, and refit.`
        : "This model was fitted by an early version of ripml, which kept nothing to promise it by. Refit to see it.";
      return;
    }
    $("quality-what").textContent = what === "rows" ? "Confidence" : "Score";
    this.#drawCurve(curve);
    this.#want(START);
  }

  #drawCurve({ threshold, precision, share: shares }) {
    const names = what(this.#applied);
    const rising = (values) => [values.at(-1), ...values.toReversed()]; // below the lowest level nothing more is applied
    const x = [Math.min(0, threshold.at(-1)), ...threshold.toReversed()];
    const levels = [...Array(11).keys()].map((i) => i / 10).filter((level) => placeOf(threshold, level) >= 0);
    const cells = levels.map((level) => {
      const place = placeOf(threshold, level);
      return [score(level), precise(shares[place]), precise(precision[place])];
    });
    const end = x.at(-1) < 1;
    chart($("quality-automation"), {
      title: `${names.title} by ${names.level}`,
      x: end ? [...x, 1] : x,
      xTitle: names.level,
      xWrite: (value) => score(value),
      series: [
        { name: names.share, values: end ? [...rising(shares), null] : rising(shares), colour: "bar" },
        { name: "right", values: end ? [...rising(precision), null] : rising(precision), colour: "accent", dash: true },
      ],
      rows: [[names.level, names.share, "right"], cells],
      drawn: (plot) => this.#drawLine(plot),
    });
  }

  /** The line of the slider, in a chart that was drawn. */
  #drawLine(plot) {
    this.#plot = plot;
    if (!plot.over.contains(this.#line)) plot.over.append((this.#line = Object.assign(element("i", ""), { className: "cursor-line" })));
    this.#place();
  }

  /** The largest share with a wanted precision. */
  #want(wanted) {
    const curve = this.#curve;
    const place = bestPlace(curve, wanted);
    this.#move(place < 0 ? curve.threshold[bestPlace(curve, Math.max(...curve.least))] : curve.threshold[place]);
    if (place < 0) $("quality-rule").textContent = `No ${this.#applied === "rows" ? "confidence" : "score"} promises that ${percent(wanted)} are right; this is the highest share that any does.`;
  }

  #move(confidence) {
    this.#confidence = confidence;
    const curve = this.#curve;
    const place = placeOf(curve.threshold, confidence);
    const level = score(confidence);
    const strong = (value) => element("b", value);
    const input = $("quality-confidence");
    if (Number(input.value) !== confidence) input.value = confidence;
    $("quality-at").textContent = level;
    const sentence = $("quality-sentence");
    if (place < 0) sentence.textContent = `At ${level}, too few are so sure to promise anything.`;
    else {
      const [part, right] = [percent(curve.share[place]), percent(curve.precision[place])];
      if (this.#applied === "rows") sentence.replaceChildren(strong(part), " of documents need no review, and ", strong(right), " of their tags are right.");
      else sentence.replaceChildren(strong(part), " of all right tags are applied by themselves, and ", strong(right), " of the applied ones are right.");
      sentence.dataset.place = place;
    }
    input.ariaValueText = `${level}: ${sentence.textContent}`;
    $("quality-rule").textContent =
      this.#applied === "rows" ? `Apply all predicted tags of a document whose mean probability is at least ${level}; show the others to somebody.` : `Apply every tag with a score of at least ${level}; show the others to somebody.`;
    for (const button of $("quality-presets").children) {
      const best = bestPlace(curve, WANTED[[...$("quality-presets").children].indexOf(button)]);
      button.ariaPressed = String(best >= 0 && curve.threshold[best] === confidence);
    }
    this.#place();
  }

  /** Move the line of the chart: nothing else is drawn again. */
  #place() {
    if (this.#line) this.#line.style.translate = `${this.#plot.valToPos(this.#confidence, "x")}px`;
  }

  // Versions and drift.

  #drawFits() {
    const fits = this.#data.fits ?? [];
    $("quality-fits").closest("section").hidden = !fits.length;
    if (!fits.length) return;
    const wanted = `documents that need no review, ${percent(START)} right`;
    const last = fits.at(-1);
    const of = `${count(last.documents, "document")} with ${count(last.labels, "label")}${last.time ? `, ${day(last.time)}` : ""}`;
    $("quality-fits-about").textContent =
      fits.length > 1 ? `What documents that each fit left out showed. The last fit: ${of}.` : `There was one fit so far: ${of}. Each refit adds a point to a chart here.`;
    if (fits.length < 2) return clear($("quality-fits"));
    const head = ["Fit", "Change", "Documents", "Labels", "Best tag right", "First five right", "Calibration error", `Need nobody, ${percent(START)} right`];
    const rows = fits.map(({ time, change, documents, labels, precision, calibration_error, automation }) => [
      day(time), number(change), number(documents), number(labels), share(precision["P@1"]), share(precision["P@5"]), share(calibration_error), share(automation.rows),
    ]);
    const series = [
      { name: "best tag right", values: fits.map(({ precision }) => precision["P@1"] ?? null), colour: "accent", points: true },
      { name: wanted, values: fits.map(({ automation }) => automation.rows ?? null), colour: "bar", dash: true, points: true },
    ];
    chart($("quality-fits"), {
      title: "Quality of each fit",
      x: fits.map((_, i) => i),
      names: fits.map(({ time, change }) => (time ? day(time) : `change ${number(change)}`)),
      xTitle: "",
      series: series.filter(({ values }) => values.some((value) => value !== null)),
      rows: [head, rows],
    });
  }

  #drawDrift() {
    const { drift } = this.#data;
    $("quality-agree").hidden = $("quality-new").hidden = !drift;
    if (!drift) return;
    const { decided, newest } = drift;
    $("quality-decided-about").textContent = decided
      ? `Of ${count(decided.labels, "decided tag")}, ${precise(decided.acceptance)} were accepted; of the newest ${number(decided.newest.labels)}, ${precise(decided.newest.acceptance)}. When this falls, refit.`
      : "No tag was accepted or rejected yet. Decisions, in Tag or Review, show here whether people agree.";
    const acceptance = decided && Object.entries(decided.months);
    months($("quality-decided"), acceptance, "Accepted tags by month", { name: "accepted", value: ({ acceptance: value }) => value, colour: "accent" }, ["Month", "Decided tags", "Accepted"], ({ labels, acceptance: value }) => [number(labels), share(value)]);
    $("quality-familiar-about").textContent = newest
      ? `The newest ${count(newest.documents, "document")} have a mean familiarity of ${score(newest.familiarity)} (0.50 without drift), and ${precise(newest.unfamiliar)} are unlike anything known (${percent(0.01)} without drift).`
      : "Nothing that could be compared was learnt since the last fit: familiarity shows here whether new texts are like the known ones.";
    const familiar = newest && Object.entries(newest.months);
    months($("quality-familiar"), familiar, "Familiarity of new documents by month", { name: "mean familiarity", value: ({ familiarity }) => familiarity, colour: "bar", write: score }, ["Month", "Documents", "Familiarity", "Unlike anything known"], ({ documents, familiarity, unfamiliar }) => [number(documents), score(familiarity), share(unfamiliar)]);
  }

  /** The learning curve, if it was measured. */
  #drawLearning() {
    const { curve } = this.#data;
    $("quality-learning-part").hidden = !curve;
    if (!curve) return;
    const { points = [], twice, held_out: held } = curve;
    const about = $("quality-learning-about");
    if (!twice) {
      about.textContent = "Models of an eighth, a quarter and half of the documents, and of all, tell what twice as many would bring. That takes about two fits.";
      return clear($("quality-learning"));
    }
    const key = "P@1";
    const gain = twice.figures[key] - points.at(-1).figures[key];
    about.textContent = `On ${count(held, "held-out document")}. Twice as many documents, ${number(twice.rows)}, are expected to make the best tag right in ${precise(twice.figures[key])} (${gain < 0 ? "−" : "+"}${number(Math.abs(Math.round(1000 * gain)) / 10)} points).`;
    const all = [...points, twice];
    const known = (name) => all.map(({ figures }, i) => (i < points.length ? figures[name] : null));
    const expected = (name) => all.map(({ figures }, i) => (i < points.length - 1 ? null : figures[name]));
    const names = Object.keys(twice.figures);
    const cells = ({ figures, errors }) => names.map((name) => `${precise(figures[name])} ± ${precise(errors[name])}`);
    chart($("quality-learning"), {
      title: "Figures by the number of documents",
      x: all.map((_, i) => i),
      names: all.map(({ rows }) => number(rows)),
      xTitle: "documents",
      series: [
        { name: "best tag right", values: known(key), colour: "accent", points: true },
        { name: "expected", values: expected(key), colour: "accent", dash: true },
        { name: "micro-F1", values: known("micro-F1"), colour: "bar", points: true },
        { name: "expected", values: expected("micro-F1"), colour: "bar", dash: true },
      ].filter(({ values }) => values.some((value) => value != null)),
      rows: [["Documents", ...names], all.map((one, i) => [`${number(one.rows)}${i < points.length ? "" : ", expected"}`, ...cells(one)])],
    });
  }

  // What was measured.

  #drawCalibration() {
    const { reliability, calibration_error } = this.#data;
    const sure = reliability.filter(({ pairs }) => pairs >= FEW);
    $("quality-calibration-about").textContent = `On the line, tags with a probability of 0.8 are right four times out of five. The mean distance is ${precise(calibration_error)}.`;
    chart($("quality-calibration"), {
      title: "How often tags are right, by their probability",
      x: [0, ...sure.map(({ probability }) => probability), 1],
      xTitle: "probability",
      xWrite: (value) => score(value),
      series: [{ name: "right", values: [null, ...sure.map(({ right }) => right), null], colour: "accent", points: true }],
      diagonal: true,
      rows: [["Probability", "Right", "Tags"], reliability.map(({ probability, right, pairs }) => [score(probability), share(right), number(pairs)])],
    });
  }

  #drawBands() {
    const { bands } = this.#data;
    const names = bands.map(({ least, most }) => (most === null ? `${number(least)}+` : least === most ? number(least) : `${number(least)}–${number(most)}`));
    $("quality-bands-about").textContent = "By the number of documents that carry a label. The dashed line is the recall to be expected of twice as many documents.";
    chart($("quality-bands"), {
      title: "Precision and recall by the frequency of labels",
      x: bands.map((_, i) => i),
      names,
      xTitle: "documents of a label",
      series: [
        { name: "precision", values: bands.map(({ precision }) => precision), colour: "edge", points: true },
        { name: "recall", values: bands.map(({ recall }) => recall), colour: "accent", points: true },
        { name: "with twice", values: bands.map(({ recall_with_twice: twice }) => twice), colour: "bar", dash: true },
      ],
      rows: [
        ["Documents of a label", "Labels", "Precision", "Recall", "With twice", "Calibration error"],
        bands.map((one, i) => [names[i], number(one.labels), share(one.precision), share(one.recall), share(one.recall_with_twice), share(one.calibration_error)]),
      ],
    });
  }
}

const what = (applied) =>
  applied === "rows"
    ? { title: "Documents that need no review", level: "confidence", share: "documents that need no review" }
    : { title: "Tags that are applied by themselves", level: "score", share: "right tags that are applied" };

function months(place, entries, title, { name, value, colour, write }, head, cells) {
  if (!(entries?.length > 1)) return clear(place); // the sentence above says it all
  chart(place, {
    title,
    x: entries.map((_, i) => i),
    names: entries.map(([at]) => month(at)),
    xTitle: "",
    series: [{ name, values: entries.map(([, one]) => value(one)), colour, points: true }],
    write,
    rows: [head, entries.map(([at, one]) => [month(at), ...cells(one)])],
  });
}

// The table of labels: only the rows that are seen are in the document.

// Those that are `spare` are left out on a phone.
const COLUMNS = [
  { name: "Label", key: "label", write: null },
  { name: "Documents", key: "rows", write: number },
  { name: "Precision", key: "precision", write: share },
  { name: "Recall", key: "recall", write: share },
  { name: "Predicted", key: "predicted", write: number, spare: true },
  { name: "Confused with", key: "confused_with", write: null, spare: true },
];

class LabelTable {
  #labels = [];
  #found = [];
  #by = "rows";
  #falling = true;
  #first = -1;

  constructor(link) {
    this.link = link;
    this.scroll = $("quality-labels");
    this.body = this.scroll.querySelector("tbody");
    this.scroll.addEventListener("scroll", () => this.#draw());
    $("quality-filter").addEventListener("input", () => this.#filter());
    addEventListener("beforeprint", () => this.#draw(true));
    addEventListener("afterprint", () => this.#draw());
    this.heads = COLUMNS.map(({ name, key, spare }) => {
      const head = Object.assign(element("th", ""), { scope: "col", className: spare ? "more" : "" });
      if (key === "confused_with") return head.append(name), head;
      const button = element("button", name);
      button.addEventListener("click", () => this.#sort(key));
      head.append(button);
      return head;
    });
    $("quality-columns").replaceChildren(...this.heads);
  }

  fill(labels) {
    this.#labels = labels;
    this.#filter();
  }

  #sort(key) {
    this.#falling = this.#by === key ? !this.#falling : key !== "label";
    this.#by = key;
    this.#filter();
  }

  #filter() {
    const wanted = $("quality-filter").value.trim().toLowerCase();
    const named = ({ label }) => !wanted || `${nameOf(label)} ${label}`.toLowerCase().includes(wanted);
    const key = this.#by;
    const sign = this.#falling ? -1 : 1;
    const compare = key === "label" ? (a, b) => sign * String(nameOf(a.label)).localeCompare(String(nameOf(b.label))) : (a, b) => sign * ((a[key] ?? -1) - (b[key] ?? -1)) || b.rows - a.rows;
    this.#found = this.#labels.filter(named).toSorted(compare);
    COLUMNS.forEach((column, i) => (this.heads[i].ariaSort = column.key !== key ? null : this.#falling ? "descending" : "ascending"));
    const all = this.#labels.length;
    $("quality-labels-found").textContent = wanted ? `${number(this.#found.length)} of ${count(all, "label")}` : count(all, "label");
    this.scroll.firstElementChild.ariaRowCount = String(this.#found.length + 1);
    this.scroll.scrollTop = 0;
    this.#first = -1;
    this.#draw();
  }

  /** Make the rows that are seen, between two that are as high as the others together. */
  #draw(all = false) {
    const n = this.#found.length;
    const seen = Math.ceil((this.scroll.clientHeight || 480) / ROW);
    const first = all ? 0 : Math.max(0, Math.min(n - seen, Math.floor(this.scroll.scrollTop / ROW)) - MORE);
    const last = all ? n : Math.min(n, first + seen + 2 * MORE);
    if (first === this.#first && !all && this.body.children.length) return;
    this.#first = all ? -1 : first;
    const space = (rows) => {
      const row = Object.assign(element("tr", "", Object.assign(element("td", ""), { colSpan: COLUMNS.length })), { ariaHidden: "true", className: "space" });
      row.style.height = `${rows * ROW}px`;
      return row;
    };
    const rows = this.#found.slice(first, last).map((label, i) => this.#row(label, first + i));
    this.body.replaceChildren(...(first ? [space(first)] : []), ...rows, ...(last < n ? [space(n - last)] : []));
  }

  #row(one, i) {
    const address = this.link(one.label);
    const name = show(one.label);
    const cells = COLUMNS.map(({ key, write, spare }) => {
      if (key === "label") return Object.assign(element("th", "", address ? Object.assign(element("a", "", name), { href: address }) : name), { scope: "row" });
      if (key === "confused_with") {
        const others = one.confused_with.flatMap(([other, n], place) => [place ? ", " : "", show(other), ` ${number(n)}`]);
        return Object.assign(element("td", "", ...others), { className: "more others" });
      }
      return Object.assign(element("td", write(one[key])), { className: spare ? "more" : "" });
    });
    return Object.assign(element("tr", "", ...cells), { ariaRowIndex: String(i + 2) });
  }
}
