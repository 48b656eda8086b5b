// Violations of the page by axe-core, one per line; rules are those to check, all by default. It does not check
// placeholders, so they become values for a moment. The figures of a chart have one style, and so have the columns of a
// view: the first ones are checked.
(async (...rules) => {
  const empty = [...document.querySelectorAll("textarea[placeholder], :is([type=text], [type=search], [type=url])[placeholder]")].filter((field) => !field.value);
  for (const field of empty) {
    const { color, opacity } = getComputedStyle(field, "::placeholder");
    field.value = field.placeholder;
    field.style.color = `color-mix(in srgb, ${color} ${opacity * 100}%, transparent)`;
  }
  const { violations } = await axe.run(
    { exclude: [".numbers tr:nth-child(n + 4)", ".view-columns div:nth-child(n + 3)"] },
    { resultTypes: ["violations"], ...(rules.length && { runOnly: rules }) },
  );
  for (const field of empty) field.value = field.style.color = "";
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.target}: ${node.failureSummary}`)).join("\n");
})
