// Tables: a file becomes a job of the server, whose rows appear while they are tagged.

import { latest } from "../api.js";
import { $, count, element, number, percent, say, score, show } from "../dom.js";

const POLL = 1000; // milliseconds between looks at what is running
const PART = 50; // rows of one request
const HEAD = 2 ** 20; // bytes that show the columns of a table of lines
const MOST = 5 * HEAD; // bytes that are checked before
const LINES = /\.(csv|tsv|jsonl|ndjson)$/i;
// What a finding means for tagging; others keep the advice of the check.
const MEANS = { empty: "They get no tags: is this the column of the texts?", copies: "Each copy gets the same tags." };
const LABELS = ["missing", "alike", "separator", "labels in texts", "giveaways"]; // findings about given labels, which tagging does not read
const STATES = { waiting: "waits for its turn", running: "is being tagged", done: "done", failed: "failed" };

export default class Tables {
  #page;
  #store = null;
  #jobs = null;
  #job = null; // the one that is shown
  #files = []; // to be set up, the first now
  #reading = false; // whether rows are being read
  #more = PART; // rows that should be shown
  #timer;
  #end; // watches the end of the list
  #asking = { jobs: latest(), rows: latest(), check: latest() };

  constructor(place, page) {
    this.#page = page;
    const clicks = {
      choose: () => $("tables-files").click(),
      cancel: () => this.#nextFile(),
      more: () => this.#showMore(),
      delete: () => this.#delete(this.#job),
    };
    for (const [id, call] of Object.entries(clicks)) $(`tables-${id}`).addEventListener("click", call);
    $("tables-files").addEventListener("change", ({ target }) => {
      page.take([...target.files]);
      target.value = "";
    });
    $("tables-setup").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#begin();
    });
    for (const button of place.querySelectorAll("[data-to]")) button.addEventListener("click", () => this.#download(button.dataset.to));
    $("tables-columns").addEventListener("change", () => this.#check());
    // The next rows are there before the end of the list is seen.
    this.#end = new IntersectionObserver(([entry]) => entry.isIntersecting && this.#showMore(), { rootMargin: "600px" });
  }

  async open(query) {
    const { store, tables } = this.#page;
    if (store !== this.#store) {
      this.#store = store;
      this.#jobs = this.#job = null;
      this.#files = [];
    }
    const idle = !this.#files.length;
    this.#files.push(...tables.splice(0));
    const id = query.get("job");
    if (this.#job?.id !== id) {
      $("tables-rows").replaceChildren();
      this.#more = PART;
      this.#job = null;
    }
    $("tables-all").href = this.#page.address("tables");
    $("tables-waiting").hidden = Boolean(this.#jobs);
    try {
      await this.#look(id);
    } finally {
      $("tables-waiting").hidden = true;
    }
    if (idle && this.#files.length) await this.#setUp();
  }

  close() {
    clearTimeout(this.#timer);
    for (const one of Object.values(this.#asking)) one.drop();
  }

  keys = { letters: { o: () => this.#page.writes && $("tables-files").click() }, escape: () => this.#job && this.#page.go("tables") };

  help = [["o", "Choose a table", "writes"], ["Esc", "All tables"]];

  // Jobs.

  /** Read the jobs, and the rows of the one that is shown; again while something runs. */
  async #look(id = this.#job?.id) {
    clearTimeout(this.#timer);
    const answer = await this.#asking.jobs((signal) => this.#store.tables(signal));
    if (!answer) return;
    this.#page.calm();
    this.#jobs = answer.jobs;
    this.#job = this.#jobs.find((job) => job.id === id) ?? null;
    this.#draw();
    if (id && !this.#job) throw new Error("This table was deleted.");
    if (this.#job) await this.#fill();
    const runs = ({ status }) => status === "waiting" || status === "running";
    if (this.#jobs.some(runs)) this.#timer = setTimeout(() => this.#again(), POLL);
  }

  #again() {
    this.#look().catch((error) => this.#page.failed(error, () => this.#again()));
  }

  #draw() {
    const job = this.#job;
    const setUp = this.#files.length > 0;
    $("tables-setup").hidden = !setUp;
    $("tables-invite").hidden = Boolean(job) || setUp || this.#jobs.length > 0;
    $("tables-jobs").hidden = Boolean(job);
    $("tables-job").hidden = !job || setUp;
    $("tables-jobs").replaceChildren(...this.#jobs.map((one) => this.#jobRow(one)));
    if (!job) return;
    $("tables-title").textContent = job.name;
    $("tables-state").textContent = this.#state(job);
    $("tables-note").textContent = job.detail ?? "";
    $("tables-formats").hidden = job.status !== "done";
    $("tables-delete").textContent = job.status === "done" || job.status === "failed" ? "Delete" : "Cancel";
  }

  #state({ status, rows = 0, without_labels: without = 0 }) {
    const parts = [status === "done" ? "" : STATES[status], rows || status === "done" ? count(rows, "row") : ""];
    if (without) parts.push(`${number(without)} without tags`);
    return parts.filter(Boolean).join(" · ");
  }

  #jobRow(job) {
    const link = Object.assign(element("a", "", element("bdi", job.name)), { href: this.#page.address("tables", { job: job.id }) });
    const state = Object.assign(element("p", this.#state(job)), { className: "hint" });
    const drop = Object.assign(element("button", job.status === "done" || job.status === "failed" ? "Delete" : "Cancel"), { className: "quiet danger" });
    drop.dataset.writes = "";
    drop.ariaLabel = `${drop.textContent} ${job.name}`;
    drop.addEventListener("click", () => this.#delete(job));
    const row = element("li", "", element("div", "", link, state), drop);
    row.className = "row";
    return row;
  }

  async #delete(job) {
    try {
      await this.#store.dropTable(job.id);
      this.#page.toast(`${job.name} was deleted.`);
      if (this.#job?.id === job.id) this.#page.go("tables");
      else await this.#look();
    } catch (error) {
      this.#page.failed(error);
    }
  }

  async #download(to) {
    const { id, name } = this.#job;
    try {
      const file = await this.#store.download(id, to);
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${name.replace(/\.[^.]*$/, "")} with tags.${to}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), POLL);
    } catch (error) {
      this.#page.failed(error);
    }
  }

  // Rows.

  #showMore() {
    const shown = $("tables-rows").children.length;
    if (!this.#job || this.#reading || shown < this.#more) return;
    this.#more = shown + PART;
    this.#fill().catch(this.#page.failed);
  }

  /** Read the rows that should be shown and are tagged. */
  async #fill() {
    const list = $("tables-rows");
    const { id } = this.#job;
    let done = 0;
    this.#reading = true;
    try {
      do {
        const limit = Math.max(1, Math.min(PART, this.#more - list.children.length));
        const after = list.children.length;
        const answer = await this.#asking.rows((signal) => this.#store.rows(id, after, limit, signal));
        if (!answer || this.#job?.id !== id) return;
        if (after < this.#more) list.append(...answer.rows.map((row) => this.#row(id, row)));
        done = answer.done;
      } while (list.children.length < Math.min(this.#more, done));
    } finally {
      this.#reading = false;
    }
    $("tables-more").hidden = list.children.length >= done;
    this.#end.disconnect(); // what is seen is told when it is observed
    this.#end.observe($("tables-more"));
  }

  #row(table, { number: at, text, labels }) {
    const place = Object.assign(element("span", number(at + 1)), { className: "n" });
    const link = Object.assign(element("a", text.slice(0, 400) || "(no text)"), { className: "excerpt", dir: "auto", href: this.#page.address("tag", { table, row: at }) });
    const tags = labels.map(({ label, score: value }) => {
      const chip = element("li", "", show(label), element("span", score(value)));
      chip.style.setProperty("--part", Math.max(0, Math.min(1, value)).toFixed(2));
      return chip;
    });
    const list = Object.assign(tags.length ? element("ul", "", ...tags) : element("p", "No tags"), { className: tags.length ? "chips" : "tables-none" });
    return element("li", "", place, link, list);
  }

  // A new table.

  async #setUp() {
    const [file] = this.#files;
    $("tables-wrong").textContent = "";
    $("tables-name").textContent = file.name;
    $("tables-found").textContent = "Looking at its columns …";
    $("tables-columns").replaceChildren();
    $("tables-findings").hidden = true;
    this.#draw();
    try {
      const found = await this.#store.columns(LINES.test(file.name) ? await head(file) : file);
      if (file !== this.#files[0]) return;
      const seen = found.rows < 200 ? count(found.rows, "row") : "the first 200 rows";
      $("tables-found").textContent = `${size(file.size)} · ${count(found.columns.length, "column")} in ${seen}`;
      $("tables-columns").replaceChildren(...found.columns.map((column) => this.#column(column, found.text.includes(column.name))));
      $("tables-columns").querySelector("input:checked")?.focus();
      say(`${file.name}: ${found.text.join(", ")} was chosen as the text.`);
      await this.#check();
    } catch (error) {
      $("tables-found").textContent = "";
      $("tables-wrong").textContent = error.message;
    }
  }

  get #chosen() {
    return [...$("tables-columns").querySelectorAll("input:checked")].map(({ value }) => value);
  }

  /** Say what looks wrong in the chosen columns, of a long file at its beginning; tagging can begin without that. */
  async #check() {
    const [file] = this.#files;
    const list = $("tables-findings");
    const columns = this.#chosen;
    list.hidden = true;
    if (!columns.length) return;
    try {
      const part = LINES.test(file.name) ? await head(file) : file;
      if (part.size > MOST) return; // a large spreadsheet would be sent and read once more
      const report = await this.#asking.check((signal) => this.#store.checkTable(part, columns, signal));
      if (!report || file !== this.#files[0]) return;
      const wrong = report.findings.filter(({ is_warning: warns, name }) => warns && !LABELS.includes(name));
      const where = part.size < file.size ? `In the first ${number(report.rows)} rows: ` : "";
      list.replaceChildren(...wrong.map(({ name, message, remedy }) => element("li", `${where}${message.replace(/, [\d,]+ of them .*/, "")}. ${MEANS[name] ?? `${remedy.charAt(0).toUpperCase()}${remedy.slice(1)}.`}`)));
      list.hidden = !wrong.length;
    } catch {
      // What is wrong with the file is told when it is tagged.
    }
  }

  #column({ name, filled, example }, chosen) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked: chosen });
    const about = Object.assign(element("span", example ? example.slice(0, 120) : "empty"), { dir: "auto" });
    const title = element("bdi", name);
    if (filled < 1) title.append(Object.assign(element("small", ` ${percent(filled)} filled`), { className: "hint" }));
    return element("li", "", element("label", "", box, title, about));
  }

  async #begin() {
    const [file] = this.#files;
    const columns = this.#chosen;
    if (!columns.length) return ($("tables-wrong").textContent = "Choose the column of the texts.");
    try {
      const job = await this.#store.tagTable(file, columns, $("tables-n").value);
      const last = this.#files.length === 1;
      await this.#nextFile();
      if (last) this.#page.go("tables", { job: job.id });
    } catch (error) {
      $("tables-wrong").textContent = error.message;
    }
  }

  async #nextFile() {
    this.#files.shift();
    if (this.#files.length) await this.#setUp();
    else await this.#look().catch(this.#page.failed);
  }
}

/** The whole lines at the beginning of a file. */
async function head(file) {
  if (file.size <= HEAD) return file;
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const end = bytes.lastIndexOf(10) + 1;
  return new File([bytes.slice(0, bytes[end] ? end : end + 1)], file.name); // a line break of UTF-16 has two bytes
}

const size = (bytes) => (bytes < 1e6 ? `${number(Math.ceil(bytes / 1e3))} KB` : `${number(Math.round(bytes / 1e5) / 10)} MB`);
