"use strict";
// What all pages share: light and dark, and copying of commands and tables.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const changed = () => document.dispatchEvent(new Event("themechange"));
  const kept = { get: () => { try { return localStorage.getItem("undrift-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("undrift-theme", value); } catch { /* a page without storage */ } } };
  if (["light", "dark"].includes(kept.get())) root.dataset.theme = kept.get();
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    kept.set(root.dataset.theme);
    changed();
  });
  dark.addEventListener("change", changed);

  const said = document.getElementById("said");
  let silence = 0;
  function say(text) {
    said.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { said.textContent = ""; }, 2500);
  }

  // Without permission for the clipboard, browsers still copy what is selected.
  function copySelected(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "away";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  async function copy(text, what) {
    let done = false;
    const before = document.activeElement;
    try { await navigator.clipboard.writeText(text); done = true; } catch { done = copySelected(text); before?.focus(); }
    say(done ? `Copied: ${what}` : "This browser does not allow copying");
    document.dispatchEvent(new CustomEvent("copied", { detail: text }));
  }

  document.addEventListener("copy-text", (event) => copy(...event.detail));

  const plain = (text) => text.replace(/\s+/g, " ").trim();
  // Rows as they are shown: what is filtered out is not copied.
  const texts = (table) => [...table.rows].filter((row) => !row.hidden)
    .map((row) => [...row.cells].map((cell) => cell.dataset.text ?? plain(cell.textContent)));
  const right = (table) => [...table.rows[0].cells].map((cell) => cell.classList.contains("number"));

  const markdown = (table) => {
    const line = (cells) => `| ${cells.map((text) => text.replace(/\\/g, "\\\\").replace(/\|/g, "\\|")).join(" | ")} |`;
    const [head, ...body] = texts(table);
    const rule = `|${right(table).map((number) => (number ? "---:" : "---")).join("|")}|`;
    return `${[line(head), rule, ...body.map(line)].join("\n")}\n`;
  };
  const csv = (table) => {
    const cell = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    return `${texts(table).map((row) => row.map(cell).join(",")).join("\n")}\n`;
  };
  const signs = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$",
    "<": "$<$", ">": "$>$", "×": "$\\times$", "−": "$-$" };
  const latex = (table) => {
    const cell = (text) => text.replace(/[\\~^±<>×−&%$#_{}]/g, (sign) => signs[sign] ?? `\\${sign}`);
    const line = (row) => `  ${row.map(cell).join(" & ")} \\\\`;
    const [head, ...body] = texts(table);
    const columns = right(table).map((number) => (number ? "r" : "l")).join("");
    return ["% needs \\usepackage{booktabs}", `\\begin{tabular}{${columns}}`, "  \\toprule", line(head), "  \\midrule",
      ...body.map(line), "  \\bottomrule", "\\end{tabular}", ""].join("\n");
  };

  function button(label, title, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    made.title = title;
    made.setAttribute("aria-label", title);
    made.addEventListener("click", act);
    return made;
  }

  for (const table of document.querySelectorAll("table")) {
    const bar = document.createElement("div");
    bar.className = "copies";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Copy the table");
    bar.append("Copy as");
    for (const [name, write] of [["Markdown", markdown], ["CSV", csv], ["LaTeX", latex]]) {
      bar.append(button(name, `Copy the table as ${name}`, () => copy(write(table), `the table as ${name}`)));
    }
    table.closest(".scroll").before(bar);
  }
  for (const command of document.querySelectorAll(".command")) {
    const text = command.firstElementChild;
    command.append(button("Copy", "Copy the command", () => copy(text.textContent, "the command")));
  }
})();
