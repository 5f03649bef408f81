// Map: all documents in two dimensions, coloured by label or by doubt.

import { latest } from "../api.js";
import { Completion } from "../completion.js";
import { $, chips, count, element, later, nameOf, number, percent, say, show } from "../dom.js";
import { Points } from "../points.js";

const POLL = 1000; // milliseconds between looks at the progress
const REST = 250; // milliseconds without a movement, after which the list of the middle is made
const LOOK = 60; // milliseconds over a point, after which its document is fetched
const REACH = 9; // pixels around the pointer
const CLICK = 5; // pixels that a click may move
const STEP = 0.15; // of the map on the screen, by an arrow key
const ZOOM = 1.5; // by a key or a button
const MOST = 400; // times as large as the whole
const MIDDLE = 8; // documents in the list
const NAMES = 60; // of regions at a time
const NONE = 255; // the code of points without a label or doubt
const RAMP = 254; // the highest step of doubt

export default class MapView {
  #page;
  #store = null;
  #info = null; // of the map that is drawn
  #codes = null; // of the label of each point
  #doubt = null;
  #points;
  #view = { x: 0.5, y: 0.5, zoom: 1 }; // the middle of the screen, and how many times as large as the whole
  #colour = "label";
  #label = null; // that is shown alone
  #chosen = null; // its points
  #palette = null;
  #frame = 0;
  #timer;
  #open = false;
  #documents = new Map(); // point → document
  #hovered = null;
  #loading = latest();
  #reading = latest();
  #choosing = latest();
  #listing = latest();
  #rest = later(() => this.#list(), REST);
  #soon = later(() => this.#look(), LOOK);

  constructor(place, page) {
    this.#page = page;
    this.#points = new Points($("map-points"));
    for (const button of place.querySelectorAll("[data-colour]")) button.addEventListener("click", () => this.#paint(button.dataset.colour));
    const clicks = { in: () => this.#zoom(ZOOM), out: () => this.#zoom(1 / ZOOM), all: () => this.#whole(), clear: () => this.#go(null), begin: () => this.#begin() };
    for (const [id, call] of Object.entries(clicks)) $(`map-${id}`).addEventListener("click", call);
    this.completion = new Completion($("map-find"), $("map-options"), {
      search: (prefix, signal) => this.#store.labels(prefix, signal),
      pick: (label) => this.#go(label),
      leave: () => $("map-stage").focus(),
      failed: page.failed,
    });
    this.#takePointers($("map-stage"));
    $("map-stage").addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe($("map-stage"));
    const theme = () => {
      this.#palette = null;
      this.#draw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
    new MutationObserver(theme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  async open(query) {
    const { store } = this.#page;
    this.#open = true;
    if (store !== this.#store) {
      Object.assign(this.#view, { x: 0.5, y: 0.5, zoom: 1 });
      this.#store = store;
      this.#info = null;
    }
    this.#label = query.get("label");
    await this.#load();
  }

  close() {
    this.#open = false;
    clearTimeout(this.#timer);
    for (const ask of [this.#loading, this.#reading, this.#choosing, this.#listing]) ask.drop();
    for (const wait of [this.#rest, this.#soon]) wait.stop();
    this.#hide();
  }

  /** The store was refitted. */
  changed() {
    this.#load().catch(this.#page.failed);
  }

  keys = {
    letters: { "/": () => this.#info && this.completion.focus(), c: () => this.#paint(this.#colour === "label" ? "doubt" : "label"), a: () => this.#whole() },
    escape: () => (this.#label ? this.#go(null) : this.#hide()),
  };

  help = [
    ["← → ↑ ↓", "Move, while the map has the focus"],
    ["+ −", "Zoom, while the map has the focus"],
    ["a", "Show all"],
    ["c", "Colour by label or by doubt"],
    ["/", "Show a label"],
    ["Esc", "Show all labels again"],
  ];

  // The map of the server.

  /** Get what has changed; while a map is being computed, look again. */
  async #load() {
    clearTimeout(this.#timer);
    const store = this.#store;
    const info = await this.#loading(() => store.map());
    if (!info || store !== this.#store) return;
    this.#page.calm();
    if (info.map && info.map !== this.#info?.map) await this.#take(info);
    else if (info.map) this.#info = info;
    this.#state(info);
    if (info.status === "running" && this.#open) this.#timer = setTimeout(() => this.#load().catch((error) => this.#page.failed(error, () => this.#load())), POLL);
    if (this.#info) await this.#choose();
  }

  async #take(info) {
    const bytes = await this.#loading((signal) => this.#store.mapPoints(signal));
    if (!bytes) return;
    const n = bytes.byteLength / 6;
    const whole = (from) => new Uint16Array(bytes, from, n);
    if (n !== info.points) return this.#load(); // it has changed meanwhile
    this.#points.set(whole(0), whole(2 * n));
    this.#codes = new Uint8Array(bytes, 4 * n, n);
    this.#doubt = new Uint8Array(bytes, 5 * n, n);
    this.#info = info;
    this.#documents.clear();
    this.#hide();
    this.#legend();
    this.#paint(this.#colour);
  }

  async #begin() {
    try {
      await this.#store.beginMap();
      await this.#load();
    } catch (error) {
      this.#page.failed(error);
    }
  }

  #state({ map, points, status, progress, detail, waiting }) {
    const drawn = Boolean(map && points);
    $("map-drawn").hidden = !drawn;
    $("map-invite").hidden = drawn;
    const running = status === "running";
    const share = Math.round(100 * progress);
    const later = waiting ? ` ${count(waiting, "document")} will be on the next map.` : "";
    $("map-state").textContent = running ? `A new map is being computed: ${share} %.${later}` : `${count(points, "document")}.${later}`;
    if (drawn) return this.#draw();
    const empty = map && !points && !running;
    $("map-lead").textContent = empty ? "A map of your documents." : running ? "Drawing the map …" : "There is no map.";
    $("map-advice").textContent = empty ? "Similar documents will stand near each other here. Learn some first." : running ? "Every document is compared with all others: seconds for thousands, a minute for a hundred thousand." : (detail ?? "");
    $("map-progress").hidden = !running;
    $("map-progress").style.setProperty("--part", progress);
    $("map-progress").ariaValueNow = String(share);
    $("map-begin").hidden = running || empty;
    $("map-link").hidden = !empty;
    $("map-link").href = this.#page.address("tag");
  }

  // Colours.

  #legend() {
    const rows = this.#info.labels.map(({ label, documents }, i) => {
      const dot = element("i", "");
      dot.style.setProperty("--of", `var(--map-${i})`);
      const button = element("button", "", dot, show(label), element("span", number(documents)));
      button.addEventListener("click", () => this.#go(this.#label === label ? null : label));
      return Object.assign(element("li", "", button), { label });
    });
    $("map-legend").replaceChildren(...rows);
  }

  #paint(colour) {
    this.#colour = colour;
    const labels = colour === "label";
    for (const button of $("map").querySelectorAll("[data-colour]")) button.ariaPressed = String(button.dataset.colour === colour);
    $("map-ramp").hidden = labels;
    $("map-legend").hidden = !labels;
    $("map-meaning").textContent = labels ? "The most frequent labels; of several, the colour is that of the rarest." : "Doubtful: the most similar documents have other labels.";
    if (!this.#codes) return;
    // Points without a colour below all others, the doubtful ones on top.
    const ranks = Uint8Array.from({ length: 256 }, (_, key) => (key === NONE ? 0 : key + 1));
    this.#points.colour(labels ? this.#codes : this.#doubt, ranks);
    this.#palette = null;
    this.#draw();
  }

  /** Read the colours of the theme. */
  #colours() {
    const probe = element("i", "");
    $("map").append(probe);
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    };
    const none = read("map-none");
    const [low, high] = [read("map-low"), read("map-high")];
    const of = (key) => {
      if (key === NONE) return none;
      if (this.#colour === "label") return key < 9 ? read(`map-${key}`) : none;
      return low.map((part, i) => Math.round(part + (high[i] - part) * (key / RAMP)));
    };
    const keys = Array.from({ length: 256 }, (_, key) => key);
    this.#palette = { palette: keys.map(of), paper: read("sheet"), accent: read("map-chosen"), ink: read("ink") };
    probe.remove();
    return this.#palette;
  }

  #go(label) {
    this.#page.go("map", label ? { label } : {});
  }

  /** Let the points of a label stand out. */
  async #choose() {
    const label = this.#label;
    for (const row of $("map-legend").children) row.firstElementChild.ariaPressed = String(row.label === label);
    $("map-chosen").hidden = !label;
    if (!label) this.#chosen = null;
    else {
      const answer = await this.#choosing((signal) => this.#store.mapCarriers(this.#info.map, label, signal));
      if (!answer) return;
      this.#chosen = Uint32Array.from(answer.points);
      show(label, $("map-chosen").querySelector("bdi"));
      $("map-chosen").querySelector("span").textContent = count(this.#chosen.length, "document");
      say(`${nameOf(label)}: ${count(this.#chosen.length, "document")}`);
    }
    this.#draw();
  }

  // Where things are.

  /** The map on the screen: a point is at x·scale − left. */
  get #at() {
    const { clientWidth: width, clientHeight: height } = $("map-stage");
    const { x, y, zoom } = this.#view;
    const scale = 0.94 * Math.min(width, height) * zoom;
    return { width, height, scale, left: x * scale - width / 2, top: y * scale - height / 2 };
  }

  get #radius() {
    const { n } = this.#points;
    return Math.min(9, Math.max(1.1, 11 / Math.max(n, 1) ** 0.2) * this.#view.zoom ** 0.35);
  }

  /** Where on the map a place of the screen is. */
  #under(x, y) {
    const { scale, left, top } = this.#at;
    return [(x + left) / scale, (y + top) / scale];
  }

  #move(dx, dy) {
    const { scale } = this.#at;
    const within = (value) => Math.min(1, Math.max(0, value));
    this.#view.x = within(this.#view.x + dx / scale);
    this.#view.y = within(this.#view.y + dy / scale);
    this.#draw();
  }

  /** Zoom around a place of the screen, which stays where it is. */
  #zoom(by, x = $("map-stage").clientWidth / 2, y = $("map-stage").clientHeight / 2) {
    const [u, v] = this.#under(x, y);
    this.#view.zoom = Math.min(MOST, Math.max(0.8, this.#view.zoom * by));
    const { scale, left, top } = this.#at;
    this.#move(u * scale - left - x, v * scale - top - y);
  }

  #whole() {
    Object.assign(this.#view, { x: 0.5, y: 0.5, zoom: 1 });
    this.#draw();
  }

  #key(event) {
    if (event.target !== $("map-stage") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { clientWidth: w, clientHeight: h } = $("map-stage");
    const moves = { ArrowLeft: [-w, 0], ArrowRight: [w, 0], ArrowUp: [0, -h], ArrowDown: [0, h] };
    const zooms = { "+": ZOOM, "=": ZOOM, "-": 1 / ZOOM, "−": 1 / ZOOM };
    if (moves[event.key]) this.#move(...moves[event.key].map((part) => part * STEP));
    else if (zooms[event.key]) this.#zoom(zooms[event.key]);
    else if (event.key === "Home" || event.key === "0") this.#whole();
    else return;
    event.preventDefault();
  }

  // Drawing.

  #draw() {
    if (!this.#open || !this.#info?.points || this.#frame) return;
    this.#rest();
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (!$("map-stage").clientWidth) return;
      const { left, top, scale } = this.#at;
      this.#points.draw({ left, top, scale }, { ...(this.#palette ?? this.#colours()), radius: this.#radius, chosen: this.#chosen });
      this.#drawNames();
      $("map-stage").dataset.view = `${this.#view.x.toFixed(4)} ${this.#view.y.toFixed(4)} ${this.#view.zoom.toFixed(3)}`;
    });
  }

  /** The names of regions, large ones first, where they do not cover each other; the smaller ones when they are near. */
  #drawNames() {
    const canvas = $("map-names");
    const { width, height, left, top, scale } = this.#at;
    const ratio = devicePixelRatio;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const { ink, paper } = this.#palette;
    Object.assign(pen, { textAlign: "center", textBaseline: "middle", lineJoin: "round", lineWidth: 4 });
    pen.strokeStyle = `rgb(${paper} / .85)`.replaceAll(",", " ");
    pen.fillStyle = `rgb(${ink.join(" ")})`;
    const taken = [];
    const serif = getComputedStyle(document.documentElement).getPropertyValue("--serif");
    for (const { label, x, y, cells } of this.#info.regions) {
      if (taken.length >= NAMES) break;
      if (cells > 9 * this.#view.zoom) continue;
      const size = Math.max(11, Math.min(17, 19 - 2 * Math.log2(cells / this.#view.zoom)));
      const [at, over] = [x * scale - left, y * scale - top];
      if (at < 0 || over < 0 || at > width || over > height) continue;
      pen.font = `${cells <= 3 * this.#view.zoom ? 600 : 400} ${size}px ${serif}`;
      const name = nameOf(label);
      const text = name.length > 36 ? `${name.slice(0, 35)}…` : name;
      const half = [pen.measureText(text).width / 2 + 8, size * 0.75 + 3];
      const inside = (value, room, end) => Math.max(Math.min(value, end - room), room); // near an edge, not cut by it
      const [u, v] = [inside(at, half[0], width), inside(over, half[1], height)];
      if (taken.some(([a, b, w, h]) => Math.abs(a - u) < w + half[0] && Math.abs(b - v) < h + half[1])) continue;
      taken.push([u, v, ...half]);
      pen.strokeText(text, u, v);
      pen.fillText(text, u, v);
    }
    Object.assign($("map-stage").dataset, { names: taken.length, inside: taken.every(([u, , half]) => u >= half && (u + half <= width || 2 * half > width)) });
  }

  // Documents.

  /** Documents of points; null if other ones were asked for meanwhile. */
  async #read(points, ask) {
    const missing = points.filter((point) => !this.#documents.has(point));
    if (missing.length) {
      const { map } = this.#info;
      try {
        const answer = await ask((signal) => this.#store.mapDocuments(map, missing, signal));
        if (!answer) return null;
        for (const one of answer.documents) this.#documents.set(one.point, one);
      } catch (error) {
        if (error.away) throw error;
        await this.#load(); // the map has changed
        return null;
      }
    }
    return points.map((point) => this.#documents.get(point)).filter(Boolean);
  }

  #address(id) {
    return this.#page.address("tag", { document: id });
  }

  #about({ labels, doubt }) {
    const names = labels.map(nameOf).join(", ") || "no labels";
    return doubt >= 0.5 ? `${names} · doubt ${percent(doubt)}` : names;
  }

  /** The documents in the middle of the screen, also for those who do not see the map. */
  async #list() {
    const { width, height, scale } = this.#at;
    const points = this.#points.near(this.#view.x, this.#view.y, Math.hypot(width, height) / 2 / scale, MIDDLE);
    try {
      const found = await this.#read(points, this.#listing);
      if (!found) return;
      const rows = found.map((one) => {
        const excerpt = Object.assign(element("p", one.text), { className: "excerpt", dir: "auto" });
        const about = Object.assign(element("p", this.#about(one)), { className: "hint", dir: "auto" });
        return element("li", "", Object.assign(element("a", "", excerpt, about), { href: this.#address(one.id) }));
      });
      $("map-middle").replaceChildren(...(rows.length ? rows : [element("li", "There is nothing here. Move or zoom out.")]));
    } catch (error) {
      this.#page.failed(error, () => this.#list());
    }
  }

  /** Show the document under the pointer; `dock`: at the bottom, with a link. */
  async #look(dock = false) {
    const { point, x, y } = this.#hovered ?? {};
    if (point === undefined) return;
    const found = await this.#read([point], this.#reading).catch(() => null);
    if (!found?.length || this.#hovered?.point !== point) return;
    const about = $("map-about");
    const at = (selector) => about.querySelector(selector);
    at(".excerpt").textContent = found[0].text;
    at(".chips").replaceChildren(...chips(found[0].labels));
    at(".hint").textContent = found[0].doubt === undefined ? "" : `Doubt ${percent(found[0].doubt)}`;
    at("a").href = this.#address(found[0].id);
    about.classList.toggle("docked", dock);
    about.hidden = false;
    about.style.translate = "";
    if (dock) return;
    const { width, height } = this.#at;
    const right = x + 16 + about.offsetWidth < width ? x + 16 : Math.max(0, x - 16 - about.offsetWidth);
    about.style.translate = `${right}px ${Math.max(4, Math.min(y + 12, height - about.offsetHeight - 8))}px`;
  }

  #hide() {
    this.#hovered = null;
    this.#soon.stop();
    this.#reading.drop();
    $("map-about").hidden = true;
    $("map-stage").classList.remove("over-point");
  }

  #pointAt(x, y, reach = REACH) {
    const { scale } = this.#at;
    return this.#points.near(...this.#under(x, y), Math.max(reach, this.#radius) / scale)[0];
  }

  async #openPoint(point) {
    const found = await this.#read([point], this.#reading).catch(this.#page.failed);
    if (found?.length) this.#page.go("tag", { document: found[0].id });
  }

  // Mouse and touch.

  #takePointers(stage) {
    const down = new Map(); // the fingers, or the mouse with its button pressed: id → {x, y}
    let moved = 0;
    const place = (event) => {
      const box = stage.getBoundingClientRect();
      return { x: event.clientX - box.left - stage.clientLeft, y: event.clientY - box.top - stage.clientTop };
    };
    const spread = () => {
      const [a, b] = [...down.values()];
      return { length: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    };
    stage.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest("button, a")) return;
      if (!down.size) moved = 0;
      down.set(event.pointerId, place(event));
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      const here = place(event);
      const before = down.get(event.pointerId);
      if (!before) return event.pointerType === "mouse" && this.#hover(event, here);
      const pinch = down.size === 2 && spread();
      down.set(event.pointerId, here);
      moved += Math.hypot(here.x - before.x, here.y - before.y);
      if (moved < CLICK) return;
      stage.classList.add("moving");
      this.#hide();
      if (!pinch) return this.#move(before.x - here.x, before.y - here.y);
      const now = spread();
      this.#zoom(now.length / Math.max(1, pinch.length), now.x, now.y);
      this.#move(pinch.x - now.x, pinch.y - now.y);
    });
    const up = (event) => {
      if (!down.delete(event.pointerId) || down.size) return;
      stage.classList.remove("moving");
      if (event.type === "pointerup" && moved < CLICK) this.#click(event, place(event));
    };
    for (const kind of ["pointerup", "pointercancel"]) stage.addEventListener(kind, up);
    stage.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#hide());
    stage.addEventListener("dblclick", (event) => {
      const { x, y } = place(event);
      if (!event.target.closest("button, a")) this.#zoom(ZOOM * ZOOM, x, y);
    });
    const wheel = (event) => {
      event.preventDefault();
      const { x, y } = place(event);
      this.#hide();
      this.#zoom(2 ** (-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), x, y);
    };
    stage.addEventListener("wheel", wheel, { passive: false });
  }

  #hover({ target }, { x, y }) {
    if (target.closest("#map-about")) return;
    const point = target.closest("button") ? undefined : this.#pointAt(x, y);
    if (point === undefined) return this.#hide();
    if (this.#hovered?.point === point) return;
    this.#hide();
    this.#hovered = { point, x, y };
    $("map-stage").classList.add("over-point");
    this.#soon();
  }

  #click({ pointerType }, { x, y }) {
    const touch = pointerType === "touch";
    const point = this.#pointAt(x, y, touch ? 2 * REACH : REACH);
    if (point === undefined) return this.#hide();
    if (!touch) return this.#openPoint(point);
    this.#hovered = { point, x, y };
    this.#look(true).catch(this.#page.failed);
  }
}
