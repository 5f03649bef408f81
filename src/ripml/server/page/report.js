// The file of `ripml report --html`: the data is in the page.

import { $, when } from "./dom.js";
import { Figures } from "./figures.js";

const data = JSON.parse($("data").textContent);
$("made").textContent = `Measured by ripml, ${when(data.made)}`;
new Figures().draw(data);
