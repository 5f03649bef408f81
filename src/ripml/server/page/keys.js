// Keyboard shortcuts. Letters work outside text fields only, and can be turned off (WCAG 2.1.4).

import { $, element, kept } from "./dom.js";

const OFF = "ripml-letters-off";
const HELP = [
  ["Ctrl Enter", "Suggest now and go to the tags"],
  ["j k", "Next or previous tag (or arrow keys)"],
  ["a", "The tag is right (again: undecided)", "writes"],
  ["x", "The tag is wrong (again: undecided)", "writes"],
  ["Shift A", "Accept all undecided tags", "writes"],
  ["c", "These are all the tags", "writes"],
  ["e", "Evidence for the tag"],
  ["/", "Add a tag", "writes"],
  ["Ctrl S", "Learn", "writes"],
  ["Ctrl Z", "Undo (outside text fields)", "writes"],
  ["t", "Go to the text (Esc: to the tags)"],
  ["n", "New text or next file"],
  ["m", "Model card"],
  ["?", "This help"],
];

/** The Latin letter of a key, on any keyboard. */
function letter({ key, code, shiftKey }) {
  const [, latin] = (key > "~" && /^Key(.)$/.exec(code)) || [];
  return latin ? (shiftKey ? latin : latin.toLowerCase()) : key;
}

export function listen({ suggest, learn, undo, step, escape, letters }) {
  const single = $("single");
  single.checked = !kept("localStorage", OFF);
  single.addEventListener("change", () => kept("localStorage", OFF, single.checked ? null : "yes"));
  for (const [keys, what, writes] of HELP) {
    const row = element("div", "", element("dt", "", ...keys.split(" ").map((key) => element("kbd", key))), element("dd", what));
    row.toggleAttribute("data-writes", Boolean(writes));
    $("keys").append(row);
  }
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const { target } = event;
    const typing = target.matches("textarea, select, input:not([type=checkbox])");
    const key = letter(event);
    let call;
    if (event.ctrlKey || event.metaKey) call = { Enter: suggest, s: learn, z: typing ? null : undo }[key];
    else if (key === "Escape") call = () => escape(target);
    else if (target.closest(".tag") && /^Arrow(Down|Up)$/.test(key)) call = () => step(key === "ArrowDown" ? 1 : -1);
    else if (!typing && single.checked) call = letters[key];
    if (!call) return;
    event.preventDefault();
    call();
  });
}
