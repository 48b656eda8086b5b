// The dashboard's script. Pages are complete without it. It refreshes them, shows local times, sorts the rows of a page,
// draws tables as charts, copies texts, adds keyboard shortcuts and shows the live tail.
(() => {
  "use strict";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- Refresh: htmx requests the page every few seconds. This prevents it at times and shows the age of the page.
  const asof = find("#asof"), asofText = find("#asof-text"), pause = find("#pause");
  let paused = false;

  function reading() { // a refresh must not remove a selection or input
    const selection = document.getSelection();
    const busy = document.activeElement && document.activeElement.closest("#page form") || find("#page .pick :checked");
    return Boolean(busy) || (selection && !selection.isCollapsed);
  }

  function live(state, text) {
    asof.classList.toggle("live", state === "live");
    asof.classList.toggle("stale", state === "stale");
    if (text) asofText.textContent = text;
  }

  if (pause) {
    pause.hidden = false;
    live("live");
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Resume" : "Pause";
      live(paused ? "" : "live");
    });
    document.addEventListener("htmx:before:request", (event) => {
      if (paused || document.hidden || reading()) event.preventDefault();
    });
    document.addEventListener("visibilitychange", () => { // a hidden tab is not refreshed; a shown one at once
      if (!document.hidden && window.htmx) window.htmx.trigger(find("#page"), "shown");
    });
    document.addEventListener("htmx:before:swap", (event) => {
      const response = event.detail.ctx && event.detail.ctx.response;
      if (response && response.status >= 400) { // keep the last good page
        event.preventDefault();
        live("stale", "not refreshed: status " + response.status);
      }
    });
    document.addEventListener("htmx:after:swap", () => {
      live("live", "as of " + full(new Date(find("#page").dataset.at)));
    });
    document.addEventListener("htmx:error", () => live("stale", "not refreshed: no response"));
  }
  // A search that is in progress replaces the page too.
  document.addEventListener("htmx:before:swap", (event) => {
    for (const task of event.detail.tasks || []) if (task.fragment) prepare(task.fragment);
  });
  document.addEventListener("htmx:after:swap", () => drawAll());

  // ---- Times: the server writes UTC; the browser shows its own zone, with UTC on hover.
  const two = (n) => String(n).padStart(2, "0");
  const clock = (d) => two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds());
  const full = (d) => d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + clock(d);
  const month = new Intl.DateTimeFormat("en", { month: "short" });
  function short(d) {
    const day = month.format(d) + " " + d.getDate();
    return d.getFullYear() === new Date().getFullYear() ? day + " " + clock(d) : day + ", " + d.getFullYear();
  }

  function localTimes(root) {
    for (const time of all("time", root)) {
      const moment = new Date(time.dateTime), long = find(".absolute, .date", time), brief = find(".short", time);
      if (long) long.textContent = full(moment);
      if (brief) brief.textContent = short(moment);
    }
  }

  // ---- Sort: the rows of the page by a column. The order of the whole list is the server's.
  const sorts = new Map(); // by list: the label of the column, and whether it is descending
  const units = { kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };

  function sortValue(cell) {
    const time = find("time", cell), text = cell.textContent.trim();
    if (time) return time.dateTime;
    const number = cell.classList.contains("number") && /^([\d.,]+) ?([kMGT]B)?/.exec(text);
    return number ? Number(number[1].replaceAll(",", "")) * (units[number[2]] || 1) : text.toLowerCase();
  }

  function sortRows(table) {
    const { label, down } = sorts.get(table.dataset.list) || {}, heads = [...table.tHead.rows[0].cells];
    for (const head of heads) {
      if (head.textContent && !head.firstElementChild) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.title = "Sort this page";
        button.append(...head.childNodes);
        head.append(button);
      }
      if (label && head.textContent.trim() === label) head.ariaSort = down ? "descending" : "ascending";
      else if (label) head.removeAttribute("aria-sort");
    }
    const at = heads.findIndex((head) => head.textContent.trim() === label);
    if (!label || at < 0) return;
    const order = (a, b) => a < b ? -1 : Number(a > b);
    const rows = [...table.tBodies[0].rows].map((row) => [sortValue(row.cells[at]), row]);
    rows.sort(([a], [b]) => (down ? -1 : 1) * order(a, b));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button.sort");
    if (!button) return;
    const table = button.closest("table"), label = button.textContent.trim(), before = sorts.get(table.dataset.list);
    sorts.set(table.dataset.list, { label, down: Boolean(before) && before.label === label && !before.down });
    sortRows(table);
  });

  // A text that is cut off is shown on hover.
  document.addEventListener("mouseover", (event) => {
    const cut = event.target.closest && event.target.closest(".lines .cut > div");
    if (cut && cut.scrollWidth > cut.clientWidth) cut.title = cut.innerText;
  });

  // ---- Charts: drawn from their tables.
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plots = new Map();

  function columns(table) {
    const rows = all("tbody tr", table), number = (text) => text === "" ? null : Number(text);
    const data = [rows.map((row) => Number(row.dataset.t))];
    for (let i = 1; i < table.tHead.rows[0].cells.length; i++) data.push(rows.map((row) => number(row.cells[i].textContent)));
    return data;
  }

  // Stacked bars: each series is the sum of those up to it.
  const stacked = (data) => data.map((values, i) => i < 2 ? values :
    values.map((_, at) => data.slice(1, i + 1).reduce((sum, each) => sum + each[at], 0)));

  function shown(v, unit) {
    if (v === null || v === undefined) return "–";
    if (unit !== "ms") return v.toLocaleString("en") + unit;
    return v >= 1000 ? (v / 1000).toFixed(2) + " s" : v.toFixed(v < 10 ? 1 : 0) + " ms";
  }

  function axisText(v, unit) {
    if (unit === "ms") return v >= 1000 ? v / 1000 + " s" : v + " ms";
    if (!Number.isInteger(v)) return "";
    return (v >= 10000 ? v / 1000 + " k" : String(v)) + (v === 0 ? "" : unit);
  }

  // A point with a gap on both sides has no line and is drawn as a dot.
  const isolated = (u, seriesIndex) => {
    const values = u.data[seriesIndex], gap = (at) => values[at] === null || values[at] === undefined;
    return [...values.keys()].filter((at) => !gap(at) && gap(at - 1) && gap(at + 1));
  };

  const heightOf = (chart) => chart.closest(".compact") ? 130 : 200;
  const newest = (u) => u.setLegend({ idx: u.data[0].length - 1 }, false);

  function draw(chart) {
    const table = find(".numbers", chart.parentElement);
    if (!table || !window.uPlot) return;
    const data = columns(table), { form, unit } = table.dataset, bars = form === "bars";
    const heads = [...table.tHead.rows[0].cells].slice(1), names = heads.map((th) => th.textContent).join("|");
    const old = plots.get(chart), values = bars ? stacked(data) : data;
    if (data[0].length === 0) return;
    if (old && chart.firstChild && chart.dataset.names === names) {
      old.raw = data;
      old.setData(values);
      if (old.cursor.idx === null || old.cursor.idx === undefined) newest(old);
      return;
    }
    if (old) old.destroy();
    const step = data[0].length > 1 ? data[0][1] - data[0][0] : 60;
    const series = heads.map((th, i) => {
      const stroke = color("--" + th.dataset.color);
      return {
        label: th.textContent, stroke, points: { show: false, size: 6, fill: stroke, filter: isolated }, spanGaps: false,
        value: (u, _, s, at) => shown(at === null || at === undefined ? null : u.raw[s][at], unit),
        ...(bars ? { fill: stroke, width: 0, paths: window.uPlot.paths.bars({ size: [0.86, 40], align: 1 }) }
          : { width: 1.75, fill: i === (unit === "ms" ? -1 : 1) ? stroke + "22" : undefined }),
      };
    });
    const axis = {
      stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const tick = (seconds, form) => [seconds, form, null, null, null, null, null, null, 1];
    const day = step > 3600 ? "{WWW} {D}" : "{HH}:{mm}";
    const options = {
      width: chart.clientWidth, height: heightOf(chart), tzDate: (t) => window.uPlot.tzDate(new Date(t * 1000), "UTC"),
      cursor: { y: false, points: { size: 6 } },
      scales: {
        x: { range: (_, low, high) => [low, high + (bars ? step : 0)] },
        y: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] },
      },
      axes: [
        { ...axis, size: 30, values: [tick(86400, day), tick(60, "{HH}:{mm}"), tick(1, "{HH}:{mm}:{ss}")] },
        { ...axis, size: 14 + 7 * Math.max(5, unit.length + 3), values: (_, ticks) => ticks.map((v) => axisText(v, unit)) },
      ],
      series: [{ label: "UTC", value: step > 3600 ? "{WWW} {D} {HH}:{mm}" : "{HH}:{mm}" }, ...series],
      drawOrder: ["axes", "series"],
      // Away from the chart, the legend shows the newest step.
      hooks: { setLegend: [(u) => { if (u.legend.idx === null || u.legend.idx === undefined) newest(u); }], ready: [newest] },
    };
    const plot = (shownData) => {
      const made = new window.uPlot(options, shownData);
      made.raw = data;
      return made;
    };
    if (bars) { // uPlot draws in order: the highest sums first; the values of the legend are reversed with them
      options.series = [options.series[0], ...series.slice().reverse().map((each) => ({ ...each }))];
      const reverse = (list) => [list[0], ...list.slice(1).reverse()];
      const made = plot(reverse(values));
      made.raw = reverse(data);
      const setData = made.setData.bind(made);
      Object.defineProperty(made, "setData", { value: (fresh, ...more) => {
        made.raw = reverse(made.raw);
        setData(reverse(fresh), ...more);
      } });
      place(chart, made, names);
    } else {
      place(chart, plot(values), names);
    }
  }

  function place(chart, plot, names) {
    chart.replaceChildren(plot.root);
    chart.dataset.names = names;
    plots.set(chart, plot);
  }

  const drawAll = () => all(".chart").forEach(draw);
  const widths = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const plot = plots.get(target);
      const width = Math.floor(contentRect.width);
      if (plot && width > 0 && plot.width !== width) plot.setSize({ width, height: heightOf(target) });
    }
  });
  all(".chart").forEach((chart) => widths.observe(chart));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { // other colors
    for (const plot of plots.values()) plot.destroy();
    plots.clear();
    drawAll();
  });

  // ---- Copy
  function copies(root) {
    if (!navigator.clipboard) return;
    for (const button of all(".copy[hidden]", root)) button.hidden = false;
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // ---- Check-boxes of rows: how many are checked.
  document.addEventListener("change", (event) => {
    const picked = event.target.closest(".pick") && find(".picked");
    if (!picked) return;
    const n = all(".pick :checked").length;
    picked.textContent = n ? n + " checked" : "";
  });

  // ---- Keyboard: j and k move along the rows of a list, whose links have the focus.
  const help = find("#keys"), stored = "postrider-shortcuts", finder = find("#find");
  const shortcuts = () => localStorage.getItem(stored) !== "off";

  function move(step) {
    const rows = all("#page .lines tbody tr"), at = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + step))];
    if (!row) return;
    const link = find("td:not(.pick) a", row) || row;
    if (link === row) row.tabIndex = -1; // rows without a page
    link.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    x() {
      const row = document.activeElement.closest("tr"), box = row && find(".pick input", row);
      if (box) box.click();
    },
    "/": () => (find("#page input[name=search]") || find("#page input[type=search]") || finder).focus(),
    "?": () => help.showModal(),
  };

  if (finder) {
    const opener = find("#keys-open"), choice = find("#keys-on");
    opener.hidden = false;
    choice.checked = shortcuts();
    choice.addEventListener("change", () => localStorage.setItem(stored, choice.checked ? "on" : "off"));
    opener.addEventListener("click", keys["?"]);
    find("#keys-close").addEventListener("click", () => help.close());
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        finder.focus();
        finder.select();
        return;
      }
      const target = event.composedPath()[0]; // also of an editor in a shadow root
      const typing = target.closest("input:not([type=checkbox]), select, textarea, [contenteditable], dialog");
      const key = Object.hasOwn(keys, event.key) && keys[event.key];
      if (!key || typing || event.ctrlKey || event.metaKey || event.altKey || !shortcuts()) return;
      event.preventDefault();
      key();
    });
  }

  // ---- Live tail: messages are inserted as text.
  const mostRows = 500;
  function follow(tail) {
    const rows = find("#tail-rows"), state = find("#tail-state"), hold = find("#tail-pause"), held = [];
    let stopped = false;
    tail.hidden = false;
    const cell = (label, className, ...children) => {
      const td = document.createElement("td"), text = document.createElement("div"), cut = document.createElement("div");
      td.dataset.label = label;
      td.className = className;
      text.append(...children.filter(Boolean));
      cut.className = "cut";
      cut.append(text);
      td.append(...(className ? [cut] : text.childNodes));
      return td;
    };
    const element = (name, text, className) => {
      if (!text) return null;
      const e = document.createElement(name);
      e.textContent = text;
      if (className) e.className = className;
      return e;
    };
    const add = (m) => {
      find("#tail-empty").hidden = true;
      const tr = document.createElement("tr"), link = element("a", m.event || m.kind);
      link.href = m.href;
      tr.append(cell("Time (UTC)", "", element("span", m.at)),
        cell("Result", "", element("span", m.label, "badge " + m.tone)), cell("Topic", "long", element("span", m.where)),
        cell("Event", "long", link, element("small", m.type)),
        cell("Details", "long wide", element("span", m.what || m.subject)));
      rows.prepend(tr);
      while (rows.children.length > mostRows) rows.lastChild.remove();
    };
    const source = new EventSource(tail.dataset.stream);
    source.onopen = () => { state.textContent = "Following."; };
    source.onerror = () => { state.textContent = "Server unavailable. Reconnecting …"; };
    source.addEventListener("busy", () => { state.textContent = "This node runs many searches. Retrying …"; });
    source.addEventListener("unavailable", () => { state.textContent = "Database unavailable. Retrying …"; });
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (!stopped) { add(message); state.textContent = "Following."; return; }
      held.push(message);
      if (held.length > mostRows) held.shift();
      state.textContent = held.length + " new while paused.";
    };
    hold.addEventListener("click", () => {
      stopped = !stopped;
      hold.setAttribute("aria-pressed", String(stopped));
      hold.textContent = stopped ? "Resume" : "Pause";
      state.textContent = stopped ? "Paused." : "Following.";
      if (!stopped) held.splice(0).forEach(add);
    });
    find("#tail-clear").addEventListener("click", () => rows.replaceChildren());
  }

  // Before a refresh replaces the page, its fragment is prepared too, so that nothing flickers.
  function prepare(root) {
    localTimes(root);
    all("table[data-list]", root).forEach(sortRows);
    copies(root);
  }
  prepare(document);
  drawAll();
  const tail = find("#tail");
  if (tail) { // after the load event, or the browser would show the page as loading
    if (document.readyState === "complete") follow(tail);
    else addEventListener("load", () => setTimeout(() => follow(tail)));
  }
})();
