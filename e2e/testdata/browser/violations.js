// Violations of the page by axe-core, one per line; rules are those to check, all by default. It does not check
// placeholders, so they become values for a moment. Rows of one list with the same elements, classes and attributes have
// the same style: only the first and the longest remain.
(async (...rules) => {
  const shape = (row) => [row, ...row.querySelectorAll("*")]
    .map((e) => [e.tagName, e.className, e.getAttributeNames(), e.textContent === ""].join()).join(" ");
  for (const list of document.querySelectorAll("tbody, ul, ol, dl, .view-columns")) {
    for (const rows of Map.groupBy(list.children, shape).values()) {
      const longest = rows.reduce((a, b) => (b.textContent.length > a.textContent.length ? b : a));
      for (const row of rows.slice(1)) if (row !== longest) row.remove();
    }
  }
  const empty = [...document.querySelectorAll("textarea[placeholder], :is([type=text], [type=search], [type=url])[placeholder]")].filter((field) => !field.value);
  for (const field of empty) {
    const { color, opacity } = getComputedStyle(field, "::placeholder");
    field.value = field.placeholder;
    field.style.color = `color-mix(in srgb, ${color} ${opacity * 100}%, transparent)`;
  }
  const { violations } = await axe.run({ resultTypes: ["violations"], ...(rules.length && { runOnly: rules }) });
  for (const field of empty) field.value = field.style.color = "";
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.target}: ${node.failureSummary}`)).join("\n");
})
