// The server's routes. An error is a Problem with the server's message; a 401 asks for a key.

import { $, kept, remember } from "./dom.js";

const KEY = "ripml-key";
let key = kept("sessionStorage", KEY);
let asking = null;

/** An error; `away`: the server is not available; `gone`: not found. */
export class Problem extends Error {
  constructor(status, sentence) {
    super(sentence.charAt(0).toUpperCase() + sentence.slice(1));
    this.away = [0, 502, 503, 504].includes(status);
    this.gone = status === 404;
  }
}

/** One dialog, even if several requests need the key. */
function askKey() {
  asking ??= new Promise((resolve, reject) => {
    const dialog = $("key");
    $("key-wrong").textContent = key ? "The server does not accept this key." : "";
    dialog.returnValue = "";
    dialog.onclose = () => {
      const typed = dialog.returnValue && $("key-value").value.trim();
      $("key-value").value = "";
      asking = null;
      if (!typed) return reject(new Problem(401, "This server requires an API key."));
      kept("sessionStorage", KEY, (key = typed));
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}

/** A body is sent as JSON, a file as it is; `as`: "json", "blob" or "arrayBuffer". */
async function request(method, path, body, signal, as = "json") {
  const used = key;
  const isFile = body instanceof Blob;
  const type = body && { "Content-Type": isFile ? "application/octet-stream" : "application/json" };
  const headers = { ...type, ...(used && { Authorization: `Bearer ${used}` }) };
  let response, answer;
  try {
    response = await fetch(path, { method, headers, signal, body: body && (isFile ? body : JSON.stringify(body)) });
    answer = await (response.ok ? response[as]() : response.json()).catch(() => ({}));
  } catch {
    throw new Problem(0, "The server does not respond. If it was stopped, start it again with ripml serve: this page goes on by itself.");
  }
  if (response.status === 401) {
    if (key === used) await askKey();
    return request(method, path, body, signal, as);
  }
  if (response.ok) return remember(answer.names), answer;
  throw new Problem(response.status, answer.detail || `The server answered ${response.status}.`);
}

export const ready = () => fetch("ready").then((response) => response.ok, () => false);
/** The nodes of an HTML file of the page. */
export async function markup(path) {
  const response = await fetch(path).catch(() => null);
  if (!response?.ok) throw new Problem(response?.status ?? 0, "A part of the page could not be loaded.");
  return document.createRange().createContextualFragment(await response.text());
}

const named = ({ name }) => new URLSearchParams({ name });

export const stores = () => request("GET", "v1/stores");

/** The routes of one store. */
export function store(name) {
  const base = `v1/stores/${encodeURIComponent(name)}`;
  const at = (id) => `${base}/documents/${encodeURIComponent(id)}`;
  const labelAt = (name) => `${base}/labels/${encodeURIComponent(name)}`;
  return {
    name,
    card: () => request("GET", base),
    suggest: (text, n, signal) => request("POST", `${base}/suggest`, n ? { text, n } : { text }, signal),
    explain: (text, n, signal) => request("POST", `${base}/explain`, { text, n: Math.min(n, 100), features: 12 }, signal),
    /** What is known about a document: {id, text, accepted, rejected, complete}. */
    async document(id, signal) {
      const { text, labels, accepted = labels, rejected = [] } = await request("GET", at(id), undefined, signal);
      return { id, text, accepted, rejected, complete: labels.length > 0 };
    },
    /** Replace what is known about a document, or null if it is not in the store; the id. */
    async change(before, after) {
      if (!after) return request("DELETE", at(before.id));
      const { id, text, accepted, rejected, complete } = after;
      const decided = [...accepted, ...rejected];
      const all = (labels) => labels.every((label) => decided.includes(label));
      const keeps = () => before.text === text && before.complete <= complete && all([...before.accepted, ...before.rejected]);
      const adds = decided.length && (!before || keeps());
      const learn = (labels) => request("POST", `${base}/documents`, { documents: [{ id, text, labels }] });
      const decide = async () => (await request("POST", `${base}/decisions`, after)).id;
      if (adds) return decide();
      // A decision is added to earlier ones; to take one back, begin without labels.
      await learn(complete ? accepted : []);
      if (complete || !decided.length) return id;
      return decide().catch(async (error) => {
        if (before) await this.change({ ...after, accepted: [], rejected: [] }, before).catch(() => {});
        throw error;
      });
    },
    documents: (limit) => request("GET", `${base}/documents?limit=${limit}`),
    labels: (prefix, signal, limit = 8) => request("GET", `${base}/labels?limit=${limit}&prefix=${encodeURIComponent(prefix)}`, undefined, signal),
    /** A page of all labels in an order: {labels, total}. */
    browseLabels: (order, start, limit) => request("GET", `${base}/labels?order=${order}&start=${start}&limit=${limit}`),
    label: (name, signal) => request("GET", labelAt(name), undefined, signal),
    merging: (name, into, signal) => request("GET", `${labelAt(name)}/merge?into=${encodeURIComponent(into)}`, undefined, signal),
    addLabel: (name, words) => request("POST", `${base}/labels`, { name, words }),
    /** `what`: "rename", "merge", "retire" or "reinstate". */
    changeLabel: (name, what, body) => request("POST", `${labelAt(name)}/${what}`, body),
    undoLabels: (change) => request("POST", `${base}/labels/undo`, { change }),
    /** The documents of a page: parameters as in the API. */
    search: (query, signal) => request("GET", `${base}/search?${query}`, undefined, signal),
    history: (limit) => request("GET", `${base}/history?limit=${limit}`),
    relabel: (id, labels) => request("PUT", `${at(id)}/labels`, { labels }),
    review: (query, signal) => request("POST", `${base}/review`, query, signal),
    release: (ids) => request("POST", `${base}/review/release`, { ids }),
    audit: (limit) => request("GET", `${base}/audit?limit=${limit}`),
    beginAudit: () => request("POST", `${base}/audit`),
    /** `what`: "accept", "dismiss" or "undo" findings. */
    findings: (what, findings) =>
      request("POST", `${base}/audit/${what}`, { findings: findings.map(({ kind, document, label }) => ({ kind, document, label })) }),
    /** The text of a document. */
    read: async (file) => (await request("POST", `${base}/read?${named(file)}`, file)).text,
    columns: (file) => request("POST", `${base}/table-columns?${named(file)}`, file),
    checkTable: (file, columns, signal) => request("POST", `${base}/check-table?${named(file)}&${new URLSearchParams(columns.map((one) => ["text", one]))}`, file, signal),
    tables: (signal) => request("GET", `${base}/tag`, undefined, signal),
    table: (id, signal) => request("GET", `${base}/tag/${id}`, undefined, signal),
    tagTable(file, columns, n) {
      const words = new URLSearchParams([["name", file.name], ["to", "jsonl"], ...columns.map((one) => ["text", one])]);
      if (n) words.set("n", n);
      return request("POST", `${base}/tag?${words}`, file);
    },
    rows: (id, after, limit, signal) => request("GET", `${base}/tag/${id}/rows?after=${after}&limit=${limit}`, undefined, signal),
    download: (id, to) => request("GET", `${base}/tag/${id}/answers?to=${to}`, undefined, undefined, "blob"),
    dropTable: (id) => request("DELETE", `${base}/tag/${id}`),
    quality: () => request("GET", `${base}/quality`),
    report: (limit) => request("GET", `${base}/report?limit=${limit}`),
    beginReport: () => request("POST", `${base}/report`),
    learningCurve: () => request("GET", `${base}/learning-curve`),
    beginLearningCurve: () => request("POST", `${base}/learning-curve`),
    map: () => request("GET", `${base}/map`),
    beginMap: () => request("POST", `${base}/map`),
    /** Bytes; see the route. */
    mapPoints: (signal) => request("GET", `${base}/map/points`, undefined, signal, "arrayBuffer"),
    mapDocuments(map, points, signal) {
      const query = new URLSearchParams([["map", map], ...points.map((point) => ["point", point])]);
      return request("GET", `${base}/map/documents?${query}`, undefined, signal);
    },
    mapCarriers: (map, label, signal) => request("GET", `${base}/map/carriers?${new URLSearchParams({ map, label })}`, undefined, signal),
    refit: () => request("POST", `${base}/refit`),
    refitting: () => request("GET", `${base}/refit`),
  };
}

/** Only the last request counts: earlier ones give null. */
export function latest() {
  let last;
  const ask = async (call) => {
    last?.abort();
    const { signal } = (last = new AbortController());
    try {
      const answer = await call(signal);
      return signal.aborted ? null : answer;
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  };
  ask.drop = () => last?.abort();
  return ask;
}
