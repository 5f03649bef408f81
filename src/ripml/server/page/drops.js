// What is dropped anywhere on the page: tables go to the view Tables, other files and texts to Tag.

const TABLE = /\.(csv|tsv|xlsx|xlsm|xlsb|xls|ods|jsonl|ndjson|parquet)(\.gz)?$/i;
export const isTable = ({ name }) => TABLE.test(name);

/** `take(files, text)`; text fields take text themselves. */
export function takeDrops(take) {
  let depth = 0;
  const on = (kind, call) =>
    addEventListener(kind, (event) => {
      const own = event.target.matches?.("textarea, input") && !event.dataTransfer.types.includes("Files");
      if (own || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      call(event.dataTransfer);
      document.body.classList.toggle("over", depth > 0);
    });
  on("dragenter", () => depth++);
  on("dragleave", () => depth--);
  on("dragover", () => {});
  on("drop", (data) => {
    depth = 0;
    take([...data.files], data.getData("text/plain"));
  });
}
