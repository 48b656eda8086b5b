// The query editor. The page is complete without this script: it adds the editor, runs a query without a new page, sorts
// results and colors JSON.
(() => {
  "use strict";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const form = find("#query"), text = form.elements.sql, cancel = find("#cancel-query");
  const editor = window.codeEditor(text, {
    language: "sql", label: "SQL", views: JSON.parse(find("#views").textContent),
    run: () => form.requestSubmit(find('button[value="run"]', form)),
  });

  // ---- Run
  let running = null;

  function show(page) { // a response without a result is an error page
    const result = find("#result", page), parameters = find("#parameters", page);
    if (!result) return failed(find("main", page).innerText);
    find("#result").replaceWith(result);
    if (parameters.childElementCount !== find("#parameters").childElementCount) find("#parameters").replaceWith(parameters);
    enhance();
    if (result.getBoundingClientRect().top > innerHeight * 0.8) result.scrollIntoView();
  }

  function failed(message) {
    const alert = document.createElement("p");
    alert.className = "rejected";
    alert.setAttribute("role", "alert");
    alert.textContent = message;
    find("#result").replaceChildren(alert);
  }

  function wait() { // the time since the start, until the response
    const status = document.createElement("p"), began = performance.now();
    status.className = "result-status";
    const write = () => { status.textContent = "Running, " + ((performance.now() - began) / 1000).toFixed(1) + " s"; };
    const timer = setInterval(write, 100);
    write();
    find("#result").replaceChildren(status);
    cancel.hidden = false;
    return () => { clearInterval(timer); cancel.hidden = !running; };
  }

  form.addEventListener("submit", async (event) => {
    const button = event.submitter;
    if (!button || button.name !== "do") return; // downloads and saving are forms
    event.preventDefault();
    if (running) running.abort();
    const own = running = new AbortController(), done = wait();
    try {
      const body = new URLSearchParams(new FormData(form, button));
      const response = await fetch(form.action, { method: "POST", body, signal: own.signal, redirect: "error" });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (running === own) show(page);
    } catch (error) {
      if (running === own) failed(error.name === "AbortError" ? "Canceled." : "No response. Check the connection, then run again.");
    } finally {
      if (running === own) running = null;
      done();
    }
  });
  cancel.addEventListener("click", () => running && running.abort());

  // ---- Result
  const value = (cell) => find(".null", cell) ? null : cell.textContent;
  const compare = {
    number: (a, b) => Number(a) - Number(b), text: (a, b) => a < b ? -1 : a > b ? 1 : 0,
  };

  function sort(th, table) {
    const order = th.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const by = th.classList.contains("number") ? compare.number : compare.text, sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[th.cellIndex]), row]);
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : sign * by(a, b)); // NULL is last
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", order);
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  function sortable(table) {
    for (const th of all("th", table)) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...th.childNodes);
      button.addEventListener("click", () => sort(th, table));
      th.append(button);
    }
  }

  const token = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|(true|false|null)/g;
  function color(pre) {
    const parts = document.createDocumentFragment(), json = pre.textContent;
    let at = 0;
    for (const found of json.matchAll(token)) {
      const span = document.createElement("span");
      span.className = found[2] ? "json-name" : found[1] ? "json-text" : found[3] ? "json-number" : "json-literal";
      span.textContent = found[1] || found[0];
      parts.append(json.slice(at, found.index), span);
      at = found.index + span.textContent.length;
    }
    parts.append(json.slice(at));
    pre.replaceChildren(parts);
    pre.classList.remove("json");
  }
  document.addEventListener("toggle", (event) => { // JSON is colored when it is first unfolded
    const pre = event.target.open && find("pre.json", event.target);
    if (pre) color(pre);
  }, true);

  function enhance() {
    all(".result", find("#result")).forEach(sortable);
    const mistake = find("#result [data-position]");
    // PostgreSQL counts characters, JavaScript UTF-16 units
    editor.mark(mistake ? [...text.value].slice(0, mistake.dataset.position - 1).join("").length : -1);
  }
  enhance();
  if (matchMedia("(max-width: 74rem)").matches) all(".query-side details").forEach((part) => { part.open = false; });
})();
