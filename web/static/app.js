// The dashboard's script. Pages are complete without it. It refreshes them, draws their tables as charts, copies commands
// and shows the live tail.
(() => {
  "use strict";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- Refresh: htmx requests the page every few seconds. This prevents it at times and shows the age of the page.
  const asof = find("#asof"), asofText = find("#asof-text"), pause = find("#pause");
  let paused = false;

  function reading() { // a refresh must not remove a selection or input
    const selection = document.getSelection();
    const busy = document.activeElement && document.activeElement.closest("#page form");
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
    document.addEventListener("htmx:before:swap", (event) => {
      const response = event.detail.ctx && event.detail.ctx.response;
      if (response && response.status >= 400) { // keep the last good page
        event.preventDefault();
        live("stale", "not refreshed: status " + response.status);
      }
    });
    document.addEventListener("htmx:after:swap", () => {
      live("live", "as of " + find("#page").dataset.at);
      enhance();
    });
    document.addEventListener("htmx:error", () => live("stale", "not refreshed: no response"));
  }

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
    if (unit !== "ms") return v.toLocaleString("en");
    return v >= 1000 ? (v / 1000).toFixed(2) + " s" : v.toFixed(v < 10 ? 1 : 0) + " ms";
  }

  function axisText(v, unit) {
    if (unit === "ms") return v >= 1000 ? v / 1000 + " s" : v + " ms";
    if (!Number.isInteger(v)) return "";
    return v >= 10000 ? v / 1000 + " k" : String(v);
  }

  // A point with a gap on both sides has no line and is drawn as a dot.
  const isolated = (u, seriesIndex) => {
    const values = u.data[seriesIndex], gap = (at) => values[at] === null || values[at] === undefined;
    return [...values.keys()].filter((at) => !gap(at) && gap(at - 1) && gap(at + 1));
  };

  function draw(chart) {
    const table = find(".numbers", chart.parentElement);
    if (!table || !window.uPlot) return;
    const data = columns(table), { form, unit } = table.dataset, bars = form === "bars";
    const heads = [...table.tHead.rows[0].cells].slice(1), names = heads.map((th) => th.textContent).join("|");
    const old = plots.get(chart), values = bars ? stacked(data) : data;
    if (data[0].length === 0) return;
    if (old && chart.firstChild && chart.dataset.names === names) { old.raw = data; old.setData(values); return; }
    if (old) old.destroy();
    const step = data[0].length > 1 ? data[0][1] - data[0][0] : 60;
    const series = heads.map((th, i) => {
      const stroke = color("--" + th.dataset.color);
      return {
        label: th.textContent, stroke, points: { show: false, size: 6, fill: stroke, filter: isolated }, spanGaps: false,
        value: (u, _, s, at) => shown(at === null || at === undefined ? null : u.raw[s][at], unit),
        ...(bars ? { fill: stroke, width: 0, paths: window.uPlot.paths.bars({ size: [0.86, 40], align: 1 }) }
          : { width: 1.75, fill: i === (unit ? -1 : 1) ? stroke + "22" : undefined }),
      };
    });
    const axis = {
      stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const tick = (seconds, form) => [seconds, form, null, null, null, null, null, null, 1];
    const day = step > 3600 ? "{WWW} {D}" : "{HH}:{mm}";
    const options = {
      width: chart.clientWidth, height: 200, tzDate: (t) => window.uPlot.tzDate(new Date(t * 1000), "UTC"),
      cursor: { y: false, points: { size: 6 } },
      scales: {
        x: { range: (_, low, high) => [low, high + (bars ? step : 0)] },
        y: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] },
      },
      axes: [
        { ...axis, size: 30, values: [tick(86400, day), tick(60, "{HH}:{mm}"), tick(1, "{HH}:{mm}:{ss}")] },
        { ...axis, size: 52, values: (_, ticks) => ticks.map((v) => axisText(v, unit)) },
      ],
      series: [{ label: "UTC", value: step > 3600 ? "{WWW} {D} {HH}:{mm}" : "{HH}:{mm}" }, ...series],
      drawOrder: ["axes", "series"],
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
      if (plot && width > 0 && plot.width !== width) plot.setSize({ width, height: 200 });
    }
  });
  all(".chart").forEach((chart) => widths.observe(chart));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { // other colors
    for (const plot of plots.values()) plot.destroy();
    plots.clear();
    drawAll();
  });

  // ---- Copy
  function copies() {
    if (!navigator.clipboard) return;
    for (const button of all(".copy[hidden]")) button.hidden = false;
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    await navigator.clipboard.writeText(find("pre", button.parentElement).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // ---- Live tail: messages are inserted as text.
  const mostRows = 500;
  function follow(tail) {
    const rows = find("#tail-rows"), state = find("#tail-state"), hold = find("#tail-pause"), held = [];
    let stopped = false;
    tail.hidden = false;
    const cell = (label, ...children) => {
      const td = document.createElement("td");
      td.dataset.label = label;
      td.append(...children.filter(Boolean));
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
      tr.append(cell("Time (UTC)", element("span", m.at)), cell("Result", element("span", m.label, "badge " + m.tone)),
        cell("Topic", element("span", m.where)), cell("Event", link, element("small", m.type)),
        cell("Details", element("span", m.what || m.subject)));
      rows.prepend(tr);
      while (rows.children.length > mostRows) rows.lastChild.remove();
    };
    const source = new EventSource(tail.dataset.stream);
    source.onopen = () => { state.textContent = "Following."; };
    source.onerror = () => { state.textContent = "Server unavailable. Reconnecting …"; };
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

  const current = find(".site [aria-current]"), strip = current && current.closest("nav");
  if (strip && strip.scrollWidth > strip.clientWidth) strip.scrollLeft = current.offsetLeft - strip.clientWidth / 2;

  function enhance() { drawAll(); copies(); }
  enhance();
  const tail = find("#tail");
  if (tail) { // after the load event, or the browser would show the page as loading
    if (document.readyState === "complete") follow(tail);
    else addEventListener("load", () => setTimeout(() => follow(tail)));
  }
})();
