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

async function read(file) {
  const text = await file.text();
  return /\.html?$/i.test(file.name) ? wordsOf(text) : text;
}

export class Editor {
  source = ""; // file name
  #files = [];
  #total = 0;

  /** `changed(whole, typed)`; `whole`: another text, so earlier verdicts are void; `show()`: something was dropped elsewhere. */
  constructor({ changed, show }) {
    Object.assign(this, { changed, show });
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
      this.open([...$("files").files]);
      $("files").value = "";
    });
    this.#takeDrops();
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
    this.set(file ? await read(file) : "", file?.name);
    field.focus();
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

  #takeDrops() {
    let depth = 0;
    const on = (kind, call) =>
      addEventListener(kind, (event) => {
        const own = event.target === field && !event.dataTransfer.types.includes("Files");
        if (own || document.querySelector("dialog[open]")) return;
        event.preventDefault();
        call(event.dataTransfer);
        $("editor").classList.toggle("over", depth > 0);
      });
    on("dragenter", () => depth++);
    on("dragleave", () => depth--);
    on("dragover", () => {});
    on("drop", (data) => {
      depth = 0;
      this.show();
      if (data.files.length) this.open([...data.files]);
      else this.set(data.getData("text/plain"));
    });
  }
}
