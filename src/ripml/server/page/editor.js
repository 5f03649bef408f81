// The text field and the queue of files. Words are highlighted on a layer of the same size behind the field.

import { $ } from "./dom.js";
import { marked } from "./marks.js";

const field = $("text");
const layer = $("marks");

/** The text of a web page, parsed inert; blocked styles would be logged. */
function wordsOf(html) {
  const plain = html.replace(/<style[^]*?<\/style>/gi, "").replace(/<[^>]+>/g, (tag) => tag.replace(/\sstyle\s*=/gi, " data-s="));
  const page = new DOMParser().parseFromString(plain, "text/html");
  for (const node of page.querySelectorAll("head,script,noscript,template")) node.remove();
  for (const node of page.querySelectorAll("body :not(a,abbr,b,bdi,cite,code,em,i,kbd,mark,q,s,small,span,strong,sub,sup,u)")) node.after("\n");
  return page.body.textContent.replace(/[^\S\n]+/g, " ").replace(/ ?\n ?/g, "\n").replace(/\n{3,}/g, "\n\n").trim();
}

/** Those that the browser cannot read. */
const FORMATTED = /\.(pdf|docx?|odt|rtf|eml|msg|xhtml)(\.gz)?$/i;

export class Editor {
  source = ""; // file name
  #files = [];
  #total = 0;

  /** `changed(whole, typed)`: `whole`: another text, so earlier verdicts are void; `opened(files)`; `read(file)`: its text. */
  constructor({ changed, opened, read }) {
    Object.assign(this, { changed, read });
    let whole = false;
    field.addEventListener("beforeinput", () => (whole = field.selectionEnd - field.selectionStart === this.text.length));
    field.addEventListener("input", () => {
      if ((whole ||= this.blank)) this.source = "";
      changed(whole, true);
      whole = false;
    });
    field.addEventListener("scroll", () => this.#follow());
    $("files-open").addEventListener("click", () => $("files").click());
    $("files").addEventListener("change", () => {
      opened([...$("files").files]);
      $("files").value = "";
    });
  }

  get text() {
    return field.value;
  }

  get blank() {
    return !field.value.trim();
  }

  get waiting() {
    return this.#files.length;
  }

  /** The name and number of the file. */
  get about() {
    const place = this.#total > 1 ? `${this.#total - this.waiting} of ${this.#total}` : "";
    return [place, this.source].filter(Boolean).join(" · ");
  }

  set(text, source = "") {
    field.value = text;
    field.scrollTop = 0;
    this.source = source;
    this.changed(true);
  }

  /** Read the first file now, the others later. */
  async open(files) {
    const idle = !this.waiting;
    this.#total = (idle ? 0 : this.#total) + files.length;
    this.#files.push(...files);
    if (!idle) this.changed(false);
    else if (files.length) await this.next();
  }

  /** The next file, or nothing. */
  async next() {
    const file = this.#files.shift();
    if (!file) this.#total = 0;
    this.set(file ? await this.#textOf(file) : "", file?.name);
    field.focus();
  }

  async #textOf(file) {
    if (FORMATTED.test(file.name)) return this.read(file);
    const text = await file.text();
    return /\.html?$/i.test(file.name) ? wordsOf(text) : text;
  }

  focus() {
    field.focus();
  }

  /** Highlight words that support or oppose a label, by strength. */
  mark(spans) {
    layer.replaceChildren(...marked(this.text, spans), "\n");
    this.#follow();
  }

  unmark() {
    layer.replaceChildren();
  }

  #follow() {
    layer.scrollTop = field.scrollTop;
  }
}
