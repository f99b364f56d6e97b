// The table of runs: filter by words, sort by a heading, and the command for a report of what is left.
(() => {
  const table = document.getElementById("runs");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const words = document.getElementById("words");
  const shown = document.getElementById("shown");
  const together = document.getElementById("together");

  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
    let count = 0;
    for (const row of rows) {
      const text = texts.get(row);
      row.hidden = !wanted.every((word) => (word[0] === "-" ? !text.includes(word.slice(1)) : text.includes(word)));
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${rows.length}`;
    together.hidden = count === 0;
  }
  words.addEventListener("input", filter);
  const asked = new URLSearchParams(location.hash.slice(1));
  words.value = asked.get("words") ?? "";
  filter();

  const key = (row, n) => row.cells[n].dataset.sort ?? row.cells[n].textContent.trim();
  const order = new Intl.Collator("en", { numeric: true });
  function sort(n, up) {
    const number = table.tHead.rows[0].cells[n].classList.contains("number");
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "") || 0;
      const sign = up ? 1 : -1;
      return sign * (number ? Number(a) - Number(b) : order.compare(a, b));
    };
    body.append(...[...rows].sort((a, b) => compare(key(a, n), key(b, n))));
    [...table.tHead.rows[0].cells].forEach((cell, m) => {
      if (m === n) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }
  [...table.tHead.rows[0].cells].forEach((cell, n) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    cell.dataset.text = cell.textContent;
    cell.replaceChildren(button);
    const first = !["best", "last"].includes(cell.dataset.text);
    button.addEventListener("click", () => {
      const now = cell.getAttribute("aria-sort");
      sort(n, now ? now === "descending" : first);
    });
  });

  together.addEventListener("click", () => {
    const paths = [...body.rows].filter((row) => !row.hidden).map((row) => row.dataset.path);
    document.dispatchEvent(new CustomEvent("copy-text", { detail: [`undrift report ${paths.join(" ")}`, "the command"] }));
  });
})();
