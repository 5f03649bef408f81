// Keyboard shortcuts. Letters work outside text fields only, and can be turned off (WCAG 2.1.4).

import { $, element, kept } from "./dom.js";

const OFF = "ripml-letters-off";

/** The Latin letter of a key, on any keyboard. */
function letter({ key, code, shiftKey }) {
  const [, latin] = (key > "~" && /^Key(.)$/.exec(code)) || [];
  return latin ? (shiftKey ? latin : latin.toLowerCase()) : key;
}

/** Fill the help with [keys, what they do, "writes" if it changes the store]. */
export function describe(lines) {
  const rows = lines.map(([keys, what, writes]) => {
    const row = element("div", "", element("dt", "", ...keys.split(" ").map((key) => element("kbd", key))), element("dd", what));
    row.toggleAttribute("data-writes", Boolean(writes));
    return row;
  });
  $("keys").replaceChildren(...rows);
}

/** `keys()`: what the view that is shown does; {letters, enter, save, undo, step, escape}, all optional. */
export function listen(keys) {
  const single = $("single");
  single.checked = !kept("localStorage", OFF);
  single.addEventListener("change", () => kept("localStorage", OFF, single.checked ? null : "yes"));
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const { target } = event;
    const typing = target.matches("textarea, select, input:not([type=checkbox])");
    const { letters, enter, save, undo, step, escape } = keys();
    const key = letter(event);
    let call;
    if (event.ctrlKey || event.metaKey) call = { Enter: enter, s: save, z: typing ? null : undo }[key];
    else if (key === "Escape") call = escape && (() => escape(target));
    else if (step && target.closest("li") && /^Arrow(Down|Up)$/.test(key)) call = () => step(key === "ArrowDown" ? 1 : -1);
    else if (!typing && single.checked) call = letters[key];
    if (!call) return;
    event.preventDefault();
    call();
  });
}
