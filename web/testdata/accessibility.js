// Accessibility errors of the page, one per line; "" for none.
(() => {
  const found = [], all = (selector) => [...document.querySelectorAll(selector)], name = (e) => e.outerHTML.slice(0, 140);
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getClientRects().length > 0;

  // Painted colors: a canvas parses every color syntax of CSS.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }), known = new Map();
  const rgba = (text) => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const grounds = new Map(); // each element's once, not again for each that it holds
  const ground = (e) => {
    if (!e) return rgba("Canvas");
    if (!grounds.has(e)) grounds.set(e, over(rgba(getComputedStyle(e).backgroundColor), ground(e.parentElement)));
    return grounds.get(e);
  };
  // Relative luminance and contrast of WCAG 2.2.
  const luminance = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (ink, paper) => {
    const [high, low] = [luminance(over(ink, paper)), luminance(paper)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const read = (e, color, what) => {
    const ratio = contrast(rgba(color), ground(e));
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)} of ${what}: ${name(e)}`);
  };
  for (const e of all("body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (text && shown(e) && !e.closest("svg, option")) read(e, getComputedStyle(e).color, "text");
    if (e.placeholder && !e.value && shown(e)) read(e, getComputedStyle(e, "::placeholder").color, "the placeholder");
  }

  // Names, landmarks, order.
  for (const e of all("input:not([type=hidden]), select, textarea")) if (!e.labels.length || !e.labels[0].textContent.trim()) found.push("no label: " + name(e));
  for (const e of all("a[href], button, summary")) if (!(e.textContent.trim() || e.getAttribute("aria-label"))) found.push("no name: " + name(e));
  for (const e of all("nav")) if (!e.getAttribute("aria-label")) found.push("a navigation without a name: " + name(e));
  for (const [selector, n] of [["h1", 1], ["main", 1], ["header", 1]]) if (all(selector).length !== n) found.push(`${all(selector).length} of ${selector}`);
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) found.push("an order of its own: " + name(e));
  if (!document.documentElement.lang) found.push("no language");
  let level = 1;
  for (const e of all("h1, h2, h3, h4")) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) found.push("a heading is skipped before: " + name(e));
    level = next;
  }
  return found.slice(0, 8).join("\n");
})()
