// Points on a canvas: drawn by the processor into an image, round and half transparent. A hundred thousand take some
// milliseconds, on machines without a graphics processor as well, and there is one way only that has to be right.

const SIDE = 65535; // steps of a side of the map
const CELLS = 256; // a side has so many cells, in which the points near the pointer are looked for
const MOST = 4e6; // pixels of the image; larger canvases are drawn less sharply
const OPAQUE = 256;

export class Points {
  #canvas;
  #context;
  #image = null;
  #words = null; // the image, a word a pixel
  #order = null; // points in the order in which they are drawn
  #keys = null; // the place of each point's colour in the palette
  #cellStarts = new Uint32Array(CELLS * CELLS + 1);
  #inCells = null;
  n = 0;
  x = null; // Uint16Array
  y = null;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d", { alpha: false });
  }

  /** The points, from 0 to 65,535 both ways. */
  set(x, y) {
    Object.assign(this, { x, y, n: x.length });
    const starts = this.#cellStarts.fill(0);
    const cell = (i) => ((y[i] * CELLS) >> 16) * CELLS + ((x[i] * CELLS) >> 16);
    for (let i = 0; i < this.n; i++) starts[cell(i) + 1]++;
    for (let c = 0; c < CELLS * CELLS; c++) starts[c + 1] += starts[c];
    const next = starts.slice();
    this.#inCells = new Uint32Array(this.n);
    for (let i = 0; i < this.n; i++) this.#inCells[next[cell(i)]++] = i;
  }

  /** The colour of each point; `ranks`: colours of higher ranks are drawn over those of lower ones. */
  colour(keys, ranks) {
    this.#keys = keys;
    const starts = new Uint32Array(257);
    for (let i = 0; i < this.n; i++) starts[ranks[keys[i]] + 1]++;
    for (let k = 0; k < 256; k++) starts[k + 1] += starts[k];
    this.#order = new Uint32Array(this.n);
    for (let i = 0; i < this.n; i++) this.#order[starts[ranks[keys[i]]]++] = i;
  }

  /** Take the size of the canvas on the screen; pixels of the image for one of the page. */
  resize() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const ratio = Math.min(devicePixelRatio, Math.sqrt(MOST / Math.max(1, width * height)));
    const [w, h] = [width, height].map((size) => Math.max(1, Math.round(size * ratio)));
    if (this.#image?.width === w && this.#image.height === h) return ratio;
    Object.assign(this.#canvas, { width: w, height: h });
    this.#image = this.#context.createImageData(w, h);
    this.#words = new Uint32Array(this.#image.data.buffer);
    return ratio;
  }

  /**
   * Draw. `view`: {left, top, scale}, a point is at (x/65535)·scale − left in pixels of the page; `palette`: [r, g, b] of
   * each key; `chosen`: points that stand out in the colour `accent`, the others then have that of key 255; or null.
   */
  draw({ left, top, scale }, { radius, palette, paper, accent, chosen = null }) {
    const ratio = this.resize();
    const { width, height, data } = this.#image;
    this.#words.fill((OPAQUE - 1) << 24 | paper[2] << 16 | paper[1] << 8 | paper[0]);
    const place = { x: -left * ratio, y: -top * ratio, by: (scale * ratio) / SIDE };
    const opacity = this.n > 20000 ? 0.7 : 0.85;
    const plain = stamp(radius * ratio, opacity, width);
    const one = chosen ? () => palette[255] : (i) => palette[this.#keys[i]];
    this.#blend(this.#order, one, plain, place, data, width, height);
    if (chosen) this.#blend(chosen, () => accent, stamp((radius + 0.6) * ratio, 0.95, width), place, data, width, height);
    this.#context.putImageData(this.#image, 0, 0);
  }

  #blend(points, colour, { reach, offsets, shares }, place, data, width, height) {
    const { x, y } = this;
    const [right, bottom] = [width - reach - 1, height - reach - 1];
    for (let p = 0; p < points.length; p++) {
      const i = points[p];
      const px = Math.round(x[i] * place.by + place.x);
      const py = Math.round(y[i] * place.by + place.y);
      if (px < reach || py < reach || px > right || py > bottom) continue;
      const [r, g, b] = colour(i);
      const at = (py * width + px) << 2;
      for (let s = 0; s < offsets.length; s++) {
        const o = at + offsets[s];
        const a = shares[s];
        data[o] += ((r - data[o]) * a) >> 8;
        data[o + 1] += ((g - data[o + 1]) * a) >> 8;
        data[o + 2] += ((b - data[o + 2]) * a) >> 8;
      }
    }
  }

  /** The `most` points nearest to a place of the map, from 0 to 1, within a distance; the nearest first. */
  near(x, y, distance, most = 1) {
    const cellOf = (v) => Math.min(CELLS - 1, Math.max(0, Math.floor(v * CELLS)));
    const [u, v, d] = [x * SIDE, y * SIDE, distance * SIDE];
    const found = [];
    for (let row = cellOf(y - distance); row <= cellOf(y + distance); row++)
      for (let column = cellOf(x - distance); column <= cellOf(x + distance); column++) {
        const cell = row * CELLS + column;
        for (let p = this.#cellStarts[cell]; p < this.#cellStarts[cell + 1]; p++) {
          const i = this.#inCells[p];
          const square = (this.x[i] - u) ** 2 + (this.y[i] - v) ** 2;
          if (square <= d * d) found.push([square, i]);
        }
      }
    found.sort(([a, i], [b, j]) => a - b || i - j);
    return found.slice(0, most).map(([, i]) => i);
  }
}

/** The pixels of a disc around its middle, as offsets into an image of this width, and how much each one covers. */
function stamp(radius, opacity, width) {
  const reach = Math.ceil(radius);
  const [offsets, shares] = [[], []];
  for (let dy = -reach; dy <= reach; dy++)
    for (let dx = -reach; dx <= reach; dx++) {
      const share = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(dx, dy)));
      if (share < 0.05) continue;
      offsets.push((dy * width + dx) << 2);
      shares.push(Math.round(share * opacity * OPAQUE));
    }
  return { reach, offsets: Int32Array.from(offsets), shares: Int32Array.from(shares) };
}
